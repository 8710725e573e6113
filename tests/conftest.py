"""Fixtures of the whole suite: real models are for tests marked `model`, and for them alone."""

from pathlib import Path

import pytest

from ttc.engine.local.models import find
from ttc.errors import ModelFileError

MODEL = "smollm2-135m"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a real model are skipped, with the reason, where its file is missing."""
    try:
        find(MODEL)
    except ModelFileError as error:
        missing = pytest.mark.skip(reason=str(error))
        for item in items:
            if item.get_closest_marker("model"):
                item.add_marker(missing)


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of ttc without models, caches or runs."""
    return tmp_path_factory.mktemp("ttc-home")


@pytest.fixture(autouse=True)
def no_pulled_model(
    request: pytest.FixtureRequest, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built-in models are out of reach, unless a test is marked `model`."""
    if not request.node.get_closest_marker("model"):
        monkeypatch.setenv("TTC_HOME", str(empty_home))

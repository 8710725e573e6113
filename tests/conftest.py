"""Fixtures of the whole suite: real models are for tests marked `model`, and for them alone."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from ttc.engine.local.hub.models import find, home
from ttc.errors import TTCError

MODEL = "smollm2-135m"
# A test's verdict hangs neither on how busy the machine is nor on the run.
settings.register_profile("ttc", deadline=None, derandomize=True)
settings.load_profile("ttc")

SETTINGS = ("TTC_MODEL", "TTC_OFFLINE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_TOKEN")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a real model are skipped, with the reason, where its file is missing."""
    try:
        find(MODEL)
        os.environ["TTC_HOME"] = str(home())  # from here on, the user's settings do not act
    except TTCError as error:
        missing = pytest.mark.skip(reason=str(error))
        for item in items:
            if item.get_closest_marker("model"):
                item.add_marker(missing)


@pytest.fixture(scope="session")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without models, caches, runs or settings."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def nothing_of_the_user(
    request: pytest.FixtureRequest, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No setting of the user acts, and built-in models are out of reach of unmarked tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(empty_folder))
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    if not request.node.get_closest_marker("model"):
        monkeypatch.setenv("TTC_HOME", str(empty_folder))

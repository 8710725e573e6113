"""Settings: argument > environment > file > default, each with its source."""

from __future__ import annotations

import sys
from pathlib import Path

import platformdirs
import pytest

from ttc.config import DEFAULT_MODEL, Setting, hub_token, settings
from ttc.errors import SettingsError

VARIABLES = (
    "TTC_HOME",
    "TTC_MODEL",
    "TTC_ARITHMETIC",
    "TTC_SPECULATE",
    "TTC_ACCEPTANCE",
    "TTC_OFFLINE",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "HF_TOKEN",
)
FILE = """
home = "~/f"
model = "f"
arithmetic = "file"
speculate = "ngram"
acceptance = "coupled"
offline = true
hub = "https://f"
journal_mb = 1
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of settings, which is not there; and nothing in the environment."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / name))
    (tmp_path / "ttc").mkdir()
    return tmp_path / "ttc" / "config.toml"


def test_without_anything_the_defaults_hold() -> None:
    """A file that is missing is fine."""
    found = settings()

    assert found.home == Setting(Path(platformdirs.user_cache_dir("ttc")), "default")
    assert found.model == Setting(DEFAULT_MODEL, "default")
    assert found.offline == Setting(False, "default")
    assert found.hub == Setting(None, "default")


def test_each_source_comes_before_the_next(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Argument, environment, file."""
    file.write_text(FILE)
    found = settings()
    assert {getattr(found, name).source for name in vars(found)} == {f"file {file}"}
    assert (found.home.value, found.model.value) == (Path("~/f").expanduser(), "f")
    assert (found.offline.value, found.hub.value) == (True, "https://f")

    values = ("/e", "e", "int8", "tree", "maximal", "no", "1", "http://e:1/", "")
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    found = settings()
    assert found.home == Setting(Path("/e"), "environment TTC_HOME")
    assert found.model == Setting("e", "environment TTC_MODEL")
    assert found.arithmetic == Setting("int8", "environment TTC_ARITHMETIC")
    assert found.speculate == Setting("tree", "environment TTC_SPECULATE")
    assert found.acceptance == Setting("maximal", "environment TTC_ACCEPTANCE")
    assert found.offline == Setting(False, "environment TTC_OFFLINE")
    assert found.hub == Setting("http://e:1", "environment HF_ENDPOINT")

    found = settings(home="/a", model="a")
    assert (found.home, found.model) == (Setting(Path("/a"), "argument"), Setting("a", "argument"))


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were unset."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")

    assert {getattr(settings(), name).source for name in vars(settings())} == {"default"}
    assert hub_token() is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "modle = 'x'",
            "'modle' is no setting; known: home, model, arithmetic, speculate, acceptance",
        ),
        ("token = 'x'", "'token' is no setting"),
        ("home = 1", "home is 1; set it to a text"),
        ("model = ''", "model is ''; set it to a text"),
        ("offline = 1", "offline is 1; set it to true or false"),
        ("journal_mb = 'x'", "journal_mb is 'x'; set it to a whole number"),
        ("journal_mb = 0", r"journal_mb is 0 \(file .*\); set it to a whole number above 0"),
        ("hub = 'example'", r"hub is 'example' \(file .*\); set it to an address"),
        ("home = ", "is no TOML file"),
    ],
)
def test_a_wrong_file_is_refused_by_name(file: Path, text: str, message: str) -> None:
    """With its path."""
    file.write_text(text)

    with pytest.raises(SettingsError, match=message) as caught:
        settings()
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TTC_OFFLINE", "maybe", r"offline is 'maybe' \(environment TTC_OFFLINE\); set it to one"),
        ("HF_ENDPOINT", "ftp://x", r"hub is 'ftp://x' \(environment HF_ENDPOINT\)"),
        ("HF_ENDPOINT", "https://", "begins with https:// or http://"),
        ("HF_ENDPOINT", "https://x:y", "begins with https:// or http://"),
        ("HF_ENDPOINT", "https://x y", "begins with https:// or http://"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    """With its value, and what it may be."""
    monkeypatch.setenv(name, value)

    with pytest.raises(SettingsError, match=message):
        settings()


def test_a_token_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a good one nor a bad one."""
    monkeypatch.setenv("HF_TOKEN", " hf_good\n")
    assert hub_token() == "hf_good"
    assert "hf_good" not in repr(settings())

    monkeypatch.setenv("HF_TOKEN", "hf_b\nd")
    with pytest.raises(SettingsError, match="HF_TOKEN holds characters") as caught:
        hub_token()
    assert "hf_b" not in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be opened elsewhere either")
def test_a_file_that_cannot_be_read_is_told(file: Path) -> None:
    """By its path."""
    file.mkdir()

    with pytest.raises(SettingsError, match=r"config\.toml cannot be read: Is a directory"):
        settings()

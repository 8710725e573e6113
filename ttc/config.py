"""The settings of ttc, and where each of them comes from.

An argument comes before the environment, the environment before the file, and the file before the
default. The file is `config.toml` in the user's configuration folder, and may be missing:

    home = "~/models-of-ttc"    # TTC_HOME: models, caches and runs
    model = "smollm2-135m"      # TTC_MODEL: what the command line uses where no model is named
    arithmetic = "file"         # TTC_ARITHMETIC: what local models compute with
    speculate = "ngram"         # TTC_SPECULATE: what drafts tokens for local models
    acceptance = "coupled"      # TTC_ACCEPTANCE: how drafts are accepted, where something drafts
    offline = false             # TTC_OFFLINE, HF_HUB_OFFLINE: nothing is fetched
    hub = "https://..."         # HF_ENDPOINT: where models are fetched from
    journal_mb = 1024           # TTC_JOURNAL_MB: how large the journal of one run may become

The token of the hub, `HF_TOKEN`, is no setting: it is never kept, and never printed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar, get_args
from urllib.parse import urlsplit

import platformdirs

from ttc.errors import SettingsError

__all__ = [
    "ACCEPTANCES",
    "ARITHMETICS",
    "DEFAULT_MODEL",
    "Acceptance",
    "Arithmetic",
    "Setting",
    "Settings",
    "config_file",
    "hub_token",
    "settings",
]

DEFAULT_MODEL = "smollm2-135m"

Arithmetic = Literal["int8", "file", "fp32", "bf16"]
"""What a local model computes with: in C int8 activations, and int8 weights or the codes of the
file; or PyTorch in one type."""

ARITHMETICS: tuple[Arithmetic, ...] = get_args(Arithmetic)

Acceptance = Literal["coupled", "maximal"]
"""By what rule drafted tokens become a call's own; see the embedded engine's `acceptance`."""

ACCEPTANCES: tuple[Acceptance, ...] = get_args(Acceptance)

T = TypeVar("T")
N = TypeVar("N", bound=str)
_VARIABLES = {
    "home": ("TTC_HOME",),
    "model": ("TTC_MODEL",),
    "arithmetic": ("TTC_ARITHMETIC",),
    "speculate": ("TTC_SPECULATE",),
    "acceptance": ("TTC_ACCEPTANCE",),
    "offline": ("TTC_OFFLINE", "HF_HUB_OFFLINE"),
    "hub": ("HF_ENDPOINT",),
    "journal_mb": ("TTC_JOURNAL_MB",),
}
_KINDS: dict[str, type] = {
    "home": str,
    "model": str,
    "arithmetic": str,
    "speculate": str,
    "acceptance": str,
    "offline": bool,
    "hub": str,
    "journal_mb": int,
}
_NAMES_OF_KINDS = {str: "a text", bool: "true or false", int: "a whole number"}
_JOURNAL_MB = 1024
_TRUTHS = {"1": True, "true": True, "yes": True, "on": True}
_TRUTHS |= {"0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A value, and who gave it."""

    value: T
    source: str
    """`argument`, `environment NAME`, `file PATH` or `default`."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for this process, at this moment."""

    home: Setting[Path]
    """The folder of everything that ttc keeps."""
    model: Setting[str]
    """The model of the command line, where none is named."""
    arithmetic: Setting[Arithmetic | None]
    """What local models compute with; `None` is `int8`, and `fp32` where there is no compiler."""
    speculate: Setting[str | None]
    """What drafts tokens for local models; `None` is nothing."""
    acceptance: Setting[Acceptance | None]
    """How drafts are accepted, where something drafts; `None` is `coupled`."""
    offline: Setting[bool]
    """Whether fetching is forbidden."""
    hub: Setting[str | None]
    """The address of the hub; `None` is that of huggingface_hub."""
    journal_mb: Setting[int]
    """The largest size of the journal of one run, in MiB."""


def config_file() -> Path:
    """Where the file of settings lies, or would lie."""
    return Path(platformdirs.user_config_dir("ttc")) / "config.toml"


def hub_token() -> str | None:
    """The token for the hub, where there is one; none that another program has saved is sent.

    Raises:
        SettingsError: it cannot be one.
    """
    token = os.environ.get("HF_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()):
        raise SettingsError("HF_TOKEN holds characters that no token has; set it anew, or unset it")
    return token or None


def settings(*, home: str | None = None, model: str | None = None) -> Settings:
    """The settings, read anew.

    Args:
        home: comes before every other home.
        model: comes before every other model.

    Raises:
        SettingsError: the file or a variable holds what no setting can be.
    """
    file = _read(config_file())
    folder = _found("home", home, file) or Setting(platformdirs.user_cache_dir("ttc"), "default")
    return Settings(
        home=Setting(Path(os.path.expanduser(str(folder.value))), folder.source),
        model=_text("model", model, file) or Setting(DEFAULT_MODEL, "default"),
        arithmetic=_one_of(ARITHMETICS, "arithmetic", file) or Setting(None, "default"),
        speculate=_optional_text("speculate", file) or Setting(None, "default"),
        acceptance=_one_of(ACCEPTANCES, "acceptance", file) or Setting(None, "default"),
        offline=_switch("offline", file) or Setting(False, "default"),
        hub=_address("hub", file) or Setting(None, "default"),
        journal_mb=_count("journal_mb", file) or Setting(_JOURNAL_MB, "default"),
    )


def _found(key: str, argument: str | None, file: dict[str, object]) -> Setting[object] | None:
    """The first value that there is, less the default. An empty variable is none."""
    if argument is not None:
        return Setting(argument, "argument")
    for variable in _VARIABLES[key]:
        if text := os.environ.get(variable):
            return Setting(text, f"environment {variable}")
    return Setting(file[key], f"file {config_file()}") if key in file else None


def _text(key: str, argument: str | None, file: dict[str, object]) -> Setting[str] | None:
    found = _found(key, argument, file)
    return None if found is None else Setting(str(found.value), found.source)


def _optional_text(key: str, file: dict[str, object]) -> Setting[str | None] | None:
    found = _found(key, None, file)
    return None if found is None else Setting(str(found.value), found.source)


def _one_of(known: Sequence[N], key: str, file: dict[str, object]) -> Setting[N | None] | None:
    found = _found(key, None, file)
    if found is None:
        return None
    for name in known:
        if name == found.value:
            return Setting(name, found.source)
    names = ", ".join(known)
    raise SettingsError(f"{key} is {found.value!r} ({found.source}); set it to one of {names}")


def _switch(key: str, file: dict[str, object]) -> Setting[bool] | None:
    found = _found(key, None, file)
    if found is None:
        return None
    value = _TRUTHS.get(str(found.value).strip().lower())
    if value is None:
        raise SettingsError(
            f"{key} is {found.value!r} ({found.source}); set it to one of {', '.join(_TRUTHS)}"
        )
    return Setting(value, found.source)


def _count(key: str, file: dict[str, object]) -> Setting[int] | None:
    found = _found(key, None, file)
    if found is None:
        return None
    text = str(found.value).strip()
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise SettingsError(
            f"{key} is {found.value!r} ({found.source}); set it to a whole number above 0"
        )
    return Setting(int(text), found.source)


def _address(key: str, file: dict[str, object]) -> Setting[str | None] | None:
    found = _found(key, None, file)
    if found is None:
        return None
    address = str(found.value).strip().rstrip("/")
    if not _is_address(address):
        raise SettingsError(
            f"{key} is {found.value!r} ({found.source}); set it to an address that begins with "
            "https:// or http://"
        )
    return Setting(address, found.source)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises where it is no number
    except ValueError:
        return False
    return parts.scheme in ("https", "http") and bool(parts.hostname) and not set(text) & set(" \t")


def _read(path: Path) -> dict[str, object]:
    """What the file of settings holds.

    Raises:
        SettingsError: it cannot be read, or a key or the type of a value is wrong.
    """
    try:
        with path.open("rb") as file:
            values: dict[str, object] = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise SettingsError(f"{path} is no TOML file: {error}") from error
    for key, value in values.items():
        if key not in _KINDS:
            raise SettingsError(f"{path}: {key!r} is no setting; known: {', '.join(_KINDS)}")
        if type(value) is not _KINDS[key] or value == "":
            kind = _NAMES_OF_KINDS[_KINDS[key]]
            raise SettingsError(f"{path}: {key} is {value!r}; set it to {kind}, or take it out")
    return values

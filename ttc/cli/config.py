"""`ttc config`: each setting, its value, and where it comes from."""

from __future__ import annotations

import os
from dataclasses import fields
from json import dumps
from typing import Annotated
from urllib.parse import urlsplit

import typer

from ttc.cli.outcomes import SCHEMA_VERSION
from ttc.cli.terminal import say, show, table
from ttc.config import Setting, config_file, hub_token, settings
from ttc.safe_text import one_line

__all__ = ["config"]

_UNSET = {
    "arithmetic": "int8, or fp32 without a compiler",
    "speculate": "nothing",
    "acceptance": "coupled",
    "hub": "that of huggingface_hub",
}
"""What settings mean that nobody has given."""


def config(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell each setting, its value, and where it comes from."""
    found = settings()
    rows = {field.name: _row(getattr(found, field.name)) for field in fields(found)}
    rows["token"] = ("unset", "default") if hub_token() is None else ("set", "environment HF_TOKEN")
    path = config_file()
    if json:
        content = {
            name: {"value": value, "source": source} for name, (value, source) in rows.items()
        }
        made = {"schema_version": SCHEMA_VERSION, "file": str(path), "settings": content}
        say(dumps(made, indent=2))
        return
    cells = [(name, _shown(name, value), source) for name, (value, source) in rows.items()]
    show(table(("setting", "value", "source"), cells))
    say(f"\nfile {path}{'' if path.exists() else ', which is not there'}")


def _row(setting: Setting[object]) -> tuple[object, str]:
    value = setting.value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str) and "@" in urlsplit(value).netloc:  # a password may be in it
        parts = urlsplit(value)
        value = parts._replace(netloc="...@" + parts.netloc.rpartition("@")[2]).geturl()
    return value, setting.source


def _shown(name: str, value: object) -> str:
    if value is None:
        return _UNSET[name]
    return str(value).lower() if isinstance(value, bool) else one_line(str(value))

"""Rows of data sets: files of JSON lines, CSV or Parquet, each row a mapping of its columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ttc.benchmarks.files import json_objects
from ttc.errors import RecordError
from ttc.registry import install_hint

__all__ = ["SUFFIXES", "Values", "read_rows"]

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
Values = Mapping[str, Any]


def read_rows(path: Path) -> list[Values]:
    """All rows of a file, by what its name ends in.

    Raises:
        RecordError: it cannot be read, is of no known kind, or holds no rows.
    """
    readers = {".jsonl": _lines, ".json": _lines, ".csv": _csv, ".parquet": _parquet}
    reader = readers.get(path.suffix)
    if reader is None:
        raise RecordError(
            f"{path} ends in none of {', '.join(SUFFIXES)}; convert it to one of them"
        )
    try:
        rows = list(reader(path))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is not in UTF-8: {error}; save it anew in that") from error
    if not rows:
        raise RecordError(f"{path} holds no rows")
    return rows


def _lines(path: Path) -> Iterator[Values]:
    return (row for _, row in json_objects(path))


def _csv(path: Path) -> Iterator[Values]:
    with path.open(encoding="utf-8-sig", newline="") as file:  # tables begin with a mark of it
        for number, row in enumerate(csv.DictReader(file), 2):
            if None in row or None in row.values():
                raise RecordError(f"{path}: line {number} has more or fewer cells than the heading")
            yield row


def _parquet(path: Path) -> Iterator[Values]:
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise RecordError(
            f"{path} needs {error.name}, which is missing: {install_hint('parquet')}"
        ) from error
    try:
        yield from parquet.read_table(path).to_pylist()
    except ValueError as error:  # what pyarrow raises of a damaged file
        raise RecordError(f"{path} is no file of Parquet: {error}") from None

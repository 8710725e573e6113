"""Parquet: a pool as a table, for tools that read columns."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from ttc.errors import RecordError
from ttc.pools.pool import SCHEMA_VERSION, Completion, Pool
from ttc.registry import install_hint

__all__ = ["write_parquet"]


def write_parquet(path: Path, pool: Pool) -> None:
    """Writes a table with a row for each completion, in one piece or not at all.

    Its columns are the fields of a completion; each score is a column `score.NAME`, and each part
    of the sampling a column `sampling.NAME`.

    Raises:
        RecordError: pyarrow is not installed, or the file cannot be written.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise RecordError(f"Parquet needs {error.name}: {install_hint('parquet')}") from error
    partial = path.with_name(path.name + ".partial")
    try:
        table = pyarrow.Table.from_pylist([_row(completion, pool) for completion in pool])
        version = {b"schema_version": str(SCHEMA_VERSION).encode()}
        parquet.write_table(table.replace_schema_metadata(version), partial)
        partial.replace(path)
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error}") from error


def _row(completion: Completion, pool: Pool) -> dict[str, Any]:
    row = {f.name: getattr(completion, f.name) for f in fields(completion)}
    row["messages"] = [dict(vars(message)) for message in completion.messages]
    sampling, scores = row.pop("sampling"), row.pop("scores")
    if sampling is not None:
        row |= {f"sampling.{name}": value for name, value in vars(sampling).items()}
    return row | {f"score.{name}": scores.get(name) for name in pool.columns}

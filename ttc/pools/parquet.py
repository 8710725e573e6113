"""Parquet: a pool as a table, for tools that read columns."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from ttc.errors import RecordError
from ttc.pools.pool import SCHEMA_VERSION, Completion, Pool
from ttc.registry import install_hint
from ttc.types import Sampling

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
        rows = [_row(completion, pool) for completion in pool]
        table = pyarrow.Table.from_pylist(rows, schema=_schema(pyarrow, pool))
        parquet.write_table(table, partial)
        partial.replace(path)
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error}") from error


def _schema(pyarrow: Any, pool: Pool) -> Any:
    """The types of all columns, whether they hold anything or not."""
    text, whole, number = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    message = pyarrow.struct({"role": text, "content": text})
    lists = {"messages": message, "until": text, "prompt_ids": whole, "token_ids": whole}
    lists |= {"logprobs": number, "top_means": number}
    types = {f.name: text for f in fields(Completion) if f.name not in ("sampling", "scores")}
    types |= dict.fromkeys(("index", "num_tokens", "max_tokens"), whole)
    types |= {"self_certainty": number, "seed": pyarrow.uint64()}
    types |= {name: pyarrow.list_(kind) for name, kind in lists.items()}
    types |= {f"sampling.{f.name}": _SAMPLING[f.type](pyarrow) for f in fields(Sampling)}
    types |= {f"score.{name}": number for name in pool.columns}
    version = {b"schema_version": str(SCHEMA_VERSION).encode()}
    return pyarrow.schema(types, metadata=version)


_SAMPLING: dict[Any, Any] = {
    "float": lambda p: p.float64(),
    "float | None": lambda p: p.float64(),
    "int": lambda p: p.int64(),
    "int | None": lambda p: p.int64(),
    "bool": lambda p: p.bool_(),
    "Constraint | None": lambda p: p.string(),
    "tuple[tuple[int, float], ...]": lambda p: p.string(),
}
"""The types of the columns of sampling, by how their fields are annotated."""


def _row(completion: Completion, pool: Pool) -> dict[str, Any]:
    row = {f.name: getattr(completion, f.name) for f in fields(completion)}
    row["messages"] = [{"role": m.role, "content": m.content} for m in completion.messages]
    sampling, scores = row.pop("sampling"), row.pop("scores")
    if sampling is not None:
        row |= {f"sampling.{name}": value for name, value in sampling.values.items()}
        row["sampling.constraint"] = sampling.constraint and json.dumps(row["sampling.constraint"])
        row["sampling.logit_bias"] = (
            json.dumps(sampling.logit_bias) if sampling.logit_bias else None
        )
    return row | {f"score.{name}": scores.get(name) for name in pool.columns}

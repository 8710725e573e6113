"""When two evaluations are of the same problems, by what their folders tell of a task."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from tests.benchmarks.evals import config_of, facts_of, sums
from ttc.benchmarks.data import Asking, task_named
from ttc.benchmarks.harness.config import Config, TaskFacts


def _file(folder: Path, count: int) -> str:
    path = folder / "sums.jsonl"
    rows = [{"id": f"p{i}", "question": f"What is {i} + 1?", "answer": i + 1} for i in range(count)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def _facts(name: str, limit: int) -> TaskFacts:
    task = task_named(name, Asking(limit=limit))
    return replace(facts_of(task), rows=task.rows)


def test_parts_of_one_file_share_their_ids_wherever_it_lies(tmp_path: Path) -> None:
    """And those of another file do not, though they are called the same."""
    for folder, count in (("a", 4), ("b", 4), ("c", 5)):
        (tmp_path / folder).mkdir()
        _file(tmp_path / folder, count)
    few, many, other = (
        _facts(str(tmp_path / folder / "sums.jsonl"), limit)
        for folder, limit in (("a", 2), ("b", 3), ("c", 3))
    )

    assert few.shares_ids(many)
    assert not few.shares_ids(other)


def test_without_rows_the_source_tells() -> None:
    """As of generated problems: a source names their generator and its seed."""
    one = facts_of(sums(2))

    assert one.shares_ids(replace(one, digest="another"))
    assert not one.shares_ids(replace(one, digest="another", source="another seed"))
    assert one.shares_ids(replace(one, source="another seed"))


def test_a_folder_that_tells_the_digest_in_its_source_alone_is_still_read(tmp_path: Path) -> None:
    """So was it written before `rows` had a place of its own."""
    path = _file(tmp_path, 3)
    now = _facts(path, 2)
    config = replace(config_of(sums(2)), tasks=(now,))
    values = config.values
    assert values["tasks"][0].pop("rows") == now.rows

    assert Config.of(values).tasks == (now,)
    assert Config.of(config.values).tasks == (now,)
    generated = {**asdict(facts_of(sums(2)))}
    del generated["rows"]
    assert TaskFacts.of(generated).rows is None

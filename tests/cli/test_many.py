"""`ttc solve --problems`: many questions, each with its own budget or under an allocator."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ttc.testing import FakeEngine

Cli = Callable[..., subprocess.CompletedProcess[str]]
Use = Callable[[FakeEngine], FakeEngine]
VOTE = ("--strategy", "sample(n=6, max_tokens=16, ahead=1) >> vote()", "--seed", "5")


@pytest.fixture
def questions(tmp_path: Path) -> str:
    """Three questions as JSON lines."""
    path = tmp_path / "questions.jsonl"
    rows = [{"id": f"q{i}", "question": f"What is {i} + 1?"} for i in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def test_a_file_of_questions_gives_a_row_each(
    run_ttc: Cli, use_engine: Use, questions: str
) -> None:
    """In their order, with a sum below."""
    use_engine(FakeEngine("The answer is 7."))
    done = run_ttc("solve", "--problems", questions, *VOTE)

    lines = [line.split() for line in done.stdout.splitlines() if line]
    assert done.returncode == 0
    assert [line[:3] for line in lines[1:4]] == [[f"q{i}", "7", "1.00"] for i in range(3)]
    assert done.stdout.rstrip().endswith("tokens")
    assert "3 of 3 problems answered" in done.stdout


def test_plain_lines_are_questions_too(run_ttc: Cli, use_engine: Use, tmp_path: Path) -> None:
    """Numbered by their lines; empty ones are skipped."""
    use_engine(FakeEngine("The answer is 7."))
    path = tmp_path / "questions.txt"
    path.write_text("What is 3 + 4?\n\nWhat is 5 + 2?\n", encoding="utf-8")
    done = run_ttc("solve", "--problems", str(path), "--json", *VOTE)

    outcomes = json.loads(done.stdout)
    assert [(outcome["id"], outcome["answer"]) for outcome in outcomes] == [("1", "7"), ("3", "7")]


def test_an_allocator_holds_the_budget_of_all_together(
    run_ttc: Cli, use_engine: Use, questions: str
) -> None:
    """As many tokens as the problems have, and at most four times its part for one."""
    use_engine(FakeEngine("The answer is 7."))
    run = ("solve", "--problems", questions, "--json", *VOTE, "--budget", "tokens=40")
    alone = json.loads(run_ttc(*run).stdout)
    shared = json.loads(run_ttc(*run, "--allocator", "uniform_stop").stdout)

    assert max(outcome["usage"]["tokens"] for outcome in alone) <= 40
    assert sum(outcome["usage"]["tokens"] for outcome in shared) <= 120
    assert max(outcome["usage"]["tokens"] for outcome in shared) <= 160


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("What?", "--problems", "FILE"), "questions from the file; leave out question"),
        (("What?", "--allocator", "uniform"), "name a file"),
        (("--problems", "FILE", "--allocator", "nope"), "'nope' is none of the allocators"),
        (
            ("--problems", "FILE", "--allocator", "uniform", "--budget", "calls=4"),
            "--allocator gives tokens away",
        ),
        (("--problems", "nowhere.txt"), "nowhere.txt"),
        (("--problems", "BAD"), "line 2 is no problem; write"),
        (("--problems", "TWICE"), "gives one id to several problems"),
        (("--problems", "EMPTY"), "holds no question"),
    ],
)
def test_faults_are_told_in_one_line(
    run_ttc: Cli,
    use_engine: Use,
    questions: str,
    tmp_path: Path,
    arguments: tuple[str, ...],
    fault: str,
) -> None:
    """And nothing is spent."""
    engine = use_engine(FakeEngine("The answer is 7."))
    texts = {"BAD": '{"question": "a?"}\n{"q": 1}', "TWICE": '{"id": 1, "question": "a?"}\n' * 2}
    for name, text in {**texts, "EMPTY": "\n"}.items():
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    paths = {"FILE": questions, **{n: str(tmp_path / f"{n}.jsonl") for n in (*texts, "EMPTY")}}
    done = run_ttc("solve", *(paths.get(argument, argument) for argument in arguments))

    assert done.returncode == 2
    assert fault in " ".join(done.stderr.split())
    assert engine.calls == 0

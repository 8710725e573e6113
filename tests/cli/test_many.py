"""`ttc solve --problems`: many questions, each with its own budget or under an allocator."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ttc.sandbox.execution import Execution
from ttc.sandbox.forms import Asserts
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


class Spy:
    """A sandbox in which every program passes, and which tells how it was asked for."""

    def __init__(self) -> None:
        self.choices: list[str] = []
        self.tests: list[object] = []

    def __call__(self, choice: str) -> Spy:
        self.choices.append(choice)
        return self

    async def execute(self, program: object, tests: object, **_: object) -> Execution:
        self.tests.append(tests)
        return Execution(verdict="passed", proof="separate", level="none", layers=())


@pytest.mark.parametrize("choice", ["auto", "full", "none"])
def test_tests_of_a_problem_run_as_safely_as_is_asked(
    run_ttc: Cli,
    use_engine: Use,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
) -> None:
    """The tests come from the file, and `--sandbox` names what is accepted."""
    spy = Spy()
    monkeypatch.setattr("ttc.program_call.shared", spy)
    use_engine(FakeEngine("def add(a, b): return a + b"))
    path = tmp_path / "code.jsonl"
    path.write_text(
        json.dumps({"question": "Write add(a, b).", "tests": ["assert add(1, 2) == 3"]})
    )
    strategy = "sample(n=1, max_tokens=16) >> unit_tests() >> best()"
    done = run_ttc(
        *("solve", "--problems", str(path), "--strategy", strategy),
        *("--sandbox", choice, "--answer-format", "text", "--json"),
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["answer"] == "def add(a, b): return a + b"
    assert spy.choices == [choice]
    assert spy.tests == [Asserts(asserts=("assert add(1, 2) == 3",))]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"tests": "assert f() == 1"}, "tests are a list of texts, not 'assert f() == 1'"),
        ({"tests": [1]}, "tests are a list of texts, not [1]"),
        ({"metadata": 3}, "metadata is an object, not 3"),
    ],
)
def test_tests_that_are_none_are_refused(
    run_ttc: Cli, tmp_path: Path, row: dict[str, object], fault: str
) -> None:
    """By the line, before a model is loaded."""
    path = tmp_path / "code.jsonl"
    path.write_text(json.dumps({"question": "q", **row}))
    done = run_ttc("solve", "--problems", str(path))

    assert done.returncode == 2
    assert f"line 1: {fault}" in " ".join(done.stderr.split())


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


def test_an_allocator_leaves_the_other_limits_to_each_problem(
    run_ttc: Cli, use_engine: Use, questions: str
) -> None:
    """One that cannot be held is refused, and none is forgotten."""
    use_engine(FakeEngine("The answer is 7."))
    run = ("solve", "--problems", questions, "--json", *VOTE, "--allocator", "uniform")
    free = json.loads(run_ttc(*run, "--budget", "tokens=400").stdout)
    most = min(outcome["usage"]["flops"] for outcome in free) // 2
    bound = json.loads(run_ttc(*run, "--budget", f"tokens=400,flops={most}").stdout)
    refused = run_ttc(*run, "--budget", "tokens=400,cost_usd=1")

    assert max(outcome["usage"]["flops"] for outcome in bound) <= most
    assert refused.returncode == 2
    assert "has no price" in refused.stderr


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

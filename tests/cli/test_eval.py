"""`ttc eval` and `ttc compare` on a fake engine and on pools."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.evals import adder
from ttc.benchmarks.harness.run import Done
from ttc.cli.eval import budgets_of
from ttc.cli.progress import Lines
from ttc.cli.terminal import Fault
from ttc.ports import Request
from ttc.testing import FakeEngine
from ttc.text_form import parse
from ttc.types import Budget

Cli = Callable[..., subprocess.CompletedProcess[str]]
Use = Callable[[FakeEngine], FakeEngine]
ARMS = (
    "-s",
    "greedy: greedy(max_tokens=8)",
    "-s",
    "vote: sample(n=3, max_tokens=8) >> vote()",
    "--no-figures",
)
KINDS = ("task", "model", "strategy", "verdict")


@pytest.fixture
def task(tmp_path: Path) -> str:
    """Forty sums."""
    path = tmp_path / "sums.jsonl"
    rows = [{"id": f"p{i}", "question": f"What is {i} + 1?", "answer": i + 1} for i in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def test_an_evaluation_tells_a_table_a_verdict_and_a_page(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    use_engine(FakeEngine(adder))
    folder = tmp_path / "out"
    done = run_ttc("eval", task, *ARMS, "--budget", "tokens=60", "-o", str(folder), "--figures")

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("40 problems, smollm2-135m")
    assert [line.split()[0] for line in lines[2:4]] == ["greedy", "vote"]
    assert any(line.startswith("vote") and "distinguishable" in line for line in lines[5:])
    names = {path.name for path in folder.iterdir()}
    assert {"eval.json", "card.json", "report.html", "report.json", "report.csv"} <= names
    assert any(name.endswith(".png") for name in names)
    with (folder / "report.csv").open(encoding="utf-8") as file:
        assert [row["strategy"] for row in csv.DictReader(file)] == ["greedy", "vote"]


def test_a_summary_is_a_result_file_with_the_command_that_gives_it_again(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    use_engine(FakeEngine(adder))
    path = tmp_path / "sums.json"
    done = run_ttc("eval", task, *ARMS, "-o", str(tmp_path / "out"), "--json", str(path))

    assert done.returncode == 0, done.stderr
    made = json.loads(path.read_text(encoding="utf-8"))
    command = shlex.split(made["command"])
    assert command[:3] == ["ttc", "eval", "sums.jsonl"]
    assert ARMS[1] in command
    assert str(tmp_path) not in made["command"]
    by_kind = {kind: [row for row in made["rows"] if row["kind"] == kind] for kind in KINDS}
    assert [len(rows) for rows in by_kind.values()] == [1, 1, 2, 1]
    ((verdict,), greedy) = by_kind["verdict"], by_kind["strategy"][0]
    assert verdict["name"] == "sums.jsonl, vote > greedy, tokens=1000"
    assert verdict["tokens_of_second"] == greedy["tokens_of_a_problem"]
    assert greedy["problems"] == verdict["problems"] == 40
    assert verdict["detectable_points"] > 0


def test_saved_strategies_are_compared_by_the_names_of_their_files(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    """Or by names of their own."""
    use_engine(FakeEngine(adder))
    one, many = tmp_path / "one.json", tmp_path / "2 or 3.yaml"
    parse("greedy(max_tokens=8)").save(one)
    parse("sample(n=2, max_tokens=8) >> vote()").save(many)
    files = ("-s", str(one), "-s", str(many), "-s", f"pair: {many}")
    done = run_ttc(
        "eval", task, *files, "--limit", "2", "-o", str(tmp_path / "out"), "--no-figures"
    )
    gone = run_ttc(
        "eval", task, "-s", "two: no/such.json", "--limit", "2", "-o", str(tmp_path / "no")
    )

    assert done.returncode == 0, done.stderr
    assert [line.split("  ")[0] for line in done.stdout.splitlines()[2:5]] == [
        "one",
        "file 2-or-3",
        "pair",
    ]
    assert gone.returncode == 2
    assert gone.stderr == "ttc: no/such.json is no file\n"


def test_a_summary_that_cannot_be_kept_is_told_before_anything_runs(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    engine = use_engine(FakeEngine(adder))
    done = run_ttc("eval", task, *ARMS, "--json", str(tmp_path / "nowhere" / "sums.json"))
    assert done.returncode == 2
    assert "--json: no file can be written at" in done.stderr
    assert engine.calls == 0


def test_the_same_command_finds_its_folder_and_runs_nothing_again(
    run_ttc: Cli, use_engine: Use, task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TTC_HOME", str(tmp_path / "home"))
    engine = use_engine(FakeEngine(adder))
    first = run_ttc("eval", task, *ARMS, "--limit", "4")
    calls = engine.calls
    second = run_ttc("eval", task, *ARMS, "--limit", "4")

    assert (first.returncode, calls) == (0, 16)
    assert engine.calls == calls
    assert first.stdout == second.stdout


def test_a_sweep_is_a_strategy_each(run_ttc: Cli, use_engine: Use, task: str) -> None:
    use_engine(FakeEngine(adder))
    sweep = "vote: sample(n={1,2,4}, max_tokens=8) >> vote()"
    done = run_ttc(
        "eval", task, "-s", sweep, "--limit", "3", "--budget", "tokens=60,90", "--no-figures"
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith("vote n=")]
    assert [row.split("  ")[0] for row in rows[:6]] == ["vote n=1", "vote n=2", "vote n=4"] * 2


def test_a_dry_run_tells_what_it_would_take_and_runs_nothing(
    run_ttc: Cli, use_engine: Use, task: str
) -> None:
    engine = use_engine(FakeEngine(adder))
    done = run_ttc("eval", task, *ARMS, "--dry-run", "--rate", "1000", "--budget", "tokens=900")

    assert engine.calls == 0
    assert done.stdout.splitlines()[1].split()[-3:] == ["40", "600", "0.00"]
    assert "1 comparison would get a verdict; nothing was run" in done.stdout
    assert "could show nothing where they differ on 10%, 19.8 points where they" in done.stdout


def test_a_dry_run_tells_what_is_left_out_and_what_is_too_few(
    run_ttc: Cli, use_engine: Use, task: str
) -> None:
    """As the run itself would, which gives no verdict on so few."""
    use_engine(FakeEngine(adder))
    with Path(task).open("a", encoding="utf-8") as file:
        file.write('\n{"id": "p40", "question": "What is 40 + 1?"}')
    whole = run_ttc("eval", task, *ARMS, "--dry-run", "--rate", "1000")
    few = run_ttc("eval", task, *ARMS, "--dry-run", "--rate", "1000", "--limit", "29")

    assert "1 problem left out, which nobody can grade" in whole.stderr
    assert "1 comparison would get a verdict; nothing was run" in whole.stdout
    assert "0 comparisons would get a verdict; of 1 the problems are too few" in few.stdout


def test_a_dry_run_measures_the_rate_of_the_engine(
    run_ttc: Cli, use_engine: Use, task: str
) -> None:
    engine = use_engine(FakeEngine(adder))
    done = run_ttc("eval", task, *ARMS, "--dry-run")
    assert engine.calls == 16
    assert "tokens a second" in done.stdout


def test_a_dry_run_measures_every_model(run_ttc: Cli, use_engine: Use, task: str) -> None:
    engine = use_engine(FakeEngine(adder))
    both = ("--model", "smollm2-135m", "--model", "another")
    done = run_ttc("eval", task, *ARMS, *both, "--dry-run", "--limit", "2")
    lines = done.stdout.splitlines()
    assert engine.calls == 4, "two problems of each"
    assert [line.split()[0] for line in lines[:5]] == ["model", *both[1:2] * 2, *both[3:] * 2]
    assert " tokens a second" in lines[6]


def test_where_nobody_watches_a_line_tells_accuracy_spend_and_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What was done before a kill counts as done, and neither it nor a load moves the clock."""
    now = iter([0.0, 1.0, 48.0, 90.0])
    lines = Lines(10, now=lambda: next(now))
    for value, is_new in ((1.0, False), (0.0, True), (1.0, True)):
        lines(Done(None, value, 50, is_new=is_new))  # type: ignore[arg-type]  # the job is not read
    told = " ".join(capsys.readouterr().err.split())
    assert told == ("3 of 10 runs of problems done, 66.7% right, 150 tokens, about 5 min left")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--compare", "vote > nobody"), "a comparison is written as `A > B`"),
        (("--compare", "vote > greedy @ tokens=5"), "names no budget of tokens=1000"),
        (
            (
                "--compare",
                "vote > greedy",
            )
            * 7,
            "and at most 6 can be told apart from luck",
        ),
        (("--shard", "3/2"), "a shard is one of 1 to 2"),
        (("--limit", "1", "--shard", "2/2"), "--shard: 2/2 holds none of the problems: there is 1"),
        (("--shard", "99/99"), "--shard: 99/99 holds none of the problems: there are 40"),
        (("--role", "policy=x"), "that of the policy is --model"),
        (("--role", "judge=x"), "no strategy asks the role 'judge'; all ask the policy alone"),
        (
            ("--role", "jugde=x", "-s", "sample(n=2) >> judge() >> best()"),
            "no strategy asks the role 'jugde'; they ask judge",
        ),
        (("--role", "judge=x", "--role", "judge=y"), "--role: judge has two models"),
        (("--budget", "1000"), "has no ="),
        (("-s", "greedy: greedy()"), "two strategies are called 'greedy'"),
        (("-s", "bad: nope()"), "nope"),
        (("--sandbox", "soft"), "--sandbox: 'soft' is none of"),
        (("--pool", "x", "--model", "y"), "--model: --pool holds what a model has written"),
        (("--rate", "0"), "--rate"),
    ],
)
def test_faults_are_told_in_one_line_before_anything_runs(
    run_ttc: Cli, use_engine: Use, task: str, arguments: tuple[str, ...], fault: str
) -> None:
    engine = use_engine(FakeEngine(adder))
    done = run_ttc("eval", task, *ARMS, *arguments)
    assert done.returncode == 2
    assert fault in " ".join(done.stderr.split())
    assert engine.calls == 0


@pytest.mark.parametrize(
    ("text", "budgets"),
    [
        ("tokens=5", [Budget(tokens=5)]),
        ("tokens=5,6", [Budget(tokens=5), Budget(tokens=6)]),
        ("tokens=5,6,calls=2", [Budget(tokens=5, calls=2), Budget(tokens=6, calls=2)]),
    ],
)
def test_a_limit_with_several_values_is_several_budgets(text: str, budgets: list[Budget]) -> None:
    assert budgets_of(text) == budgets


def test_a_budget_of_no_limit_is_refused() -> None:
    with pytest.raises(Fault, match="is no limit; write tokens"):
        budgets_of("tokns=5")


@pytest.mark.parametrize("text", ["tokens=1,000", "tokens=4,000,calls=2", "calls=2,tokens=1,00"])
def test_a_thousand_with_a_comma_is_not_taken_for_two_budgets(text: str) -> None:
    with pytest.raises(Fault, match="write 1000 as 1000, and not as 1,000"):
        budgets_of(text)


def test_compare_tells_a_difference_and_shows_where(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    use_engine(FakeEngine(adder))
    folder = str(tmp_path / "out")
    run_ttc("eval", task, *ARMS, "--budget", "tokens=60", "-o", folder)
    done = run_ttc("compare", f"{folder}#vote", f"{folder}#greedy", "--disagreements")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[-3] == "40"
    assert "disagreements" in done.stdout
    assert "vote@tokens=60: right" in done.stdout
    assert "The answer is" in done.stdout


def test_compare_says_where_nothing_was_chosen(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    """No pool has the text of an answer that there is not."""

    def talk(request: Request) -> str:
        return adder(request) if request.sampling.temperature else "I cannot tell."

    use_engine(FakeEngine(talk))
    folder = str(tmp_path / "out")
    run_ttc("eval", task, *ARMS, "--limit", "2", "-o", folder)
    done = run_ttc("compare", f"{folder}#vote", f"{folder}#greedy", "--disagreements")

    assert "(nothing was chosen)" in done.stdout
    assert "stands in the pool" not in done.stdout


def test_compare_refuses_other_problems_by_the_same_ids(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    use_engine(FakeEngine(adder))
    first, second = (str(tmp_path / name) for name in ("first", "second"))
    run_ttc("eval", task, *ARMS, "--limit", "2", "-o", first)
    text = Path(task).read_text(encoding="utf-8")
    Path(task).write_text(text.replace("+ 1", "+ 2"), encoding="utf-8")
    run_ttc("eval", task, *ARMS, "--limit", "3", "-o", second)
    done = run_ttc("compare", f"{first}#vote", f"{second}#vote")
    assert done.returncode == 2
    assert "is not the same task in both: its problems are from the file" in done.stderr


def test_compare_asks_which_of_several_is_meant(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    use_engine(FakeEngine(adder))
    folder = str(tmp_path / "out")
    run_ttc("eval", task, *ARMS, "--limit", "2", "-o", folder)
    several = run_ttc("compare", folder, f"{folder}#greedy")
    none = run_ttc("compare", f"{folder}#nobody", f"{folder}#greedy")

    assert "may be several; name one of greedy@tokens=1000, vote@tokens=1000" in several.stderr
    assert "has no results of nobody" in none.stderr


def test_a_file_without_right_answers_is_refused_before_a_model_is_loaded(
    run_ttc: Cli, use_engine: Use, tmp_path: Path
) -> None:
    engine = use_engine(FakeEngine(adder))
    path = tmp_path / "asked.jsonl"
    path.write_text('{"question": "What is 1 + 1?"}\n', encoding="utf-8")
    done = run_ttc("eval", str(path), *ARMS)
    assert done.returncode == 2
    assert "has no problem with a right answer, so nothing can be graded" in done.stderr
    assert engine.calls == 0


def test_a_pool_of_other_ids_is_told_with_one_of_each(
    run_ttc: Cli, task: str, tmp_path: Path
) -> None:
    pool = tmp_path / "pool.jsonl"
    row = {"schema_version": 1, "problem": "other", "index": 0, "text": "1", "prompt": "?"}
    pool.write_text(json.dumps(row), encoding="utf-8")
    done = run_ttc("eval", task, *ARMS, "--pool", str(pool))
    assert done.returncode == 2
    assert "matched by their ids, here as 'p0', in the pool as 'other'" in done.stderr


def test_where_some_problems_fail_the_first_fault_is_told_beside_the_table(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    """A pool that does not tell how long the completions of one problem are."""
    pool = tmp_path / "pool.jsonl"
    rows = [
        {"schema_version": 1, "problem": f"p{i}", "index": index, "text": "The answer is 1.",
         "num_tokens": None if i == 2 else 4,
         "messages": [{"role": "user", "content": f"What is {i} + 1?"}]}
        for i in range(3)
        for index in range(3)
    ]  # fmt: skip
    pool.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    sampled = "vote: sample(n=3, max_tokens=8) >> vote()"
    done = run_ttc("eval", task, "-s", sampled, "--pool", str(pool), "--no-figures")

    assert done.returncode == 0, done.stderr
    told = " ".join(done.stderr.split())
    assert "1 of 3 runs failed, and count as wrong" in told
    assert "the first: RecordError: the pool does not tell how many tokens p2#0 has" in told
    assert "37 problems left out, of which the pool holds nothing" in told
    assert "1 of 3" in done.stdout.splitlines()[2]


def test_where_every_problem_fails_the_first_fault_is_told(
    run_ttc: Cli, use_engine: Use, task: str, tmp_path: Path
) -> None:
    pool = tmp_path / "pool.jsonl"
    rows = [
        {"schema_version": 1, "problem": f"p{i}", "index": 0, "text": "The answer is 1.",
         "messages": [{"role": "user", "content": f"What is {i} + 1?"}]}
        for i in range(3)
    ]  # fmt: skip
    pool.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = run_ttc("eval", task, *ARMS, "--pool", str(pool), "-o", str(tmp_path / "out"))

    assert done.returncode == 2
    assert "every problem failed: RecordError: the pool does not tell how many" in done.stderr

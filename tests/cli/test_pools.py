"""`ttc sample` and `ttc pool` on a fake engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ttc.engine.replay import ReplayEngine
from ttc.errors import EngineError
from ttc.pools import read
from ttc.testing import FakeEngine

Cli = Callable[..., subprocess.CompletedProcess[str]]
Use = Callable[[FakeEngine], FakeEngine]


@pytest.fixture
def task(tmp_path: Path) -> str:
    """A file of two problems."""
    rows = [{"id": str(n), "question": f"{n} + 1?", "answer": str(n + 1)} for n in (1, 2)]
    path = tmp_path / "task.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


@pytest.fixture
def pool(tmp_path: Path, task: str, run_ttc: Cli, use_engine: Use) -> str:
    """A pool of two completions of each."""
    use_engine(FakeEngine(["The answer is 2.", "So the answer is 3."]))
    path = str(tmp_path / "pool.jsonl")
    assert run_ttc("sample", task, "-n", "2", "-o", path).returncode == 0
    return path


def test_a_pool_is_drawn_and_gone_on_with(
    tmp_path: Path, task: str, run_ttc: Cli, use_engine: Use
) -> None:
    """The same command draws what is missing and nothing else."""
    engine = use_engine(FakeEngine("The answer is 2."))
    path = str(tmp_path / "pool.jsonl")

    first = run_ttc("sample", task, "-n", "2", "-o", path)
    calls = engine.calls
    again = run_ttc("sample", task, "-n", "3", "-o", path)

    assert first.stdout == f"drew 4 completions, found 0; {path} holds 4\n"
    assert again.stdout == f"drew 2 completions, found 4; {path} holds 6\n"
    assert (calls, engine.calls) == (4, 6)


def test_a_model_that_there_is_not_leaves_no_pool_behind(
    tmp_path: Path, task: str, run_ttc: Cli
) -> None:
    """Neither a folder nor a file; with a model, both are made."""
    path = tmp_path / "new" / "pool.jsonl"

    done = run_ttc("sample", task, "-o", str(path), "--model", "nosuch")

    assert "no model 'nosuch'" in done.stderr
    assert not path.parent.exists()


def test_a_question_is_solved_on_a_pool_and_not_kept(
    pool: str, run_ttc: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It repeats by itself, so that keeping it is refused where it is asked for."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path / "home"))
    engine = ReplayEngine(pool)
    monkeypatch.setattr("ttc.registry.load_engine", lambda model, _=None: engine)
    question = read(pool).problems[0].messages[-1].content
    run = ("solve", question, "--model", pool, "--strategy", "sample(n=2) >> vote()")

    assert run_ttc(*run).returncode == 0
    assert not list((tmp_path / "home").glob("runs/*.journal"))
    assert "leave out --keep" in run_ttc(*run, "--keep").stderr


def test_calls_that_fail_are_told(tmp_path: Path, task: str, run_ttc: Cli, use_engine: Use) -> None:
    use_engine(FakeEngine(EngineError("the server is gone")))

    done = run_ttc("sample", task, "-n", "2", "-o", str(tmp_path / "pool.jsonl"))

    assert (done.returncode, done.stderr) == (
        2,
        "ttc: all 4 calls failed: the server is gone\n",
    )


def test_a_pool_tells_which_estimates_it_is_too_small_for(
    pool: str, task: str, run_ttc: Cli
) -> None:
    """Two completions of each problem: a choice among two, and a vote of one."""
    lines = run_ttc("pool", "show", pool, "--task", task, "--k", "1,2,3,1").stdout.splitlines()

    assert [line.split()[0] for line in lines[-5:-1]] == ["coverage", "pass@1", "maj@1", "pass@2"]
    assert lines[-1].startswith("too few completions for maj@2, pass@3, maj@3; ")


def test_a_pool_is_shown_with_its_estimates(pool: str, task: str, run_ttc: Cli) -> None:
    plain = run_ttc("pool", "show", pool).stdout
    found = json.loads(run_ttc("pool", "show", pool, "--task", task, "--k", "1", "--json").stdout)

    assert "completions    4" in plain
    assert (found["problems"], found["failed"], found["schema_version"]) == (2, 0, 1)
    values = {row["name"]: row["value"] for row in found["estimates"]}
    assert values["pass@1"] == values["accuracy of the completed"]


def test_a_pool_is_never_graded_by_other_problems_of_the_same_ids(
    pool: str, task: str, run_ttc: Cli
) -> None:
    """As those of a generated task with another seed."""
    path = Path(task)
    path.write_text(path.read_text(encoding="utf-8").replace("1", "3"), encoding="utf-8")
    asked = path.read_text(encoding="utf-8").replace('"id": "3"', '"id": "1"')
    path.write_text(asked, encoding="utf-8")
    done = run_ttc("pool", "show", pool, "--task", task)
    assert done.returncode == 2
    assert "is another one than that of" in done.stderr


def test_pools_are_appended_merged_and_scored(pool: str, tmp_path: Path, run_ttc: Cli) -> None:
    twice, same = str(tmp_path / "twice.jsonl"), str(tmp_path / "same.jsonl")
    scores = tmp_path / "scores.jsonl"
    rows = [{"problem": p, "index": i, "score": 0.5} for p in "12" for i in (0, 1)]
    scores.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    assert run_ttc("pool", "append", pool, pool, "-o", twice).stdout.endswith("8 completions\n")
    assert run_ttc("pool", "merge", pool, pool, "-o", same).stdout.endswith("4 completions\n")
    assert run_ttc("pool", "score", pool, "judge", str(scores)).returncode == 0
    assert read(pool).columns == ("judge",)
    again = run_ttc("pool", "score", pool, "judge", str(scores))
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "choose another name" in again.stderr


def test_a_foreign_file_becomes_a_pool_and_a_table(tmp_path: Path, run_ttc: Cli) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    row = {"id": 1, "question": "?", "candidates": [{"text": "a", "reward": 1.5}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row), encoding="utf-8")
    source, made = str(tmp_path / "rows.jsonl"), str(tmp_path / "made.jsonl")

    done = run_ttc("pool", "import", source, "-o", made, "--counting", "bytes")
    table = run_ttc("pool", "export", made, "-o", str(tmp_path / "made.parquet"))

    assert (done.returncode, table.returncode) == (0, 0)
    assert [(c.scores, c.num_tokens) for c in read(made)] == [({"reward": 1.5}, 1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sample", "nothing", "-o", "OUT"), "'nothing' is no file, and none of the tasks"),
        (("sample", "TASK", "-n", "0", "-o", "OUT"), "n is at least 1, not 0"),
        (("sample", "TASK", "-o", "OUT", "--temperature", "-1"), "temperature is finite"),
        (("sample", "TASK", "-o", "POOL", "--max-tokens", "9"), "was drawn with max_tokens 512"),
        (("pool", "show", "nothing"), "nothing cannot be read"),
        (("pool", "show", "POOL", "--task", "TASK", "--k", "x"), "write whole numbers above 0"),
        (("pool", "show", "POOL", "--task", "TASK", "--by", "x"), "no score is called 'x'"),
        (("pool", "score", "POOL", "s", "TASK"), "line 1 is no score"),
        (("pool", "import", "TASK", "-o", "OUT"), "is of no known format"),
        (("pool", "import", "TASK", "-o", "OUT", "--counting", "x"), "write bytes, or leave it"),
        (("pool",), "see `ttc pool --help`"),
    ],
)
def test_a_fault_is_one_line(
    pool: str, task: str, tmp_path: Path, run_ttc: Cli, arguments: tuple[str, ...], message: str
) -> None:
    """With exit code 2."""
    names = {"TASK": task, "POOL": pool, "OUT": str(tmp_path / "out.jsonl")}
    done = run_ttc(*(names.get(part, part) for part in arguments))

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr

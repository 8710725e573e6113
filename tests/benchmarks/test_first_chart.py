"""The first chart: a chosen strategy against one sample and self-consistency, on a made pool."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pools.test_pool import completion
from ttc.benchmarks.first_chart import _between, _mixed, chosen_by, compared, main
from ttc.benchmarks.harness.setup import Asked
from ttc.cli.app import run
from ttc.pools import Pool, read, write
from ttc.types import Message, Sampling

N = 4


def _pool(path: Path, places: range) -> Path:
    """Right four times of ten, and else by one of three wrong numbers."""
    made, random = [], Random(path.name)
    for place in places:
        question = (Message(role="user", content=f"{place} + 1?"),)
        for index in range(N):
            answer = place + 1 if random.random() < 0.4 else place + random.choice((2, 3, 4))
            made.append(
                replace(
                    completion(
                        str(place), index, f"The answer is {answer}.", num_tokens=10 + index
                    ),
                    messages=question,
                    sampling=Sampling(temperature=0.8),
                    max_tokens=20,
                    model="tiny",
                )
            )
    write(path, Pool(made))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task of 40 sums, a pool of either part, and a plan made on the first one."""
    folder = tmp_path_factory.mktemp("chart")
    rows = [{"id": str(i), "question": f"{i} + 1?", "answer": str(i + 1)} for i in range(40)]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    _pool(folder / "test.jsonl", range(8, 40))
    dev = _pool(folder / "dev.jsonl", range(8))
    drawn = "temperature=0.8, max_tokens=20"
    command = [
        "plan", f"{folder / 'sums.jsonl'}[0:8]", "--pool", str(dev), "--budget", "tokens=160",
        "--look", f"sample(n=2, {drawn}) >> vote()", "-o", str(folder / "plan"),
        "-s", f"one: sample(n=1, {drawn}) >> vote()", "-s", f"vote: sample(n=3, {drawn}) >> vote()",
    ]  # fmt: skip
    assert run(command) == 0
    return folder


def _chart(folder: Path, output: Path, *more: str) -> None:
    task = f"{folder / 'sums.jsonl'}[8:40]"
    main([task, "--pool", str(folder / "test.jsonl"), "--plan", str(folder / "plan"),
          "--work", str(output.parent / "work"), "-o", str(output), *more])  # fmt: skip


def test_the_chart_tells_all_three_with_intervals_and_problems(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    _chart(made, tmp_path / "first", "--repeats", "2")
    result = json.loads((tmp_path / "first.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in result["rows"]}
    drawn = (tmp_path / "first.svg").read_text(encoding="utf-8")

    assert [n for n in rows if "self-consistency, n" in n] == [
        f"self-consistency, n={n}" for n in (1, 2, 4)
    ]
    equal = rows["chosen against self-consistency"]
    assert equal["problems"] == 32
    assert equal["low"] <= equal["difference_points"] <= equal["high"]
    assert equal["verdict"] in ("better", "worse", "not distinguishable")
    chosen = next(row for name, row in rows.items() if name.startswith("chosen: "))
    assert chosen["chosen_on_problems"] == 4
    assert equal["tokens_of_the_other"] == chosen["tokens"]
    for told in ("32 problems, tiny", "was chosen on 4 others", "self-consistency", "one sample"):
        assert told in drawn
    assert (tmp_path / "first.png").read_bytes().startswith(b"\x89PNG")


def test_a_problem_that_was_chosen_on_is_refused(made: Path, tmp_path: Path) -> None:
    """Field defect 43: nothing is tuned on what is reported."""
    dev, plan = str(made / "dev.jsonl"), str(made / "plan")
    task = f"{made / 'sums.jsonl'}[0:8]"
    with pytest.raises(SystemExit, match=r"4 of these problems, .* were chosen on; take others"):
        main(
            [
                task,
                "--pool",
                dev,
                "--plan",
                plan,
                "--work",
                str(tmp_path),
                "-o",
                str(tmp_path / "x"),
            ]
        )


def test_a_problem_that_is_still_being_drawn_is_left_out(made: Path, tmp_path: Path) -> None:
    """The completions that it has already are the short ones."""
    part = tmp_path / "part.jsonl"
    write(part, Pool([c for c in read(made / "test.jsonl") if (c.problem, c.index) != ("39", 3)]))
    chosen = chosen_by(made / "plan")
    asked = Asked(
        tasks=(f"{made / 'sums.jsonl'}[30:40]",),
        strategies=(),
        budgets=(chosen.budget,),
        models=(),
        comparisons=(),
        pool=part,
    )
    found = compared(chosen, asked, tmp_path)
    assert len(found.chosen.problems) == len(found.baseline[0].problems) == 9
    assert [one.said for one in found.against] == ["too few problems"] * 2


class _Line(NamedTuple):
    """A point of a line, by its tokens and what its problems came to."""

    tokens: float
    values: tuple[float, ...] = ()

    def spend(self, _: str) -> float:
        return self.tokens


@pytest.mark.parametrize(
    ("spend", "number"),
    [(520.0, 5), (410.0, 5), (790.0, 7), (150.0, None), (900.0, None), (50.0, None)],
)
def test_a_vote_is_measured_next_to_the_chosen_tokens(spend: float, number: int | None) -> None:
    """The line between votes of 4 and of 8 would run below the curve."""
    line: Any = {n: _Line(100.0 * n) for n in (1, 2, 4, 8)}
    assert _between(line, spend) == number


@given(st.integers(2, 64), st.floats(0.2, 3.0), st.floats(1.0, 70.0))
def test_two_numbers_that_follow_each_other_are_found_for_any_spend(
    most: int, power: float, number: float
) -> None:
    """However tokens grow with samples."""
    line: Any = {n: _Line(n**power) for n in (1, most)}
    while (between := _between(line, number**power)) is not None:
        assert between not in line
        line[between] = _Line(between**power)
    spend, tokens = number**power, sorted(point.tokens for point in line.values())
    below = max((n for n in line if line[n].tokens <= spend), default=None)
    assert below == most or spend in tokens or {below, (below or 0) + 1} <= set(line)


def test_a_strategy_that_is_self_consistency_itself_gains_nothing_on_it() -> None:
    """On a curve that flattens, a coin between votes of 4 and of 8 would have lost by a point."""
    line: Any = {n: _Line(100.0 * n, (1 - 0.5 / n,)) for n in (1, 2, 4, 8)}
    while (between := _between(line, 590.0)) is not None:
        line[between] = _Line(100.0 * between, (1 - 0.5 / between,))
    (value,) = _mixed([line[n] for n in sorted(line)], 590.0)
    assert value == pytest.approx(1 - 0.5 / 5.9, abs=1e-3)


def test_a_folder_without_a_plan_is_told(made: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"is no plan: .*; make one by ttc plan -o"):
        _chart(made, tmp_path / "x", "--plan", str(tmp_path))

"""What k samples come to by each way to choose one, in the reports of an evaluation."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from html import unescape
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.benchmarks.evals import VOTE, config_of, evaluation, sums
from tests.pools.test_pool import completion, failed
from ttc import registry
from ttc.benchmarks.harness.config import Arm
from ttc.benchmarks.harness.results import read_results
from ttc.benchmarks.harness.run import Evaluation, Options
from ttc.benchmarks.harness.samples import SampleFile, Samples, drawn_by, read_samples
from ttc.benchmarks.harness.selection import at_k, selection
from ttc.benchmarks.harness.setup import Asked, set_up
from ttc.benchmarks.metrics import maj_at_k, weighted_at_k
from ttc.benchmarks.report.html import page
from ttc.benchmarks.report.study import read_study
from ttc.benchmarks.report.summary import summary
from ttc.benchmarks.report.tables import used_up
from ttc.benchmarks.report.write import write_report
from ttc.errors import RecordError
from ttc.pools import Pool, read, write
from ttc.strategies import Vote
from ttc.testing import FakeEngine
from ttc.types import Budget

ANSWERS = ("7", "5", "7", None, "3", "5", "7", "7")
WEIGHTS = (0.1, 0.9, 0.2, 0.5, 0.6, 0.4, None, 0.3)


def _exact(answers: Sequence[str | None], weights: Sequence[float | None], k: int) -> float:
    """The weighted vote over all subsets of k; right is 7."""
    wins = []
    for chosen in combinations(range(len(answers)), k):
        tally: dict[str, float] = {}
        for place in chosen:
            answer = answers[place]
            if answer is not None:
                tally[answer] = tally.get(answer, 0.0) + (weights[place] or 0.0)
        best = max(tally.values(), default=0.0)
        leaders = [a for a, value in tally.items() if value >= best - 1e-12]
        wins.append(leaders.count("7") / len(leaders) if leaders else 0.0)
    return fmean(wins)


def test_a_weighted_vote_is_the_mean_over_subsets() -> None:
    """5,000 subsets: 0.035 off is five standard deviations of the mean, odds of 6e-7."""
    right = [answer == "7" for answer in ANSWERS]
    found = weighted_at_k(ANSWERS, WEIGHTS, right, 3, seed=1, draws=5_000)
    assert abs(found - _exact(ANSWERS, WEIGHTS, 3)) < 0.035


def test_equal_weights_are_a_plain_vote() -> None:
    right = [answer == "7" for answer in ANSWERS]
    weighted = weighted_at_k(ANSWERS, [0.0] * 8, right, 4, seed=2, draws=5_000)
    assert abs(weighted - maj_at_k(ANSWERS, right, 4)) < 0.035


@pytest.mark.parametrize(
    ("weights", "k", "fault"),
    [([1.0] * 8, 5, "at least 10 samples"), ([-1.0] * 8, 2, "a weight is a finite number")],
)
def test_what_cannot_be_weighed_is_refused(weights: list[float], k: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        weighted_at_k(ANSWERS, weights, [False] * 8, k, seed=0)


def _problem(name: str, right: str, scores: Sequence[float | None]) -> Samples:
    grades = tuple(mark == "1" for mark in right)
    places = tuple(0 if mark == "1" else 1 for mark in right)
    return Samples(
        task="t", problem=name, classes=places, right=grades, scores={"s": tuple(scores)}
    )


def test_every_selector_stands_beside_the_bound_that_it_misses() -> None:
    problems = [_problem("a", "1101", (0.9, 0.1, 0.2, 0.3)), _problem("b", "0010", (0.5,) * 4)]
    found = {(point.selector, point.k): point for point in at_k(problems, [1, 2, 4], 0)}
    assert {name for name, _ in found} == {"pass@k", "maj@k", "weighted by s", "best-of-k by s"}
    assert found["pass@k", 1].value == found["maj@k", 1].value == 0.5
    assert found["pass@k", 4].value == 1.0
    assert ("maj@k", 4) not in found, "a vote has to have twice as many samples"
    best = found["best-of-k by s", 4]
    assert (best.value, best.regret) == (0.625, 0.375)
    assert [name for (name, _), point in found.items() if point.is_bound] == ["pass@k"] * 3


def test_a_score_that_may_be_negative_or_is_missing_weighs_nothing() -> None:
    problems = [_problem("a", "1101", (-0.9, 0.1, 0.2, 0.3)), _problem("b", "0010", (0.5,) * 4)]
    assert "weighted by s" not in {point.selector for point in at_k(problems, [1, 2], 0)}
    silent = [replace(problems[0], scores={}), problems[1]]
    assert {point.selector for point in at_k(silent, [1, 2], 0)} == {"pass@k", "maj@k"}


def test_tasks_are_told_apart_and_one_sample_tells_nothing() -> None:
    many = [_problem("a", "10", (1.0, 0.0)), replace(_problem("b", "1", (1.0,)), task="other")]
    (found,) = selection(many, 0, model="m", source="here")
    assert (found.task, found.num_problems, found.num_samples) == ("t", 1, 2)


def test_the_order_in_which_problems_were_graded_changes_nothing() -> None:
    """It depends on timing, and a kill changes it; intervals would differ."""
    rights = ("11", "10", "00")
    many = [_problem(str(place), rights[place % 3], (1.0, 0.5)) for place in range(11)]
    (found,) = selection(many, 0, model="m", source="s")
    assert selection(many[::-1], 0, model="m", source="s") == [found]


def _pool(path: Path) -> Path:
    made = []
    for problem in sums(4).problems:
        right = int(problem.id[1:]) + 1
        for index in range(4):
            said = completion(problem.id, index, f"The answer is {right + (index % 2)}.")
            lost = failed(problem.id, index)
            made.append(lost if (problem.id, index) == ("p0", 2) else said)
    asked = {problem.id: problem.messages for problem in sums(4).problems}
    told = (replace(c, messages=asked[c.problem], prompt=None, num_tokens=4) for c in made)
    write(path, Pool(told))
    return path


class _Registered:
    """What an installed package registers."""

    value = "theirs:thing"

    def __init__(self, loaded: object) -> None:
        self.load = lambda: loaded


def _asked(path: Path, strategy: str, **more: Any) -> Asked:
    """A strategy on four sums, beside a pool."""
    task = path.with_name("sums.jsonl")
    rows = [
        {"id": p.id, "question": p.messages[0].content, "answer": r.answer}
        for p, r in sums(4).items
    ]
    task.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    known = {"budgets": (Budget(tokens=60),), "models": ("fake",), "pool": path}
    return Asked(tasks=(str(task),), strategies=(strategy,), **{**known, **more})


def _run(asked: Asked, **options: Any) -> Path:
    made = set_up(asked)
    assert asked.pool is not None
    folder = asked.pool.with_name("eval")
    run = Evaluation(made.config, made.tasks, folder, pool=made.pool, options=Options(**options))
    run.run()
    return folder


def _pooled(tmp_path: Path) -> Path:
    path = _pool(tmp_path / "pool.jsonl")
    return _run(_asked(path, "vote: sample(n=2, max_tokens=8) >> vote()"))


def test_a_pool_is_graded_whole_whatever_strategies_drew_of_it(tmp_path: Path) -> None:
    folder = _pooled(tmp_path)
    found = list(read_samples(folder))
    assert [sum(problem.right) for problem in found] == [1, 2, 2, 2]
    assert found[0].classes == (0, 1, None, 1), "a completion that failed has no answer"
    (told,) = read_study(folder).selections
    assert {(p.selector, p.k): p.value for p in told.points}["pass@k", 4] == 1.0
    assert "digest" in read_study(folder).config.pool  # type: ignore[operator]


def test_a_problem_that_is_still_being_drawn_is_left_out_and_told(tmp_path: Path) -> None:
    """What came of it until now is short; of problems with more the first completions count."""
    path = _pool(tmp_path / "pool.jsonl")
    kept = [c for c in read(path) if (c.problem, c.index) != ("p1", 2)]
    more = [replace(kept[-1], index=place) for place in (4, 5)]
    write(path, Pool([*kept, *more]))
    made = set_up(_asked(path, "sample(n=2, max_tokens=8) >> vote()"))
    (told,) = made.left_out.values()
    assert made.pool is not None
    counts = {p.id: len(made.pool.of(p.id)) for p in made.pool.problems}
    assert counts == {"p0": 4, "p2": 4, "p3": 4}
    assert told == (
        "1 problem left out, of which the pool holds fewer than 4 completions: those still to "
        "come are longer",
        "1 of its problems have more than 4 completions: the first are used",
    )


def test_a_budget_that_a_pool_is_too_small_for_is_told_everywhere(tmp_path: Path) -> None:
    """Four completions do not spend 900 tokens, so nothing stands there of 900 tokens."""
    path = _pool(tmp_path / "pool.jsonl")
    drawn = "vote: sample(n='budget', max_tokens=8) >> vote()"
    folder = _run(_asked(path, drawn, budgets=(Budget(tokens=9), Budget(tokens=900))))
    study = read_study(folder)
    (line,) = used_up(study.cells)
    assert line.startswith("vote @ tokens=900: the pool was used up in 4 of 4 runs")
    assert line in unescape(page(study))
    counts = [row["pool_used_up"] for row in summary(study) if row["kind"] == "strategy"]
    assert counts == [0, 4]


def test_with_a_pool_every_other_role_has_its_own_model(tmp_path: Path) -> None:
    path = _pool(tmp_path / "pool.jsonl")
    judge = FakeEngine(["Score: 9"])
    asked = _asked(path, "sample(n=2, max_tokens=8) >> judge() >> best()", roles={"judge": "j"})
    folder = _run(replace(asked, budgets=(Budget(),)), load=lambda _: nullcontext(judge))
    assert judge.calls == 8
    assert all("judge" in result.roles for result in read_results(folder))


def test_a_role_that_one_of_the_strategies_asks_is_taken(tmp_path: Path) -> None:
    """The others need not ask it."""
    judged = "judged: sample(n=2, max_tokens=8) >> judge() >> best()"
    asked = _asked(_pool(tmp_path / "pool.jsonl"), "greedy: greedy()", roles={"judge": "j"})

    made = set_up(replace(asked, strategies=("greedy: greedy()", judged)))

    assert made.config.roles == {"judge": "j"}


def test_a_node_of_one_s_own_need_not_tell_the_roles_that_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So beside one any role is taken; one that tells them is held to them."""

    class Silent(Vote):
        """Says nothing of roles."""

    class Telling(Vote):
        """Says which role it asks."""

        roles = frozenset({"large"})

    theirs = {"nodes": {"silent": _Registered(Silent), "telling": _Registered(Telling)}}
    monkeypatch.setattr(registry, "_third_party", lambda group: theirs.get(group, {}))
    asked = _asked(_pool(tmp_path / "pool.jsonl"), "sample(n=2) >> silent()", roles={"critic": "j"})

    assert set_up(asked).config.roles == {"critic": "j"}
    with pytest.raises(ValueError, match="no strategy asks the role 'critic'; they ask large"):
        set_up(replace(asked, strategies=("sample(n=2) >> telling()",)))


def test_json_csv_and_page_tell_what_samples_come_to(tmp_path: Path) -> None:
    folder = _pooled(tmp_path)
    study, _ = write_report(folder, figures=False)
    whole = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    with (folder / "selection.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    points = whole["selections"][0]["points"]
    assert [float(row["value"]) for row in rows] == [point["value"] for point in points]
    told = page(study).partition("Chosen among k samples")[2]
    assert "4 samples of each of 4 problems" in told
    assert '<tr class="bound"><td class="s">a perfect choice, pass@k</td>' in told
    assert "pass@k" not in told.partition("<table>")[0], "a bound is in no chart"


def test_samples_are_kept_once_and_go_on_after_a_kill(tmp_path: Path) -> None:
    path, asked = tmp_path / "samples.jsonl", []

    def graded(name: str) -> Samples:
        asked.append(name)
        return replace(_problem(name, "10", (1.0, 0.5)), task="t")

    with SampleFile(path) as file:
        file.fill("t", ["a", "b"], graded)
    path.write_bytes(path.read_bytes()[:-9])
    with SampleFile(path) as file:
        file.fill("t", ["a", "b", "c"], graded)
    assert asked == ["a", "b", "b", "c"]
    assert [problem.problem for problem in read_samples(tmp_path)] == ["a", "b", "c"]


def test_a_damaged_file_of_samples_is_told(tmp_path: Path) -> None:
    (tmp_path / "samples.jsonl").write_text('{"task": 1}\n', encoding="utf-8")
    with pytest.raises(RecordError, match="line 1 holds no samples"):
        list(read_samples(tmp_path))


def test_a_strategy_that_only_samples_is_told_by_its_candidates(tmp_path: Path) -> None:
    """What a limit cut short, a search or a greedy strategy drew are no independent samples."""
    arms = (
        VOTE,
        Arm(name="tight", strategy="sample(n=30, max_tokens=8) >> vote()"),
        Arm(name="greedy", strategy="greedy(max_tokens=8)"),
        Arm(name="ladder", strategy="sample(n=3, temperature=(0.5, 1.0), max_tokens=8) >> vote()"),
    )
    config = config_of(sums(3), arms=arms, repeats=2)
    changes = {"arms": arms, "repeats": 2}
    evaluation(tmp_path, sums(3), changes=changes).run()
    found = drawn_by(config, read_results(tmp_path))
    assert [cell.arm for cell in found] == ["vote"]
    assert [len(problem.right) for problem in found[config.cells[0]]] == [6, 6, 6]
    assert [told.source for told in read_study(tmp_path).selections] == ["vote @ tokens=60"]


def test_a_pool_of_other_problems_by_the_same_ids_is_refused(tmp_path: Path) -> None:
    """As one that was drawn with another seed: its answers would be graded by wrong references."""
    path = _pool(tmp_path / "pool.jsonl")
    task = tmp_path / "sums.jsonl"
    task.write_text(json.dumps({"id": "p0", "question": "How old is Ben?", "answer": "1"}))
    asked = Asked(
        tasks=(str(task),),
        strategies=("sample(n=2, max_tokens=8) >> vote()",),
        budgets=(Budget(tokens=60),),
        models=(),
        pool=path,
    )

    with pytest.raises(RecordError, match="p0 is another one than that of"):
        set_up(asked)

"""Running an evaluation: any kill changes nothing, and every sample is graded and kept."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.evals import VOTE, adder, config_of, evaluation, sums
from ttc.benchmarks.harness.config import Config
from ttc.benchmarks.harness.grading import jailed
from ttc.benchmarks.harness.results import ResultFile, read_results
from ttc.benchmarks.harness.run import Done, Shard
from ttc.benchmarks.hidden_tests import HiddenTests
from ttc.errors import EngineError, RecordError
from ttc.lines import Lines
from ttc.ports import Request
from ttc.solve import asolve
from ttc.strategies import Vote
from ttc.testing import FakeEngine
from ttc.types import Branch, Candidate, Outcome, Problem

MEASURED = ("seconds", "kv_byte_seconds")


def _told(folder: Path) -> list[Any]:
    """What results say, but for what a clock measures."""
    told = []
    for result in read_results(folder, texts=True):
        usage = {name: value for name, value in result.usage.items() if name not in MEASURED}
        usage.pop("tokens_lost", None)  # what the kill itself may have cost
        row = {**vars(result), "usage": usage, "overhead_s": None}
        told.append((result.key, json.dumps(row, default=repr, sort_keys=True)))
    return sorted(told)


def test_every_problem_of_every_cell_has_a_result(tmp_path: Path) -> None:
    evaluation(tmp_path, sums(3)).run()
    results = list(read_results(tmp_path))
    assert len(results) == 6
    assert len({result.key for result in results}) == 6
    assert not list(tmp_path.glob("journals/*/*.journal"))


def test_a_kill_at_any_boundary_changes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each line that is written, of journals and results, and within the next one."""
    written: list[tuple[Path, bytes]] = []
    append = Lines.append

    def spy(self: Lines, line: bytes) -> None:
        written.append((self.path, line))
        append(self, line)

    monkeypatch.setattr(Lines, "append", spy)
    whole = tmp_path / "whole"
    evaluation(whole, sums(2), concurrency=2).run()
    monkeypatch.undo()
    expected = _told(whole)

    assert len(written) >= 40
    for count in range(len(written)):
        killed = tmp_path / f"killed{count}"
        _replay(written[:count], written[count], whole, killed)
        evaluation(killed, sums(2), concurrency=2).run()
        assert _told(killed) == expected, f"killed after line {count}"
        shutil.rmtree(killed)


def _replay(
    lines: list[tuple[Path, bytes]], cut: tuple[Path, bytes], whole: Path, killed: Path
) -> None:
    """The folder as a kill leaves it that comes in the middle of a line."""
    config_of(sums(2)).begin(killed)
    half = cut[1][: len(cut[1]) // 2]
    for path, data in [*((path, line + b"\n") for path, line in lines), (cut[0], half)]:
        target = killed / path.relative_to(whole)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as file:
            file.write(data)


def test_a_damaged_file_loses_half_a_line_and_counts_nothing_twice(tmp_path: Path) -> None:
    """BK-08: a text holds what others take for an end of line, a row stands twice, half a third."""
    engine = FakeEngine("The answer is 1.\u2028\u0085 Sure.")
    evaluation(tmp_path, sums(5), engine=engine, changes={"arms": config_of(sums()).arms[:1]}).run()
    path = tmp_path / "results.jsonl"
    rows = path.read_bytes().split(b"\n")[:5]
    path.write_bytes(b"\n".join([*rows[:3], rows[0], rows[3][:40]]))
    again: list[Done] = []
    evaluation(
        tmp_path,
        sums(5),
        engine=engine,
        changes={"arms": config_of(sums()).arms[:1]},
        told=again.append,
    ).run()
    results = list(read_results(tmp_path, texts=True))

    assert sum(done.is_new for done in again) == 2
    assert [len({r.key for r in results}), len(results)] == [5, 5]
    assert path.read_bytes().endswith(b"\n")
    assert "\u2028\u0085" in (results[0].text or "")


def test_every_sample_is_graded_and_kept(tmp_path: Path) -> None:
    """Field defect 11: not only the first of several."""
    evaluation(tmp_path, sums(1)).run()
    vote = next(r for r in read_results(tmp_path, texts=True) if len(r.candidates) == 3)
    assert all(candidate.grade in (0.0, 1.0) for candidate in vote.candidates)
    assert all("The answer is" in (candidate.text or "") for candidate in vote.candidates)
    assert {c.grade for c in vote.candidates if c.answer == "1"} <= {1.0}
    assert {c.grade for c in vote.candidates if c.answer == "2"} <= {0.0}


@pytest.mark.parametrize("reply", ["", "   ", "I cannot answer that."])
def test_an_empty_answer_is_wrong_and_counts(tmp_path: Path, reply: str) -> None:
    """Field defect 12: empty, blanks, a refusal."""
    evaluation(tmp_path, sums(2), engine=FakeEngine(reply or " ")).run()
    results = list(read_results(tmp_path))
    assert len(results) == 4
    assert all(result.value == 0.0 for result in results)


def test_a_call_that_fails_is_data_and_is_wrong(tmp_path: Path) -> None:
    """BK-10: it counts among the samples, and what it had written is not graded."""

    def half(request: Request) -> str | EngineError:
        if request.seed % 2:
            return EngineError("went away", output_tokens=3)
        return adder(request)

    evaluation(tmp_path, sums(6), engine=FakeEngine(half)).run()
    results = list(read_results(tmp_path))
    candidates = [c for result in results for c in result.candidates]
    failed = [c for c in candidates if c.status == "failed"]
    assert failed
    assert len(results) == 12
    assert all(c.grade == 0.0 for c in failed)


@pytest.mark.parametrize("confidence", [math.nan, math.inf])
def test_a_confidence_that_is_no_number_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, confidence: float
) -> None:
    """It comes of a selector of somebody's own, and ends neither the evaluation nor its report."""

    async def solved(*given: Any, **more: Any) -> Outcome:
        outcome = await asolve(*given, **more)
        assert outcome.candidate is not None
        return replace(outcome, candidate=replace(outcome.candidate, confidence=confidence))

    monkeypatch.setattr("ttc.benchmarks.harness.run.asolve", solved)
    evaluation(tmp_path, sums(2)).run()
    assert {result.confidence for result in read_results(tmp_path)} == {None}


def test_the_reference_never_reaches_the_engine(tmp_path: Path) -> None:
    """Field defect 45: gold is seen by the grader alone, after the outcome."""
    task = sums(3)
    engine = FakeEngine("The answer is 900.")
    evaluation(tmp_path, task, engine=engine).run()
    asked = "".join(request.branch.text for request in engine.requests)
    assert "What is 2 + 1?" in asked
    assert "Reference" not in repr(task.problems)
    assert all(not hasattr(problem, "reference") for problem in task.problems)


def test_other_settings_are_refused_in_the_same_folder(tmp_path: Path) -> None:
    evaluation(tmp_path, sums(2)).run()
    with pytest.raises(RecordError, match=r"holds another evaluation: seed is 7 there, and 8 here"):
        evaluation(tmp_path, sums(2), changes={"seed": 8}).run()


def test_other_arithmetic_is_refused_in_the_same_folder(tmp_path: Path) -> None:
    """Field defect 46: numerics are reported, and two of them are never mixed."""
    evaluation(tmp_path, sums(2)).run()
    other = FakeEngine(adder)
    other.numerics = "fake, in half precision"
    (tmp_path / "results.jsonl").unlink()
    with pytest.raises(RecordError, match="the two would be mixed; write to another folder"):
        evaluation(tmp_path, sums(2), engine=other).run()


def test_the_card_tells_numerics_drafts_batching_prompts_and_versions(tmp_path: Path) -> None:
    engine = FakeEngine(adder)
    engine.capabilities = replace(engine.capabilities, speculation="tree, coupled")
    evaluation(tmp_path, sums(2), concurrency=5, engine=engine).run()
    card = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    model = card["models"]["fake"]
    assert model["engines"]["policy"]["numerics"] == FakeEngine(adder).numerics
    assert model["engines"]["policy"]["speculation"] == "tree, coupled"
    assert "What is 0 + 1?" in model["prompts"]["sums"]
    assert card["run"]["concurrency"] == 5
    assert {"machine", "versions", "commit"} <= set(card)


def test_shards_share_a_folder_and_make_the_whole(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    evaluation(whole, sums(5)).run()
    for place in range(3):
        evaluation(parts, sums(5), shard=Shard(place=place, count=3)).run()
    engine = FakeEngine(adder)
    evaluation(parts, sums(5), engine=engine).run()

    assert _told(parts) == _told(whole)
    assert engine.calls == 0
    assert len(list(parts.glob("results-*-of-3.jsonl"))) == 3


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a shard is"):
        Shard.of(text)


@pytest.mark.parametrize("concurrency", [1, 3, 16])
def test_results_do_not_depend_on_who_is_in_flight(tmp_path: Path, concurrency: int) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    evaluation(alone, sums(6), concurrency=1).run()
    evaluation(together, sums(6), concurrency=concurrency).run()
    assert _told(alone) == _told(together)


def test_problems_run_one_by_one_where_seconds_are_limited(tmp_path: Path) -> None:
    """Others in flight would take the seconds away."""
    one, limits = {"arms": config_of(sums()).arms[:1]}, {"seconds=60": {"seconds": 60}}
    free, bound = FakeEngine(adder), FakeEngine(adder)
    evaluation(tmp_path / "free", sums(6), engine=free, changes=one).run()
    evaluation(tmp_path / "bound", sums(6), engine=bound, changes={**one, "budgets": limits}).run()
    assert (free.most_active > 1, bound.most_active) == (True, 1)


def test_a_fault_of_one_problem_is_recorded_and_run_again(tmp_path: Path) -> None:

    class Narrow(FakeEngine):
        def root(self, problem: Problem, role: str) -> Branch:
            raise EngineError("the prompt is too long")

    evaluation(tmp_path, sums(2), engine=Narrow(adder)).run()
    faults = list(read_results(tmp_path))
    evaluation(tmp_path, sums(2)).run()

    assert all(r.error and r.value == 0.0 for r in faults)
    assert [r.error for r in read_results(tmp_path)] == [None] * 4


def test_a_configuration_reads_as_it_was_written(tmp_path: Path) -> None:
    config = config_of(sums(2))
    config.begin(tmp_path)
    assert Config.read(tmp_path) == config


def test_a_grader_runs_programs_as_safely_as_is_asked_for() -> None:
    task = replace(sums(1), grader=HiddenTests())
    assert jailed(task, "none").grader == HiddenTests(sandbox="none")
    assert jailed(sums(1), "none").grader == sums(1).grader


def test_two_evaluations_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    evaluation(tmp_path, sums(2)).run()
    before = (tmp_path / "results.jsonl").read_bytes()
    with (
        ResultFile(tmp_path / "results.jsonl"),
        pytest.raises(RecordError, match="is in use by another evaluation; wait for it"),
    ):
        evaluation(tmp_path, sums(2)).run()
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_what_a_fault_leaves_of_a_run_has_its_spend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls before it were made, whatever came of them."""

    async def broken(self: Vote, candidates: Any, scope: Any) -> AsyncIterator[Candidate]:
        async for candidate in candidates:
            yield candidate
        raise ZeroDivisionError

    monkeypatch.setattr(Vote, "run", broken)
    evaluation(tmp_path, sums(1), changes={"arms": (VOTE,), "comparisons": ()}).run()
    (result,) = read_results(tmp_path)
    assert result.error is not None
    assert result.usage.get("calls") == 3
    assert result.roles["policy"] == result.usage["tokens"]

"""Journals on disk: what they keep, what they answer, and what they refuse."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.core.lab import QUESTION, seen, talker, whole
from ttc import Budget, Candidate, NodeError, Outcome, RecordError, Score
from ttc.errors import JournalMismatch
from ttc.graph import Port
from ttc.journal.runs import info
from ttc.lines import Lines
from ttc.ports import Scope, Stream
from ttc.strategies import Best, Sample, Vote
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier
from ttc.verifiers import OutcomeRewardModel

VOTE = "sample(n=6, ahead=2) >> vote(stop=cannot_be_overtaken())"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal lies."""
    return tmp_path / "run.journal"


def solve(
    path: Path, strategy: Any = VOTE, engine: FakeEngine | None = None, **more: Any
) -> Outcome:
    """A run that is kept."""
    engine = engine or FakeEngine(talker(failing=0.2))
    arguments = {"seed": 1, "budget": Budget(tokens=400), **more}
    return ttc.solve(QUESTION, strategy, model=engine, journal=path, **arguments)


def void(_: object) -> None:
    """Nothing."""


def entries(path: Path) -> list[dict[str, Any]]:
    """What is in a journal. Numbers that are not finite are no JSON."""
    bodies = [line.partition(b" ")[2] for line in path.read_bytes().splitlines()]
    return [json.loads(body, parse_constant=lambda name: 1 / 0) for body in bodies]


def cut_after(path: Path, kind: str, count: int) -> None:
    """Cuts a journal behind so many entries of a kind."""
    lines, found = path.read_bytes().splitlines(keepends=True), 0
    for number, entry in enumerate(entries(path)):
        found += entry["is"] == kind
        if found == count:
            path.write_bytes(b"".join(lines[: number + 1]))
            return


def _raise_if(broken: bool) -> bool:
    if broken:
        raise ValueError("a bug")
    return False


# What is kept


def test_a_kept_run_comes_to_what_it_comes_to_without(path: Path) -> None:
    kept = solve(path)
    plain = ttc.solve(
        QUESTION, VOTE, model=FakeEngine(talker(failing=0.2)), seed=1, budget=Budget(tokens=400)
    )

    assert seen(kept) == seen(plain)


def test_prompts_of_a_verifiers_own_are_kept_apart(path: Path) -> None:
    """A judge reads each candidate by a prompt of its own, with a journal as without."""
    engines: list[dict[str, Any]] = []
    for _ in range(2):
        reward = FakeEngine("", rewards=lambda branch, _: {"good": len(branch.text) % 7 / 7})
        engines.append({"policy": FakeEngine(talker()), "reward": reward})
    graph = Sample(n=6) >> OutcomeRewardModel(label="good") >> Best()

    kept = ttc.solve(QUESTION, graph, models=engines[0], seed=1, journal=path)
    plain = ttc.solve(QUESTION, graph, models=engines[1], seed=1)

    assert len({branch.text for branch, _ in engines[0]["reward"].read}) > 1
    assert seen(kept) == seen(plain) == seen(ttc.replay(path, graph))


def test_an_intent_is_kept_before_the_engine_is_asked(path: Path) -> None:
    """So that a kill cannot hide a call."""
    asked: list[list[str]] = []

    class Looking(FakeEngine):
        def submit(self, request: Any, on_chunk: Any = None) -> Any:
            asked.append([e["key"] for e in entries(path) if e["is"] == "intent"])
            return super().submit(request, on_chunk)

    solve(path, "sample(n=3) >> vote()", Looking("The answer is 1."))

    assert [keys[-1] for keys in asked] == ["0.sample#0", "0.sample#1", "0.sample#2"]


def test_every_call_and_decision_is_kept_by_path(path: Path) -> None:
    outcome = solve(path, engine=FakeEngine("The answer is 1."))

    kept = info(path).kept
    assert kept is not None
    last = {key: value for key, value in kept.records.items() if "dropped" not in value["detail"]}
    assert set(last) == {(r.path, r.kind, r.index) for r in outcome.trace}
    assert any(kind == "decision" for _, kind, _ in last)


def test_nothing_of_a_run_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Prompts and answers stay in the journal."""
    with caplog.at_level(logging.DEBUG):
        solve(path)
        ttc.replay(path)

    assert QUESTION not in caplog.text
    assert "answer" not in caplog.text


# Going on


def test_a_journal_that_holds_all_answers_asks_nothing(path: Path) -> None:
    """Failed calls included."""
    first = solve(path)

    engine = FakeEngine("never")
    again = solve(path, engine=engine)

    assert engine.calls == 0
    assert seen(again) == seen(first)
    assert any(candidate.status == "failed" for candidate in first.candidates)


def test_the_seed_of_a_run_is_in_its_journal(path: Path) -> None:
    """Whoever goes on need not know it."""
    first = solve(path, seed=None)

    assert solve(path, seed=None).seed == first.seed


def test_a_run_goes_on_after_it_was_cancelled(path: Path) -> None:
    """Ctrl-C ends calls that the strategy had not stopped: they are asked again."""
    clock = ManualClock()
    engine = FakeEngine(talker(), clock=clock, seconds_per_token=1.0)

    async def interrupted() -> None:
        run = asyncio.create_task(
            ttc.asolve(QUESTION, VOTE, model=engine, seed=1, clock=clock, journal=path)
        )
        clock.call_later(12.0, lambda: void(run.cancel()))
        with pytest.raises(asyncio.CancelledError):
            await run

    clock.run(interrupted())
    done = engine.calls
    resumed = solve(path, engine=(rest := FakeEngine(talker())), budget=None)

    assert 0 < rest.calls < done + rest.calls
    assert seen(resumed) == seen(ttc.solve(QUESTION, VOTE, model=FakeEngine(talker()), seed=1))
    assert resumed.usage.tokens_lost > 0


def test_a_run_goes_on_once_a_bug_in_a_node_is_mended(path: Path) -> None:
    """Calls that the bug cut short are asked again, those that had ended are not."""
    broken = True

    @ttc.node(takes=Port("finished", "many"), gives=Port("finished", "one"))
    async def picky(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        chosen = [candidate async for candidate in candidates if not _raise_if(broken)]
        yield chosen[-1]

    graph = Sample(n=4) >> picky
    with pytest.raises(NodeError, match="a bug"):
        solve(path, graph, FakeEngine(["The answer is 1.", "a The answer is 2."]))
    broken = False

    engine = FakeEngine(["The answer is 1.", "a The answer is 2."])
    outcome = solve(path, graph, engine)

    assert outcome.answer in ("1", "2")
    assert engine.calls < 4


def test_a_deadline_counts_the_seconds_before_the_kill(path: Path) -> None:
    """And what was answered before it is not lost when it has passed."""

    def run() -> tuple[Outcome, FakeEngine]:
        clock = ManualClock()
        engine = FakeEngine("The answer is 1.", clock=clock, seconds_per_token=1.0)
        work = ttc.asolve(
            QUESTION,
            "sample(n=5, ahead=1) >> vote()",
            model=engine,
            seed=1,
            budget=Budget(seconds=10),
            clock=clock,
            journal=path,
        )
        return clock.run(work), engine

    first, _ = run()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    again, engine = run()

    assert first.stopped_by == again.stopped_by == "seconds"
    assert seen(again) == seen(first)
    assert engine.calls == 0


def test_a_streamed_call_is_told_again_in_the_same_pieces(path: Path) -> None:
    pieces: list[list[str]] = []

    @ttc.node(takes=Port("open", "one"), gives=Port("finished", "one"))
    async def teller(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            pieces.append([])
            chunks = scope.stream(candidate.branch, index=0, max_tokens=9)
            async for chunk in chunks:
                pieces[-1].append(chunk.text)
                if chunk.branch is not None:
                    yield scope.finish(candidate, chunk.branch)

    engine = FakeEngine("So the answer is 7.")
    outcomes = [solve(path, teller, engine) for _ in range(2)]

    assert engine.calls == 1
    assert pieces[0] == pieces[1] == ["So", " the", " answer", " is", " 7.", ""]
    assert seen(outcomes[0]) == seen(outcomes[1])


def test_scores_are_kept_and_a_verifier_is_not_asked_again(path: Path) -> None:
    graph, asked = _judged(Score(value=0.5, evidence={"why": [1, 2]}))
    first = solve(path, graph)
    num_asked = len(asked)

    again = solve(path, graph)

    assert len(asked) == num_asked > 0
    assert [c.scores for c in again.candidates] == [c.scores for c in first.candidates]


def test_scores_whose_evidence_is_no_json_are_asked_for_again(path: Path) -> None:
    """Nothing is guessed of what cannot be kept."""
    graph, asked = _judged(Score(value=0.5, evidence={"why": object()}))
    solve(path, graph)
    num_asked = len(asked)

    solve(path, graph)

    assert len(asked) == 2 * num_asked


def _judged(score: Score) -> tuple[Any, list[Candidate]]:
    class Judge(ScriptedVerifier):
        async def __call__(self, problem: Any, candidates: Any, scope: Any) -> Any:
            self.seen.extend(candidates)
            return [score for _ in candidates]

    judge = Judge({})
    return Sample(n=2) >> judge >> Best(), judge.seen


# Replay


def test_a_replay_is_the_same_outcome_without_an_engine(path: Path) -> None:
    """To the trace, the usage and every candidate."""
    outcome = solve(path)

    again = ttc.replay(path)

    assert whole(again) == whole(outcome)
    assert again.usage == outcome.usage
    assert again.problem == outcome.problem
    assert again.numerics == outcome.numerics


def test_a_replay_works_inside_a_running_loop(path: Path) -> None:
    outcome = solve(path)

    async def inside() -> Outcome:
        return ttc.replay(path)

    assert seen(asyncio.run(inside())) == seen(outcome)


def test_a_strategy_built_in_python_is_passed_again(path: Path) -> None:
    outcome = solve(path, Sample(n=3) >> Vote())

    with pytest.raises(RecordError, match="built in Python; pass it as strategy="):
        ttc.replay(path)
    assert seen(ttc.replay(path, Sample(n=3) >> Vote())) == seen(outcome)


def test_a_run_that_has_not_ended_cannot_be_replayed(path: Path) -> None:
    solve(path)
    cut_after(path, "answer", 2)

    with pytest.raises(RecordError, match="has not ended; go on with it first"):
        ttc.replay(path)


# What is refused


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seed": 2}, "seed of run was 1 and is 2"),
        ({"budget": Budget(tokens=401)}, "budget of run was"),
        ({"strategy": "sample(n=7) >> vote()"}, "strategy of run was"),
    ],
)
def test_another_run_is_refused_with_what_differs(
    path: Path, change: dict[str, Any], what: str
) -> None:
    """And the journal is left as it is."""
    solve(path)
    before = path.read_bytes()

    with pytest.raises(JournalMismatch, match=what):
        solve(path, **change)
    assert path.read_bytes() == before


def test_another_engine_is_refused(path: Path) -> None:
    """Its answers would not be those of the run."""
    solve(path)
    other = FakeEngine("x")
    other.numerics = "other"

    with pytest.raises(JournalMismatch, match=r'numerics of run was \{"policy": "fake"\}'):
        solve(path, engine=other)


def test_a_call_that_differs_from_its_record_is_named(path: Path) -> None:
    """By its path, and by what of it differs."""
    length = 20

    @ttc.node(takes=Port("open", "one"), gives=Port("finished", "one"))
    async def asker(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            branch = await scope.generate(candidate.branch, index=0, max_tokens=length)
            yield scope.finish(candidate, branch)

    solve(path, asker)
    length = 30

    with pytest.raises(JournalMismatch, match=r"max_tokens of 0\.asker#0 was 20 and is") as caught:
        solve(path, asker)
    assert (caught.value.path, caught.value.what) == ("0.asker#0", "max_tokens")


def test_a_run_that_comes_to_something_else_is_refused(path: Path) -> None:
    """Whatever the reason: a replay is compared with what was kept."""
    best = "1"

    class Fickle(ScriptedVerifier):
        async def __call__(self, problem: Any, candidates: Any, scope: Any) -> Any:
            again = {"kept": object()}  # is no JSON, so that it works again
            return [Score(value=float(c.answer == best), evidence=again) for c in candidates]

    graph = Sample(n=9) >> Fickle({}) >> Best()
    solve(path, graph, FakeEngine(talker()))
    best = "2"

    with pytest.raises(JournalMismatch, match="answer of end was"):
        ttc.replay(path, graph)


def test_a_second_process_is_told_that_the_run_is_in_use(path: Path) -> None:
    with Lines(path, is_whole=bool):
        with pytest.raises(RecordError, match=r"run is in use by another process; wait for it"):
            solve(path)
        assert info(path).state == "running"


def test_a_full_journal_ends_the_run_and_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more room it goes on from there."""
    append = Lines.append

    def full(self: Lines, line: bytes) -> None:
        self._max_bytes = 5_000
        append(self, line)

    monkeypatch.setattr(Lines, "append", full)
    with pytest.raises(RecordError, match="reached its 5,000 bytes; nothing of it is lost"):
        solve(path)
    monkeypatch.undo()
    assert path.stat().st_size <= 5_000

    engine = FakeEngine(talker(failing=0.2))
    resumed = solve(path, engine=engine)

    fresh = FakeEngine(talker(failing=0.2))
    assert seen(resumed) == seen(solve(path.with_name("other"), engine=fresh))
    assert engine.calls < fresh.calls


def test_the_setting_bounds_the_journal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTC_JOURNAL_MB", "1")

    with pytest.raises(RecordError, match="reached its 1,048,576 bytes"):
        solve(path, "sample(max_tokens=90000) >> vote()", FakeEngine("word " * 90_000), budget=None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a journal\n", "line 1 is damaged"),
        (b'e3e70682 {"is":"run"}\n', "line 1 is damaged"),
    ],
)
def test_a_file_that_is_no_journal_is_left_alone(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)

    with pytest.raises(RecordError, match=message):
        solve(path)
    assert path.read_bytes() == content


def test_a_journal_of_another_version_is_refused(path: Path) -> None:
    from ttc.journal.entries import line_of

    path.write_bytes(line_of({"is": "run", "schema_version": 99}) + b"\n")

    with pytest.raises(RecordError, match="no journal of version 1, but of 99"):
        solve(path)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(RecordError, match="cannot be written"):
        solve(tmp_path / "file" / "run.journal")


def test_a_problem_that_is_no_json_is_refused_before_anything_is_spent(path: Path) -> None:
    engine = FakeEngine("x")
    problem = ttc.Problem.ask("q")
    problem = replace(problem, metadata={"x": object()})

    with pytest.raises(RecordError, match="a journal keeps JSON values only"):
        ttc.solve(problem, VOTE, model=engine, journal=path)
    assert engine.calls == 0
    assert not os.path.exists(path)


@pytest.mark.parametrize("logprob", [-0.5, -math.inf])
def test_given_text_is_read_once(path: Path, logprob: float) -> None:
    """Scores of text are kept under what was read, and a replay has them: SM-04."""

    @ttc.node(takes=Port("open", "one"), gives=Port("finished", "one"))
    async def reader(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            branch = await scope.generate(candidate.branch, index=0, max_tokens=9)
            (logprobs,) = await scope.score(candidate.branch, [branch])
            scope.decide("read", logprobs=repr(logprobs))
            yield scope.finish(candidate, branch)

    engine = FakeEngine("So the answer is 7.", scores=lambda branch, text: logprob)
    first = solve(path, reader, engine)
    reads = len(engine.read)
    again = solve(path, reader, engine)

    assert len(engine.read) == reads > 0
    assert entries(path)
    assert (b"not finite" in path.read_bytes()) == (logprob == -math.inf)
    assert whole(again) == whole(first) == whole(ttc.replay(path, reader))

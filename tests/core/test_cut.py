"""Branches that are cut after any of their tokens."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest

import ttc
from ttc.engine.replay import ReplayEngine
from ttc.engine.simulator import SimulatedProblem, Simulator
from ttc.errors import RecordError
from ttc.pools import Completion, Pool
from ttc.ports import Engine, Request
from ttc.strategies import BeamSearch, Vote
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier
from ttc.types import Branch, Problem, Sampling

PROBLEM = Problem(id="p", prompt="a question")


def generated(engine: Engine, clock: ManualClock, until: tuple[str, ...] = ()) -> Branch:
    """What an engine says."""
    request = Request(
        branch=engine.root(PROBLEM, "policy"),
        max_tokens=99,
        sampling=Sampling(logprobs=2),
        seed=3,
        until=until,
    )
    generation = engine.submit(request)
    clock.advance(1.0)
    return generation.future.result(timeout=1)


def test_a_branch_of_the_first_tokens_has_their_text_and_their_measures() -> None:
    clock = ManualClock()
    engine = FakeEngine("one two three", clock=clock)
    whole = generated(engine, clock)
    cut = engine.cut(whole, whole.num_tokens - 1)

    assert (cut.text, cut.token_ids) == ("one two", (whole.token_ids or ())[:2])
    assert cut.logprobs is not None
    assert cut.top_logprobs is not None
    assert (len(cut.logprobs), len(cut.top_logprobs)) == (2, 2)
    assert (cut.finish_reason, cut.parent) == ("length", whole.parent)


def test_the_text_of_whole_tokens_holds_the_stop_string_that_ended_them() -> None:
    clock = ManualClock()
    engine = FakeEngine("one two. three", clock=clock)
    whole = generated(engine, clock, until=("o.",))

    assert (whole.text, engine.cut(whole, whole.num_tokens).text) == ("one tw", "one two.")


def test_the_simulator_cuts_what_it_said() -> None:
    clock = ManualClock()
    engine = Simulator([SimulatedProblem(id="a question", success=1.0)], clock=clock)
    root = Branch(text="a question", token_ids=(0,) * 32)
    request = Request(branch=root, max_tokens=500, sampling=Sampling(), seed=3)
    generation = engine.submit(request)
    clock.advance(1.0)
    whole = generation.future.result(timeout=1)

    cut = engine.cut(whole, 32 + 5)
    assert (cut.text, len(cut.token_ids or ())) == (" so" * 5, 5)
    assert engine.cut(whole, whole.num_tokens).text == whole.text


def test_a_branch_lets_go_of_what_spells_it_once_its_text_was_read() -> None:
    """An engine's whole vocabulary may hang on that."""

    class Vocabulary:
        def spell(self) -> str:
            return "one two"

    vocabulary = Vocabulary()
    held = weakref.ref(vocabulary)
    cut = Branch(text="one two three", token_ids=(1, 2, 3)).beginning(2, vocabulary.spell)
    del vocabulary

    assert held() is not None
    assert (cut.text, cut.text, held()) == ("one two", "one two", None)


@pytest.mark.parametrize("count", [0, 6, -1])
def test_a_branch_cannot_be_cut_beyond_its_tokens(count: int) -> None:
    clock = ManualClock()
    engine = FakeEngine("one two three", clock=clock)
    whole = generated(engine, clock)

    with pytest.raises(ValueError, match=f"a branch of 5 tokens is cut back to .*, not {count}"):
        engine.cut(whole, count)


def test_a_recorded_completion_cannot_be_cut() -> None:
    pool = Pool([Completion(problem="p", index=0, prompt="a question", text="so")])
    branch = Branch(text="so", token_ids=(1, 2))

    with pytest.raises(RecordError, match="cannot be cut, since it does not go on"):
        ReplayEngine(pool).cut(branch, 1)


def test_a_search_is_told_again_from_its_journal(tmp_path: Path) -> None:
    """Cuts are kept with the rest: no engine is needed, and nothing differs."""
    engine = FakeEngine(lambda r: "The answer is 1." if r.branch.parent else "So.\n\n")
    strategy = BeamSearch(ScriptedVerifier(lambda c: 0.5), num_beams=2, beam_width=2) >> Vote()
    path = tmp_path / "run.journal"
    outcome = ttc.solve("What?", strategy, model=engine, seed=0, journal=path)
    told = ttc.replay(path, strategy=strategy)

    assert (told.answer, told.trace) == (outcome.answer, outcome.trace)

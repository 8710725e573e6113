"""The simulator: its laws are what it says, and a reply depends on the request alone."""

import math
from collections import Counter

import pytest

import ttc
from tests.core.lab import seen
from ttc import EngineError, Sampling, Tail
from ttc.engine.simulator import Hardware, Lengths, SimulatedProblem, Simulator
from ttc.ports import Engine, Generation, Request
from ttc.strategies import Sample, Vote
from ttc.testing import FAKE_COSTS, ManualClock
from ttc.types import Branch, Chunk

LAW = SimulatedProblem(id="a", success=0.6, wrong=(3.0, 1.0), silent=0.1)
SLOW = Hardware(seconds_per_token=0.1)


def simulator(*, hardware: Hardware | None = None, law: SimulatedProblem = LAW) -> Simulator:
    """A simulator of one problem, with a clock of its own."""
    return Simulator([law], hardware=hardware, clock=ManualClock())


def submit(engine: Simulator, index: int, *, max_tokens: int = 512) -> Generation:
    """A call on the problem's prompt."""
    root = next(iter(engine.laws.values()))
    branch = engine.root(root.problem, "policy")
    return engine.submit(
        Request(branch=branch, max_tokens=max_tokens, sampling=Sampling(), seed=index * 7919)
    )


def replies(engine: Simulator, count: int) -> list[Branch]:
    """Some calls' results."""
    calls = [submit(engine, index) for index in range(count)]
    assert isinstance(engine.clock, ManualClock)
    engine.clock.advance(1e6)
    return [call.future.result() for call in calls]


@pytest.mark.statistical
def test_answers_follow_the_law() -> None:
    """4,000 draws: each share within 5 deviations (chance below 1e-6 each); the seeds are fixed."""
    counts = Counter(reply.text.split()[-1] for reply in replies(simulator(), 4000))

    for said, chance in {"1.": 0.6, "2.": 0.225, "3.": 0.075, "up.": 0.1}.items():
        deviation = math.sqrt(4000 * chance * (1 - chance))
        assert abs(counts[said] - 4000 * chance) < 5 * deviation


@pytest.mark.statistical
def test_lengths_follow_the_law_and_the_answer() -> None:
    """The mean logarithm within 5 deviations of 0.35 / sqrt(n), chance below 1e-6; fixed seeds."""
    law = SimulatedProblem(id="a", success=0.5, lengths=Lengths(median=100, right=1.6))
    for said, median in (("1.", 160.0), ("2.", 100.0)):
        logs = [
            math.log(len(reply.token_ids or ()))
            for reply in replies(simulator(law=law), 4000)
            if reply.text.endswith(said)
        ]
        assert abs(sum(logs) / len(logs) - math.log(median)) < 5 * 0.35 / math.sqrt(len(logs))


def test_a_reply_is_a_function_of_problem_seed_and_request() -> None:
    """Not of what came before; another world or another problem draws anew."""
    texts = [reply.token_ids for reply in replies(simulator(), 50)]
    other = Simulator([LAW], seed=1, clock=ManualClock())

    assert [reply.token_ids for reply in replies(simulator(), 50)] == texts
    assert [len(reply.token_ids or ()) for reply in replies(other, 50)] != [
        len(ids or ()) for ids in texts
    ]


def test_a_vote_on_it_repeats_at_any_latency() -> None:
    """Whatever the clock, the memory and the order of arrival."""

    def outcome(hardware: Hardware | None) -> ttc.Outcome:
        engine = simulator(hardware=hardware)
        assert isinstance(engine.clock, ManualClock)
        return engine.clock.run(
            ttc.asolve(LAW.problem, Sample(n=9) >> Vote(), model=engine, clock=engine.clock, seed=3)
        )

    first = outcome(None)
    assert first.answer is not None
    assert seen(outcome(SLOW)) == seen(first)
    assert seen(outcome(Hardware(seconds_per_token=0.1, kv_tokens=600))) == seen(first)


@pytest.mark.parametrize(("at", "produced"), [(0.0, 0), (3.0, 32), (3.2, 32), (3.3, 64), (99, 78)])
def test_a_cancelled_call_pays_for_the_rounds_that_began(at: float, produced: int) -> None:
    """min(length, rounds x every), with rounds of 32 tokens that take 3.2 seconds."""
    law = SimulatedProblem(id="a", success=1.0, lengths=Lengths(median=78, sigma=0.0))
    engine = simulator(hardware=SLOW, law=law)
    call = submit(engine, 0)
    assert isinstance(engine.clock, ManualClock)
    engine.clock.advance(at)

    if at < 7.8:
        assert call.cancel() == produced
    assert engine.output_tokens == produced
    assert call.cancel() == produced


def test_chunks_come_in_rounds_and_join_to_the_text() -> None:
    """With the log probabilities of the best twenty tokens at each place."""
    engine, chunks = simulator(), list[Chunk]()
    branch = engine.root(LAW.problem, "policy")
    request = Request(branch=branch, max_tokens=512, sampling=Sampling(logprobs=20), seed=5)
    call = engine.submit(request, chunks.append)
    assert isinstance(engine.clock, ManualClock)
    engine.clock.advance(0.0)
    whole = call.future.result()

    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert sum((chunk.token_ids or () for chunk in chunks), ()) == whole.token_ids
    assert {len(chunk.token_ids or ()) for chunk in chunks[:-1]} == {32}
    assert len(chunks[0].top_logprobs or ()) == 32
    assert len((chunks[0].top_logprobs or ())[0]) == engine.capabilities.logprobs


def test_memory_bounds_what_runs_at_once() -> None:
    """A call waits until its worst case fits beside those of the others; a prefix is held once."""
    engine = simulator(hardware=Hardware(seconds_per_token=0.1, kv_tokens=32 + 2 * 512))
    branch = engine.root(LAW.problem, "policy")
    calls = [
        engine.submit(Request(branch=branch, max_tokens=512, sampling=Sampling(), seed=i))
        for i in range(5)
    ]
    assert isinstance(engine.clock, ManualClock)
    engine.clock.advance(1e4)

    assert engine.most_kv_tokens == 32 + 2 * 512
    assert [call.usage.cached_input_tokens for call in calls] == [0, 32, 32, 32, 32]
    assert engine.memory.pinned == 0


def test_what_the_ledger_books_is_what_the_simulator_counted() -> None:
    """Operations, memory and cached tokens, where its model's costs are known."""
    engine = simulator(hardware=Hardware(seconds_per_token=0.1, costs=FAKE_COSTS))
    assert isinstance(engine.clock, ManualClock)
    usage = engine.clock.run(
        ttc.asolve(LAW.problem, Sample(n=4) >> Vote(), model=engine, clock=engine.clock, seed=0)
    ).usage

    assert usage.flops == engine.flops > 0
    assert usage.kv_byte_seconds == pytest.approx(engine.kv_byte_seconds)
    assert usage.cached_input_tokens == 3 * 32
    assert engine.capabilities.price
    assert not simulator().capabilities.price


def test_a_cut_trace_answers_when_it_is_made_to() -> None:
    """After a cue, by a tail; late in the trace with its own answer."""
    law = SimulatedProblem(id="a", success=1.0, lengths=Lengths(median=300))
    engine = simulator(law=law)
    assert isinstance(engine.clock, ManualClock)
    sample = Sample(n=3, max_tokens=64, tail=Tail(cue="\nThe answer is"))
    outcome = engine.clock.run(
        ttc.asolve(law.problem, sample >> Vote(), model=engine, clock=engine.clock, seed=0)
    )

    assert outcome.answer == "1"
    assert all(len(c.branch.token_ids or ()) == 1 for c in outcome.candidates)


def test_words_before_a_trace_force_no_answer() -> None:
    """Only after a trace a cue does."""
    engine = simulator(law=SimulatedProblem(id="a", success=1.0))
    begun = engine.append(engine.root(engine.laws["a"].problem, "policy"), "Thought:")
    call = engine.submit(Request(branch=begun, max_tokens=512, sampling=Sampling(), seed=1))
    assert isinstance(engine.clock, ManualClock)
    engine.clock.advance(0)

    assert call.future.result().text.endswith(" The answer is 1.")


def test_a_stop_string_ends_a_reply() -> None:
    """At the token that completes it."""
    engine = simulator(law=SimulatedProblem(id="a", success=1.0))
    branch = engine.root(engine.laws["a"].problem, "policy")
    call = engine.submit(
        Request(branch=branch, max_tokens=512, sampling=Sampling(), seed=1, until=("answer",))
    )
    assert isinstance(engine.clock, ManualClock)
    engine.clock.advance(0)
    reply = call.future.result()

    assert (reply.finish_reason, reply.stop_reason) == ("stop", "answer")
    assert reply.text.endswith(" The ")


def test_what_it_cannot_do_is_refused() -> None:
    """Unknown problems, stop tokens, and laws that are none."""
    engine: Engine = simulator()
    with pytest.raises(EngineError, match="no problem 'b'"):
        engine.root(ttc.Problem(id="b", prompt="b"), "policy")
    root = engine.root(LAW.problem, "policy")
    with pytest.raises(EngineError, match="placeholders"):
        engine.submit(Request(branch=root, max_tokens=9, sampling=Sampling(), seed=1, until=(7,)))
    with pytest.raises(ValueError, match="chances"):
        SimulatedProblem(id="a", success=0.8, silent=0.3)
    with pytest.raises(ValueError, match="positive mass"):
        SimulatedProblem(id="a", success=0.8, wrong=())
    with pytest.raises(ValueError, match="median"):
        Lengths(median=0)

"""The fakes that ttc gives to those who test their strategies."""

import asyncio
import time

import pytest

import ttc
from tests.core.lab import QUESTION
from ttc import Budget, EngineError, Problem
from ttc.ports import Request
from ttc.registry import install_hint, load_engine, lookup, names
from ttc.strategies import Sample, Vote
from ttc.testing import FakeEngine, ManualClock, Script, ScriptedVerifier, finished
from ttc.types import Branch, Sampling


def generate(engine: FakeEngine, clock: ManualClock, **options: object) -> Branch:
    """One call of an engine."""
    request = Request(
        branch=engine.root(Problem.ask(QUESTION), "policy"),
        max_tokens=options.pop("max_tokens", 50),  # type: ignore[arg-type]
        sampling=Sampling(),
        seed=0,
        **options,  # type: ignore[arg-type]
    )

    async def call() -> Branch:
        return await asyncio.wrap_future(engine.submit(request).future)

    return clock.run(call())


def test_a_clock_jumps_over_every_wait() -> None:
    """Thirty seconds pass in no time, and in their order."""
    clock, rung = ManualClock(), []
    clock.call_later(20, lambda: rung.append((clock.now(), "late")))
    clock.call_later(10, lambda: rung.append((clock.now(), "early")))
    clock.call_later(15, lambda: rung.append((clock.now(), "never"))).cancel()

    async def wait() -> None:
        done = asyncio.Event()
        clock.call_later(30, done.set)
        await done.wait()

    started = time.perf_counter()
    clock.run(wait())

    assert time.perf_counter() - started < 5
    assert rung == [(10.0, "early"), (20.0, "late")]
    assert clock.now() == 30


def test_a_clock_moves_as_far_as_it_is_told() -> None:
    """And calls back everyone on the way."""
    clock, rung = ManualClock(), []
    for seconds in (1.0, 2.0, 3.0):
        clock.call_later(seconds, lambda: rung.append(clock.now()))
    clock.advance(2.5)

    assert (rung, clock.now()) == ([1.0, 2.0], 2.5)


def test_an_engine_ends_at_a_stop_string() -> None:
    """The string is not part of the text, and its tokens were generated."""
    clock = ManualClock()
    engine = FakeEngine("one two STOP three", clock=clock)
    branch = generate(engine, clock, until=("STOP",))

    assert branch.text == "one two "
    assert (branch.finish_reason, branch.stop_reason) == ("stop", "STOP")
    assert engine.output_tokens == 3


def test_an_engine_never_exceeds_max_tokens() -> None:
    """And says that it was cut."""
    clock = ManualClock()
    engine = FakeEngine("one two three", clock=clock)
    branch = generate(engine, clock, max_tokens=2)

    assert (branch.text, branch.finish_reason) == ("one two", "length")
    assert branch.logprobs == (-0.5, -0.5)


def test_an_engine_runs_as_many_calls_as_it_has_slots() -> None:
    """Others wait in line, and a cancelled one makes room."""
    clock = ManualClock()
    engine = FakeEngine("one two", clock=clock, concurrency=2, seconds_per_token=1.0)
    outcome = clock.run(
        ttc.asolve(QUESTION, Sample(n=7) >> Vote(), model=engine, clock=clock, seed=0)
    )

    assert (engine.most_active, engine.active, outcome.usage.calls) == (2, 0, 7)
    assert clock.now() == 8.0


def test_replies_come_by_seed_or_in_order() -> None:
    """By seed they are a function of the request; in order they go around."""
    for in_order in (False, True):
        engines = [FakeEngine(["a", "b", "c"], in_order=in_order) for _ in range(2)]
        texts = [
            [c.text for c in ttc.solve(QUESTION, Sample(n=6) >> Vote(), model=e, seed=1).candidates]
            for e in engines
        ]
        assert texts[0] == texts[1]
        assert not in_order or texts[0] == ["a", "b", "c"] * 2


def test_a_verifier_is_scripted_by_answer_or_by_function() -> None:
    """And remembers whom it saw."""
    by_answer = ScriptedVerifier({"1": 0.5})
    by_function = ScriptedVerifier(lambda c: float("nan"))
    candidates = [finished("1"), finished("2")]
    scope: object = None

    async def ask(verifier: ScriptedVerifier) -> list[float | None]:
        scores = await verifier(Problem.ask("q"), candidates, scope)  # type: ignore[arg-type]
        return [score.value for score in scores]

    assert asyncio.run(ask(by_answer)) == [0.5, None]
    assert asyncio.run(ask(by_function)) == [None, None]
    assert by_answer.seen == candidates
    assert finished("1", score=0.25).scores["scripted"].value == 0.25


def test_names_are_looked_up_and_unknown_ones_listed() -> None:
    """The message holds every name that there is."""
    assert lookup("nodes", "sample") is Sample
    assert "sequence_probability" in names("verifiers")
    with pytest.raises(KeyError, match="'nope' is none of the nodes: abstain, action, ad"):
        lookup("nodes", "nope")
    assert install_hint("local") == 'pip install "ttc-orchestrator[local]"'


class Entry:
    """An entry point."""

    def __init__(self, name: str, value: str) -> None:
        self.name, self.value = name, value

    def load(self) -> object:
        """What it names."""
        return Vote


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([Entry("vote", "other:Vote")], "'vote' of other:Vote is built in"),
        ([Entry("x", "a:X"), Entry("x", "b:X")], "b:X and a:X both register the name 'x'"),
    ],
)
def test_a_clash_of_names_is_an_error_that_names_both(
    entries: list[Entry], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is replaced without a word."""
    from ttc import registry

    registry._third_party.cache_clear()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries)
    with pytest.raises(ttc.GraphError, match=fault):
        names("nodes")


def test_a_third_party_adds_nodes_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are loaded when they are asked for."""
    from ttc import registry
    from ttc.text_form import parse

    registry._third_party.cache_clear()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Entry("my_vote", "a:X")])

    assert parse("sample(n=2) >> my_vote()") == Sample(n=2) >> Vote()
    registry._third_party.cache_clear()


def test_an_engine_is_its_own_name() -> None:
    """Whoever has one passes it."""
    engine = FakeEngine("")

    assert load_engine(engine) is engine
    with pytest.raises(ValueError, match=r"is no local model, which arithmetic='int8' is for"):
        load_engine(engine, arithmetic="int8")


def test_an_error_in_a_script_is_a_failed_call() -> None:
    """One error for all, one of several, or one of a function."""
    error = EngineError("broken")
    scripts: list[Script] = [error, [error], lambda _: error]
    for script in scripts:
        outcome = ttc.solve(QUESTION, Sample(n=1) >> Vote(), model=FakeEngine(script))
        assert outcome.candidates[0].error == "broken"


def test_a_deadline_is_measured_by_the_clock_of_the_run() -> None:
    """No test of a budget of seconds sleeps."""
    clock = ManualClock()
    engine = FakeEngine("no end " * 500, clock=clock, seconds_per_token=1.0)
    outcome = clock.run(
        ttc.asolve(
            QUESTION, Sample(n=2) >> Vote(), model=engine, budget=Budget(seconds=30), clock=clock
        )
    )

    assert outcome.usage.seconds == pytest.approx(30)
    assert outcome.usage.output_tokens == 2 * 29 or outcome.usage.output_tokens == 2 * 30


def test_one_fake_cuts_what_another_has_said() -> None:
    """As in a run that goes on in another process; a word that it cannot know is refused."""
    other, prompt = FakeEngine(""), FakeEngine("").root(Problem.ask(QUESTION), "policy").num_tokens
    clear, glued = (
        generate(FakeEngine(reply), ManualClock(), until=("\n\n",))
        for reply in ("So it is 1.\n\n", "So it is 1.\n\nAnd on.")
    )

    assert other.cut(clear, prompt + 4).text == "So it is 1."
    assert other.cut(clear, prompt + 5).text == "So it is 1.\n\n"
    with pytest.raises(EngineError, match="end replies with the delimiter"):
        other.cut(glued, prompt + 5)

"""What verifiers read of tokens is asked of the engines that make them, or refused at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pytest

import ttc
from tests.core.lab import QUESTION
from ttc import GraphError
from ttc.graph import Port
from ttc.ports import Capabilities, Scope, Stream
from ttc.strategies import Best, Sample, Vote
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Candidate, Problem, Sampling, Score


@dataclass(frozen=True, kw_only=True)
class Both:
    """A verifier made of two."""

    parts: tuple[ScriptedVerifier, ...]
    name: str = "both"
    range: tuple[float, float] | None = (0.0, 1.0)
    needs: Literal["each", "all"] = "each"

    @property
    def requires(self) -> frozenset[str]:
        return frozenset().union(*(part.requires for part in self.parts))

    @property
    def roles(self) -> frozenset[str]:
        return frozenset().union(*(part.roles for part in self.parts))

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        scores = [await scope.verify(part, candidates) for part in self.parts]
        return scores[-1]


def needing(
    *needs: str, name: str = "needy", roles: frozenset[str] = frozenset()
) -> ScriptedVerifier:
    return ScriptedVerifier({"1": 0.5}, name=name, requires=frozenset(needs), roles=roles)


def lacking(**capabilities: object) -> FakeEngine:
    """A fake engine that cannot do everything."""
    engine = FakeEngine("The answer is 1.")
    engine.capabilities = replace(engine.capabilities, **capabilities)  # type: ignore[arg-type]
    return engine


def sampled(engine: FakeEngine) -> set[Sampling]:
    return {request.sampling for request in engine.requests}


@pytest.mark.parametrize(
    ("needs", "asked"),
    [
        (("entropy",), Sampling(entropy=True)),
        (("logprobs>=20",), Sampling(logprobs=20)),
        (("logprobs>=5", "logprobs>=8", "entropy"), Sampling(logprobs=8, entropy=True)),
        (("logprobs",), Sampling()),
    ],
)
def test_what_a_verifier_requires_is_asked_for(needs: tuple[str, ...], asked: Sampling) -> None:
    """No strategy has to say it twice."""
    engine = FakeEngine("The answer is 1.")

    ttc.solve(QUESTION, Sample(n=2) >> needing(*needs) >> Best(), model=engine)

    assert sampled(engine) == {asked}


def test_a_bias_needs_an_engine_that_takes_one() -> None:
    """Before anything is spent, by the node's own need; and what is passed on is what was asked."""
    bias = ((7, -100.0),)
    with pytest.raises(GraphError, match=r"0\.sample: needs logit_bias, .* fake lacks"):
        ttc.solve(QUESTION, Sample(logit_bias=bias) >> Vote(), model=lacking())
    engine = lacking(logit_bias=True)

    ttc.solve(QUESTION, Sample(n=2, logit_bias=bias) >> Vote(), model=engine)

    assert sampled(engine) == {Sampling(logit_bias=bias)}


def test_what_nobody_reads_is_not_measured() -> None:
    """Measuring costs time."""
    engine = FakeEngine("The answer is 1.")

    ttc.solve(QUESTION, Sample(n=2) >> Vote(), model=engine)

    assert sampled(engine) == {Sampling()}


def test_an_engine_that_lacks_it_is_refused_before_anything_is_spent() -> None:
    """The fault names the node, the need and the engine."""
    engine = lacking(entropy=False, logprobs=5)
    strategy = Sample(n=2) >> needing("entropy", "logprobs>=20") >> Best()

    with pytest.raises(GraphError, match=r"1\.verify: needs entropy, logprobs>=20, .* fake lacks"):
        ttc.solve(QUESTION, strategy, model=engine)
    assert engine.calls == 0


def test_it_is_asked_of_the_role_that_makes_the_tokens() -> None:
    """Not of the policy, if another model is sampled."""
    policy, small = lacking(entropy=False), FakeEngine("The answer is 1.")
    strategy = Sample(n=2, role="small") >> needing("entropy") >> Best()

    ttc.solve(QUESTION, strategy, model=policy, models={"small": small})

    assert sampled(small) == {Sampling(entropy=True)}
    with pytest.raises(GraphError, match="needs entropy"):
        ttc.solve(QUESTION, strategy, model=small, models={"small": policy})


def test_each_part_of_a_verifier_asks_of_its_own_roles() -> None:
    """A judge's engine need not measure what is read of the policy's tokens."""
    judge = lacking(entropy=False)
    both = Both(
        parts=(needing("entropy"), needing("logprobs", name="judge", roles=frozenset({"judge"})))
    )
    strategy = Sample(n=2) >> both >> Best()

    outcome = ttc.solve(
        QUESTION, strategy, model=FakeEngine("The answer is 1."), models={"judge": judge}
    )

    assert outcome.answer == "1"


def test_a_verifier_made_of_others_costs_what_they_cost() -> None:
    """Two verifier calls for each of three candidates, and none for the whole."""
    both = Both(parts=(needing(name="a"), needing(name="b")))
    strategy = Sample(n=3) >> both >> Best()
    engine = FakeEngine("The answer is 1.")

    outcome = ttc.solve(QUESTION, strategy, model=engine)

    assert outcome.usage.verifier_calls == 6
    assert strategy.worst_case(outcome.problem, engine).verifier_calls == 6


def test_a_node_that_asks_for_what_there_is_not_is_told() -> None:
    """Its own sampling is no demand that could have been seen before."""

    @ttc.node(takes=Port("open", "many"), gives=Port("finished", "one"))
    async def greedy(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            branch = await scope.generate(
                candidate.branch, index=0, max_tokens=8, sampling=Sampling(logprobs=6)
            )
            yield scope.finish(candidate, branch)

    with pytest.raises(ttc.NodeError, match=r"logprobs=6 .* the engine fake, which has logprobs=5"):
        ttc.solve(QUESTION, greedy, model=lacking(logprobs=5))


@pytest.mark.parametrize("logprobs", [-1, 21, 1.0, True])
def test_a_number_of_logprobs_that_makes_no_sense_is_refused(logprobs: object) -> None:
    """With the value."""
    with pytest.raises(ValueError, match=rf"logprobs lies in 0 to 20, not {logprobs}"):
        Sampling(logprobs=logprobs)  # type: ignore[arg-type]


def test_capabilities_that_are_numbers_are_compared() -> None:
    """And a name that is none is an error."""
    has = Capabilities(logprobs=5)

    assert has.has("logprobs")
    assert has.has("logprobs>=5")
    assert not has.has("logprobs>=6")
    assert not has.has("speculation")
    assert Capabilities(speculation="ngram, coupled").has("speculation")
    with pytest.raises(ValueError, match="no capability is called 'logprob'"):
        has.has("logprob>=6")
    with pytest.raises(ValueError, match="no capability is called 'logprobs'"):
        has.has("logprobs>=x")

"""Physical resources: reserved or measured, limited in any mixture, and booked to the last one."""

from collections.abc import AsyncGenerator
from datetime import date
from itertools import combinations
from typing import Any

import pytest

from tests.core.lab import PROMPT, Solved, lines, solved, talker
from ttc import Budget, Candidate, EngineError, Tail, Usage, node
from ttc.graph import Port
from ttc.ports import Scope, Stream
from ttc.prices import Price, Prices
from ttc.strategies import Best, Cascade, Sample, Vote, confidence
from ttc.testing import FAKE_COSTS, ScriptedVerifier
from ttc.types import Record

SAID = "so the answer is 1"
TAIL = Tail(cue=" The answer is", max_tokens=2)
PRICES = Prices(
    [Price(model="fake", date=date(2026, 1, 1), input=1, output=4)]  # type: ignore[arg-type]
)
MIX = (Sample(n=6, max_tokens=5, tail=TAIL) | Sample(n=4, max_tokens=9)) >> Vote()


def priced(graph: Any, *args: Any, **kwargs: Any) -> Solved:
    """A run whose tokens cost a millionth of a dollar, and four when they are generated."""
    return solved(graph, *args, prices=PRICES, **kwargs)


@pytest.mark.parametrize("failing", [0.0, 0.5])
def test_every_physical_line_is_the_engines_own_count(failing: float) -> None:
    """Through tails, failures, parts that run together, and stops; see `check_counts`."""
    run = priced(MIX, talker(failing=failing), pace=0.05)
    usage, engine = run.outcome.usage, run.engine

    assert usage.flops == engine.flops > 0
    assert usage.cost_usd == pytest.approx(
        (engine.input_tokens + 4 * engine.output_tokens) / 1e6, rel=1e-12
    )
    assert usage.kv_byte_seconds == pytest.approx(engine.kv_byte_seconds, rel=1e-9)
    assert run.spent["cost_usd"] == round((usage.cost_usd or 0) * 10**12)


def test_roles_sum_to_the_whole_and_keep_a_judges_work_apart() -> None:
    """What a judge asked of its model is not charged to the candidate that it judged."""

    class Judge(ScriptedVerifier):
        async def __call__(self, problem: Any, candidates: Any, scope: Scope) -> Any:
            """Asks a model before it scores."""
            await scope.generate(scope.root("judge"), index=0, max_tokens=3)
            return await super().__call__(problem, candidates, scope)

    judge = Judge({"1": 0.5}, roles=frozenset({"judge"}))
    plain = priced(Sample(n=3, max_tokens=9) >> ScriptedVerifier({"1": 0.5}) >> Best(), SAID)
    judged = priced(Sample(n=3, max_tokens=9) >> judge >> Best(), SAID, roles=["judge"])
    by_role = judged.outcome.usage_by_role

    assert lines(by_role["policy"]) == lines(plain.outcome.usage_by_role["policy"])
    assert [c.usage for c in judged.outcome.candidates] == [
        c.usage for c in plain.outcome.candidates
    ]
    assert by_role["judge"].calls == 3
    assert lines(sum(by_role.values(), Usage())) == lines(judged.outcome.usage)


def granted(run: Solved) -> list[int | None]:
    """What each call was granted; `None` where it was refused."""
    return [r.detail.get("granted") for r in run.outcome.trace if r.kind == "call"]


def worst(prompt: int, output: int) -> int:
    """FLOPs of a call of the fake engine, of which nothing is cached."""
    return FAKE_COSTS.worst_case(prompt, output)


def test_a_limit_on_flops_shrinks_a_call_to_what_fits() -> None:
    """The greatest number of tokens whose worst case is left, and the run says what acted."""
    first = worst(PROMPT, 10)
    run = solved(
        Sample(n=3, max_tokens=10, at_least=2) >> Vote(),
        "no end " * 30,
        budget=Budget(flops=first + worst(PROMPT, 6) + 1),
    )

    assert granted(run) == [10, 6, None]
    assert run.outcome.stopped_by == "flops"
    assert run.outcome.timing_dependent == ("a physical limit acted: flops",)


def test_a_limit_on_dollars_is_never_overrun_though_caches_are_unknown() -> None:
    """Two calls of 8 prompt and 10 output tokens cost at most 48 millionths each."""
    run = priced(
        Sample(n=3, max_tokens=10) >> Vote(), "no end " * 30, budget=Budget(cost_usd=0.0000961)
    )

    assert [r.detail.get("granted") for r in run.outcome.trace if r.kind == "call"] == [
        10,
        10,
        None,
    ]
    assert run.outcome.usage.cost_usd == pytest.approx(0.000096)
    assert run.outcome.refusal is not None
    assert run.outcome.refusal.remaining == pytest.approx(1e-7)
    assert run.outcome.stopped_by == "cost_usd"


def test_a_tail_is_paid_for_beforehand_as_a_request_of_its_own() -> None:
    """Its prompt is everything before it, which may have to be computed again."""
    graph = Sample(n=1, max_tokens=4, at_least=4, tail=TAIL) >> Vote()
    whole = worst(PROMPT, 4) + worst(PROMPT + 4 + 3, 2)
    enough = solved(graph, "no end " * 30, budget=Budget(flops=whole))
    short = solved(graph, "no end " * 30, budget=Budget(flops=whole - 1))

    assert enough.outcome.usage.flops == whole
    assert (short.engine.calls, short.outcome.stopped_by) == (0, "flops")


LIMITS = {
    "tokens": PROMPT + 31,
    "calls": 4,
    "verifier_calls": 1,
    "flops": 3 * worst(PROMPT, 9),
    "cost_usd": 1e-4,
    "kv_byte_seconds": 120.0,
    "seconds": 0.6,
}
GRAPH = Cascade(
    Sample(n=2, max_tokens=9, ahead=1) >> ScriptedVerifier({"1": 0.4}) >> Best(),
    Sample(n=6, max_tokens=9, ahead=2) >> Vote(),
    accept=confidence(0.9),
)


@pytest.mark.parametrize("names", [*combinations(LIMITS, 1), *combinations(LIMITS, 2), (*LIMITS,)])
def test_any_mixture_of_limits_holds(names: tuple[str, ...]) -> None:
    """Each alone acts in this run, and two or all of them are kept together."""
    budget: dict[str, Any] = {name: LIMITS[name] for name in names}
    run = priced(GRAPH, SAID, budget=Budget(**budget), pace=0.05)
    usage = run.outcome.usage

    assert run.outcome.stopped_by in names
    for name in set(names) - {"seconds", "kv_byte_seconds"}:
        assert getattr(usage, name) <= LIMITS[name] * (1 + 1e-12)


def test_a_limit_on_memory_is_overrun_by_what_is_in_flight_at_most() -> None:
    """Of four calls that end together, the one that reaches the limit may be the first."""
    alone = solved(Sample(n=1, max_tokens=9) >> Vote(), SAID).outcome.usage.kv_byte_seconds
    assert alone
    run = solved(
        Sample(n=40, max_tokens=9, ahead=4) >> Vote(),
        SAID,
        budget=Budget(kv_byte_seconds=6 * alone),
    )
    held = run.outcome.usage.kv_byte_seconds

    assert held is not None
    assert 6 * alone <= held <= (6 + 3) * alone
    assert run.outcome.answer == "1"
    assert run.outcome.stopped_by == "kv_byte_seconds"
    assert run.outcome.timing_dependent == ("a physical limit acted: kv_byte_seconds",)


@node(takes=Port("open", "many"))
async def runs_programs(
    candidates: Stream[Candidate], scope: Scope
) -> AsyncGenerator[Candidate, None]:
    """Books what a sandbox would, one program after another."""
    run: Any = scope._run  # type: ignore[attr-defined]
    root = await anext(candidates)
    for index in range(9):
        run.check_deadline()
        used = Usage(sandbox_seconds=0.4)
        run.book("sandbox", used)
        run.journal.add(Record(path=scope.path, index=index, kind="decision", usage=used))
        branch = await scope.generate(root.branch, index=index, max_tokens=9)
        yield scope.finish(root, branch)


def test_a_limit_on_the_sandbox_ends_the_run_once_it_is_reached() -> None:
    """The program that reached it was the last; what had been found until then stands."""
    outcome = solved(runs_programs >> Vote(), SAID, budget=Budget(sandbox_seconds=1.0)).outcome

    assert outcome.usage.sandbox_seconds == pytest.approx(1.2)
    assert outcome.usage_by_role["sandbox"].sandbox_seconds == pytest.approx(1.2)
    assert (outcome.answer, outcome.stopped_by) == ("1", "sandbox_seconds")
    assert len(outcome.candidates) == 2


def test_what_remains_is_told_in_the_units_of_a_budget() -> None:
    """A node may plan by it."""
    seen: list[Budget] = []

    @node(takes=Port("open", "many"))
    async def look(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        root = await anext(candidates)
        branch = await scope.generate(root.branch, index=0, max_tokens=9)
        seen.append(scope.remaining)
        yield scope.finish(root, branch)

    priced(look >> Vote(), SAID, budget=Budget(cost_usd=1, flops=10**6, kv_byte_seconds=100))

    assert seen[0].cost_usd == pytest.approx(1 - (PROMPT + 4 * 5) / 1e6)
    assert seen[0].flops == 10**6 - worst(PROMPT, 5)
    assert seen[0].kv_byte_seconds is not None
    assert 0 < seen[0].kv_byte_seconds < 100
    assert seen[0].tokens is None


def test_the_work_of_a_rejected_draft_is_charged() -> None:
    """A small model's step that a large one throws away stands in its own role, to the token."""

    @node(takes=Port("open", "many"))
    async def speculate(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        root = await anext(candidates)
        await scope.generate(scope.root("draft"), index=0, max_tokens=4)
        yield scope.finish(root, await scope.generate(root.branch, index=1, max_tokens=9))

    run = priced(speculate >> Vote(), SAID, roles=["draft"])

    assert run.outcome.usage_by_role["draft"].output_tokens == 4
    assert run.outcome.usage.output_tokens == run.engine.output_tokens == 9


def test_a_failed_call_pays_for_what_its_engine_did() -> None:
    """Its prompt was computed, and a token had been generated."""
    run = priced(Sample(n=1, max_tokens=5) >> Vote(), EngineError("broke", output_tokens=1))

    assert run.outcome.usage.flops == run.engine.flops == worst(PROMPT, 1)
    assert run.outcome.usage.cost_usd == pytest.approx((PROMPT + 4) / 1e6)

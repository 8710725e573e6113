"""Runs over many problems that are changed by hand at any moment, with and without allocators."""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import ttc
from tests.allocate.lab import FIRST_RIGHT, laws
from tests.core.lab import Ledgers, check_no_task_is_left
from ttc import Budget, Control, Node, Outcome
from ttc.allocate import (
    Allocator,
    Bandit,
    GreedyGain,
    OptScale,
    ShadowPrice,
    Uniform,
    UniformStop,
)
from ttc.engine.simulator import Hardware, Simulator, _Generation
from ttc.ports import Request
from ttc.strategies import (
    CannotBeOvertaken,
    Cascade,
    Sample,
    SampleInRounds,
    SelfConsistency,
    Vote,
    confidence,
)
from ttc.testing import ManualClock
from ttc.types import Chunk

LAWS = laws(8)
GRAPHS: Sequence[Node] = (
    FIRST_RIGHT,
    Sample(n=6, max_tokens=256) >> Vote(stop=CannotBeOvertaken()),
    Sample(n=5, max_tokens=300, ahead=2) >> Vote(),
    (Sample(n=3, max_tokens=200) | Sample(n=2, max_tokens=256, ahead=1)) >> Vote(),
    SampleInRounds(n=4, first=2, max_tokens=256) >> Vote(),
    Cascade(
        SelfConsistency(n=3, max_tokens=200),
        SelfConsistency(n=6, max_tokens=256),
        accept=confidence(0.9),
    ),
)
ALLOCATORS: Sequence[Allocator | None] = (
    None,
    Uniform(window=5),
    UniformStop(window=4),
    GreedyGain(window=5),
    Bandit(window=3),
    OptScale(window=5),
    ShadowPrice(window=5, num_open=4),
    GreedyGain(window=3, num_open=2),
)
PLACES = st.integers(0, 7)
CHANGES: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("tokens"), st.sampled_from([0, 200, 1000, 2500, 12_000, 40_000])),
    st.tuples(st.just("calls"), st.sampled_from([0, 3, 20])),
    st.tuples(st.just("seconds"), st.sampled_from([1.0, 4.0, 9.0])),
    st.tuples(st.just("of one"), st.tuples(PLACES, st.sampled_from([0, 500, 2000]))),
    st.tuples(st.just("cancel"), st.one_of(st.none(), PLACES, PLACES, PLACES)),
    st.tuples(st.just("hold"), st.booleans()),
)


class CountingSimulator(Simulator):
    """A simulator that can tell at any moment what its calls have spent until then."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.generations: list[_Generation] = []

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> _Generation:
        """Keeps the call."""
        self.generations.append(super().submit(request, on_chunk))
        return self.generations[-1]

    @property
    def spent(self) -> int:
        """Tokens that were generated until now, and each problem's prompt once."""
        prompts = {call._request.branch for call in self.generations}
        produced = (c._given if c.ended else c._produced() for c in self.generations)
        return sum(produced) + sum(branch.num_tokens for branch in prompts)


def change(control: Control, what: str, value: Any) -> None:
    """Steers a run."""
    if what == "of one":
        control.set_budget(value[0], tokens=value[1])
    elif what == "cancel":
        control.cancel(value)
    elif what == "hold":
        (control.pause if value else control.resume)()
    else:
        control.set_budget(**{what: value})


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(GRAPHS),
    st.sampled_from(ALLOCATORS),
    st.sampled_from([0, 300, 3000, 9000, 30_000]),
    st.lists(st.tuples(st.floats(-1.0, 12.0), CHANGES), max_size=4),
    st.sampled_from([1, 4, 64]),
    st.sampled_from([1_000_000, 1500]),
)
def test_a_run_that_is_changed_by_hand_keeps_its_limits_and_ends(
    graph: Node,
    allocator: Allocator | None,
    tokens: int,
    changes: list[tuple[float, tuple[str, Any]]],
    concurrency: int,
    memory: int,
) -> None:
    """What was spent when a limit fell below it is all that is ever spent beyond the limit."""
    clock, ledgers, control = ManualClock(), Ledgers(), Control()
    hardware = Hardware(seconds_per_token=0.01, kv_tokens=memory)
    engine = CountingSimulator(LAWS, every=8, hardware=hardware, clock=clock)
    allowed = [tokens]

    def act(what: str, value: Any) -> None:
        if what == "tokens":
            allowed.append(max(value, engine.spent))
        change(control, what, value)

    for moment, (what, value) in changes:
        if moment < 0:
            act(what, value)  # before the run has begun
        else:
            clock.call_later(moment, lambda what=what, value=value: act(what, value))  # type: ignore[misc]
    clock.call_later(50, control.resume)

    async def run() -> list[Outcome]:
        outcomes = await ttc.asolve_many(
            [law.problem for law in LAWS],
            graph,
            model=engine,
            budget=Budget(tokens=tokens),
            allocator=allocator,
            concurrency=concurrency,
            seed=0,
            clock=clock,
            control=control,
        )
        check_no_task_is_left()
        return outcomes

    with ledgers:
        outcomes = clock.run(run())
    ledgers.check_settled()
    assert sum(outcome.usage.tokens for outcome in outcomes) == engine.spent <= allowed[-1]

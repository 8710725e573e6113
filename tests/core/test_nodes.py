"""Nodes that users write, good ones and misbehaving ones, and what a scope gives them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.core.lab import PROMPT, Solved, UserNode, solved, talker, uneven
from ttc import Budget, BudgetExceeded, Candidate, EngineError, NodeError, node
from ttc.graph import Port
from ttc.ports import Scope, Stream
from ttc.strategies import Best, CannotBeOvertaken, Sample, SelfConsistency, Verify, Vote
from ttc.testing import ScriptedVerifier
from ttc.types import Branch, Chunk

SAID = "The answer is 1."
OPEN, ONE = Port("open", "many"), Port("finished", "one")


def run(work: Callable[[Candidate, Scope], Awaitable[object]], **options: Any) -> Solved:
    """Runs `work` as the body of a first node."""

    @node(takes=OPEN)
    async def first(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        root = await anext(candidates)
        result = await work(root, scope)
        if isinstance(result, Branch):
            yield scope.finish(root, result)

    return solved(first >> Vote(), options.pop("script", SAID), **options)


async def _passes(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    async for candidate in candidates:
        yield candidate


async def _returns_early(
    candidates: Stream[Candidate], scope: Scope
) -> AsyncGenerator[Candidate, None]:
    first = await anext(candidates, None)
    if first is not None:
        yield first


async def _yields_nothing(
    candidates: Stream[Candidate], scope: Scope
) -> AsyncGenerator[Candidate, None]:
    for _ in ():
        yield await anext(candidates)


async def _breaks(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    while (candidate := await anext(candidates, None)) is not None:
        yield candidate
        if candidate.answer == "2":
            return


async def _stops_and_reads_on(
    candidates: Stream[Candidate], scope: Scope
) -> AsyncGenerator[Candidate, None]:
    async for candidate in candidates:
        candidates.stop()
        yield candidate


async def _yields_twice(
    candidates: Stream[Candidate], scope: Scope
) -> AsyncGenerator[Candidate, None]:
    async for candidate in candidates:
        yield candidate
        yield candidate


async def _swallows_cancellation(
    candidates: Stream[Candidate], scope: Scope
) -> AsyncGenerator[Candidate, None]:
    last = await anext(candidates)
    while True:
        try:
            yield last
            last = await anext(candidates)
        except asyncio.CancelledError:
            last = replace(last, answer="late", key="late")
        except StopAsyncIteration:
            return


async def _goes_on_after_its_end(
    candidates: Stream[Candidate], scope: Scope
) -> AsyncGenerator[Candidate, None]:
    first = await anext(candidates)
    try:
        yield first
        await asyncio.Event().wait()
    finally:
        branch = await scope.generate(scope.root(), index=0, max_tokens=9)
        yield scope.finish(first, branch)


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (_passes, "1"),
        (_returns_early, "1"),
        (_yields_nothing, None),
        (_breaks, "1"),
        (_stops_and_reads_on, "1"),
        (_yields_twice, "1"),
        (_swallows_cancellation, "1"),
        (_goes_on_after_its_end, "1"),
    ],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_a_node_may_behave_as_it_likes(function: UserNode, answer: str, stopped: bool) -> None:
    """Everything is settled and counted, whether it ends by itself or is stopped."""
    if function is _goes_on_after_its_end and not stopped:
        return  # it would wait for ever
    vote = Vote(stop=CannotBeOvertaken())
    graph = Sample(n=5) >> node(function) >> (node(gives=ONE)(_returns_early) if stopped else vote)
    outcome = solved(graph, [SAID, SAID, "The answer is 2."], in_order=True, pace=uneven(1)).outcome

    assert outcome.answer == answer


def test_copies_of_a_candidate_do_not_vote_twice() -> None:
    """Padding a stream with copies changes no share."""

    @node
    async def pad(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            for _ in range(4 if candidate.answer == "2" else 1):
                yield replace(candidate)

    said = [SAID, "The answer is 2.", SAID]
    outcome = solved(Sample(n=3) >> pad >> Vote(), said, in_order=True).outcome

    assert (outcome.answer, outcome.confidence) == ("1", 2 / 3)


def test_what_is_no_async_generator_function_is_no_node() -> None:
    """It is said when the node is made."""
    function: Any = run
    with pytest.raises(TypeError, match="async generator function"):
        node(function)
    with pytest.raises(TypeError, match="async generator function"):
        node(gives=ONE)(function)


def test_an_index_that_is_used_twice_is_an_error() -> None:
    """Both calls would have one seed."""

    async def twice(root: Candidate, scope: Scope) -> None:
        await scope.generate(root.branch, index=3, max_tokens=9)
        await scope.generate(root.branch, index=3, max_tokens=9)

    with pytest.raises(NodeError, match=r"index 3 was used twice in 0\.first"):
        run(twice)


def test_a_name_that_is_opened_twice_is_an_error() -> None:
    """Both sub-graphs would have one path, and so one seed."""

    async def twice(root: Candidate, scope: Scope) -> None:
        scope.run(Vote(), _nothing(), name="a")
        scope.run(Vote(), _nothing(), name="a")

    with pytest.raises(NodeError, match=r"0\.first/a was opened twice"):
        run(twice)


def test_a_pool_that_cannot_be_opened_gives_its_share_back() -> None:
    """The node may go on with the whole budget."""

    async def twice(root: Candidate, scope: Scope) -> Branch:
        await scope.run_together({"a": Sample(n=1)}, [root])
        with pytest.raises(ValueError, match="opened twice"):
            await scope.run_together({"a": Sample(n=1)}, [root])
        return await scope.generate(root.branch, index=0, max_tokens=9)

    assert run(twice, budget=Budget(tokens=50)).outcome.answer == "1"


async def _nothing() -> AsyncGenerator[Candidate, None]:
    for _ in ():
        yield Candidate(branch=Branch(text="", token_ids=()))


def test_a_node_can_handle_a_refusal_and_go_on() -> None:
    """A refused call costs nothing, and a smaller one may fit."""

    async def adapt(root: Candidate, scope: Scope) -> Branch:
        with pytest.raises(BudgetExceeded, match="tokens: a call needs at least 58"):
            await scope.generate(root.branch, index=0, max_tokens=50, at_least=50)
        return await scope.generate(root.branch, index=1, max_tokens=10)

    assert run(adapt, budget=Budget(tokens=PROMPT + 10)).outcome.answer == "1"


def test_a_node_can_handle_a_failed_call_and_try_again() -> None:
    """The error names its call."""

    async def again(root: Candidate, scope: Scope) -> Branch:
        with pytest.raises(EngineError, match="broke") as error:
            await scope.generate(root.branch, index=0, max_tokens=9)
        assert error.value.call == "0.first#0"
        return await scope.generate(root.branch, index=1, max_tokens=9)

    result = run(again, script=[EngineError("broke"), SAID], in_order=True)

    assert result.outcome.answer == "1"


def test_chunks_join_to_the_text_and_end_with_the_branch() -> None:
    """`stream` gives what `generate` would have given, in pieces."""
    chunks: list[Chunk] = []

    async def listen(root: Candidate, scope: Scope) -> Branch | None:
        chunks.extend([c async for c in scope.stream(root.branch, index=0, max_tokens=50)])
        return chunks[-1].branch

    result = run(listen)

    assert "".join(chunk.text for chunk in chunks) == SAID
    assert [chunk.branch is None for chunk in chunks] == [True] * 4 + [False]
    assert result.outcome.answer == "1"


def test_stopping_a_stream_of_chunks_ends_that_call_alone() -> None:
    """What it had produced is paid, the rest comes back, and the node goes on."""

    async def cut(root: Candidate, scope: Scope) -> Branch:
        other = scope.spawn(scope.generate(root.branch, index=7, max_tokens=100))
        chunks = scope.stream(root.branch, index=0, max_tokens=100)
        for _ in range(3):
            await anext(chunks)
        chunks.stop()
        assert scope.remaining.tokens == 1000 - PROMPT - 3 - 100
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)
        await other
        return await scope.generate(root.branch, index=1, max_tokens=9)

    result = run(cut, script="no end " * 20, budget=Budget(tokens=1000))
    stopped = result.outcome.trace[0]

    assert result.outcome.stopped_by == "no_valid_answer"
    assert (stopped.index, stopped.detail["finish"]) == (0, "cancelled")
    assert stopped.usage.tokens_cancelled == 3
    assert result.outcome.usage.tokens == PROMPT + 3 + 41 + 9


def test_a_failed_stream_of_chunks_raises_what_generate_would() -> None:
    """A node may handle it."""

    async def listen(root: Candidate, scope: Scope) -> None:
        with pytest.raises(EngineError, match="broke"):
            async for _ in scope.stream(root.branch, index=0, max_tokens=50):
                pass

    run(listen, script=EngineError("broke"))


def test_stopping_a_map_ends_its_own_calls_and_no_others() -> None:
    """The node can go on with what it has."""

    async def draft_and_polish(root: Candidate, scope: Scope) -> Branch:
        async def draft(candidate: Candidate, index: int) -> Candidate:
            branch = await scope.generate(candidate.branch, index=index, max_tokens=50)
            return scope.finish(candidate, branch)

        async def many() -> AsyncGenerator[Candidate, None]:
            for _ in range(6):
                yield root

        drafts = scope.map(draft, many(), ahead=3)
        best = await anext(drafts)
        drafts.stop()
        return await scope.generate(best.branch, index=100, max_tokens=9)

    result = run(draft_and_polish, pace=uneven(1))

    assert result.outcome.candidate is not None
    assert result.outcome.candidate.branch.call == "0.first#100"
    assert result.outcome.usage.calls <= 5
    assert result.outcome.usage.tokens_cancelled > 0


def test_what_is_spawned_ends_with_its_scope() -> None:
    """At the latest."""
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("forever")

    async def spawn(root: Candidate, scope: Scope) -> Branch:
        scope.spawn(forever())
        return await scope.generate(root.branch, index=0, max_tokens=9)

    assert run(spawn).outcome.answer == "1"
    assert ended == ["forever"]


def test_pulling_one_stream_in_two_tasks_is_an_error() -> None:
    """One of them would never be answered."""

    async def both(root: Candidate, scope: Scope) -> None:
        chunks = scope.stream(root.branch, index=0, max_tokens=9)
        first = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one task at a time"):
            await anext(chunks)
        await first

    run(both)


def test_a_tail_is_paid_for_once() -> None:
    """A later call that goes on after it pays for no token of it again."""
    from ttc import Tail

    async def extend(root: Candidate, scope: Scope) -> Branch:
        first = await scope.generate(
            root.branch, index=0, max_tokens=3, tail=Tail(cue=" The answer is", max_tokens=2)
        )
        return await scope.generate(first, index=1, max_tokens=4)

    result = run(extend, script="no end " * 20)

    assert [r.usage.tokens for r in result.outcome.trace[:2]] == [PROMPT + 3 + 3 + 2, 4]


def test_random_numbers_depend_on_seed_path_and_key_alone() -> None:
    """So that a node may draw in any order."""
    drawn: list[float] = []

    async def draw(root: Candidate, scope: Scope) -> None:
        drawn.append(scope.random("a", 1).random())
        drawn.append(scope.random("b", 1).random())

    for seed in (1, 1, 2):
        run(draw, seed=seed)

    assert drawn[:2] == drawn[2:4] != drawn[4:]
    assert drawn[0] != drawn[1]


def test_roles_choose_their_models_and_prompts() -> None:
    """A role that is not the policy's reads its own prompt, and is booked apart."""
    result = solved((Sample(n=2) | Sample(n=3, role="draft")) >> Vote(), talker(), roles=["draft"])

    assert [r.branch.role for r in result.engine.requests].count("draft") == 3
    assert {role: u.calls for role, u in result.outcome.usage_by_role.items()} == {
        "policy": 2,
        "draft": 3,
    }


def test_the_pool_divides_the_budget_and_gives_back_what_is_left() -> None:
    """Both parts and whoever reads them get a third; what is left is there for whatever follows."""
    left: list[int | None] = []

    @node(gives=ONE)
    async def look(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        everything = [candidate async for candidate in candidates]
        left.append(scope.remaining.tokens)
        yield everything[0]

    pool = Sample(n=4, max_tokens=10) | Sample(n=4, max_tokens=10)
    result = solved(pool >> look, "no end " * 20, budget=Budget(tokens=PROMPT + 52))
    granted = [record.detail.get("granted") for record in result.outcome.trace]

    assert granted == [10, None, 10, 10, None]
    assert left == [PROMPT + 52 - PROMPT - 30]


@pytest.mark.parametrize("ahead", [None, 1])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_what_works_downstream_of_a_pool_never_waits_for_ever(
    ahead: int | None, limit: int
) -> None:
    """A verifier that needs what the parts hold gets it as soon as they have ended."""
    inner = ScriptedVerifier({"1": 0.5}, name="inner")
    pool = Sample(n=3) >> inner >> Best() | Sample(n=2)
    graph = pool >> Verify(ScriptedVerifier({"1": 0.5}), ahead=ahead) >> Best(by="scripted")
    result = solved(graph, SAID, budget=Budget(verifier_calls=limit), pace=uneven(2))

    assert result.outcome.usage.verifier_calls == limit


def test_a_node_that_calls_while_it_reads_a_pool_never_waits_for_ever() -> None:
    """It is the very one who would have to read on."""

    @node(takes=OPEN)
    async def mixed(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        root = await anext(candidates)
        graphs = {"a": Sample(n=3, max_tokens=9), "b": Sample(n=3, max_tokens=9)}
        index = 0
        for stream in await scope.run_together(graphs, [root]):
            async for candidate in stream:
                branch = await scope.generate(root.branch, index=index, max_tokens=9)
                index += 1
                yield scope.finish(candidate, branch)

    result = solved(mixed >> Vote(), SAID, budget=Budget(tokens=PROMPT + 60), pace=uneven(2))

    assert result.outcome.answer == "1"
    assert result.outcome.usage.calls == 12


def test_verifiers_that_pool_do_not_starve_each_other() -> None:
    """Each waits until the one before has given back what it left."""

    class Panel(ScriptedVerifier):
        async def __call__(self, problem, candidates, scope):  # type: ignore[no-untyped-def]
            from ttc import Score
            from ttc.streams import iterate

            root = Candidate(branch=scope.root("judge"))
            panel = (
                Sample(n=2, max_tokens=5, role="judge") | SelfConsistency(n=1, max_tokens=5)
            ) >> Vote()
            async for candidate in scope.run(panel, iterate(root), name="panel"):
                return (Score(value=0.5 if candidate.answer else None),)
            return (Score(value=None),)

    panel = Panel({}, roles=frozenset({"judge"}))
    result = solved(
        Sample(n=4, max_tokens=9) >> panel >> Best(),
        SAID,
        roles=["judge"],
        budget=Budget(tokens=400),
        pace=uneven(4),
    )

    assert [c.scores["scripted"].value for c in result.outcome.candidates] == [0.5] * 4


def test_a_verifier_may_use_verifiers_with_the_last_call_of_the_budget() -> None:
    """What it cannot have it does without; it never waits for itself."""

    class Outer(ScriptedVerifier):
        async def __call__(self, problem, candidates, scope):  # type: ignore[no-untyped-def]
            return await scope.verify(ScriptedVerifier({"1": 0.5}, name="inner"), candidates)

    result = solved(Sample(n=2) >> Outer({}) >> Best(), SAID, budget=Budget(verifier_calls=3))

    assert result.outcome.answer == "1"
    assert result.outcome.usage.verifier_calls == 3
    assert result.outcome.stopped_by == "verifier_calls"

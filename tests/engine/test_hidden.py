"""Hidden states: what the head reads, for heads of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ttc
from tests.engine.conftest import TINY, tiny_weights
from ttc.engine.local import LocalEngine
from ttc.errors import ContextOverflow, EngineError, NodeError
from ttc.graph import Port
from ttc.ports import Request
from ttc.strategies import Vote
from ttc.testing import FakeEngine
from ttc.types import Branch, Problem

Ask = Callable[..., Request]


def branch_of(*ids: int) -> Branch:
    """A branch of given tokens."""
    return Branch(text="", token_ids=ids)


def hidden(engine: LocalEngine, ids: tuple[int, ...], *rows: int) -> tuple[tuple[float, ...], ...]:
    """The states at some rows."""
    return engine.hidden(branch_of(*ids), rows).future.result()


def test_the_head_over_hidden_states_gives_the_model_s_log_probabilities(
    engine: LocalEngine,
) -> None:
    """The head's weights are the embedding's."""
    ids = tuple(range(40, 60))
    (state,) = hidden(engine, ids, 19)
    branch = branch_of(*ids)
    asked = [Branch(parent=branch, text="", token_ids=(t,)) for t in range(TINY.vocab)]
    scored = [value for (value,) in engine.score(branch, asked).future.result()]
    weights = tiny_weights()
    head = weights.get("output.weight", weights["token_embd.weight"])
    logits = torch.tensor(state) @ head.T

    assert len(state) == TINY.hidden
    assert logits.log_softmax(-1).tolist() == pytest.approx(scored, abs=1e-4)


def test_states_are_the_same_bits_in_any_company_and_from_any_cache(
    load: Callable[..., LocalEngine], ask: Ask
) -> None:
    """Alone, beside other calls, after a hit, and in the order in which rows are asked for."""
    ids = tuple(range(150))
    alone = hidden(load(), ids, 20, 149, 70)
    engine = load()
    noise = [engine.submit(ask(list(range(i, i + 70)), 20, seed=i)) for i in range(4)]
    together = hidden(engine, ids, 20, 149, 70)
    for call in noise:
        call.future.result()

    assert together == alone
    assert hidden(engine, ids, 149) == alone[1:2]
    assert hidden(engine, ids, 70, 20) == (alone[2], alone[0])


def test_a_cached_prefix_is_not_computed_again(engine: LocalEngine) -> None:
    """From the first row that is asked for on it is: states are too large to be kept."""
    ids = tuple(range(150))
    hidden(engine, ids, 149)
    before = engine.counters.prompt_tokens
    hidden(engine, ids, 140, 149)

    assert engine.counters.prompt_tokens - before == 10


def test_states_do_not_mix_with_what_scores_leave(engine: LocalEngine) -> None:
    """A row whose every token was scored has log probabilities in the cache, and no states."""
    branch = branch_of(*range(30))
    asked = [Branch(parent=branch, text="", token_ids=(t,)) for t in range(TINY.vocab)]
    first = hidden(engine, tuple(range(30)), 29)
    scored = engine.score(branch, asked).future.result()

    assert hidden(engine, tuple(range(30)), 29) == first
    assert engine.score(branch, asked).future.result() == scored


def test_what_has_no_states_is_refused(engine: LocalEngine) -> None:
    """Rows beyond the branch, and branches beyond the context."""
    with pytest.raises(ValueError, match="rows are some of 0 to 2"):
        hidden(engine, (1, 2, 3), 3)
    with pytest.raises(ContextOverflow, match="512"):
        hidden(engine, (1,) * 600, 0)


def test_a_node_reads_hidden_states_within_its_budget(engine: LocalEngine) -> None:
    """One call, whose tokens are the prompt's; an engine without them is refused for nothing."""
    seen: list[Any] = []

    @ttc.node(takes=Port("open", "many"))
    async def own(candidates: Any, scope: Any) -> Any:
        async for candidate in candidates:
            last = candidate.branch.num_tokens - 1
            seen.append(await scope.hidden(candidate.branch, [last]))
            seen.append(await scope.hidden(candidate.branch, []))
            branch = await scope.generate(candidate.branch, index=0, max_tokens=3)
            yield scope.finish(candidate, branch)

    problem = Problem(prompt="one two")
    outcome = ttc.solve(problem, own >> Vote(), model=engine, seed=0)
    root = engine.root(problem, "policy")

    assert seen == [hidden(engine, root.token_ids or (), root.num_tokens - 1), ()]
    assert outcome.usage.calls == 2
    fake = FakeEngine("x")
    with pytest.raises(NodeError, match="fake gives no hidden states"):
        ttc.solve(problem, own >> Vote(), model=fake)
    with pytest.raises(EngineError, match="no hidden states"):
        fake.hidden(root, [0])
    assert fake.calls == 0

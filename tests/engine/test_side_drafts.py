"""What is tried at the side: what drafters guess besides, its chances, and what it is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.guessers import Guesser, everything
from tests.engine.test_drafting import (
    BOUND_BY_ARITHMETIC,
    BOUND_BY_MEMORY,
    blurred,
    budget,
    by_model,
    curve_of,
    results,
)
from ttc.engine.local import LocalEngine
from ttc.engine.local.curve import Curve, Load
from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.drafting.draft import Draft, Trial, Wish
from ttc.engine.local.drafting.draft_model import DraftModel
from ttc.engine.local.drafting.ngram import NgramDrafter, NgramIndex
from ttc.engine.local.drafting.speculation import Speculation
from ttc.engine.local.drafting.survival import Record, Survival
from ttc.ports import Request

MakeEngine = Callable[..., LocalEngine]
Ask = Callable[..., Request]

BOUND_BY_BOTH = {1: 0.010, 4: 0.013, 16: 0.025, 64: 0.073}
FREE = {1: 0.010, 4: 0.01001, 16: 0.01005, 64: 0.0102}


def test_a_side_chain_is_tried_where_rows_cost_next_to_nothing() -> None:
    """And not where they cost a little, or where it has little chance."""
    assert budget(FREE, 1).choose([[0.6, 0.3]], 0.0, [[0.25, 0.2]]) == [2, 2]
    assert budget(BOUND_BY_BOTH, 1).choose([[0.6]], 0.0, [[0.12]]) == [1, 0]
    assert budget(BOUND_BY_ARITHMETIC, 1).choose([[0.6]], 0.0, [[0.3]]) == [0, 0]
    assert budget(FREE, 1).choose([[0.6]], 0.0, [[0.05]]) == [1, 0]


def test_side_chains_fade_in_wide_batches() -> None:
    parts = []
    for n in (1, 4, 16, 64):
        counts = budget(BOUND_BY_MEMORY, n).choose([[0.5]] * n, 0.0, [[0.4, 0.39, 0.38]] * n)
        parts.append(sum(counts[n:]) / n)

    assert parts == sorted(parts, reverse=True)
    assert parts[0] == 3
    assert parts[-1] == 0


chance = st.floats(0.0, 1.0)


@given(
    st.lists(st.lists(chance, max_size=8), min_size=1, max_size=5),
    st.sampled_from([FREE, BOUND_BY_MEMORY, BOUND_BY_ARITHMETIC]),
)
@settings(max_examples=60, deadline=None)
def test_no_set_with_side_chains_is_chosen_that_the_curve_says_is_slower(
    falls: list[list[float]], seconds: dict[int, float]
) -> None:
    """Nor one that is slower than the same without them; and a row more is counted for each."""
    chains, sides = [], []
    for fall in falls:
        own = [0.6 * x for x in sorted(fall, reverse=True)]
        chains.append(own)
        sides.append([min(x, 1 - own[0]) for x in own] if own else [])
    step = budget(seconds, len(chains))
    counts = step.choose(chains, 0.0, sides)
    chosen = zip([*chains, *sides], counts, strict=True)
    tokens = len(chains) + sum(sum(chain[:count]) for chain, count in chosen)
    begun = sum(count > 0 for count in counts[len(chains) :])

    alone = step.choose(chains)
    least = len(chains) + sum(sum(c[:n]) for c, n in zip(chains, alone, strict=True))
    assert tokens / step.seconds(sum(counts), begun) >= least / step.seconds(sum(alone))


def test_a_chain_that_may_come_instead_is_learnt_of_by_its_kind_alone() -> None:
    """A call is no worse for it, nor are guesses at large."""
    survival, call = Survival([0.5, 0.5]), Record()
    usual = survival.usual()
    for _ in range(50):
        survival.note_other([1], [1], [2])

    assert survival.chance(1) < 0.1
    assert survival.chance(0) == 0.5
    assert (survival.usual(), call.factor) == (usual, 1.0)


class Call:
    """As much of a call as is drafted for."""

    def __init__(self, *illegal: int) -> None:
        self.tokens, self.draft_room, self._illegal = [1, 2, 3], 100, illegal

    def num_triable(self, drafts: list[int]) -> int:
        """Those before one that is not legal."""
        return next((n for n, token in enumerate(drafts) if token in self._illegal), len(drafts))


def tried(call: Any, *chances: float, acceptance: Any = "coupled") -> Trial:
    """What is tried of 5, 6, or else 7, 8, where rows cost nothing.

    Args:
        call: whose tokens they may be.
        chances: of each of the first two, and of the others.
        acceptance: by what rule.
    """
    other = Draft(tokens=[7, 8], kinds=[1, 1])
    drafter: Any = Guesser(lambda call, most: [])
    drafter.priors = chances
    drafter.draft = lambda *_: [Draft(tokens=[5, 6], kinds=[0, 0], other=other)]
    return Speculation(drafter, acceptance, curve_of(FREE)).draft([call], alone=True)


def test_what_may_come_instead_is_tried_beside_a_calls_own_chain() -> None:
    call: Any = Call()
    trial = tried(call, 0.5, 0.8)

    assert (trial.rows, trial.sides) == ({call: [5, 6]}, {call: [[7, 8]]})


def test_a_chain_stands_in_for_one_that_is_not_tried() -> None:
    """As its first token is not legal, or as good as never right."""
    call: Any = Call(5, 8)
    trial = tried(call, 0.5, 0.8)
    assert (trial.rows, trial.sides) == ({call: [7]}, {})

    call = Call()
    trial = tried(call, 0.01, 0.8)
    assert (trial.rows, trial.sides) == ({call: [7, 8]}, {})


def test_by_the_rejection_rule_nothing_is_tried_at_the_side() -> None:
    """Rows of a side chain would need proposals of their own, which decide what comes."""
    call: Any = Call()
    trial = tried(call, 0.5, 0.8, acceptance="maximal")

    assert (trial.rows, trial.sides) == ({call: [5]}, {})
    assert [one.token for one in trial.proposals[call]] == [5, 6]


def test_what_else_followed_is_thought_to_come_instead() -> None:
    """The last other token of the longest context, or what follows a shorter one."""
    index = NgramIndex()
    index.add([1, 2, 5, 1, 2, 6, 9, 2, 7])

    assert index.follow([1, 2])[0] == 6  # type: ignore[index]
    assert index.follow_else([1, 2], 6)[0] == 5  # type: ignore[index]
    assert index.follow_else([3, 2], 7)[0] == 6  # type: ignore[index]
    assert index.follow_else([6], 9) is None


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_what_may_come_instead_differs_and_has_a_kind_of_its_own(text: list[int]) -> None:
    own, written = NgramIndex(), NgramIndex()
    own.add(text[: len(text) // 2])
    written.add(text)
    for end in range(1, len(text)):
        first = own.follow(text[:end], written)
        second = own.follow_else(text[:end], first[0], written) if first is not None else None
        if second is not None and first is not None:
            assert second[0] != first[0]
            assert second[0] in text
            assert 0 <= second[1] < 2 * NgramDrafter.num_firsts


def test_look_ups_know_two_continuations_where_siblings_part() -> None:
    class Text:
        def __init__(self, *tokens: int) -> None:
            self.tokens, self.prompt_length, self.salt = list(tokens), 1, ""

    drafter, survival, last = NgramDrafter("own"), Survival(NgramDrafter.priors), Draft()
    for text in (Text(9, 1, 2, 3, 4), Text(9, 1, 2, 7, 8), Text(9, 1, 2)):
        call: Any = text
        (last,) = drafter.draft([Wish(call, 2, 3.0)], DraftBudget(curve_of(FREE), survival, [5]))
        drafter.forget([call])

    assert last.other is not None
    assert (last.tokens[0], last.other.tokens[0]) == (7, 3)
    assert last.kinds[0] < NgramDrafter.num_firsts <= last.other.kinds[0]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_draft_models_second_choice_is_what_it_draws_without_its_first(
    load: MakeEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    """By the call's own noise: where its first is wrong, that mostly comes; and no bit changes."""
    monkeypatch.setattr(DraftBudget, "choose", everything)
    monkeypatch.setattr(DraftBudget, "chance", lambda *_: 0.5)
    monkeypatch.setattr(DraftModel, "_plan", lambda self, wishes, budget: (list(wishes), 2))
    requests = [ask(f"second {i}", 60, seed=i, temperature=temperature) for i in range(3)]
    plain = results(load(), requests)
    engine = load(drafting=by_model(blurred(0.05)))
    monkeypatch.setattr(Curve, "note", lambda *_: None)  # as this machine's times are
    engine._batch.curve.start([(Load(rows=n, draws=n, seen=n), s) for n, s in FREE.items()])
    speculation: Any = engine._batch._speculation
    seen, draft = list[tuple[Any, int, Draft]](), speculation._drafter.draft

    def watched(wishes: list[Wish], budget: DraftBudget) -> list[Draft]:
        found: list[Draft] = draft(wishes, budget)
        seen.extend((w.call, len(w.call.tokens), d) for w, d in zip(wishes, found, strict=True))
        return found

    monkeypatch.setattr(speculation._drafter, "draft", watched)
    assert results(engine, requests) == plain
    right = []
    for call, place, one in seen:
        if one.tokens and place < len(call.tokens) and one.tokens[0] != call.tokens[place]:
            assert one.other is not None
            right.append(one.other.tokens[0] == call.tokens[place])
    assert sum(right) > len(right) / 8 > 1  # where chance would have one in 260

"""Who drafts, and how much is tried: look-up, chances, the budget, a draft model, and options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.conftest import TINY, tiny_weights
from tests.engine.guessers import Guess, Guesser, random_tokens, trunks
from ttc.costs import Costs
from ttc.engine.local import LocalEngine
from ttc.engine.local.curve import Curve, Load
from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.drafting.draft import Draft, Wish
from ttc.engine.local.drafting.draft_model import DraftModel
from ttc.engine.local.drafting.ngram import NgramDrafter, NgramIndex
from ttc.engine.local.drafting.options import Drafting, check_vocabulary, drafting_of
from ttc.engine.local.drafting.survival import Record, Survival
from ttc.engine.local.files.gguf import GGUFFile
from ttc.engine.local.model import Llama
from ttc.engine.local.source import ModelSource
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import ModelFileError
from ttc.ports import Request

MakeEngine = Callable[..., LocalEngine]
Ask = Callable[..., Request]


def curve_of(seconds: dict[int, float]) -> Curve:
    """A curve that was measured so."""
    curve = Curve(Costs(flops_per_token=100, flops_per_draw=50, attention=((1, None),)))
    loads = [(Load(rows=n, draws=n, seen=n), s) for n, s in seconds.items()]
    curve.start(loads)
    return curve


BOUND_BY_MEMORY = {1: 0.010, 4: 0.0105, 16: 0.014, 64: 0.050}
BOUND_BY_ARITHMETIC = {1: 0.010, 4: 0.040, 16: 0.160, 64: 0.640}


def budget(seconds: dict[int, float], calls: int) -> DraftBudget:
    """The budget of a step."""
    return DraftBudget(curve_of(seconds), Survival([0.5]), [50] * calls)


def test_the_longest_context_decides_what_follows() -> None:
    index = NgramIndex()
    index.add([1, 2, 3, 9, 2, 3, 4])

    assert index.follow([1, 2, 3])[0] == 9  # type: ignore[index]
    assert index.follow([7, 2, 3])[0] == 4  # type: ignore[index]
    assert index.follow([8]) is None


def test_what_was_right_twice_outlasts_one_exception() -> None:
    index = NgramIndex()
    for following in (5, 5, 6):
        index.add([1, following], 1)
    assert index.follow([1])[0] == 5  # type: ignore[index]
    index.add([1, 6, 0], 1)
    assert index.follow([1])[0] == 6  # type: ignore[index]


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_an_index_is_a_function_of_its_text(text: list[int], cut: int) -> None:
    """However the text came in: so drafts of a call depend on nothing but its tokens."""
    whole, pieces = NgramIndex(), NgramIndex()
    whole.add(text)
    pieces.add(text[:cut])
    pieces = pieces.copy()
    pieces.add(text, min(cut, len(text)))

    for end in range(len(text) + 1):
        assert whole.follow(text[:end]) == pieces.follow(text[:end])


def test_the_longer_match_wins_of_two_texts_and_the_own_one_among_equals() -> None:
    own, written = NgramIndex(), NgramIndex()
    own.add([1, 2, 3, 9])
    written.add([7, 1, 2, 3, 5, 3, 6])

    assert own.follow([1, 2, 3], written)[0] == 9  # type: ignore[index]
    assert own.follow([5, 3], written)[0] == 6  # type: ignore[index]
    token, kind = own.follow([7], written)  # type: ignore[misc]
    assert (token, kind // NgramIndex.num_kinds) == (1, 1)


def test_look_ups_know_what_other_calls_wrote_unless_drafts_decide() -> None:
    class Text:
        def __init__(self, *tokens: int, prompt: int, salt: str = "") -> None:
            self.tokens, self.prompt_length, self.salt = list(tokens), prompt, salt

    def second(*, decides: bool, salt: str = "") -> list[int]:
        drafter, survival = NgramDrafter("own", decides=decides), Survival(NgramDrafter.priors)
        drafts = []
        for text in (Text(1, 2, 3, 4, 5, prompt=1), Text(8, 2, 3, prompt=2, salt=salt)):
            call: Any = text
            budget = DraftBudget(curve_of(BOUND_BY_MEMORY), survival, [5])
            drafts += drafter.draft([Wish(call, 2, 3.0)], budget)
            drafter.forget([call])
        return list(drafts[1].tokens)

    assert second(decides=False) == [4, 5]
    assert second(decides=True) == []
    assert second(decides=False, salt="another key's") == []


def test_an_index_keeps_no_more_than_its_most() -> None:
    """The oldest go; what is used stays."""
    index = NgramIndex(400)
    for token in range(0, 3000, 2):
        index.add([1, 2, 3, 7, 1000 + token, 1001 + token], 1)
        assert len(index) <= 400

    assert index.follow([1, 2, 3])[0] == 7  # type: ignore[index]
    assert index.follow([1000]) is None


def test_chances_are_learnt_by_kind_and_by_call() -> None:
    survival, good, bad = Survival([0.5, 0.5]), Record(), Record()
    for _ in range(60):
        survival.note(good, [1, 1], [0, 0], [1, 1])
        survival.note(bad, [1], [0], [2])
        survival.note(good, [1], [1], [2])

    assert survival.chance(1) < 0.1
    assert 0.5 < survival.chance(0) < 0.8
    assert survival.chance(0, bad.factor) < survival.chance(0) < survival.chance(0, good.factor)


def test_guesses_after_the_first_miss_teach_nothing() -> None:
    survival = Survival([0.5, 0.5])
    before = survival.chance(1)
    survival.note(Record(), [1, 1], [0, 1], [2, 1])

    assert survival.chance(1) == before


def test_a_step_tries_what_memory_gives_for_nothing() -> None:
    """Alone, rows cost little, so even doubtful tokens are tried; certain ones all."""
    alone = budget(BOUND_BY_MEMORY, 1)

    assert alone.choose([[0.9, 0.8, 0.7, 0.6]]) == [4]
    assert alone.choose([[0.3]]) == [1]
    assert alone.choose([[0.001]]) == [0]


def test_drafts_fade_in_wide_batches() -> None:
    """What is tried of 64 calls is what is nearly certain, and of one call nearly all."""
    chains = [0.8**n for n in range(1, 9)]
    tried = [sum(budget(BOUND_BY_MEMORY, n).choose([chains] * n)) / n for n in (1, 4, 16, 64)]

    assert tried == sorted(tried, reverse=True)
    assert tried[0] >= 6
    assert tried[-1] == 0


def test_where_every_row_costs_as_much_nothing_is_tried() -> None:
    assert budget(BOUND_BY_ARITHMETIC, 1).choose([[0.9, 0.8]]) == [0]
    assert budget(BOUND_BY_ARITHMETIC, 8).choose([[0.9, 0.8]] * 8) == [0] * 8


def test_the_likely_call_gets_the_rows() -> None:
    """Ragged: each call has as many as its own chances are worth."""
    counts = budget(BOUND_BY_MEMORY, 2).choose([[0.95, 0.9, 0.86], [0.02]])

    assert counts == [3, 0]


@pytest.mark.parametrize("calls", [1, 4, 16, 64])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.9])
def test_no_set_is_chosen_that_the_curve_says_is_slower(calls: int, chance: float) -> None:
    """Tokens per second are at least those of plain decoding, with any drafter."""
    for seconds in (BOUND_BY_MEMORY, BOUND_BY_ARITHMETIC):
        step = budget(seconds, calls)
        chain = [chance**n for n in range(1, 9)]
        counts = step.choose([chain] * calls)
        tokens = calls + sum(sum(chain[:count]) for count in counts)

        assert tokens / step.seconds(sum(counts)) >= calls / step.plain_s


def drafting(guess: Guess) -> Drafting:
    return Drafting(name="guesser", make=lambda: Guesser(guess))


def test_a_drafter_that_is_always_wrong_is_soon_not_tried(load: MakeEngine, ask: Ask) -> None:
    """It is still watched, at no row's cost."""
    engine = load(drafting=drafting(random_tokens()))
    engine.submit(ask("hopeless", 120, seed=2)).future.result(60)
    tried = engine.counters.draft_tokens
    engine.submit(ask("hopeless", 120, seed=8)).future.result(60)

    assert engine.counters.draft_tokens - tried <= 16


@pytest.mark.parametrize("reach", ["own", "tree"])
def test_look_ups_draft_from_calls_that_have_ended(
    reach: Literal["own", "tree"], load: MakeEngine, ask: Ask
) -> None:
    """A second greedy call of the same words writes what the first one wrote, in fewer steps."""
    engine = load(drafting=Drafting(name="guesser", make=lambda: NgramDrafter(reach)))
    steps = []
    for _ in range(2):
        before = engine.counters.steps
        engine.submit(ask("it ends", 60, temperature=0)).future.result(60)
        steps.append(engine.counters.steps - before)

    assert steps[1] <= steps[0] // 2
    assert engine.counters.rejected_draft_tokens < engine.counters.draft_tokens


def by_model(weights: dict[str, torch.Tensor], acceptance: Any = "coupled") -> Drafting:
    """What drafts by a tiny model of these weights."""

    def make() -> DraftModel:
        model = Llama(TINY, weights, torch.float32)
        return DraftModel(model, name="draft", unsampled=(), acceptance=acceptance)

    return Drafting(name="guesser", make=make, acceptance=acceptance)


def blurred(amount: float) -> dict[str, torch.Tensor]:
    """The tiny model's weights with noise."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: w + amount * w.std(correction=0) * torch.randn(w.shape, generator=generator)
        for name, w in tiny_weights().items()
    }


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is drafted, and every drafted token is tried, but for side chains."""
    monkeypatch.setattr(DraftBudget, "choose", trunks)
    monkeypatch.setattr(DraftModel, "_plan", lambda self, wishes, budget: (list(wishes), 4))
    monkeypatch.setattr(DraftModel, "_pays", lambda self, going, started, budget: True)


REQUESTS = [("one", 1.0), ("two, rather longer", 0.0), ("y" * 40, 0.7), ("three", 0.9)]


def results(engine: LocalEngine, requests: list[Request]) -> list[object]:
    """Tokens and log probabilities of calls that run together."""
    futures = [engine.submit(request).future for request in requests]
    return [(f.result(60).token_ids, f.result(60).logprobs) for f in futures]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("noise", [0.0, 0.05, 3.0])
def test_a_draft_model_changes_no_bit(load: MakeEngine, ask: Ask, noise: float) -> None:
    """The model itself is always right; a blurred one often; another one hardly ever."""
    requests = [ask(p, 30, seed=i, temperature=t) for i, (p, t) in enumerate(REQUESTS)]
    plain = results(load(), requests)
    engine = load(drafting=by_model(blurred(noise)))

    assert results(engine, requests) == plain
    counters = engine.counters
    assert counters.draft_tokens > 0
    part = counters.rejected_draft_tokens / counters.draft_tokens
    assert part == 0.0 if noise == 0 else part < 0.9 if noise < 1 else part > 0.7
    assert results(engine, requests) == plain  # from the caches of both


def kept(drafting: Drafting) -> tuple[Drafting, list[DraftModel]]:
    """The same, and the draft model once it is made."""
    made = list[DraftModel]()

    def make() -> Any:
        made.append(drafting.make())  # type: ignore[arg-type]
        return made[0]

    return replace(drafting, make=make), made


@pytest.mark.usefixtures("eager")
def test_a_draft_models_pages_are_whole(load: MakeEngine, ask: Ask) -> None:
    """Every page is free, idle or used, once; and none is used when calls have ended."""
    drafting, made = kept(by_model(blurred(0.05)))
    engine = load(drafting=drafting)
    for seed in range(3):
        results(engine, [ask(f"pages {seed % 2}", 20 + seed, seed=s) for s in range(3)])
    made[0].tree.check()

    assert made[0].tree.num_used == 0


@pytest.mark.usefixtures("eager")
def test_a_draft_model_takes_one_step_for_each_drafted_token(load: MakeEngine, ask: Ask) -> None:
    """The first of a draft reads what has come since: a prompt, or the last draft's last token."""
    drafting, made = kept(by_model(tiny_weights()))
    engine = load(drafting=drafting)
    results(engine, [ask("one after another", 41, seed=3)])

    assert engine.counters.draft_tokens == made[0].steps == 32  # four in each of eight steps
    assert made[0].rows == len("one after another") + 1 + 31 + 7


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("acceptance", ["coupled", "maximal"])
def test_siblings_read_their_prompt_once(load: MakeEngine, ask: Ask, acceptance: str) -> None:
    """All but the first wait for it, by the rejection rule in the same step."""
    drafting, made = kept(by_model(tiny_weights(), acceptance))
    results(load(drafting=drafting), [ask("p" * 100, 9, seed=seed) for seed in range(4)])

    assert 100 < made[0].rows < 100 + 4 * 20


def test_a_draft_model_rests_where_even_sure_guesses_would_not_pay(
    load: MakeEngine, ask: Ask
) -> None:
    """It reads no prompt to find out how good it is."""
    drafting, made = kept(by_model(tiny_weights()))
    engine = load(drafting=drafting)
    made[0].curve.start([(Load(rows=n, draws=n, seen=n), 2.0 * n) for n in (1, 4, 16, 64)])
    results(engine, [ask("too slow", 20, seed=1)])

    assert made[0].steps == 0


def test_a_draft_model_that_was_bad_comes_back_once_it_is_good(
    load: MakeEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rests, looks now and then, and more often while its guesses come true."""
    drafting, made = kept(by_model(blurred(3.0)))
    engine = load(drafting=drafting)
    monkeypatch.setattr(Curve, "note", lambda *_: None)  # as this machine's times are
    for curve, part in ((engine._batch.curve, 1.0), (made[0].curve, 0.3)):
        curve.start([(Load(rows=n, draws=n, seen=n), part * s) for n, s in BOUND_BY_MEMORY.items()])
    endless = {"logit_bias": tuple((token, -100.0) for token in range(258, 261))}
    results(engine, [ask("bad", 60, seed=1, **endless)])
    bad = made[0].steps
    made[0]._model = Llama(TINY, tiny_weights(), torch.float32)
    results(engine, [ask("good", 250, seed=2, **endless)])
    before = engine.counters.steps
    results(engine, [ask("still good", 60, seed=3, **endless)])

    assert bad < 15
    assert engine.counters.steps - before < 30


def test_a_long_prompt_is_not_read_for_few_tokens(load: MakeEngine, ask: Ask) -> None:
    """Reading counts in what drafts are worth: here hundreds of rows for a token to come."""
    drafting, made = kept(by_model(tiny_weights()))
    engine = load(drafting=drafting)
    results(engine, [ask("warm", 60, seed=1)])
    engine._batch.curve.start([(Load(rows=n, draws=n, seen=n), 1.0) for n in (1, 4, 16, 64)])
    made[0].curve.start([(Load(rows=n, draws=n, seen=n), 0.1 * n) for n in (1, 4, 16, 64)])
    before = made[0].rows
    results(engine, [ask("p" * 300, 4, seed=2)])

    assert made[0].rows == before


@pytest.mark.usefixtures("eager")
def test_by_the_rejection_rule_a_draft_model_decides_by_seed_alone(
    load: MakeEngine, ask: Ask
) -> None:
    """Alone, together, from the caches: the same tokens; and greedy ones as without drafts."""
    requests = [ask(p, 20, seed=i, temperature=t) for i, (p, t) in enumerate(REQUESTS)]
    maximal = by_model(blurred(0.05), "maximal")
    engine = load(drafting=maximal)
    together = results(engine, requests)
    alone = [results(load(drafting=maximal, max_sequences=2), [r])[0] for r in requests[:2]]
    plain = results(load(), requests)

    assert together[:2] == alone
    assert results(engine, requests) == together
    assert together[1] == plain[1]
    assert together != plain
    assert "maximal(draft)" in engine.numerics


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("acceptance", ["coupled", "maximal"])
def test_a_draft_ends_where_the_draft_model_is_not_finite(
    load: MakeEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch, acceptance: str
) -> None:
    """No call fails of it, and what it is wrong about is never a token."""
    requests = [ask(p, 30, seed=i, temperature=t) for i, (p, t) in enumerate(REQUESTS)]
    plain = results(load(), requests)
    drafting, made = kept(by_model(blurred(0.05), acceptance))
    engine = load(drafting=drafting)
    forward, drafts = made[0]._model.forward, list[Draft]()
    draft = made[0].draft

    def faulty(*inputs: Any) -> torch.Tensor:
        logits = forward(*inputs)
        return logits.fill_(torch.nan) if made[0].steps % 5 == 4 else logits

    def noted(*asked: Any) -> list[Draft]:
        drafts.extend(found := draft(*asked))
        return found

    monkeypatch.setattr(made[0]._model, "forward", faulty)
    monkeypatch.setattr(made[0], "draft", noted)
    found = results(engine, requests)

    assert found[1] == plain[1]  # it is greedy
    assert found == plain or acceptance == "maximal"
    lengths = [len(draft.tokens) for draft in drafts]
    assert 0 in lengths
    assert max(lengths) == 4
    assert made[0].tree.num_used == 0


@pytest.mark.usefixtures("eager")
def test_a_draft_model_finds_nothing_of_another_salt(load: MakeEngine, ask: Ask) -> None:
    """Else how fast a call is, and what it tries, would show what another key has asked."""
    drafting, made = kept(by_model(tiny_weights()))
    engine = load(drafting=drafting)
    rows = []
    for salt in ("one", "one", "another"):
        before = made[0].rows
        request = ask("p" * 100, 2, seed=1)
        request = replace(request, branch=replace(request.branch, salt=salt))
        results(engine, [request])
        rows.append(made[0].rows - before)

    assert rows[0] == rows[2] > 100 > 10 > rows[1]


def test_calls_wait_where_a_draft_model_that_decides_has_no_memory(
    load: MakeEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many join, as calls before them were short; none fails, and all get what they do alone."""
    monkeypatch.setattr(DraftBudget, "choose", trunks)
    drafting = by_model(blurred(0.05), "maximal")
    roomy = load(drafting=drafting)
    ends = {"logit_bias": ((258, 100.0),)}
    endless = {"logit_bias": tuple((token, -100.0) for token in range(258, 261))}
    requests = [ask(f"memory is short {i}", 100, seed=i, **endless) for i in range(8)]
    engine = load(drafting=drafting, kv_bytes=40 * roomy._batch.page_bytes)
    results(engine, [ask(f"short {i}", 200, seed=i, **ends) for i in range(40)])

    assert results(engine, requests) == results(roomy, requests)


def test_what_is_not_understood_is_refused(tokens: TextTokens) -> None:
    with pytest.raises(ValueError, match="acceptance is 'coupled' or 'maximal', not 'lossy'"):
        drafting_of("ngram", "lossy", tokens, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give speculate="):
        drafting_of(None, "maximal", tokens, None)
    with pytest.raises(ValueError, match="matter of timing"):
        drafting_of("tree", "maximal", tokens, None)
    with pytest.raises(ModelFileError, match="'ngram', 'tree' or a draft model"):
        drafting_of("n-gram", "coupled", tokens, None)


def test_a_draft_model_of_other_tokens_is_refused(
    tokens: TextTokens, make_file: Callable[..., GGUFFile]
) -> None:
    """By the first token that differs."""
    names = list(make_file().metadata["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    names[3], names[4] = names[4], names[3]
    swapped = TextTokens.from_gguf(make_file(tokens=names))
    more = TextTokens.from_gguf(make_file(tokens=[*names, "more"], token_type=[1] * 262))

    check_vocabulary(tokens, tokens, "same")
    with pytest.raises(ModelFileError, match="'swapped' the token 3 stands for"):
        check_vocabulary(swapped, tokens, "swapped")
    with pytest.raises(ModelFileError, match="'more' has 262 tokens, and the model has 261"):
        check_vocabulary(more, tokens, "more")


def test_a_draft_models_memory_is_a_part_of_kv_bytes(load: MakeEngine, tiny: ModelSource) -> None:
    plain = load(kv_bytes=1 << 20)
    both = load(kv_bytes=1 << 20, drafting=by_model(tiny_weights()))

    assert both.context == min(tiny.config.context, plain._batch.num_pages // 2 * 16)
    assert both._batch.num_pages == plain._batch.num_pages // 2

"""The rejection rule: what it draws has the model's distribution, whatever was proposed.

Each statistical test raises a false alarm with a probability below 1e-6: chi-square with d degrees
of freedom exceeds d + 2 sqrt(d x) + 2 x with a probability of at most exp(-x) (Laurent and Massart
2000, lemma 1). Seeds are fixed.
"""

from __future__ import annotations

import itertools
import math
import threading
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from tests.engine.conftest import TINY
from tests.engine.fake_model import FakeModel
from tests.engine.guessers import everything
from ttc.engine.local.batch import Batch
from ttc.engine.local.drafting import acceptance
from ttc.engine.local.drafting.acceptance import decide, kept_or_redrawn
from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.drafting.draft import Draft, Proposal, Wish
from ttc.engine.local.drafting.speculation import Speculation
from ttc.engine.local.logprobs import token_logprobs
from ttc.engine.local.plan import Plan
from ttc.engine.local.sample import Draw, Drawn, distributions, draw_tokens, uniform
from ttc.engine.local.sequence import Sequence as EngineSequence
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.ports import Request
from ttc.types import Branch, Sampling

FALSE_ALARM = math.log(1e6)
VOCAB = 4
KINDS = [Sampling(temperature=0.7, top_p=0.9), Sampling(temperature=1.3), Sampling(top_k=3)]


def assert_drawn_from(counts: Sequence[int], expected: Sequence[float]) -> None:
    """A chi-square test; what has no probability was never drawn."""
    total = sum(counts)
    cells = [(n, p * total) for n, p in zip(counts, expected, strict=True) if p > 0]
    assert sum(n for n, _ in cells) == total
    statistic = sum((n - e) ** 2 / e for n, e in cells)
    freedom = len(cells) - 1
    assert statistic < freedom + 2 * math.sqrt(freedom * FALSE_ALARM) + 2 * FALSE_ALARM


class Chain(FakeModel):
    """The next token depends on the last one alone.

    Args:
        seed: of its random logits.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = 1.5 * torch.randn(TINY.vocab, VOCAB, generator=generator)

    def forward(
        self, token_ids: torch.Tensor, plan: Plan, pool: Any, wanted: torch.Tensor
    ) -> torch.Tensor:
        """The rows of the last tokens."""
        return self.table[token_ids[wanted]].clone()

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """Draws from them."""
        return draw_tokens(logits, draws)

    def logprobs(
        self, logits: torch.Tensor, wanted: Sequence[Sequence[int]]
    ) -> list[dict[int, float] | None]:
        """Those of the rows."""
        return token_logprobs(logits, wanted)

    def distribution(self, sampling: Sampling) -> torch.Tensor:
        """(vocab, vocab) what follows each token."""
        draws = [Draw(sampling, 0, 0)] * VOCAB
        return distributions(self.table[:VOCAB], draws)


class ChainDrafter:
    """Drafts by another chain: by drawing, or always what is most probable to it.

    Args:
        chain: which.
        draws: whether it draws.
    """

    name, priors, page_bytes = "chain", (0.9,), 0

    def __init__(self, chain: Chain, *, draws: bool) -> None:
        self._chain, self._draws = chain, draws
        self._known: dict[Sampling, list[list[float]]] = {}

    def reserve(self, num_pages: int) -> None:
        """It keeps no pages."""

    def forget(self, calls: Iterable[EngineSequence]) -> None:
        """It remembers nothing."""

    def draft(self, wishes: Sequence[Wish], budget: DraftBudget) -> list[Draft]:
        """A draft for each."""
        return [self._draft(wish.call, wish.most) for wish in wishes]

    def _draft(self, call: EngineSequence, most: int) -> Draft:
        draft, last = Draft(), call.tokens[-1]
        for position in range(len(call.tokens), len(call.tokens) + most):
            logits = self._chain.table[last]
            if self._draws:
                noise = uniform(Draw(call.request.sampling, call.request.seed, position), 9)
                last = bisect(self._sums(call.request.sampling)[last], noise)
                draft.logits.append(logits)
            else:
                last = int(logits.argmax())
            draft.tokens.append(last)
            draft.kinds.append(0)
        return draft

    def _sums(self, sampling: Sampling) -> list[list[float]]:
        if sampling not in self._known:
            self._known[sampling] = self._chain.distribution(sampling).cumsum(-1).tolist()
        return self._known[sampling]


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ((0.5, 0.3, 0.2), (0.2, 0.2, 0.6)),
        ((0.6, 0.3, 0.1), (0.2, 0.5, 0.3)),
        ((1, 0, 0), (0, 1, 0)),
    ],
)
def test_the_rule_is_exact(
    p: tuple[float, ...], q: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every proposal with every pair of the noise's numbers, on a grid that its borders lie on."""
    grid = [(i + 0.5) / 60 for i in range(60)]
    noise = {(0, place): pair for place, pair in enumerate(itertools.product(grid, grid))}
    monkeypatch.setattr(
        acceptance, "uniform", lambda draw, number: noise[draw.seed, draw.position][number - 1]
    )
    draws = [Draw(Sampling(), 0, place) for place in range(len(noise))]
    found = torch.zeros(3, dtype=torch.float64)
    logits = torch.tensor(q).log()
    for token in range(3):
        tokens = kept_or_redrawn(
            torch.tensor(p, dtype=torch.float64).expand(len(draws), 3),
            [Proposal(token, logits)] * len(draws),
            draws,
        )
        found += q[token] * torch.bincount(torch.tensor(tokens), minlength=3) / len(draws)

    assert found.tolist() == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize("drafts", ["drawn", "greedy", "filtered"])
def test_sp_01_what_is_in_the_ratio_is_what_drafted(drafts: str) -> None:
    """SP-01, 200,000 draws: proper drafts; greedy ones, as a point mass; filters on both sides."""
    count, p = 200_000, [0.6, 0.3, 0.1]
    q = torch.tensor([0.2, 0.5, 0.3]).log()
    sampling = Sampling(top_k=2, temperature=0.5) if drafts == "filtered" else Sampling()
    draws = [Draw(sampling, seed, 9) for seed in range(count)]
    greedy = [Proposal(1, None)] * count
    proposals = greedy if drafts == "greedy" else proposed(q, sampling, count)
    target = torch.tensor(p).log()
    wanted = distributions(target[None], draws[:1])
    tokens = kept_or_redrawn(wanted.expand(count, 3), proposals, draws)
    counts = torch.bincount(torch.tensor(tokens), minlength=3).tolist()

    expected = [0.8, 0.2, 0.0] if drafts == "filtered" else p
    assert [n / count for n in counts] == pytest.approx(expected, abs=0.005)
    assert_drawn_from(counts, expected)


def test_a_row_has_the_models_distribution() -> None:
    """100,000 draws, temperature and top_p on; log probabilities are those of the tokens."""
    count, sampling, model = 100_000, KINDS[0], Chain(1)
    draws = [Draw(sampling, seed, 3) for seed in range(count)]
    q, p = Chain(2).table[0], model.table[0]
    drawn = decide(Undrawn(1), p.expand(count, VOCAB), draws, proposed(q, sampling, count))
    counts = torch.bincount(torch.tensor(drawn.token_ids), minlength=VOCAB).tolist()

    assert_drawn_from(counts, model.distribution(sampling)[0].tolist())
    logprobs = p.log_softmax(-1)
    for token, logprob in list(zip(drawn.token_ids, drawn.logprobs, strict=True))[:50]:
        assert logprob == pytest.approx(float(logprobs[token]), abs=1e-5)


class Undrawn(Chain):
    """Its own draws are nothing, so that what comes is the rule's."""

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """Zeros."""
        n = len(draws)
        return Drawn([0] * n, [0.0] * n, [None] * n, [None] * n, [None] * n, {})

    def logprobs(
        self, logits: torch.Tensor, wanted: Sequence[Sequence[int]]
    ) -> list[dict[int, float] | None]:
        """All rows are one."""
        known = logits[0].log_softmax(-1).tolist()
        return [{token: known[token] for token in tokens} for tokens in wanted]


def proposed(q: torch.Tensor, sampling: Sampling, count: int) -> list[Proposal]:
    """Tokens that were drawn from logits."""
    weights = distributions(q[None], [Draw(sampling, 0, 0)])[0]
    generator = torch.Generator().manual_seed(3)
    drawn = torch.multinomial(weights, count, replacement=True, generator=generator)
    return [Proposal(token, q) for token in drawn.tolist()]


def written(
    tokens: TextTokens, drafter: Any, sampling: Sampling, count: int, length: int, seats: int = 128
) -> list[tuple[int, ...]]:
    """What calls of a batch write whose drafts are accepted by the rejection rule."""
    speculate = partial(Speculation, drafter, "maximal") if drafter is not None else None
    batch = Batch(
        Chain(1),
        num_pages=4096,
        max_sequences=seats,
        lock=threading.Lock(),
        speculate=speculate,
    )
    root, texts = Branch(text="", token_ids=(2,)), []
    for first in range(0, count, 128):
        calls = []
        for seed in range(first, min(first + 128, count)):
            request = Request(branch=root, max_tokens=length, sampling=sampling, seed=seed)
            calls.append(EngineSequence(request, [2], length, tokens, None))
        batch.schedule.add(calls)
        while not batch.schedule.is_idle:
            batch.step()
        texts += [call.future.result(0).token_ids or () for call in calls]
    assert drafter is None or batch.counters.draft_tokens
    return texts


@pytest.mark.parametrize("draws", [True, False], ids=["drawn", "certain"])
def test_tokens_have_the_models_joint_distribution(
    tokens: TextTokens, always: None, monkeypatch: pytest.MonkeyPatch, draws: bool
) -> None:
    """Two and three tokens of a chain, tried in blocks, with temperature and top_p on."""
    monkeypatch.delenv("TTC_CHECK_PAGES", raising=False)  # it would take most of the time
    sampling = KINDS[0]
    texts = written(tokens, ChainDrafter(Chain(2), draws=draws), sampling, 2_000, 3)
    steps = Chain(1).distribution(sampling)
    for length in (2, 3):
        counts = Counter(text[:length] for text in texts)
        every = list(itertools.product(range(VOCAB), repeat=length))
        pairs = [itertools.pairwise((2, *text)) for text in every]
        expected = [math.prod(float(steps[pair]) for pair in each) for each in pairs]
        assert_drawn_from([counts[text] for text in every], expected)


@pytest.mark.parametrize("draws", [True, False], ids=["drawn", "certain"])
def test_what_comes_does_not_depend_on_what_is_tried(
    tokens: TextTokens, monkeypatch: pytest.MonkeyPatch, draws: bool
) -> None:
    """Alone or beside others, with blocks of any length: the drafter decides, and the seed."""
    texts = []
    for most, seats in ((8, 1), (3, 128), (1, 5)):
        monkeypatch.setattr(
            DraftBudget,
            "choose",
            lambda self, chains, *_, most=most: [min(most, len(c)) for c in chains],
        )
        drafter = ChainDrafter(Chain(2), draws=draws)
        texts.append(written(tokens, drafter, KINDS[1], 8, 20, seats))

    assert texts[0] == texts[1] == texts[2]


def test_greedy_calls_need_no_rule(tokens: TextTokens, always: None) -> None:
    """They write what they write without drafts."""
    sampling = Sampling(temperature=0)
    drafter = ChainDrafter(Chain(2), draws=True)

    assert written(tokens, drafter, sampling, 3, 40) == written(tokens, None, sampling, 3, 40)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors as small as these are slower with more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None] | None:
    """Every drafted token is tried."""
    monkeypatch.setattr(DraftBudget, "choose", everything)
    return None

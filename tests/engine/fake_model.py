"""A model without arithmetic, and a batch that it runs in: for tests of what runs when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch

from tests.engine.conftest import TINY
from ttc.engine.local.batch import Batch
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.kv import KVPool
from ttc.engine.local.plan import Plan, Span
from ttc.engine.local.sample import Draw, Drawn
from ttc.engine.local.sequence import Sequence as EngineSequence
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.ports import Request
from ttc.types import Branch, Sampling


class FakeModel:
    """Draws a token that seed and position tell. Each step's spans are kept."""

    numerics = "fake"
    bytes_per_weight = 1.0

    def __init__(self, config: ModelConfig = TINY) -> None:
        self.config, self.costs = config, config.costs(kv_number_bytes=4)
        self.steps: list[Sequence[Span]] = []
        self.on_forward: Callable[[Sequence[Span]], object] = lambda spans: None

    def make_pool(self, num_pages: int) -> KVPool:
        """Memory that nothing is written to."""
        return KVPool(self.config, num_pages)

    def forward(
        self, token_ids: torch.Tensor, plan: Plan, pool: KVPool, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Zeros."""
        self.steps.append(plan.spans)
        self.on_forward(plan.spans)
        return torch.zeros(len(wanted), self.config.vocab)

    def hidden(self, rows: torch.Tensor) -> torch.Tensor:
        """Zeros."""
        return torch.zeros(len(rows), self.config.hidden)

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """What `token` says."""
        count = len(draws)
        tokens = [token(draw.seed, draw.position) for draw in draws]
        return Drawn(tokens, [-1.0] * count, [None] * count, [None] * count, [None] * count, {})

    def logprobs(
        self, logits: torch.Tensor, wanted: Sequence[Sequence[int]]
    ) -> list[dict[int, float] | None]:
        """All the same."""
        return [dict.fromkeys(tokens, -1.0) for tokens in wanted]


def token(seed: int, position: int) -> int:
    """The token that a call with this seed has at a position."""
    return (seed * 31 + position * 7) % 250


class Bench:
    """A batch that is stepped by hand.

    Args:
        tokens: the vocabulary.
        num_pages: of its memory.
        max_sequences: the most calls that compute in one step.
        config: of the model.
    """

    def __init__(
        self,
        tokens: TextTokens,
        num_pages: int = 64,
        max_sequences: int = 4,
        config: ModelConfig = TINY,
    ) -> None:
        self.model = FakeModel(config)
        self.lock = threading.Lock()
        self.batch = Batch(
            self.model, num_pages=num_pages, max_sequences=max_sequences, lock=self.lock
        )
        self.model.steps.clear()
        self.schedule = self.batch.schedule
        self._tokens = tokens
        self.calls: list[EngineSequence] = []

    def submit(
        self,
        prompt: Sequence[int],
        limit: int,
        *,
        priority: float = 0.0,
        owner: str = "",
        on_end: Callable[[], None] = lambda: None,
    ) -> EngineSequence:
        """Queues a call, whose seed is its number."""
        request = Request(
            branch=Branch(text="", token_ids=tuple(prompt)),
            max_tokens=limit,
            sampling=Sampling(),
            seed=len(self.calls),
            priority=priority,
            owner=owner,
        )
        call = EngineSequence(request, list(prompt), limit, self._tokens, None)
        call.future.add_done_callback(lambda _: on_end())
        self.calls.append(call)
        self.schedule.add([call])
        return call

    def step(self, count: int = 1) -> None:
        """Steps, and checks what always holds."""
        for _ in range(count):
            self.batch.step()
            self.batch.tree.check()
            assert len(self.model.steps[-1]) <= self.batch.schedule.max_sequences

    def finish(self, most: int = 10_000) -> int:
        """Steps until nothing is left to do, and returns the number of steps."""
        for number in range(most):
            if self.schedule.is_idle:
                return number
            before = self.batch.counters.steps
            self.step()
            assert self.batch.counters.steps == before + 1, "a step computed nothing"
        raise AssertionError("calls go round in circles")

    def in_step(self, call: EngineSequence) -> bool:
        """Whether a call took part in the last step."""
        return call.turn == self.schedule.step


def output(call: EngineSequence) -> tuple[int, ...]:
    """The tokens of a call that has ended."""
    return call.future.result(0).token_ids or ()


def wanted(call: EngineSequence) -> tuple[int, ...]:
    """The tokens that it should have."""
    start = call.prompt_length
    return tuple(token(call.request.seed, start + i) for i in range(call.limit))

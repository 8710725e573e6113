"""A search over an agent's turns on the embedded engine: a fork computes its new tokens alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest
import torch

import ttc
from tests.engine.conftest import TEMPLATE, TINY, tiny_weights
from tests.engine.test_agents import QWEN
from ttc.constraints import Pattern
from ttc.engine.local import LocalEngine
from ttc.engine.local.model import Llama
from ttc.engine.local.path import path_tokens
from ttc.engine.local.plan import PAGE
from ttc.engine.local.source import ModelSource
from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.ports import Request
from ttc.strategies import Agent, Best, LanguageAgentTreeSearch
from ttc.testing import ScriptedVerifier
from ttc.tools import tool
from ttc.types import Branch

pytest.importorskip("llguidance", reason="constraints need the extra `local`")

Load = Callable[..., "Speaking"]
FORMS = {
    "hermes": (QWEN, r'c\[ARGS\]\{"n":[1-9]\}'),
    "react": (TEMPLATE, r" %d\nAction: c\[[1-9]\]"),
}
"""A chat template, and how a turn looks that calls something."""
TURNS, EXPANSIONS = 2, 8


class Count:
    """Counts."""

    def __init__(self) -> None:
        self.total = 0

    async def __call__(self, n: int) -> int:
        self.total += n
        return self.total


class Speaking(LocalEngine):
    """A random model whose turns are held to calls, and then to an answer."""

    turn = ""

    def __init__(self, source: ModelSource, **settings: Any) -> None:
        super().__init__(source, name="tiny", **settings)
        self.made: list[tuple[Request, Any]] = []

    def submit(self, request: Request, *more: Any) -> Any:
        turns = sum(segment.call is not None for segment in request.branch.lineage())
        spoken = self.turn.replace("%d", str(turns)) if turns < TURNS else r"It is [0-9]\."
        held = replace(request.sampling, constraint=Pattern(spoken))
        asked = replace(request, sampling=held)
        self.made.append((asked, super().submit(asked, *more)))
        return self.made[-1][1]

    def search(self, window: int) -> None:
        """Some turns, at most two after each."""
        count = tool(effect="reversible", name="c")(Count)
        agent = Agent(tools=(count,), max_turns=TURNS, max_tokens=32, temperature=3.0)
        judge = ScriptedVerifier(lambda c: c.branch.num_tokens % 7 / 7)
        node = LanguageAgentTreeSearch(
            judge, agent=agent, max_expansions=EXPANSIONS, width=2, window=window
        )
        ttc.solve("Count.", node >> Best(), model=self, seed=3)
        assert len(self.made) == EXPANSIONS

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        """What each call went on from."""
        return [tuple(path_tokens(request.branch)) for request, _ in self.made]

    @property
    def written(self) -> list[Branch]:
        """What came of each call."""
        return [call.future.result() for _, call in self.made]

    @property
    def computed(self) -> list[int]:
        """The tokens of its prompt that each call computed."""
        usages = [call.usage for _, call in self.made]
        return [usage.input_tokens - (usage.cached_input_tokens or 0) for usage in usages]


@pytest.fixture(scope="module")
def load(tokens: TextTokens, tiny: ModelSource) -> Iterator[Load]:
    """Loads tiny engines with room for conversations, closed after the module."""
    engines: list[Speaking] = []
    config = replace(TINY, context=2048)
    sized = replace(
        tiny, config=config, build=lambda: Llama(config, tiny_weights(config), torch.float32)
    )

    def make(form: str, **settings: Any) -> Speaking:
        template, turn = FORMS[form]
        source = replace(sized, template=ChatTemplate(template, tokens, {}))
        engines.append(Speaking(source, **settings))
        engines[-1].turn = turn
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module", params=FORMS)
def searched(request: pytest.FixtureRequest, load: Load) -> tuple[str, Speaking]:
    """A form, and an engine on which a search has run, one turn after the other."""
    engine = load(request.param)
    engine.search(window=1)
    return request.param, engine


def test_a_turn_computes_what_was_appended_and_its_sibling_one_token(
    searched: tuple[str, Speaking],
) -> None:
    """The prompt, the turns of the path and their results are kept."""
    _, engine = searched
    seen: set[tuple[int, ...]] = set()
    for (request, _), prompt, computed in zip(
        engine.made, engine.prompts, engine.computed, strict=True
    ):
        assert computed == (1 if prompt in seen else _appended(request.branch))
        seen.add(prompt)

    assert len(seen) <= EXPANSIONS - 2, "some turns are siblings"
    assert max(map(len, seen)) > 300


def test_nothing_is_computed_twice_when_siblings_run_at_the_same_time(load: Load) -> None:
    """Each distinct token once, and the last one of a prompt for each that shares it."""
    engine = load("hermes")
    engine.search(window=4)
    distinct = {prompt[:end] for prompt in engine.prompts for end in range(1, len(prompt) + 1)}

    assert engine.counters.prompt_tokens <= len(distinct) + EXPANSIONS
    assert sum(engine.computed) < sum(map(len, engine.prompts)) / 3


def test_the_texts_are_those_of_a_model_that_keeps_nothing(
    searched: tuple[str, Speaking], load: Load
) -> None:
    """To the bit: the deepest calls again, each after another one has taken all the room."""
    form, engine = searched
    longest = max(map(len, engine.prompts)) + 32
    cold = load(form, kv_bytes=(longest // PAGE + 3) * engine._batch.page_bytes)
    deepest = sorted(engine.made, key=lambda made: made[0].branch.num_tokens)[-4:]
    for number, (request, call) in enumerate(deepest):
        other = Branch(text="", token_ids=(33 + number,) * (cold.context - 1))
        flood = Request(branch=other, max_tokens=1, sampling=ttc.Sampling(), seed=0)
        LocalEngine.submit(cold, flood).future.result()
        again = LocalEngine.submit(cold, request)
        assert _bits(again.future.result()) == _bits(call.future.result())
        assert again.usage.cached_input_tokens == 0


def _bits(branch: Branch) -> tuple[Any, ...]:
    return branch.token_ids, branch.logprobs, branch.text, branch.stop_reason


def _appended(branch: Branch) -> int:
    """The tokens behind the last turn that the model wrote itself."""
    segments = reversed(list(branch.lineage()))
    new = takewhile(lambda segment: segment.call is None, segments)
    return sum(len(segment.token_ids or ()) for segment in new)

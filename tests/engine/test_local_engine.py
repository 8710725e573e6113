"""The port: prompts, ends, limits, the shared prefix, memory, many callers."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, get_type_hints

import pytest

from ttc.engine.local import LocalEngine
from ttc.engine.local.kv import KVPool
from ttc.engine.local.path import path_tokens
from ttc.engine.local.source import ModelSource
from ttc.errors import ContextOverflow, EngineError
from ttc.ports import Engine, Request
from ttc.types import Branch, Chunk, Message, Problem


def test_it_is_an_engine(engine: LocalEngine) -> None:
    """Every member of the port is there, and says what it is."""
    members = [name for name in vars(Engine) if not name.startswith("_")]

    assert all(hasattr(engine, name) for name in members)
    assert engine.capabilities.fork
    assert engine.capabilities.replayable
    assert engine.numerics.startswith("torch-")
    assert "linear=" in engine.numerics
    assert get_type_hints(LocalEngine.append)["return"] is Branch


def test_the_root_is_the_templated_prompt(engine: LocalEngine) -> None:
    """A system message is the template's own where none is given."""
    plain = engine.root(Problem.ask("hi"), "judge")
    messages = (Message(role="system", content="Rhyme."), Message(role="user", content="hi"))
    system = engine.root(Problem(messages=messages), "policy")

    assert plain.text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert plain.role == "judge"
    assert system.text.startswith("<|im_start|>system\nRhyme.<|im_end|>\n<|im_start|>user")


def test_a_raw_prompt_is_plain_tokens(engine: LocalEngine) -> None:
    """Also where it spells a control token."""
    root = engine.root(Problem(prompt="x<|im_end|>"), "policy")

    assert root.token_ids == tuple(b"x<|im_end|>")
    assert root.text == "x<|im_end|>"


def test_the_length_ends_a_call(engine: LocalEngine, ask: Callable[..., Request]) -> None:
    """With all its tokens, and a log probability for each."""
    request = ask("abc", 12)
    branch = engine.submit(request).future.result()

    assert branch.finish_reason == "length"
    assert branch.stop_reason is None
    assert branch.parent is request.branch
    assert len(branch.token_ids or ()) == len(branch.logprobs or ()) == 12
    assert all(value <= 0 for value in branch.logprobs or ())


def test_an_end_token_ends_a_call_and_is_no_text(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """It is among the tokens, which were computed; a token of `until` is one, too."""
    free = engine.submit(ask("abc", 12)).future.result()
    assert free.token_ids is not None
    end = free.token_ids[5]
    cut = engine.submit(ask("abc", 12, until=(end,))).future.result()
    kept = free.token_ids[: free.token_ids.index(end) + 1]

    assert (cut.token_ids, cut.finish_reason, cut.stop_reason) == (kept, "stop", end)
    assert cut.text == bytes(kept[:-1]).decode(errors="replace")


def test_an_extended_branch_goes_on_in_place_of_its_end_token(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """So the tokens that a call goes on from are those of the texts."""
    root = Branch(text="ab", token_ids=(97, 98))
    closed = Branch(
        parent=root, text="c", token_ids=(99, 258), finish_reason="stop", stop_reason=258
    )
    stopped = Branch(
        parent=closed, text="", token_ids=(35, 35), finish_reason="stop", stop_reason="##"
    )
    more = engine.append(stopped, "the")

    assert path_tokens(more) == [97, 98, 99, 35, 35, 257]
    assert more.text == "the"


def test_a_stop_string_ends_a_call(engine: LocalEngine, ask: Callable[..., Request]) -> None:
    """The text ends before it; the tokens are those that were computed."""
    free = engine.submit(ask("abd", 40, seed=3)).future.result()
    stop = free.text[10:12]
    at = free.text.index(stop)
    cut = engine.submit(ask("abd", 40, seed=3, until=(stop,))).future.result()

    assert (cut.text, cut.finish_reason, cut.stop_reason) == (free.text[:at], "stop", stop)
    assert free.token_ids is not None
    assert cut.token_ids == free.token_ids[: len(cut.token_ids or ())]
    assert len(cut.token_ids or ()) < 40


def test_chunks_join_to_the_branch(engine: LocalEngine, ask: Callable[..., Request]) -> None:
    """Texts and tokens; the last chunk alone carries the branch, before the future has it."""
    chunks: list[Chunk] = []
    generation = engine.submit(ask("stream", 30, until=("zz",)), chunks.append)
    branch = generation.future.result()

    assert "".join(chunk.text for chunk in chunks) == branch.text
    assert sum((chunk.token_ids or () for chunk in chunks), ()) == branch.token_ids
    assert [chunk.branch for chunk in chunks] == [None] * (len(chunks) - 1) + [branch]


def test_a_prompt_is_computed_once_for_all_its_samples(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """Eight samples compute 300 tokens, and seven times the last one."""
    generations = [engine.submit(ask("p" * 300, 6, seed=seed)) for seed in range(8)]
    branches = [generation.future.result() for generation in generations]

    assert engine.counters.prompt_tokens == 300 + 7
    assert [g.usage.cached_input_tokens for g in generations] == [0] + [299] * 7
    assert len({branch.token_ids for branch in branches}) == 8


def test_samples_depend_on_their_own_seeds_alone(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """The first four of six are the four of four."""

    def sample(n: int) -> list[Branch]:
        calls = [engine.submit(ask("toy", 16, seed=seed)) for seed in range(7, 7 + n)]
        return [call.future.result() for call in calls]

    four, six = sample(4), sample(6)

    assert [b.token_ids for b in six[:4]] == [b.token_ids for b in four]
    assert len({b.token_ids for b in six}) == 6


def test_a_prompt_that_does_not_fit_is_refused(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """At the context's size and above; the message holds both numbers."""
    with pytest.raises(ContextOverflow, match=r"512 tokens.*holds 512"):
        engine.submit(ask("x" * 512))
    with pytest.raises(ContextOverflow, match=r"700 tokens.*holds 512"):
        engine.root(Problem(prompt="x" * 700), "policy")


@pytest.mark.parametrize(("prompt", "expected"), [(511, 1), (508, 4)])
def test_a_call_is_cut_at_the_context(
    engine: LocalEngine, ask: Callable[..., Request], prompt: int, expected: int
) -> None:
    """By its length."""
    branch = engine.submit(ask("x" * prompt, 10)).future.result()

    assert (len(branch.token_ids or ()), branch.finish_reason) == (expected, "length")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is at least 1, not 0"),
        ({"until": ("",)}, "empty string"),
        ({"until": (261,)}, "token 261; tokens are 0 to 260"),
    ],
)
def test_a_senseless_request_is_refused_at_once(
    engine: LocalEngine, ask: Callable[..., Request], changes: dict[str, object], message: str
) -> None:
    """It raises where it was sent."""
    with pytest.raises(ValueError, match=message):
        engine.submit(ask("x", **changes))


def test_branches_of_another_kind_are_refused(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """Without tokens, or with none at all."""
    with pytest.raises(ValueError, match="another engine made it"):
        engine.submit(ask(Branch(text="x", token_ids=None)))
    with pytest.raises(EngineError, match="prompt is empty"):
        engine.submit(ask(""))


def test_calls_beyond_the_memory_wait_their_turn(
    load: Callable[..., LocalEngine], tiny: ModelSource, ask: Callable[..., Request]
) -> None:
    """Twelve pages hold one call of 130 tokens at a time; all are served, none out of order."""
    engine = load(kv_bytes=12 * KVPool.page_bytes(tiny.config.costs(4)))
    ended: list[int] = []
    calls = [engine.submit(ask(chr(97 + i) * 100, 30, seed=i)) for i in range(5)]
    for i, call in enumerate(calls):
        call.future.add_done_callback(partial(lambda n, _: ended.append(n), i))
    branches = [call.future.result(timeout=30) for call in calls]

    assert engine.context == 192
    assert ended == [0, 1, 2, 3, 4]
    assert all(len(branch.token_ids or ()) == 30 for branch in branches)
    assert engine.kv_bytes_used == 0


def test_memory_is_never_exceeded(
    load: Callable[..., LocalEngine], tiny: ModelSource, ask: Callable[..., Request]
) -> None:
    """Forty calls with common and own beginnings, in 28 pages."""
    limit = 28 * KVPool.page_bytes(tiny.config.costs(4))
    engine = load(kv_bytes=limit)
    seen: list[int] = []
    prompts = [("s" * 70) + str(i % 3) * (i * 3 % 50) for i in range(40)]
    calls = [
        engine.submit(ask(p, 5 + i % 60, seed=i), lambda _: seen.append(engine.kv_bytes_used))
        for i, p in enumerate(prompts)
    ]
    for call in calls:
        call.future.result(timeout=60)

    assert max(seen) <= limit
    assert engine.kv_bytes_used == 0
    engine._batch.tree.check()


def test_many_loops_and_threads_share_one_engine(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """Each gets its own answer."""
    alone = [engine.submit(ask("t", 10, seed=seed)).future.result() for seed in range(12)]
    found: dict[int, Branch] = {}

    async def one(seed: int) -> None:
        request = ask("t", 10, seed=seed)
        found[seed] = await asyncio.wrap_future(engine.submit(request).future)

    async def some(seeds: range) -> None:
        await asyncio.gather(*map(one, seeds))

    workers = [
        threading.Thread(target=lambda seeds=seeds: asyncio.run(some(seeds)))
        for seeds in (range(4), range(4, 8), range(8, 12))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [found[seed].token_ids for seed in range(12)] == [b.token_ids for b in alone]


def test_a_closed_engine_fails_what_waits_and_what_comes(
    load: Callable[..., LocalEngine], ask: Callable[..., Request]
) -> None:
    """With our own error, at once; closing twice is harmless."""
    engine = load(max_sequences=1)
    calls = [engine.submit(ask("x", 500, seed=i)) for i in range(3)]
    engine.close()
    engine.close()

    for call in calls[1:]:
        with pytest.raises(EngineError, match="closed before the call had ended"):
            call.future.result(timeout=10)
    with pytest.raises(EngineError, match="engine is closed"):
        engine.submit(ask("x"))


def test_a_forgotten_engine_ends_its_thread(tiny: ModelSource) -> None:
    """Nothing keeps it alive, and so nothing of it is left at exit."""
    engine = LocalEngine(tiny, name="tiny")
    thread, gone = engine._worker._thread, weakref.ref(engine)
    del engine
    gc.collect()
    thread.join(timeout=10)

    assert gone() is None
    assert not thread.is_alive()


@pytest.mark.parametrize("settings", [{"threads": 0}, {"kv_bytes": 100}, {"max_sequences": 0}])
def test_settings_that_leave_nothing_are_refused(
    tiny: ModelSource, settings: dict[str, Any]
) -> None:
    """With their values."""
    with pytest.raises(ValueError, match="at least 1"):
        LocalEngine(tiny, name="tiny", **settings)

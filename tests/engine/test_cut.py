"""Branches cut after any token: what goes on from them is what would have gone on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ttc.engine.local import LocalEngine
from ttc.engine.local.path import path_tokens
from ttc.ports import Request
from ttc.types import Branch


def generated(engine: LocalEngine, request: Request) -> Branch:
    """What the engine makes of a request."""
    return engine.submit(request).future.result(timeout=30)


@pytest.mark.parametrize("count", [1, 5, 11])
def test_a_cut_branch_goes_on_as_the_whole_one_did(
    engine: LocalEngine, ask: Callable[..., Request], count: int
) -> None:
    """To the bit of every log probability: noise is a function of seed and position."""
    request = ask("abc", 12)
    whole = generated(engine, request)
    cut = engine.cut(whole, request.branch.num_tokens + count)
    rest = generated(engine, replace(request, branch=cut, max_tokens=12 - count))

    assert whole.token_ids is not None
    assert path_tokens(cut) == path_tokens(request.branch) + list(whole.token_ids[:count])
    assert (cut.token_ids or ()) + (rest.token_ids or ()) == whole.token_ids
    assert (cut.logprobs or ()) + (rest.logprobs or ()) == whole.logprobs


def test_a_stop_string_is_in_the_text_of_whole_tokens_and_what_follows_sees_it(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    whole = generated(engine, ask("abc", 12))
    assert whole.token_ids is not None
    before = whole.num_tokens - 12
    pieces = [engine.cut(whole, before + n).text for n in range(1, 13)]
    stop = pieces[5].removeprefix(pieces[4])
    stopped = generated(engine, ask("abc", 12, until=(stop,)))
    ended = len(stopped.token_ids or ())
    cut = engine.cut(stopped, stopped.num_tokens)

    assert stopped.finish_reason == "stop"
    assert cut.text == pieces[ended - 1]
    assert cut.text.endswith(stop)
    assert cut.finish_reason == "length"
    assert path_tokens(cut)[-ended:] == list(whole.token_ids[:ended])


def test_an_end_token_that_is_cut_after_stays(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """As the last token of a step it is no end any more; its text is its own."""
    whole = generated(engine, ask("abc", 12))
    assert whole.token_ids is not None
    end = whole.token_ids[3]
    closed = generated(engine, ask("abc", 12, until=(end,)))
    count = len(closed.token_ids or ())
    cut = engine.cut(closed, closed.num_tokens)

    assert closed.stop_reason == end
    assert path_tokens(closed)[-1] != end or count > 1
    assert path_tokens(cut)[-1] == end

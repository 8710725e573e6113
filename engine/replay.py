"""The replay engine: recorded completions in the place of a model.

It samples and can do nothing else. Each run draws a problem's completions without replacement, in
the order of their indices, so what it draws is a function of the run. On the token clock a
completion that is longer than `max_tokens` is cut there and is charged as many.

Whatever the pool does not hold is refused by name: a further draw, another problem, other sampling,
a text to go on with. Nothing is made up in its place.

Differs: where a completion is cut, and the pool does not tell where its tokens end in the text, the
text is cut in proportion. Prompts are charged only where the pool holds their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import fields
from weakref import WeakKeyDictionary

from ttc.constraints import Constraint
from ttc.errors import EngineError, PoolExhausted, RecordError
from ttc.pools import Completion, Pool, read
from ttc.ports import Capabilities, Reading, Request
from ttc.types import UNMEASURED, Branch, Chunk, Problem, Sampling

__all__ = ["ReplayEngine"]


class ReplayEngine:
    """An engine that gives what a pool holds; implements `ttc.ports.Engine`."""

    def __init__(self, pool: Pool | str, *, name: str = "replay") -> None:
        """An engine over a pool.

        Args:
            pool: the pool, or its file.
            name: what outcomes call it.

        Raises:
            RecordError: the file is no pool.
        """
        self.name = pool if isinstance(pool, str) else name
        self.pool = read(pool) if isinstance(pool, str) else pool
        whole = [completion for completion in self.pool if not completion.failed]
        sources = sorted({c.model_hash or c.model or "an unknown model" for c in whole})
        self.numerics = f"recorded completions of {', '.join(sources)}"
        self.capabilities = Capabilities(
            tokens=_all_have(whole, "token_ids"),
            logprobs=int(_all_have(whole, "logprobs")),
            replayable=True,
        )
        self.context: int | None = None
        self.costs = None
        self.labels: tuple[str, ...] = ()
        self._problems = {problem.id: problem for problem in self.pool.problems}
        self._runs: WeakKeyDictionary[Branch, _Draws] = WeakKeyDictionary()

    def root(self, problem: Problem, role: str) -> Branch:
        """The problem's prompt; every prompt begins a run that draws from the first completion on.

        Raises:
            RecordError: the pool does not hold the problem.
        """
        found = self._find(problem)
        completions = self.pool.of(found.id)
        text = problem.prompt
        if text is None:
            text = "".join(f"{m.role}: {m.content}\n" for m in problem.messages)
        root = Branch(role=role, text=text, token_ids=completions[0].prompt_ids or ())
        self._runs[root] = _Draws(found.id, completions)
        return root

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """Always refused.

        Raises:
            RecordError: a recorded completion does not go on.
        """
        raise RecordError(
            f"a recorded completion does not go on with {text!r}; leave out tails and whatever "
            "continues a text, or run on a model"
        )

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """Always refused.

        Raises:
            RecordError: a recorded completion does not go on.
        """
        raise RecordError(
            "a recorded completion cannot be cut, since it does not go on; run a search on a model"
        )

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> _Recorded:
        """The next completion of the problem.

        Raises:
            RecordError: the pool does not hold what is asked for.
        """
        draws = self._runs.get(request.branch)
        if draws is None:
            raise RecordError(
                "a pool samples the prompts of its problems alone: it goes on with no text, and a "
                "run on it has no journal, since it repeats by itself; run on a model, or without "
                "journal="
            )
        if request.sampling.constraint is not None:
            self.check_constraint(request.sampling.constraint)
        completion = draws.next()
        _check(completion, request)
        if completion.failed:
            error = EngineError(completion.error or "", output_tokens=completion.num_tokens or 0)
            return _Recorded(error)
        segment = _segment(completion, request)
        if on_chunk is not None:
            on_chunk(Chunk(text=segment.text, token_ids=segment.token_ids))
        return _Recorded(segment)

    def check_constraint(self, constraint: Constraint) -> None:
        """It holds to none."""
        raise ValueError(
            "a pool gives what was recorded, so it holds to no constraint; run on a model"
        )

    def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None, owner: str = ""
    ) -> Reading:
        """Always refused.

        Raises:
            RecordError: a pool expects no next token.
        """
        raise RecordError("a pool of completions expects no next token; run on a model")

    def score(self, branch: Branch, suffixes: Sequence[Branch], *, owner: str = "") -> Reading:
        """Always refused.

        Raises:
            RecordError: a pool scores no text.
        """
        raise RecordError("a pool of completions scores no text; run on a model")

    def reward(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Always refused.

        Raises:
            RecordError: a pool rewards no text.
        """
        raise RecordError("a pool of completions rewards no text; take the scores of a column")

    def hidden(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Always refused.

        Raises:
            RecordError: a pool holds no hidden states.
        """
        raise RecordError("a pool of completions holds no hidden states; run on a model")

    def _find(self, problem: Problem) -> Problem:
        found = self._problems.get(problem.id)
        if found is None:
            asked = (problem.messages, problem.prompt)
            same = (p for p in self._problems.values() if (p.messages, p.prompt) == asked)
            found = None if problem.id else next(same, None)
        if found is None:
            raise RecordError(
                f"the pool holds no problem {problem.id!r}; it holds {len(self._problems)} others, "
                "which are in its `problems`"
            )
        if (found.messages, found.prompt) != (problem.messages, problem.prompt):
            raise RecordError(
                f"the pool asked something else as problem {problem.id!r}; take it from the pool's "
                "`problems`"
            )
        return found


class _Draws:
    """What a run has drawn of a problem."""

    def __init__(self, problem: str, completions: tuple[Completion, ...]) -> None:
        self._problem, self._completions = problem, completions
        self._num_drawn = 0

    def next(self) -> Completion:
        if self._num_drawn == len(self._completions):
            raise PoolExhausted(self._problem, self._num_drawn)
        self._num_drawn += 1
        return self._completions[self._num_drawn - 1]


class _Recorded:
    """A call that has ended."""

    def __init__(self, result: Branch | EngineError) -> None:
        self.future: Future[Branch] = Future()
        self.usage = UNMEASURED
        self._produced = 0
        if isinstance(result, EngineError):
            self.future.set_exception(result)
        else:
            self._produced = result.length or 0
            self.future.set_result(result)

    def cancel(self) -> int:
        """It had ended."""
        return self._produced


def _all_have(completions: list[Completion], name: str) -> bool:
    values = [getattr(completion, name) for completion in completions]
    return bool(values) and None not in values


def _check(completion: Completion, request: Request) -> None:
    """Refuses a request that the completion is no answer to.

    Raises:
        RecordError: it was drawn otherwise, or its length is unknown or was cut.
    """
    drawn = completion.sampling
    for f in fields(Sampling) if drawn is not None else ():
        asked, was = getattr(request.sampling, f.name), getattr(drawn, f.name)
        if asked != was and f.name not in ("logprobs", "entropy"):
            raise RecordError(
                f"{completion.key} was drawn with {f.name}={was}, and {f.name}={asked} is asked "
                "for; ask for what the pool holds"
            )
    if completion.failed:
        return
    if set(request.until) - set(completion.until):
        raise RecordError(f"{completion.key} was drawn without until={request.until}; leave it out")
    if completion.length is None:
        raise RecordError(
            f"the pool does not tell how many tokens {completion.key} has, so nothing can be "
            "charged for it; take it in again with counting="
        )
    if completion.finish_reason == "length" and request.max_tokens > completion.length:
        raise RecordError(
            f"{completion.key} was cut after {completion.length} tokens, and {request.max_tokens} "
            f"are asked for; ask for max_tokens={completion.length} at most"
        )


def _segment(completion: Completion, request: Request) -> Branch:
    length = completion.length or 0
    kept = min(length, request.max_tokens)
    is_cut = kept < length
    ids, logprobs = completion.token_ids, completion.logprobs
    return Branch(
        parent=request.branch,
        role=request.branch.role,
        text=completion.text[: len(completion.text) * kept // length]
        if is_cut
        else completion.text,
        token_ids=None if ids is None else ids[:kept],
        token_count=kept,
        logprobs=None if logprobs is None else logprobs[:kept],
        finish_reason="length" if is_cut else completion.finish_reason or "stop",
    )

"""The contract of engines: what every one must do, ours and everybody else's.

    print(check_engine(engine))

Every check has a name and a promise, and asks the engine through its port alone. What an engine
says that it cannot do is not asked of it, and must be refused; what it says that it can do must
hold. A run costs some thirty calls of few tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

from ttc.constraints import Choice
from ttc.errors import EngineError, TTCError
from ttc.loop import on_the_loop
from ttc.ports import Engine, Generation, Request
from ttc.solve import asolve
from ttc.testing.conformance import Checked, Report, asked_for, conforming, failed_check
from ttc.types import MAX_LOGPROBS, Branch, Budget, Chunk, Problem, Sampling

__all__ = ["ENGINE_CHECK_NAMES", "check_engine"]

_SECONDS = 120.0


@dataclass(frozen=True)
class _Case:
    """An engine, and what it is asked."""

    engine: Engine
    problem: Problem
    most: int

    @property
    def root(self) -> Branch:
        return self.engine.root(self.problem, "policy")

    def request(self, **changes: Any) -> Request:
        given = {"branch": self.root, "max_tokens": self.most, "sampling": Sampling(), "seed": 7}
        return Request(**{**given, **changes})

    async def ask(self, **changes: Any) -> Branch:
        """What a request comes to."""
        return await _came(self.engine.submit(self.request(**changes)))


def _claim(holds: object, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


async def _came(call: Generation) -> Branch:
    branch = await _arrived(call.future)
    assert isinstance(branch, Branch)
    return branch


async def _arrived(future: Future[Any]) -> Any:
    return await asyncio.wait_for(asyncio.wrap_future(future), _SECONDS)


def _seen(branch: Branch) -> tuple[Any, ...]:
    """What two results of one request share."""
    return branch.text, branch.token_ids, branch.length, branch.finish_reason, branch.stop_reason


async def _prompt(case: _Case) -> str | None:
    """A prompt is a branch of its own, always the same."""
    one, other = case.root, case.root
    _claim(one.parent is None and one.role == "policy", f"{one} is no prompt of its role")
    _claim(
        (one.text, one.token_ids) == (other.text, other.token_ids), "it differs when asked again"
    )
    _claim(one.finish_reason is None and one.call is None, "it claims to be generated")
    has = case.engine.capabilities.tokens
    _claim(not has or one.token_ids is not None, "it has no ids, and the engine has tokens")
    _claim(not has or one.num_tokens > 0, "it has no tokens")
    return None


async def _result(case: _Case) -> str | None:
    """A call gives a segment that follows what it was asked to extend."""
    request = case.request()
    branch = await _came(case.engine.submit(request))
    _claim(branch.parent is request.branch, "its parent is another branch")
    _claim(branch.role == request.branch.role, f"its role is {branch.role!r}")
    _claim(branch.finish_reason in ("stop", "length"), f"it ended by {branch.finish_reason!r}")
    has = case.engine.capabilities.tokens
    _claim(not has or branch.token_ids is not None, "it has no ids, and the engine has tokens")
    return None if branch.length is not None else "it does not count tokens"


async def _limit(case: _Case) -> str | None:
    """No call has more tokens than it may."""
    for most in (1, 3, case.most):
        branch = await case.ask(max_tokens=most)
        length = branch.length
        _claim(length is None or length <= most, f"{length} tokens where {most} were allowed")
        if branch.finish_reason == "length" and length is not None:
            _claim(length > 0, "it was cut by its length and has no token")
    return None


async def _repeat(case: _Case) -> str | None:
    """One request gives one result, and another seed another stream."""
    one, other = await case.ask(), await case.ask()
    if not case.engine.capabilities.replayable:
        return "it does not repeat"
    _claim(_seen(one) == _seen(other), f"{_seen(one)}, and then {_seen(other)}")
    return None


async def _chunks(case: _Case) -> str | None:
    """The pieces of a call join to its text and tokens."""
    pieces: list[Chunk] = []
    branch = await _came(case.engine.submit(case.request(), pieces.append))
    said = "".join(piece.text for piece in pieces)
    _claim(said == branch.text, f"{said!r} was streamed, and {branch.text!r} is the text")
    if branch.token_ids is not None and all(piece.token_ids is not None for piece in pieces):
        streamed = tuple(token for piece in pieces for token in piece.token_ids or ())
        _claim(streamed == branch.token_ids, f"{streamed} was streamed, of {branch.token_ids}")
    return None


async def _until(case: _Case) -> str | None:
    """A stop string ends a text, which does not hold it."""
    pieces: list[Chunk] = []
    whole = await case.ask(sampling=Sampling(temperature=0))
    words = whole.text.split()
    if len(words) < 2:
        return f"it says {whole.text!r}, which has no second word to stop at"
    try:
        asked = case.request(sampling=Sampling(temperature=0), until=(words[1],))
        branch = await _came(case.engine.submit(asked, pieces.append))
    except TTCError as refusal:
        return f"it refuses: {refusal}"
    _claim(words[1] not in branch.text, f"{words[1]!r} is in {branch.text!r}")
    _claim(branch.finish_reason == "stop", f"it ended by {branch.finish_reason!r}")
    said = "".join(piece.text for piece in pieces)
    _claim(said == branch.text, f"{said!r} was streamed, and {branch.text!r} is the text")
    untold = branch.stop_reason is None and not case.engine.capabilities.tokens
    named = branch.stop_reason == words[1]
    _claim(named or untold, f"it names {branch.stop_reason!r}, not {words[1]!r}")
    return "it does not tell which stop it was" if untold else None


async def _logprobs(case: _Case) -> str | None:
    """Log probabilities are those that it says it has: one for each token, none above 0."""
    most = case.engine.capabilities.logprobs
    if not most:
        return "it has none"
    wanted = min(most, 2) if most > 1 else 0
    branch = await case.ask(sampling=Sampling(logprobs=wanted))
    own, top = branch.logprobs, branch.top_logprobs
    _claim(own is not None, "the tokens carry none")
    assert own is not None
    counted = branch.length in (None, len(own))
    _claim(counted, f"{branch.length} tokens have {len(own)} log probabilities")
    _claim(all(value <= 1e-6 for value in own), f"one of {own} is above 0")
    if wanted:
        rows = [list(row) for row in top or ()]
        _claim(len(rows) == len(own), f"{len(own)} tokens have {len(rows)} rows of the greatest")
        _claim(all(len(row) == wanted for row in rows), f"a row does not hold {wanted}")
        falls = all(row == sorted(row, reverse=True) for row in rows)
        _claim(falls, "the greatest do not come first")
    return None


async def _too_many_logprobs(case: _Case) -> str | None:
    """A run that needs more log probabilities than there are is refused before it begins."""
    if case.engine.capabilities.logprobs >= MAX_LOGPROBS:
        return "it has as many as can be asked for"
    before = await _solve_refused(case, "sample(n=2) >> group_confidence() >> best()")
    _claim(before, "it began")
    return None


async def _solve_refused(case: _Case, strategy: str) -> bool:
    """Whether a run is refused as a whole."""
    try:
        await asolve(case.problem, strategy, model=case.engine, seed=0)
    except TTCError:
        return True
    return False


async def _cancel(case: _Case) -> str | None:
    """A cancelled call has come to no more than it may, once and for all; others go on."""
    most = 4 * case.most
    calls = [case.engine.submit(case.request(seed=seed, max_tokens=most)) for seed in range(3)]
    produced = calls[1].cancel()
    _claim(0 <= produced <= most, f"{produced} tokens of at most {most}")
    for call in (calls[0], calls[2]):
        branch = await _came(call)
        _claim(branch.finish_reason in ("stop", "length"), "a neighbour was cut")
    _claim(calls[1].cancel() == produced, "a second cancellation counts anew")
    _claim(_usable(calls[1]), "its usage has a negative line")
    return None


def _usable(call: Generation) -> bool:
    lines = vars(call.usage).values()
    return all(value is None or value >= 0 for value in lines)


async def _usage(case: _Case) -> str | None:
    """What a call used is told once it has ended, and is no less than nothing."""
    call = case.engine.submit(case.request())
    await _came(call)
    _claim(_usable(call), f"{call.usage}")
    cached = call.usage.cached_input_tokens
    part = cached is None or cached <= call.usage.input_tokens
    _claim(part, f"{cached} of {call.usage.input_tokens} prompt tokens were cached")
    _claim(call.usage.output_tokens == 0, "it counts output tokens, which the ledger does")
    return None if call.usage.input_tokens else "it tells no prompt tokens"


async def _refusals(case: _Case) -> str | None:
    """What it cannot do is refused by an error of ttc's, and not made up."""
    engine, can = case.engine, case.engine.capabilities
    root = case.root
    asked: dict[str, Callable[[], Any]] = {}
    if not can.fork:
        longer = Branch(parent=root, role=root.role, text=" so", token_ids=None)
        asked["fork"] = lambda: engine.submit(case.request(branch=longer)).future
    if not can.cut:
        asked["cut"] = lambda: engine.cut(root, 1)
    if not can.score:
        asked["score"] = lambda: engine.score(root, (root,)).future
    if not can.next_tokens:
        asked["next_tokens"] = lambda: engine.next_tokens(root, 1).future
    if not can.reward:
        asked["reward"] = lambda: engine.reward(root, (0,)).future
    if not can.hidden_states:
        asked["hidden_states"] = lambda: engine.hidden(root, (0,)).future
    if not can.grammar:
        asked["grammar"] = lambda: engine.check_constraint(Choice("yes", "no"))
    for name, ask in asked.items():
        _claim(await _is_refused(ask), f"it does not have {name}, and does it")
    return None if asked else "it can do everything"


async def _is_refused(ask: Callable[[], Any]) -> bool:
    try:
        given = ask()
        if isinstance(given, Future):
            await _arrived(given)
    except (TTCError, ValueError, CancelledError):
        return True
    return False


async def _fork(case: _Case) -> str | None:
    """A branch can be gone on with many times, and a text can be appended to it."""
    if not case.engine.capabilities.fork:
        return "it does not fork"
    first = await case.ask()
    cue = case.engine.append(first, "\nSo")
    _claim(cue.parent is first and cue.text == "\nSo", "what is appended is another text")
    for seed in (1, 2):
        branch = await case.ask(branch=cue, seed=seed, max_tokens=4)
        _claim(branch.parent is cue, "it goes on with another branch")
    return None


async def _constraint(case: _Case) -> str | None:
    """A constraint that it takes holds."""
    choice = Choice("yes", "no")
    try:
        case.engine.check_constraint(choice)
    except ValueError as refusal:
        return f"it refuses: {refusal}"
    for seed in range(3):
        branch = await case.ask(sampling=Sampling(constraint=choice), seed=seed, max_tokens=16)
        held = branch.text in choice.options or branch.finish_reason == "length"
        _claim(held, f"{branch.text!r} is none of {choice.options}")
    return None


async def _failure(case: _Case) -> str | None:
    """A prompt that no context holds fails as an `EngineError`, and nothing else does."""
    context = case.engine.context
    if context is None or context > 100_000:
        return "its context is not known to be small"
    long = Problem.ask("word " * (context + 8))
    try:
        root = case.engine.root(long, "policy")
        await _came(case.engine.submit(case.request(branch=root)))
    except EngineError:
        return None
    except TTCError as refusal:
        return f"it refuses the problem: {refusal}"
    raise AssertionError("it goes through")


async def _budget(case: _Case) -> str | None:
    """A vote on it keeps every limit, and tells what it spent."""
    root = case.root.num_tokens
    for budget in (
        Budget(tokens=root + 2 * case.most),
        Budget(calls=2),
        Budget(tokens=root + 40 * case.most, calls=3),
    ):
        outcome = await asolve(
            case.problem,
            f"sample(n=4, max_tokens={case.most}) >> vote()",
            model=case.engine,
            budget=budget,
            seed=1,
        )
        spent = outcome.usage
        for resource in ("tokens", "calls"):
            limit, used = getattr(budget, resource), getattr(spent, resource)
            _claim(limit is None or used <= limit, f"{used} {resource} of {limit}")
        _claim(spent.calls > 0, f"nothing was spent of {budget}")
    return None


_CHECKS: Mapping[str, Callable[[_Case], Awaitable[str | None]]] = {
    "prompt": _prompt,
    "result": _result,
    "limit": _limit,
    "repeat": _repeat,
    "chunks": _chunks,
    "until": _until,
    "logprobs": _logprobs,
    "too_many_logprobs": _too_many_logprobs,
    "cancel": _cancel,
    "usage": _usage,
    "refusals": _refusals,
    "fork": _fork,
    "constraint": _constraint,
    "failure": _failure,
    "budget": _budget,
}
ENGINE_CHECK_NAMES = tuple(_CHECKS)
"""What is checked, in order."""


def check_engine(
    engine: Engine,
    problem: Problem | None = None,
    *,
    max_tokens: int = 12,
    exempt: Mapping[str, str] | None = None,
    only: Collection[str] = ENGINE_CHECK_NAMES,
) -> Report:
    """Checks an engine that generates.

    Args:
        engine: which.
        problem: what it is asked; a question by default.
        max_tokens: output tokens of a call.
        exempt: why checks do not apply, by their names.
        only: the checks to run, by their names.

    Returns:
        The report, of an engine that fails no check.

    Raises:
        NotConforming: it fails some; all checks have run.
        ValueError: there is no such check.
    """
    excused = exempt or {}
    asked = asked_for(ENGINE_CHECK_NAMES, only, excused)
    case = _Case(engine, problem or Problem.ask("Name three animals."), max_tokens)

    async def check() -> list[Checked]:
        return [await _checked(case, name, excused.get(name)) for name in asked]

    return conforming(on_the_loop(check()))


async def _checked(case: _Case, name: str, excuse: str | None) -> Checked:
    check = _CHECKS[name]
    promise = (check.__doc__ or "").strip().splitlines()[0].rstrip(".")
    if excuse is not None:
        return Checked(name=name, promise=promise, verdict="exempt", note=excuse)
    try:
        note = await check(case)
    except (AssertionError, TTCError, ValueError, TimeoutError) as fault:
        return failed_check(name, promise, fault)
    return Checked(name=name, promise=promise, verdict="passed", note=note or "")

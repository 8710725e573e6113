"""The life of one call of a tool in a run: admitted, charged, journaled, made at most once.

A pure call is made once in a run: equal ones share its result, but not its failure. An irreversible
one is written down before it is made and after; one of which only the first is found after a kill
is never made again. One part of a strategy acts, and no other; and once a branch has seen what the
user does not vouch for, each act needs the user's word.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ttc.budget import Account
from ttc.call_json import canonical
from ttc.errors import EngineError
from ttc.messages import ToolCall
from ttc.ports import Scope, Timer
from ttc.run import Run
from ttc.safe_text import safe_logger
from ttc.spent_call import PASSED_ON, SpentCall
from ttc.tools.port import Arguments, Confirm, Tool, ToolResult
from ttc.types import Record
from ttc.work import Work

__all__ = ["UNKNOWN_EFFECT", "Asked", "ToolUse"]

_log = safe_logger(__name__)

UNKNOWN_EFFECT = (
    "The call was begun and cut. Whether it had its effect is unknown, and it is not made again."
)
"""What the model is told of an act of which nobody knows the end."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a node asks of a tool."""

    tool: Tool
    arguments: Arguments
    earlier: Sequence[Arguments] = ()
    """Of a reversible tool, the arguments of the calls that the branch has made before."""
    after_untrusted: bool = True
    """Whether the branch has seen what the user does not vouch for."""
    confirm: Confirm | None = field(default=None, compare=False)

    @property
    def call(self) -> ToolCall:
        """Name and arguments."""
        return ToolCall(name=self.tool.name, arguments=self.arguments)

    @property
    def request(self) -> dict[str, Any]:
        """Everything that the result depends on, as JSON."""
        before = [ToolCall(name=self.tool.name, arguments=one) for one in self.earlier]
        return {
            "tool": self.tool.name,
            "version": self.tool.version,
            "effect": self.tool.effect,
            "call": canonical(self.call),
            "earlier": [canonical(one) for one in before],
        }

    @property
    def digest(self) -> str:
        """A hash of it."""
        return hashlib.blake2b(repr(self.request).encode(), digest_size=16).hexdigest()


class ToolUse(SpentCall[ToolResult]):
    """One call of a tool. Once admitted, it is charged."""

    def __init__(
        self, run: Run, account: Account, index: int, asked: Asked, inside: tuple[Work, Scope]
    ) -> None:
        """A call.

        Args:
            run: the run.
            account: what it draws on.
            index: which of its node's calls of tools it is.
            asked: what is asked.
            inside: the scope in which the tool works, as work and as a port.
        """
        self._asked = asked
        self._has_expired = False
        self._timer: Timer | None = None
        path = inside[0].path.rpartition("/")[0]
        record = Record(path=path, index=index, kind="tool", fingerprint=asked.digest)
        super().__init__(run, account, inside, label=f"tool {index}", record=record)

    async def run(self) -> ToolResult:
        """Waits for admission, then for the tool. Whatever the tool does, the result is data.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
            RecordError: it cannot be journaled.
        """
        try:
            result = await self._spend({"calls": 1}, self._served, kind="tool", role="tools")
        except EngineError as by_hand:
            return self._result("error", str(by_hand))
        self._end({"status": result.status})
        return result

    # What a call comes to

    async def _served(self) -> ToolResult:
        """The result: what is known of a pure call, or what the tool gives."""
        tool = self._asked.tool
        try:
            tool.check(self._asked.arguments)
        except ValueError as error:
            return self._cut("error", f"the arguments of {tool.name} are wrong: {error}")
        if tool.effect == "irreversible" and (reason := await self._reason_not_to()):
            return self._result("refused", reason)
        if tool.effect != "pure":
            return await self._made()
        return await self._shared()

    async def _reason_not_to(self) -> str | None:
        """Why an act must not happen; `None` where it may."""
        asked, run = self._asked, self._run
        if asked.after_untrusted and asked.confirm is None:
            return (
                "What was read before is not the user's word, so the call needs the user's "
                "confirmation, and nobody can be asked."
            )
        actor = run.actor = run.actor or self._path
        if actor != self._path:
            run.timing["two parts of the strategy wanted to act"] = None
            return "Another part of the strategy acts in this run, and only one may."
        if asked.confirm is None:
            return None
        given = await asyncio.to_thread(asked.confirm, asked.call)
        is_allowed = await given if inspect.isawaitable(given) else given
        return None if is_allowed is True else "The user did not confirm the call."

    async def _shared(self) -> ToolResult:
        """The result of the first of all equal pure calls that succeeds."""
        known = self._run.tool_results
        name = repr(self._asked.request)
        while (first := known.get(name)) is not None:
            await asyncio.wait([first])
            if not first.cancelled():
                return replace(first.result(), call=self.key)
            if known.get(name) is first:
                del known[name]
        mine = known[name] = asyncio.get_running_loop().create_future()
        try:
            result = await self._made()
            if result.status == "ok":
                mine.set_result(result)
            return result
        finally:
            if not mine.done():
                mine.cancel()

    async def _made(self) -> ToolResult:
        """The journal's result, or that of the tool."""
        effect = self._asked.tool.effect

        async def make() -> Mapping[str, Any]:
            result = await self._called()
            if self._has_expired:
                raise asyncio.CancelledError
            return _values(result)

        known = await self._run.journal.effect(
            self.key, self._asked.request, again=effect != "irreversible", make=make
        )
        if known is None:
            return self._result("unknown_effect", UNKNOWN_EFFECT)
        return replace(self._result(known["status"], known["text"]), is_cut=known["is_cut"])

    async def _called(self) -> ToolResult:
        """What the tool gives, or why it gives nothing."""
        tool, asked, mine = self._asked.tool, self._asked, asyncio.current_task()
        self._timer = self._run.clock.call_later(tool.seconds, self._expire)
        try:
            text = await tool(asked.arguments, asked.earlier, self._scope)
        except PASSED_ON:
            raise
        except asyncio.CancelledError:
            if self._done:
                raise
            return self._result("error", f"{tool.name} cancelled itself")
        except BaseException as error:  # a tool that fails is data, however it does
            if not _is_current(mine):
                raise  # this coroutine is closed, from outside
            _log.info("%s: the tool %s failed", self._path, tool.name, exc_info=True)
            return self._cut("error", f"{type(error).__name__}: {_words_of(error)}")
        if not isinstance(text, str):
            return self._result("error", f"{tool.name} gave {type(text).__name__} and no text")
        return self._cut("ok", text)

    def _cut(self, status: Any, text: str) -> ToolResult:
        """A result of which no more is told than may be."""
        data, most = text.encode(errors="replace"), self._asked.tool.max_bytes
        if len(data) <= most:
            return self._result(status, data.decode())
        told = data[:most].decode(errors="ignore")
        note = f"\n[cut here: {most} of {len(data)} bytes]"
        return replace(self._result(status, told + note), is_cut=True)

    def _result(self, status: Any, text: str) -> ToolResult:
        """A result; what ttc itself says is to be trusted, but no act's unknown end."""
        is_trusted = self._asked.tool.is_trusted or status in ("refused", "timeout")
        return ToolResult(status=status, text=text, is_trusted=is_trusted, call=self.key)

    def _expire(self) -> None:
        """Ends a tool that takes too long, whether it hears of it or not."""
        if self._arrival is None or self._arrival.done():
            return
        self._has_expired = True
        self._run.timing["a tool was stopped by its limit of time"] = None
        tool = self._asked.tool
        if tool.effect == "irreversible":
            result = self._result("unknown_effect", UNKNOWN_EFFECT)
        else:
            result = self._result("timeout", f"{tool.name} took more than {tool.seconds:g} seconds")
        self._run.journal.effect_ended(self.key, _values(result))
        self._arrival.set_result(result)

    def _end(self, detail: Mapping[str, Any]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tool = self._asked.tool
        super()._end({"tool": tool.name, "effect": tool.effect, **detail})


def _is_current(task: asyncio.Task[Any] | None) -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no loop runs any more
        return False


def _words_of(error: BaseException) -> str:
    """What an exception says, if it can."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a tool's own exception may do anything
        return "what it says cannot be read"


def _values(result: ToolResult) -> dict[str, Any]:
    """A result as a journal keeps it."""
    return {"status": result.status, "text": result.text, "is_cut": result.is_cut}

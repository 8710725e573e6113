"""Trajectories: what one branch of an agent has said, called and read, turn by turn.

A trajectory is a frozen value, so that a fork of it costs nothing. It goes on by two steps: the
model speaks, and what it asked for is called. Every call is answered, in its place: one that cannot
be read, one of a tool that there is none, and one that a limit forbids as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttc.answers import answer_key, extract_answer
from ttc.call_json import short
from ttc.constraints import Calls
from ttc.ports import Scope
from ttc.prompts import together
from ttc.strategies.agent.conversation import Conversation
from ttc.strategies.agent.voting import VoteBy, Voter, elect, key_of
from ttc.strategies.calls import resting_on
from ttc.tool_calls import BadCall, Call, SpokenTurn, read_turn
from ttc.tools import Confirm, Tool, ToolResult, schema_of
from ttc.types import AnswerFormat, Branch, Candidate, Message, Sampling

__all__ = ["AgentTurns", "Limits", "Trajectory", "Use"]

_AGAIN = "\n\nThis is the call that you made before. Go on, or give your final answer."


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When an agent's calls come to an end."""

    turns: int
    calls: int
    repeats: int
    """Equal turns in a row."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """A call that was made."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One branch of an agent."""

    candidate: Candidate
    """What it has come to; open as long as it goes on."""
    messages: tuple[Message, ...] = ()
    """Its turns since the prompt."""
    num_turns: int = 0
    """Turns in which it called something."""
    num_calls: int = 0
    """Calls that were answered."""
    uses: tuple[Use, ...] = ()
    """Calls that tools were asked to make, the oldest first."""
    wanted: tuple[Call, ...] = ()
    """What it has asked for, and has no answer to."""
    repeated: int = 0
    """How many equal turns in a row end with the last one."""
    last_key: tuple[str, ...] = ()
    """What that turn asked for."""
    has_read_others: bool = False
    """Whether it has read what the user does not vouch for."""
    is_last: bool = False
    """Whether it was told to come to an end."""

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return self.candidate.status != "open"


@dataclass(frozen=True, kw_only=True)
class AgentTurns:
    """How the trajectories of one agent go on, in one run."""

    conversation: Conversation
    tools: Mapping[str, Tool]
    limits: Limits
    sampling: Sampling
    max_tokens: int
    votes: int
    vote_by: VoteBy
    ignoring: tuple[str, ...]
    confirm: Confirm | None
    constraint: Calls | None
    """What a turn has to be in which something may be called."""

    @property
    def scope(self) -> Scope:
        """That of the agent."""
        return self.conversation.scope

    def begun(self, candidate: Candidate) -> Trajectory:
        """A trajectory without a turn.

        Raises:
            ValueError: the candidate is no beginning.
        """
        given = candidate.branch
        if given.parent is not None or given.text != self.scope.root(given.role).text:
            raise ValueError(
                "an agent begins from the problem itself, whose prompt it writes with its tools; "
                "say what else it is told by instructions="
            )
        begun = replace(candidate, branch=self.conversation.prompt)
        return Trajectory(candidate=begun, is_last=self.limits.calls == 0)

    async def speak(self, trajectory: Trajectory, index: int) -> Trajectory:
        """The model's next turn: an end, or wanted calls.

        Args:
            trajectory: what it goes on from.
            index: the number of its call; the next ones are those of the other votes.

        Raises:
            BudgetExceeded: a limit refused it.
            EngineError: the engine failed.
        """
        branches = await together(
            self.scope, [self._said(trajectory, index + n) for n in range(self.votes)]
        )
        turns = [self._read(branch) for branch in branches]
        place = 0
        if self.votes > 1:
            voters = [
                Voter(calls=_calls(turn, branch), answer=self._answer(turn, branch)[1])
                for turn, branch in zip(turns, branches, strict=True)
            ]
            place = elect(voters, by=self.vote_by, ignoring=self.ignoring)
        others = [b.call for n, b in enumerate(branches) if n != place and b.call]
        candidate = trajectory.candidate
        for branch in branches:
            candidate = self.scope.finish(candidate, branch)  # the usage of each
        candidate = resting_on(candidate, calls=[*others, *_before(trajectory, branches[place])])
        spoken = replace(trajectory, candidate=replace(candidate, branch=branches[place]))
        return self._taken(spoken, turns[place])

    async def answer(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with what came of the calls that it wants.

        Raises:
            BudgetExceeded: a limit refused a call.
            EngineError: the conversation cannot go on.
        """
        wanted = trajectory.wanted
        room = max(0, self.limits.calls - trajectory.num_calls)
        results = await self._called(trajectory, wanted[:room])
        key = key_of(wanted)
        repeated = trajectory.repeated + 1 if key == trajectory.last_key else 1
        again = _AGAIN if repeated > 1 else ""
        told = [(c, result.text + again) for c, result in zip(wanted, results, strict=False)]
        over = f"The call is not made: the limit of {self.limits.calls} calls is reached."
        told += [(call, over) for call in wanted[room:]]
        num_calls = trajectory.num_calls + len(results)
        reached = self._limit_reached(trajectory.num_turns + 1, num_calls, repeated)
        branch, messages = self.conversation.answered(
            trajectory.candidate.branch,
            told,
            before=trajectory.messages,
            is_last=reached is not None,
        )
        if reached is not None:
            self.scope.decide("tool_limit", end=False, limit=reached, calls=num_calls)
        return replace(
            trajectory,
            candidate=replace(
                trajectory.candidate, branch=branch, text=branch.output, answer=None, key=None
            ),
            messages=messages,
            num_turns=trajectory.num_turns + 1,
            num_calls=num_calls,
            uses=(*trajectory.uses, *self._uses(wanted, results)),
            wanted=(),
            repeated=repeated,
            last_key=key,
            has_read_others=trajectory.has_read_others
            or any(not result.is_trusted for result in results),
            is_last=reached is not None,
        )

    def key(self, trajectory: Trajectory) -> tuple[str, ...]:
        """What trajectories share that want the same."""
        return key_of(trajectory.wanted, ignoring=self.ignoring)

    def acts(self, trajectory: Trajectory) -> bool:
        """Whether it wants something that cannot be undone, and that could be allowed."""
        if trajectory.has_read_others and self.confirm is None:
            return False  # it is refused without being chosen
        tools = (self.tools.get(call.name or "") for call in trajectory.wanted)
        return any(tool is not None and tool.effect == "irreversible" for tool in tools)

    def parked(self, trajectory: Trajectory) -> Candidate:
        """The candidate of a trajectory that waits to be chosen: its calls are its answer."""
        calls = [call for call in trajectory.wanted if not isinstance(call, BadCall)]
        written = [{"name": c.name, "arguments": dict(c.arguments)} for c in calls]
        answer = _json(written[0] if len(written) == 1 else written)
        return replace(
            trajectory.candidate,
            answer=answer,
            key=("call", *self.key(trajectory)),
            text=answer,
        )

    # What a turn says

    async def _said(self, trajectory: Trajectory, index: int) -> Branch:
        """A turn."""
        constraint = self.constraint
        if constraint is not None and trajectory.is_last:
            constraint = replace(constraint, may_call=False)
        return await self.scope.generate(
            trajectory.candidate.branch,
            index=index,
            max_tokens=self.max_tokens,
            sampling=replace(self.sampling, constraint=constraint),
            until=self.conversation.until,
        )

    def _read(self, branch: Branch) -> SpokenTurn:
        """What a turn says."""
        tools = [schema_of(tool) for tool in self.tools.values()]
        return read_turn(branch.text, self.conversation.form, tools)

    def _taken(self, trajectory: Trajectory, turn: SpokenTurn) -> Trajectory:
        branch = trajectory.candidate.branch
        if (calls := _calls(turn, branch)) and not trajectory.is_last:
            waits = replace(trajectory.candidate, status="open", answer=None, key=None)
            return replace(trajectory, candidate=waits, wanted=calls)
        answer, key = self._answer(turn, branch)
        is_whole = branch.finish_reason == "stop"
        return replace(
            trajectory,
            candidate=replace(
                trajectory.candidate,
                status="finished" if is_whole else "truncated",
                text=turn.final if turn.final is not None else branch.text.strip(),
                answer=answer,
                key=key,
            ),
        )

    def _answer(self, turn: SpokenTurn, branch: Branch) -> tuple[str | None, Any]:
        """The answer of a last turn. What tools have written is no part of it, and no call is."""
        if turn.calls:
            return None, None
        format: AnswerFormat = self.scope.problem.answer_format
        texts = (branch.text, self.conversation.said(branch))
        if turn.final is not None:
            texts = (turn.final, f"Answer: {turn.final}")
        for text in texts:
            answer = extract_answer(text, format, finish_reason=branch.finish_reason)
            if answer is not None:
                return answer, answer_key(answer, format)
        return None, None

    # What a call comes to

    async def _called(self, trajectory: Trajectory, wanted: Sequence[Call]) -> Sequence[ToolResult]:
        """The results of calls: side by side, unless the order could make a difference."""
        known = [self.tools.get(call.name or "") for call in wanted]
        if all(tool is None or tool.effect == "pure" for tool in known):
            return await together(self.scope, [self._result(trajectory, c) for c in wanted])
        results = []
        for call in wanted:
            result = await self._result(trajectory, call)
            results.append(result)
            made = self._uses([call], [result])
            trajectory = replace(
                trajectory,
                uses=(*trajectory.uses, *made),
                has_read_others=trajectory.has_read_others or not result.is_trusted,
            )
        return results

    async def _result(self, trajectory: Trajectory, call: Call) -> ToolResult:
        if isinstance(call, BadCall):
            return _told(f"The call cannot be read: {call.reason}.")
        tool = self.tools.get(call.name)
        if tool is None:
            names = ", ".join(self.tools)
            meant = short(call.name)
            return _told(f"There is no tool {meant!r}; call one by its name: {names}.")
        earlier = [use.arguments for use in trajectory.uses if use.tool == tool.name]
        return await self.scope.call(
            tool,
            call.arguments,
            earlier=earlier if tool.effect == "reversible" else (),
            after_untrusted=trajectory.has_read_others,
            confirm=self.confirm,
        )

    def _uses(self, wanted: Sequence[Call], results: Sequence[ToolResult]) -> list[Use]:
        """The calls that tools were asked to make."""
        return [
            Use(tool=call.name, arguments=call.arguments)
            for call, result in zip(wanted, results, strict=False)
            if result.call is not None and not isinstance(call, BadCall)
        ]

    def _limit_reached(self, num_turns: int, num_calls: int, repeated: int) -> str | None:
        """The limit that lets nothing more be called."""
        if repeated >= self.limits.repeats:
            return "repeats"
        if num_calls >= self.limits.calls:
            return "calls"
        return "turns" if num_turns >= self.limits.turns else None


def _calls(turn: SpokenTurn, branch: Branch) -> tuple[Call, ...]:
    """What a turn calls. One that was cut calls nothing."""
    return turn.calls if branch.finish_reason == "stop" else ()


def _before(trajectory: Trajectory, branch: Branch) -> list[str]:
    """The calls that a trajectory rests on, and that its branch does not show."""
    shown = {segment.call for segment in branch.lineage()}
    made = {segment.call for segment in trajectory.candidate.branch.lineage()}
    return sorted(call for call in made - shown if call)


def _told(text: str) -> ToolResult:
    """What ttc itself says to a call that reaches no tool."""
    return ToolResult(status="error", text=text, is_trusted=True)


def _json(value: Any) -> str:
    """Calls as an answer."""
    return json.dumps(value, sort_keys=True)

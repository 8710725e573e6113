"""Agent: a model that calls tools, turn by turn, until it answers.

Source: Yao et al. 2022, ReAct (arXiv 2210.03629); votes on calls as in its_hub's self-consistency
for tools.
Differs: N branches never act N times on the world. A branch that wants what cannot be undone is
parked, with the call as its answer; one is chosen, its call is made once, and the agent goes on
from there.
Cost: for each of n branches at most `max_turns` + 1 turns of `votes` calls and `max_calls` calls of
tools.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

from ttc.constraints import Calls
from ttc.errors import EngineError, GraphError
from ttc.graph import Cost, Flow, Node, Port, after, is_count
from ttc.ports import Scope, Stream
from ttc.strategies.agent.conversation import Conversation
from ttc.strategies.agent.trajectory import AgentTurns, Limits, Trajectory
from ttc.strategies.agent.voting import VoteBy
from ttc.strategies.calls import ended
from ttc.strategies.refinement import count_faults, sampling_faults, text_faults
from ttc.strategies.sample import Sample
from ttc.streams import iterate
from ttc.tool_calls import Form
from ttc.tools import Confirm, Tool, named_tool, tool_faults
from ttc.types import Candidate, Sampling

__all__ = ["Agent"]


@dataclass(frozen=True, kw_only=True)
class Agent(Node):
    """Lets n branches call tools until each has an answer."""

    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    tools: Sequence[Tool | str]
    """What it may call; a name stands for a built-in one: `tools=["python"]`."""
    n: int = 1
    """Branches of each open candidate."""
    max_turns: int = 8
    """Turns of a branch in which it calls something; one more is for the answer."""
    max_calls: int = 16
    """Calls of tools of a branch. With 0 nothing is ever called."""
    max_repeats: int = 3
    """Equal turns in a row after which nothing more is called."""
    calls: Form | Literal["auto"] = "auto"
    """How the model writes calls; by default as its chat template does, and as ReAct where that
    knows no tools."""
    votes: int = 1
    """Samples of each turn, of which one is elected before anything is called."""
    vote_by: VoteBy = "call"
    ignoring: tuple[str, ...] = ()
    """Arguments that make no difference in a vote."""
    select: Node | None = None
    """Chooses among the branches where one of them wants what cannot be undone."""
    confirm: Confirm | None = None
    """Asks the user before such a call is made; without it none is made once a branch has read
    what the user does not vouch for."""
    instructions: str = ""
    """What the model is told before the problem."""
    constrain: bool = False
    """Whether turns are held to a grammar: words, or calls of known tools with arguments that
    their schemas allow. Needs an engine with grammars."""
    temperature: float = 0.7
    top_p: float | None = None
    max_tokens: int = 512
    """The most output tokens of a turn."""
    ahead: int = 16
    """Branches in flight at once. With 1 a tight budget goes into whole branches, one by one."""
    role: str = "policy"

    def __post_init__(self) -> None:
        tools: tuple[Any, ...] = tuple(
            named_tool(t) if isinstance(t, str) else t for t in self.tools
        )
        if strange := [tool for tool in tools if not isinstance(tool, Tool)]:
            raise TypeError(f"{strange[0]!r} is no tool; make one with ttc.tools.tool")
        object.__setattr__(self, "tools", tools)
        object.__setattr__(self, "ignoring", tuple(self.ignoring))

    @property
    def kit(self) -> tuple[Tool, ...]:
        """Its tools."""
        return tuple(tool for tool in self.tools if not isinstance(tool, str))

    @property
    def roles(self) -> frozenset[str]:
        """Who speaks, and whom the selector asks."""
        inside = () if self.select is None else self.select.walk()
        return frozenset({self.role}).union(*(placed.node.roles for placed in inside))

    def demands(self, given: Flow) -> Mapping[str, frozenset[str]]:
        """What the selector needs of those that speak, and of its own roles."""
        own = {self.role: frozenset({"grammar", "tokens"} if self.constrain else ())}
        for placed in () if self.select is None else self._ended().walk():
            for role, needs in placed.node.demands(placed.given).items():
                own[role] = own.get(role, frozenset()) | needs
        return own

    def _ended(self) -> Node:
        """The selector behind what stands for branches that have ended."""
        ended = Sample(n=max(2, self.n) if is_count(self.n) else 2, role=self.role)
        return ended if self.select is None else ended >> self.select

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range, tools that cannot be called, a selector that is none."""
        faults = count_faults(
            n=self.n,
            max_turns=self.max_turns,
            max_repeats=self.max_repeats,
            votes=self.votes,
            max_tokens=self.max_tokens,
            ahead=self.ahead,
        )
        if self.max_calls != 0 or isinstance(self.max_calls, bool):
            faults += count_faults(max_calls=self.max_calls)
        faults += sampling_faults(self.temperature) + text_faults(role=self.role)
        for name, value, known in (
            ("calls", self.calls, ("auto", *get_args(Form))),
            ("vote_by", self.vote_by, get_args(VoteBy)),
        ):
            if value not in known:
                faults.append(f"{name} is one of {', '.join(known)}, not {value!r}")
        names = [tool.name for tool in self.kit]
        faults += [fault for tool in self.kit for fault in tool_faults(tool)]
        faults += [f"two tools are called {name!r}" for name in set(names) if names.count(name) > 1]
        if not self.kit:
            faults.append("it has no tools; sample() needs none")
        return faults + self._schema_faults() + self._selector_faults(given)

    def _schema_faults(self) -> list[str]:
        """Schemas that no grammar enforces."""
        if not self.constrain:
            return []
        form = "hermes" if self.calls == "auto" else self.calls
        try:
            self._constraint(form)
        except ValueError as error:
            return [f"constrain=True, and {error}"]
        return []

    def _constraint(self, form: Form, *, is_thinking: bool = False) -> Calls | None:
        """What a turn has to be.

        Raises:
            ValueError: no grammar enforces a schema.
        """
        if not (self.constrain and self.max_calls and self.kit):
            return None
        return Calls(form, {tool.name: tool.parameters for tool in self.kit}, is_thinking)

    def _selector_faults(self, given: Flow) -> list[str]:
        if self.select is None:
            return []
        if not any(tool.effect == "irreversible" for tool in self.kit):
            return ["nothing that it calls is irreversible, so select would choose nothing"]
        try:
            self._ended().validate()
        except GraphError as error:
            return [f"select chooses one of several candidates: {'; '.join(error.faults)}"]
        return []

    def flow(self, given: Flow) -> Flow:
        """N for each one given."""
        count = None if given.count is None or not is_count(self.n) else given.count * self.n
        return Flow(kind="finished", count=count, roles=frozenset({self.role}))

    def bound(self, given: Flow) -> Cost:
        """Turns and calls of tools; what tools write is bounded by the context alone."""
        ended, turns = after(self, given), self.max_turns + 1
        each = self.turn_cost(given) * turns + Cost(calls=self.max_calls)
        if self.select is None:
            return each * ended.count
        return (each * ended.count + self.select.bound(ended)) * turns

    def turn_cost(self, given: Flow) -> Cost:
        """The most that the samples of one turn cost."""
        tokens = given.lengths.call(self.role, self.max_tokens, None)
        return Cost(tokens=tokens, calls=1) * self.votes

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Lets branches go on until they have come to an end, or one has to be chosen."""
        try:
            turns = self.turns(scope)
        except EngineError as error:  # the model has no form for it, or no room
            stream = self._failed(candidates, scope, error)
        else:
            acts = any(tool.effect == "irreversible" for tool in self.kit)
            stream = self._staged(candidates, turns) if acts else self._each(candidates, turns)
        async for candidate in stream:
            yield candidate

    async def _failed(
        self, candidates: Stream[Candidate], scope: Scope, error: EngineError
    ) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            for _ in range(self.n):
                if (failed := ended(scope, candidate, error)) is not None:
                    yield failed

    async def _each(
        self, candidates: Stream[Candidate], turns: AgentTurns
    ) -> AsyncGenerator[Candidate, None]:
        """Each branch by itself, in launch order."""

        async def forks() -> AsyncGenerator[Trajectory, None]:
            async for candidate in candidates:
                for _ in range(self.n):
                    yield turns.begun(candidate)

        async def ends(trajectory: Trajectory, index: int) -> Candidate:
            return (await self._followed(trajectory, turns, index)).candidate

        async for candidate in turns.scope.map(ends, forks(), ahead=self.ahead):
            yield candidate

    async def _staged(
        self, candidates: Stream[Candidate], turns: AgentTurns
    ) -> AsyncGenerator[Candidate, None]:
        """In stages: all branches go on until each has ended or is parked; then one acts."""
        scope = turns.scope
        live = [turns.begun(c) async for c in candidates for _ in range(self.n)]
        first = stage = 0
        while True:
            stopped = await self._stopped(live, turns, first)
            waiting = [trajectory for trajectory in stopped if not trajectory.is_over]
            if not waiting or (self.select is None and len(live) > 1):
                break
            chosen = (
                stopped[0] if self.select is None else await self._chosen(stopped, turns, stage)
            )
            if chosen is None or chosen.is_over:
                stopped = [] if chosen is None else [chosen]
                break
            scope.decide("acted", end=False, calls=len(chosen.wanted))
            first, stage = first + len(live), stage + 1
            live = [await self._answered(chosen, turns)] * len(live)
        for trajectory in stopped:
            yield trajectory.candidate if trajectory.is_over else turns.parked(trajectory)

    async def _answered(self, chosen: Trajectory, turns: AgentTurns) -> Trajectory:
        """The branch that acts, once it has acted. The engine's faults are data."""
        try:
            return await turns.answer(chosen)
        except EngineError as error:
            failed = ended(turns.scope, chosen.candidate, error)
            return replace(chosen, candidate=failed or chosen.candidate, wanted=())

    async def _stopped(
        self, live: Sequence[Trajectory], turns: AgentTurns, first: int
    ) -> list[Trajectory]:
        """All branches, each gone on with until it has ended or is parked."""

        async def follow(trajectory: Trajectory, index: int) -> Trajectory:
            return await self._followed(trajectory, turns, first + index)

        stream = turns.scope.map(follow, iterate(*live), ahead=self.ahead)
        return [trajectory async for trajectory in stream]

    async def _chosen(
        self, stopped: Sequence[Trajectory], turns: AgentTurns, stage: int
    ) -> Trajectory | None:
        """The branch that the selector takes; a parked one stands there as if it had ended."""
        assert self.select is not None
        among = [
            t.candidate if t.is_over else replace(turns.parked(t), status="finished")
            for t in stopped
        ]
        given = Flow(kind="finished", count=len(among), roles=frozenset({self.role}))
        name = f"{stage}.{self.select.name or 'select'}"
        stream = turns.scope.run(self.select, iterate(*among), name=name, given=given)
        given_back = [candidate async for candidate in stream]
        if not given_back:
            return None
        taken = given_back[-1]
        places = [n for n, c in enumerate(among) if c.branch is taken.branch]
        if not places:
            return None
        chosen = stopped[places[0]]
        known = replace(chosen.candidate, chosen_among=taken.chosen_among)
        if chosen.is_over:
            known = replace(known, confidence=taken.confidence, scores=taken.scores)
        return replace(chosen, candidate=known)

    async def _followed(self, trajectory: Trajectory, turns: AgentTurns, branch: int) -> Trajectory:
        """A branch, gone on with until it has ended or is parked. The engine's faults are data."""
        index = branch * (self.max_turns + 1) * self.votes
        try:
            while not trajectory.is_over:
                at = index + trajectory.num_turns * self.votes
                trajectory = await turns.speak(trajectory, at)
                if trajectory.is_over or turns.acts(trajectory):
                    break
                trajectory = await turns.answer(trajectory)
        except EngineError as error:
            failed = ended(turns.scope, trajectory.candidate, error)
            return replace(trajectory, candidate=failed or trajectory.candidate, wanted=())
        return trajectory

    def turns(self, scope: Scope) -> AgentTurns:
        """How its branches go on in a run.

        Raises:
            EngineError: the model has no form for it, or no room.
        """
        tools = self.kit if self.max_calls else ()
        conversation = Conversation.begun(
            scope, self.role, tools, instructions=self.instructions, form=self.calls
        )
        try:
            constraint = self._constraint(conversation.form, is_thinking=conversation.is_thinking)
        except ValueError as error:
            raise EngineError(f"constrain=True, and {error}") from None
        return AgentTurns(
            conversation=conversation,
            tools={tool.name: tool for tool in tools},
            limits=Limits(turns=self.max_turns, calls=self.max_calls, repeats=self.max_repeats),
            sampling=Sampling(temperature=self.temperature, top_p=self.top_p),
            max_tokens=self.max_tokens,
            votes=self.votes,
            vote_by=self.vote_by,
            ignoring=self.ignoring,
            confirm=self.confirm,
            constraint=constraint,
        )

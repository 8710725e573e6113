"""The ports: what ttc asks of engines, verifiers and clocks, and what a node may ask of ttc.

Engines are loop-agnostic: requests come back by concurrent futures, to any loop or thread.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from ttc.capabilities import Capabilities
from ttc.clock import Clock, Timer
from ttc.constraints import Constraint
from ttc.costs import Costs
from ttc.generation import Generation, Reading, Request, Spelling, Steerable
from ttc.pace import Pace
from ttc.stream_port import Handle, Stream
from ttc.types import (
    UNFILTERED,
    Branch,
    Budget,
    Candidate,
    Chunk,
    Logprobs,
    NextTokens,
    Order,
    Problem,
    Sampling,
    Score,
    Tail,
)

if TYPE_CHECKING:
    from ttc.errors import BudgetExceeded
    from ttc.graph import Flow, Node
    from ttc.sandbox.execution import Execution
    from ttc.sandbox.extraction import Completion
    from ttc.sandbox.forms import Tests
    from ttc.sandbox.limits import Limits
    from ttc.tools.port import Confirm, Tool, ToolResult

__all__ = [
    "Bid",
    "Capabilities",
    "Clock",
    "Engine",
    "Generation",
    "Handle",
    "Reading",
    "Request",
    "Scope",
    "Spelling",
    "Steerable",
    "Stream",
    "Timer",
    "Verifier",
    "parts_of",
]

U = TypeVar("U")
Bid = tuple[float, float, float | None]
"""What a candidate more adds to the chance to be right (0: none), its tokens; how sure it is."""


class Engine(Protocol):
    """Extends branches. Every method may be called from any thread."""

    @property
    def name(self) -> str:
        """The model, as a user names it."""

    @property
    def numerics(self) -> str:
        """What decides the bits of a result: weights, types, kernels."""

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""

    @property
    def context(self) -> int | None:
        """The most tokens of prompt and output together; `None` where unknown."""

    @property
    def costs(self) -> Costs | None:
        """What the model spends on each token; `None` where unknown: FLOPs have no limit then."""

    def root(self, problem: Problem, role: str) -> Branch:
        """The problem's prompt: templated, with control tokens from the template alone.

        Raises:
            ContextOverflow: the prompt does not fit; the message holds both numbers.
        """

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with `text`, as plain tokens; no token before it changes.

        With `as_token` the text is the name of one token, which may be a control token.

        Raises:
            EngineError: no one token is called so.
        """

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """The first tokens of a branch, where the engine has the capability `cut`.

        What is left of a generated segment is what its call would have given with fewer
        `max_tokens` and without what may stop it: tokens, what was measured of them, and text. So
        a call can go on after its last token, also where a stop had closed it there.

        Raises:
            ValueError: the branch has fewer, or none would be left.
            EngineError: the engine cannot tell the text of some of its tokens.
        """

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> Generation:
        """Queues a call and returns at once. `on_chunk` is called from a thread of the engine's.

        Faults of the call come by its future; a request that can never be served raises here.
        """

    def check_constraint(self, constraint: Constraint) -> None:
        """Whether calls can be held to a constraint. Only with the capability `grammar`.

        Raises:
            ValueError: they cannot, or no text satisfies it.
        """

    def score(self, branch: Branch, suffixes: Sequence[Branch], *, owner: str = "") -> Reading:
        """Queues the scoring of given text, where the engine has the capability `score`.

        A suffix is the last segment of a branch that leaves `branch` somewhere. The result holds
        for each the natural log probabilities of its tokens after all before them: those that
        generation reports. What suffixes share is computed once. Whose share of the engine is taken
        is said by `owner`, as in a `Request`; so it is in the three that follow.
        """

    def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None, owner: str = ""
    ) -> Reading:
        """Queues the reading of what comes after the first n tokens of a branch, for n in `at`.

        By default after all tokens. Its result holds `NextTokens`, with the bits that generation
        reports. The capability `next_tokens` says how many `top` may be.
        """

    def reward(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Queues the rewards of some tokens of a branch, counted from its first.

        Its result holds for each row one value for each of `labels`. Only with the capability
        `reward`.
        """

    def hidden(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Queues the hidden states of some tokens of a branch, counted from its first.

        Its result holds for each row what the model's head reads there: the state after the last
        norm. Only with the capability `hidden_states`.
        """

    @property
    def labels(self) -> tuple[str, ...]:
        """What the values of `reward` are called; empty without the capability."""


@runtime_checkable
class Verifier(Protocol):
    """Scores candidates. It sees the problem and never the reference."""

    @property
    def name(self) -> str:
        """The key of its scores on a candidate."""

    @property
    def range(self) -> tuple[float, float] | None:
        """The bounds of its scores, or `None`."""

    @property
    def needs(self) -> Literal["each", "all"]:
        """Whether a candidate is scored alone, or only beside all others."""

    @property
    def requires(self) -> frozenset[str]:
        """Capabilities that it needs of the engines of its `roles`.

        Where it asks none, of the engines that made the candidates: their tokens then carry what
        it reads. `role:capability` is one that the engine of this role alone must have.
        """

    @property
    def roles(self) -> frozenset[str]:
        """The model roles that it asks; empty where it asks no engine."""

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> Sequence[Score]:
        """One score for each candidate, in the same order."""


def parts_of(verifier: Verifier) -> tuple[Verifier, ...]:
    """The verifiers that a verifier is made of, in its `parts`; it costs what they cost."""
    return tuple(getattr(verifier, "parts", ()))


class Scope(Protocol):
    """A node's only door to engine, verifiers, clock and randomness.

    What goes through it is reserved, admitted in launch order, recorded, run and settled.
    """

    @property
    def problem(self) -> Problem:
        """The problem that is being solved."""

    @property
    def path(self) -> str:
        """The path of the node that owns the scope."""

    @property
    def beside(self) -> frozenset[str]:
        """Logical resources that work downstream of the node uses while it runs."""

    @property
    def pace(self) -> Pace:
        """How far the node's reader has come with what it pays for each candidate."""

    @property
    def remaining(self) -> Budget:
        """What is left, less what is reserved; `None` where there is no limit."""

    @property
    def budget(self) -> Budget:
        """The problem's limits."""

    @property
    def elapsed(self) -> float:
        """Seconds since the problem's start."""

    def root(self, role: str = "policy") -> Branch:
        """The problem's prompt, for the model of a role."""

    def prompt(self, problem: Problem, role: str) -> Branch:
        """A prompt of the node's own, for the model of a role.

        Raises:
            EngineError: the model has no form for it, or no room.
        """

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with given text; see `Engine.append`."""

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """The first tokens of a branch; see `Engine.cut`. It costs nothing."""

    async def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None
    ) -> tuple[NextTokens, ...]:
        """What comes next after the first n tokens of a branch, for n in `at`; see `score`."""

    async def score(
        self, branch: Branch, suffixes: Sequence[str | tuple[int, ...] | Branch]
    ) -> tuple[Logprobs, ...]:
        """The log probabilities of given texts, or tokens, after a branch.

        A suffix that leaves it earlier is given as a branch, of which the last segment is scored.
        One call, whose tokens count as prompt tokens: each distinct one once. The branch is
        computed once, with the calls of other candidates and problems, and what is known of it
        already is not computed again.

        Raises:
            BudgetExceeded: a limit refused the call; nothing was spent.
            EngineError: the engine failed, or has no room for it.
        """

    async def hidden(self, branch: Branch, rows: Sequence[int]) -> tuple[tuple[float, ...], ...]:
        """What the model's head reads at some tokens of a branch, counted from its first.

        For heads of one's own. It is one call, charged and refused as `score`; what is cached
        before the first of the rows is not computed again.
        """

    async def reward(self, branch: Branch, rows: Sequence[int]) -> tuple[Mapping[str, float], ...]:
        """What a reward model says of some tokens of a branch, counted from its first, by label.

        It is one call, charged and refused as `score`.
        """

    async def generate(
        self,
        branch: Branch,
        *,
        index: int,
        max_tokens: int,
        sampling: Sampling = UNFILTERED,
        at_least: int | None = None,
        until: tuple[str | int, ...] = (),
        tail: Tail | None = None,
    ) -> Branch:
        """Extends a branch, once the ledger has admitted the call.

        Args:
            branch: what to extend; its role chooses the engine.
            index: which of the node's calls this is. Seeds come from (run seed, path, index).
            max_tokens: the most output tokens, and what is reserved.
            sampling: how tokens are drawn.
            at_least: the fewest tokens that a tight budget may shrink `max_tokens` to; half of it
                by default, and at most 16 for the first call of a problem or of a part of it.
            until: strings and token ids that end the call.
            tail: what follows where the call is cut by its length; reserved with it.

        Raises:
            BudgetExceeded: a limit refused the call; nothing was spent.
            EngineError: the engine failed; what it had spent is booked.
        """

    def stream(
        self,
        branch: Branch,
        *,
        index: int,
        max_tokens: int,
        sampling: Sampling = UNFILTERED,
        at_least: int | None = None,
        until: tuple[str | int, ...] = (),
        booked_as: str | None = None,
    ) -> Stream[Chunk]:
        """As `generate`, piece by piece; `stop()` refunds the rest. Another role may be charged."""

    def prioritise(self, index: int, priority: float) -> None:
        """Says what a call is worth beside others, before it begins or from its next step on."""

    async def verify(
        self, verifier: Verifier, candidates: Sequence[Candidate]
    ) -> tuple[Score, ...]:
        """One score for each candidate, charged as verifier calls.

        A verifier that fails gives unknown scores, with the reason as evidence.
        """

    async def execute(
        self,
        program: str | Completion,
        tests: Tests | None = None,
        *,
        limits: Limits | None = None,
    ) -> Execution:
        """Runs code that nobody has read, in a jail, against tests or alone; see `SECURITY.md`.

        Args:
            program: code, or a completion to take it from.
            tests: in one of the forms of `ttc.sandbox.forms`.
            limits: what it may use.

        Raises:
            SandboxError: no jail holds here, and the run did not ask to do without.
        """

    async def call(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        *,
        earlier: Sequence[Mapping[str, Any]] = (),
        after_untrusted: bool = True,
        confirm: Confirm | None = None,
    ) -> ToolResult:
        """Calls a tool, charged as a call; whatever comes of it is data.

        See `ttc.tool_call.Asked` for the arguments. An irreversible call acts at once: a node
        whose branches are to be chosen among parks it instead.
        """

    async def equivalent(
        self, pairs: Sequence[tuple[Candidate, Candidate]]
    ) -> tuple[bool | None, ...]:
        """Whether the answers of each pair are equal; `None` where that could not be decided.

        What needs computer algebra is computed in a jailed process, under limits. Where a limit
        acted, the outcome names it among what made the result depend on timing.
        """

    def finish(self, candidate: Candidate, branch: Branch, *, is_open: bool = False) -> Candidate:
        """The candidate that `branch` makes of `candidate`: text, answer, status and usage.

        One that `is_open` will be gone on from, and has no answer.
        """

    def map(
        self,
        work: Callable[[Any, int], Awaitable[U]],
        items: AsyncIterator[Any],
        *,
        ahead: int | None,
        order: Order = "launch",
        each: int = 1,
    ) -> Stream[U]:
        """Runs `work(item, launch index)` on up to `ahead` items at once, and keeps launch order.

        Every item is taken `each` times. With `order="arrival"` results come as they end: the
        outcome depends on timing, and says so, and whoever counts is biased to short results.

        `None`: as many as there are. A refused item drops out and ends the launching, and with it
        what was launched after it; a deadline lets through what has ended. `stop` ends its calls.
        """

    def run(
        self,
        graph: Node,
        candidates: AsyncIterator[Candidate],
        *,
        name: str,
        given: Flow | None = None,
        beside: frozenset[str] = frozenset(),
    ) -> Stream[Candidate]:
        """Opens a sub-graph in a child scope, whose path ends in `name`.

        Args:
            graph: what to open.
            candidates: what it reads.
            name: its step in the path.
            given: what is known of `candidates`; lets selectors know how many may still come.
            beside: logical resources that work downstream of it uses while it runs.
        """

    async def run_together(
        self, graphs: Mapping[str, Node], candidates: Sequence[Candidate]
    ) -> Sequence[Stream[Candidate]]:
        """Opens sub-graphs that run at the same time, each on all candidates.

        The logical budget that remains is divided among those that can use it, and what they leave
        comes back when the last of them ends. Until then whoever else needs it waits, and they run
        to their end without being pulled.
        """

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Handle:
        """Starts work that ends with the scope at the latest."""

    def random(self, *key: str | int) -> Random:
        """A generator that depends on (run seed, path, key) alone."""

    def now(self) -> float:
        """Seconds by the run's clock."""

    def decide(self, kind: str, *, physical: bool = False, end: bool = True, **detail: Any) -> None:
        """Records a decision; the most downstream one is named as what stopped the run.

        It rests on what is measured (`physical`), or on the limit of a `resource`. `end=False`: it
        stopped nothing.
        """

    def note(self, **values: Any) -> None:
        """Tells whoever looks at the run something that no result depends on; values are JSON."""

    def refused(self, refusal: BudgetExceeded) -> None:
        """Notes that a limit ended the node's work, before anything is cancelled for that."""

    def contend(self, *resources: str) -> None:
        """Notes that the node's calls draw on these in an order that may follow timing."""

    def rest(self, *others: str) -> None:
        """Notes that no call is open of the node, nor of others, by path, that take turns with it.

        A limit that acts before any of these overlaps with another repeats.
        """

    def arrived(self, launched: int) -> None:
        """Records that a node took up this launch next, since it ended before earlier ones."""

    def offer(self, bid: Callable[[], Bid]) -> None:
        """This problem's bid for the budget of a run over many, if it is one; the latest counts."""

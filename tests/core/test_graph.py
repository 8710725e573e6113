"""Graphs: how they compose, how they are named, checked, bounded and drawn."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.core.lab import solved, talker, whole
from tests.property.graphs import strategies
from ttc import Candidate, GraphError, Node, Tail, confidence, node
from ttc.graph import Chain, Cost, Flow, Pool, Port, after, compile_graph
from ttc.lengths import lengths_of
from ttc.ports import Capabilities, Scope, Stream, parts_of
from ttc.strategies import (
    Best,
    BestOfN,
    CannotBeOvertaken,
    Cascade,
    Greedy,
    Sample,
    SampleInRounds,
    SelfConsistency,
    Verify,
    Vote,
)
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Problem

A, B, C = Sample(n=1), Sample(n=2), Vote()
SCORES = ScriptedVerifier({"1": 0.5})


@node
async def keep(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    """Passes everything on."""
    async for candidate in candidates:
        yield candidate


def test_arrows_bind_tighter_than_bars() -> None:
    """Python's rule: `a | b >> c` is `a | (b >> c)`."""
    assert A | B >> C == A | (B >> C)
    assert (A | B >> C).name != ((A | B) >> C).name


def test_chains_and_pools_are_flat() -> None:
    """However they were put in brackets."""
    assert (A >> keep) >> C == A >> (keep >> C) == Chain((A, keep, C))
    assert (A | B) | A == A | (B | A) == Pool((A, B, A))


def test_verifiers_are_lifted_and_other_things_refused() -> None:
    """A graph is made of nodes and verifiers."""
    anything: Any = 3

    assert Chain((A, Verify(SCORES))) == A >> SCORES
    with pytest.raises(TypeError, match="not of 3"):
        A >> anything
    with pytest.raises(TypeError, match="not of 3"):
        A | anything
    with pytest.raises(TypeError, match="3 is no verifier"):
        Verify(anything)
    with pytest.raises(TypeError, match="3 is no verifier"):
        BestOfN(verifier=anything)
    with pytest.raises(TypeError, match="a rung is a graph, not 3"):
        Cascade(anything, accept=confidence(0.5))


def test_paths_name_every_occurrence() -> None:
    """By place and by name, through every depth."""
    graph = Cascade(A >> C, (A | B >> C) >> C, accept=confidence(0.5))

    assert [placed.path for placed in graph.walk()] == [
        "0.cascade",
        "0.cascade/0/0.sample",
        "0.cascade/0/1.vote",
        "0.cascade/1/0.pool",
        "0.cascade/1/0.pool/0.sample",
        "0.cascade/1/0.pool/1/0.sample",
        "0.cascade/1/0.pool/1/1.vote",
        "0.cascade/1/1.vote",
    ]


@pytest.mark.parametrize(
    ("named", "written"),
    [
        (SelfConsistency(n=5), Sample(n=5, temperature=0.8) >> Vote(stop=CannotBeOvertaken())),
        (Greedy(), Sample(n=1, temperature=0.0) >> Vote()),
        (
            BestOfN(n=4, verifier=SCORES),
            Sample(n=4, temperature=0.8) >> SCORES >> Best(),
        ),
        (
            BestOfN(n=4, verifier=SCORES, weighted=True),
            Sample(n=4, temperature=0.8) >> SCORES >> Vote(weighted=True),
        ),
    ],
    ids=["self_consistency", "greedy", "best_of_n", "weighted"],
)
def test_a_named_graph_is_its_expansion(named: Node, written: Node) -> None:
    """The same paths, the same seeds, the same run."""
    assert compile_graph(named) == compile_graph(written)
    assert whole(solved(named, talker()).outcome) == whole(solved(written, talker()).outcome)


@pytest.mark.parametrize(
    ("graph", "fault"),
    [
        (B, "a strategy gives one candidate, and this gives many; end it with a selector"),
        (A | B, r"`>>` binds tighter than `\|`: write \(a \| b\) >> vote\(\)"),
        (B | B >> C, r"write \(a \| b\) >> vote\(\)"),
        (Vote(), r"^0\.vote: takes finished candidates and is given open ones; put sample"),
        (A >> A >> C, r"^1\.sample: takes open candidates and is given finished ones"),
        (A >> Best(), r"^1\.best: its candidates carry no score; put a verifier before it"),
        (A >> SCORES >> Best(by="x"), "no score is called 'x'; there is scripted"),
        (A >> Vote(weighted=True), r"^1\.vote: its candidates carry no score"),
        (
            A >> ScriptedVerifier({}, range=None) >> Vote(weighted=True),
            "has the range None, so it cannot weigh votes",
        ),
        (
            A >> ScriptedVerifier({}, range=(-1.0, 1.0)) >> Vote(weighted=True),
            r"has the range \(-1.0, 1.0\), so it cannot weigh",
        ),
        (A >> SCORES >> SCORES >> Best(), "carry a score 'scripted' already"),
        (
            A >> SCORES >> ScriptedVerifier({}, name="b") >> Best(),
            r"several scores \(b, scripted\); name one with by=",
        ),
        ((A >> SCORES | A) >> Best(), "carry no score"),
        (A >> Verify(SCORES, ahead=0) >> Best(), "ahead is a whole number of at least 1"),
        (Cascade(accept=confidence(0.5)), "has no rungs"),
        (Cascade(B, accept=confidence(0.5)), "rung 0 must give one finished candidate"),
        (Sample(temperature=-1) >> C, "temperature is finite and at least 0"),
        (Sample(top_p=1.5) >> C, r"top_p lies in \[0, 1\]"),
        (Sample(top_p=float("nan")) >> C, r"top_p lies in \[0, 1\]"),
        (Sample(top_k=0) >> C, "top_k is at least 1"),
        (Sample(max_tokens=3, at_least=4) >> C, r"at_least \(4\) is more than max_tokens \(3\)"),
        (Chain(()), "the empty graph"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_graph_that_cannot_run_says_where_and_why(graph: Node, fault: str) -> None:
    """By path, before anything is spent."""
    with pytest.raises(GraphError, match=fault):
        graph.validate()


def test_all_faults_are_reported_at_once() -> None:
    """One look is enough to repair a graph."""
    graph = Cascade(Sample(n=0) >> Best(), Sample(max_tokens=0) >> C, accept=confidence(0.5))
    with pytest.raises(GraphError) as error:
        graph.validate()

    assert [fault.split(":")[0] for fault in error.value.faults] == [
        "0.cascade/0/0.sample",
        "0.cascade/0/1.best",
        "0.cascade/1/0.sample",
    ]


def test_a_rule_of_a_cascade_can_be_called() -> None:
    """Anything else would fail in the middle of a run."""
    rule: Any = 0.9
    with pytest.raises(GraphError, match=r"accept=0.9 is no rule; pass confidence\(0.9\)"):
        Cascade(A >> C, accept=rule).validate()
    with pytest.raises(ValueError, match=r"lies in \[0, 1\], not 1.5"):
        confidence(1.5)


def test_capabilities_are_checked_before_anything_is_spent() -> None:
    """Those that a verifier needs of an engine, too."""

    class Plain(FakeEngine):
        def __init__(self) -> None:
            super().__init__("The answer is 1.")
            self.capabilities = Capabilities(tokens=True)

    verifier = ScriptedVerifier({}, requires=frozenset({"logprobs", "fork"}))
    graph = A >> verifier >> Best()
    graph.validate({"policy": FakeEngine("")})

    with pytest.raises(GraphError, match=r"1\.verify: needs fork, logprobs, which the engine fake"):
        graph.validate({"policy": Plain()})


def test_a_function_says_what_it_takes_and_gives() -> None:
    """Anywhere in a graph; what it is given keeps its scores."""

    @node(takes=Port("open", "many"), gives=Port("open", "many"))
    async def plan(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            yield candidate

    @node(takes=Port("finished", "one"), gives=Port("finished", "one"))
    async def polish(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            yield candidate

    (plan >> A >> SCORES >> keep >> Best() >> polish).validate()
    assert solved(plan >> B >> SCORES >> keep >> Best() >> polish).outcome.answer == "1"
    with pytest.raises(GraphError, match=r"1\.polish: takes one candidate and is given several"):
        (B >> polish).validate()
    with pytest.raises(GraphError, match="this gives an open one"):
        plan.validate()


def _brute_cost(graph: Node, given: Flow) -> Cost:
    """The worst case by walking the tree, for the nodes of these tests."""
    assert given.count is not None
    if isinstance(graph, Sample):
        tail = len(graph.tail.cue) + graph.tail.max_tokens if graph.tail else 0
        assert isinstance(graph.n, int)
        forks = given.count * graph.n
        return Cost(tokens=forks * (graph.max_tokens + tail), calls=forks)
    if isinstance(graph, SampleInRounds):  # whose bound is tested where its rounds are
        return graph.bound(given)
    if isinstance(graph, Verify):
        asks = None if graph.roles else 0
        asked = given.count * max(1, len(parts_of(graph.verifier)))
        return Cost(tokens=asks, calls=asks, verifier_calls=asked)
    if not graph.children():  # those in stages, whose bounds are tested where they are
        return graph.bound(given)
    total = Cost()
    for child in graph.children():
        total += _brute_cost(child, given)
        if isinstance(graph, Chain):
            given = after(child, given)
    return total


@settings(max_examples=50, deadline=None)
@given(strategies(), st.integers(0, 2**32))
def test_the_worst_case_is_a_bound_in_closed_form(graph: Node, seed: int) -> None:
    """Equal to a walk over the graph, and never exceeded."""
    assume("budget" not in repr(graph))  # samples without end
    run = solved(graph, talker(longest=30), seed=seed)
    problem = Problem.ask("What is the answer to this?")
    bound = graph.worst_case(problem, run.engine)
    given = Flow(text=0, lengths=lengths_of(problem, {"policy": run.engine}))

    assert bound == Cost(tokens=8) + _brute_cost(compile_graph(graph), given)
    for name in ("tokens", "calls", "verifier_calls"):
        most = getattr(bound, name)
        assert most is None or getattr(run.outcome.usage, name) <= most


def test_what_a_function_or_a_judge_spends_is_not_bounded() -> None:
    """`None`, and never a friendly number."""
    engine = FakeEngine("")
    judge = ScriptedVerifier({}, roles=frozenset({"policy"}))

    assert (A >> keep >> C).worst_case(Problem.ask("q"), engine) == Cost(
        tokens=None, calls=None, verifier_calls=None
    )
    assert (B >> judge >> Best()).worst_case(Problem.ask("q"), engine) == Cost(
        tokens=None, calls=None, verifier_calls=2
    )
    assert (A >> keep >> SCORES >> Best()).worst_case(Problem.ask("q"), engine).tokens is None


def test_mermaid_draws_every_node_and_edge() -> None:
    """Pools and cascades stand before their parts; what follows reads the last of those."""
    graph = (A >> C | Sample(n=2, until=('"', "\\"))) >> C

    assert graph.mermaid() == (
        "flowchart LR\n"
        '    n0["prompt"]\n'
        '    n1["0.pool"]\n'
        '    n2["0.pool/0/0.sample"]\n'
        '    n3["0.pool/0/1.vote"]\n'
        """    n4["0.pool/1.sample (n=2, until=(''', '\\\\\\\\'))"]\n"""
        '    n5["1.vote"]\n'
        "    n0 --> n1\n    n1 --> n2\n    n1 --> n4\n    n2 --> n3\n    n3 --> n5\n    n4 --> n5\n"
    )


def test_dot_draws_the_same() -> None:
    """Valid for Graphviz: quoted names, and no quote inside."""
    text = Cascade(A >> C, B >> C, accept=confidence(0.5)).dot()

    assert text.startswith("digraph strategy {\n    rankdir=LR;\n")
    assert '"prompt" -> "0.cascade";' in text
    assert '"0.cascade/1/0.sample" -> "0.cascade/1/1.vote";' in text
    assert text.endswith("}\n")


def test_a_tail_is_a_text_and_some_tokens() -> None:
    """Checked where it is made."""
    cue: Any = 5
    with pytest.raises(TypeError, match="a tail's cue is a text, not 5"):
        Tail(cue=cue)
    with pytest.raises(ValueError, match="max_tokens is at least 1, not 0"):
        Tail(cue="So", max_tokens=0)

"""Saved graphs: what a file gives back, and what it refuses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncGenerator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import ttc
from tests.property.graphs import strategies
from ttc import Candidate, GraphError, Node, registry
from ttc.graph_files import MAX_BYTES, from_json, to_json
from ttc.ports import Scope, Stream
from ttc.registry import names
from ttc.strategies import Abstain, Best, Cascade, Sample, Vote
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.text_form import parse
from ttc.types import Tail
from ttc.verifiers import Conformal, Constraint, RoundTrip

ALONE = (
    "sample(n=2, until=('a', 'b'), tail=tail(cue='So', max_tokens=4))",
    "sample(constraint=choice('x', 'y'))",
    "sample(constraint=pattern('[0-9]+'))",
    """sample(constraint=schema('{"type": "object"}'))""",
    "sample_in_rounds(n=4, rule=deep_conf(keep=20) | certaindex())",
    "sample_in_rounds(n=4, rule=early_exit() & sure_answer(at_least=0.9))",
    "instruct('', 'Think.') >> sample(n=2)",
    "paraphrase(n=2) >> sample()",
    "agent(tools=(python(time_limit=2.0), calculator()), n=2, ignoring=('at',))",
    "language_agent_tree_search(self_verify(), agent=agent(tools=(calculator(),)), width=2)",
    "sample(n=4) >> exact('1', to_the_letter=True) >> keep(share=0.5)",
    "sample(n=4) >> self_refine(rounds=1)",
    "sample(n=4) >> reflexion(verifier=unit_tests(), memory=2)",
    "sample(n=4) >> guided_refine(verifier=regex('a+', whole=True), drafts=2)",
    "sample(n=4) >> debug(rounds=1)",
    "sample(n=4) >> recursive_aggregation(size=2)",
    "revisions(length=2, chains=3)",
    "budget_forcing(n=2, waits=1)",
    "summarise(n=2)",
    "spec_reason(n=2, draft='small')",
    "mixture_of_agents('policy', 'other') | sample(n=2)",
    "astar(self_verify(), width=2, steps=sentence())",
    "monte_carlo_tree_search(self_verify(), price_weight=0.1, "
    "actions=(action('policy', 1.0), action('large', 9.0)))",
    "budget_guided_mcts(self_verify())",
    "adaptive_branching_mcts(self_verify(), variant='beta')",
    "beam_search(verifier=rollout_value(m=2), steps=delimiter(text='x'), lookahead_steps=1)",
    "best_first(thought_value(), steps=fixed_length(max_tokens=8))",
    "diverse_verifier_tree_search(self_verify(), steps=high_entropy(threshold=1.5))",
    "particle_filtering(self_verify(), num_particles=3, target='final')",
    "rebase(self_verify(), width=4, rounding='ceil')",
    "tree_of_thoughts(thought_vote(), search='depth_first')",
)
"""What gives several candidates, in the text form."""
SELECTORS = (
    "vote(stop=cannot_be_overtaken() | (exhausted() & doubling(share=0.8)), limit=share(at=0.5))",
    "vote(stop=adaptive_consistency(prior='dirichlet') | agreeing_window(size=3))",
    "vote(stop=anytime_valid(delta=0.1) & confident(at_least=0.9), limit=deadline(2.0) | share())",
    "minimum_bayes_risk()",
    "gen_select(group=4)",
    "knockout(comparisons=4, temperature=0.5)",
    "behaviour_clusters()",
    "vote() >> abstain(unless=confidence(0.5))",
    "vote() >> abstain(unless=conformal(threshold=0.5, error=0.1))",
    "judge(scale=(1, 5)) >> best(soft=0.5)",
    "self_verify() >> tie_break(most=2)",
    "verify(verifier=pairwise_judge(), ahead=2) >> best(by='pairwise_judge')",
    "tournament() >> best()",
    "process_reward_model(form='skywork', aggregate='min') >> best()",
    "outcome_reward_model(transform='sigmoid') >> best()",
    "calibrated(entropy(), by=platt(slope=1.0, offset=0.0)) >> vote(weighted=True)",
    "calibrated(margin(), isotonic(scores=(0.0, 1.0), probabilities=(0.5, 1.0))) >> best()",
    "bayes(exact('7'), regex('a'), rates=(rates(0.9, 0.1), rates(0.8, 0.3))) >> best()",
    "bayes_vote(ask_back(), rates=(rates(0.9, 0.1),), right=0.4) >> best()",
    "first_decided(json_schema('true'), self_verify(), low=0.2) >> best()",
    "weighted_sum(exact('1'), code_t(samples=2), weights=(2, 1)) >> best()",
    "product(answer_probability(), semantic_entropy(weigh='probability')) >> best()",
    "rank(mean_logprob(), power=2.0) >> best()",
    "gate(check=length(at_most=9), by=group_confidence(window=8)) >> best()",
    *(f"{name}() >> best()" for name in ("perplexity", "self_certainty", "sequence_logprob")),
    *(f"{name}() >> best()" for name in ("sequence_probability", "surprisal", "tail_entropy")),
)
WHOLE = (
    "greedy(max_tokens=9)",
    "self_consistency(n=3)",
    "best_of_n(verifier=self_verify(), n=3)",
    "sampling_search(verifier=self_verify(), n=3)",
    "sstar(n=2)",
    "route(sample(n=4) >> vote(), sample(n=9) >> vote(), greedy(), below=(0.5, 0.9))",
    "cascade(sample() >> mean_logprob() >> best(), greedy(), "
    "accept=scored(by='mean_logprob', at_least=-0.5))",
)
TEXTS = (
    *WHOLE,
    *(f"{text} >> vote()" if "|" not in text else f"({text}) >> vote()" for text in ALONE),
    *(f"sample(n=4) >> {text}" for text in SELECTORS),
)
FUNCTIONS = {"constraint", "round_trip"}
"""What is made of functions."""


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_graph_is_given_back(text: str, suffix: str, tmp_path: Path) -> None:
    """Whatever it is made of."""
    graph, path = parse(text), tmp_path / f"plan.{suffix}"
    graph.save(path)

    assert Node.load(path) == graph


def test_every_registered_name_is_tested_here() -> None:
    """But those that are made of functions."""
    called = set(re.findall(r"\b([a-z0-9_]+)\(", "".join(TEXTS)))

    assert {*names("nodes"), *names("verifiers")} - called == FUNCTIONS


@given(strategies())
def test_a_random_graph_is_given_back_or_refused_by_name(graph: Node) -> None:
    """Refused where it holds a verifier that nobody has registered."""
    if "Judge(" in repr(graph) or "ScriptedVerifier(" in repr(graph):
        with pytest.raises(GraphError, match=r"(Judge|ScriptedVerifier) is not registered"):
            to_json(graph)
    else:
        assert from_json(to_json(graph)) == graph


def test_texts_and_numbers_survive_whatever_they_are(tmp_path: Path) -> None:
    """Infinity, line ends, controls, other scripts, and what YAML would take for something else."""
    cues = ("\n\u2028\x07 \ud800", "yes", "1:30", "2001-01-01", "~", "<<", "=", "*a", "名", " ")
    sure = Conformal(threshold=math.inf, error=0.1)
    for number, cue in enumerate(cues):
        graph = Sample(tail=Tail(cue=cue), until=(cue,)) >> Vote() >> Abstain(sure)
        for suffix in ("json", "yaml"):
            graph.save(path := tmp_path / f"{number}.{suffix}")
            assert Node.load(path) == graph


def sure(candidate: Candidate) -> bool:
    return candidate.answer is not None


def is_short(text: str) -> bool:
    return len(text) < 9


@ttc.node
async def mine(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    async for candidate in candidates:
        yield candidate


class Vote2(Vote):
    """A class of one's own."""


OWN_VOTE: Any = type("Vote", (Vote,), {"__module__": __name__, "__qualname__": "Vote"})


@pytest.mark.parametrize(
    ("graph", "name"),
    [
        (Sample() >> Vote() >> Abstain(sure), r"abstain.unless: the function \S+\.sure"),
        (Sample() >> Vote() >> Abstain(lambda c: True), r"the function \S+<lambda>"),
        (Sample() >> mine >> Vote(), r"chain.1: the function \S+\.mine"),
        (Sample() >> Vote2(), r"the class \S+\.Vote2"),
        (Sample() >> OWN_VOTE(), r"the class \S+\.Vote"),
        (Sample() >> ScriptedVerifier({}) >> Best(), r"the class \S+\.ScriptedVerifier"),
        (Sample() >> Constraint(is_short) >> Best(), r"the function \S+\.is_short"),
        (Sample() >> RoundTrip(str) >> Best(), r"the class str"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_registered_is_refused_by_name(graph: Node, name: str, tmp_path: Path) -> None:
    """And nothing is written, not even over what there was."""
    path = tmp_path / "plan.json"
    path.write_text("before")

    with pytest.raises(GraphError, match=f"{name} is not registered"):
        graph.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    assert path.read_text() == "before"


def test_everything_that_is_not_registered_is_named_at_once() -> None:
    """As all faults of a graph are."""
    rung = Sample() >> ScriptedVerifier({}) >> Best()

    with pytest.raises(GraphError) as refused:
        to_json(Cascade(rung, Sample() >> mine >> Vote(), accept=sure))
    assert len(refused.value.faults) == 3


class _Entry:
    """What a third party's package registers."""

    value = "theirs:thing"

    def __init__(self, loaded: object) -> None:
        self.load = lambda: loaded


def test_what_a_third_party_registers_is_saved_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A class under any name, and a node that is a function."""
    theirs = {"nodes": {"their_vote": _Entry(Vote2), "their_node": _Entry(mine)}}
    monkeypatch.setattr(registry, "_third_party", lambda group: theirs.get(group, {}))
    graph = Sample(n=2) >> mine >> Vote2(weighted=False)

    assert from_json(to_json(graph)) == graph
    assert parse("sample(n=2) >> their_node() >> their_vote()") == graph
    assert '"their_node"' in to_json(graph)


def _saved(graph: object, **beside: object) -> str:
    return json.dumps({"schema_version": 1, "graph": graph} | beside)


def _call(name: str, **options: object) -> dict[str, object]:
    return {"call": name, "options": options}


DEEP: Any = {"call": "greedy"}
for _ in range(60):
    DEEP = {"call": "cascade", "parts": [DEEP]}

HOSTILE = {
    "[" * 90_000: "cannot be read",
    '{"graph":' * 9_000: "cannot be read",
    _saved(DEEP): "nested more than",
    _saved({"chain": [_call("greedy")] * 201}): "at most 200",
    _saved("x" * MAX_BYTES): "more than 100,000 bytes",
    _saved(_call("greedy"), more=1): "more: Extra inputs",
    _saved(_call("greedy") | {"args": []}): "args: Extra inputs",
    _saved(_call("greedy"), schema_version=2): "its schema_version is 2; this ttc reads 1",
    _saved(_call("greedy"), schema_version=True): "valid integer",
    _saved(_call("greedy"), schema_version="1"): "valid integer",
    json.dumps({"graph": _call("greedy")}): "schema_version: Field required",
    _saved(_call("os.system", command="ls")): "nothing is called 'os.system'",
    _saved(_call("__import__")): "nothing is called",
    _saved(_call("uniform")): "nothing is called",
    _saved(_call("greedy", _max=1)): "unexpected keyword argument '_max'",
    _saved({"call": 3}): "call: Input should be a valid string",
    _saved({"call": "greedy", "parts": {"a": 1}}): "parts: Input should be a valid list",
    _saved({"calls": "greedy"}): "one of the keys call, chain",
    _saved({"chain": [_call("greedy")]}): "at least 2 items",
    _saved({"either": [_call("exhausted")] * 3}): "at most 2 items",
    _saved({"both": [_call("greedy"), 1]}): "unsupported operand",
    _saved({"number": "nan"}): "'inf' or '-inf'",
    _saved(7): "no strategy",
    _saved(_call("exhausted")): "no strategy",
    _saved(_call("sample", n=3)): "gives many",
    _saved(_call("greedy", max_tokens="9")): "max_tokens",
    _saved(_call("greedy", max_tokens=[9])): "max_tokens",
    '{"schema_version": 1, "graph": NaN}': "no number of JSON",
    '{"schema_version": 1, "schema_version": 1}': "given twice",
    '{"schema_version": 1, "graph": ' + "9" * 5000 + "}": "cannot be read",
    "[1]": "valid dictionary",
    "": "cannot be read",
}


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:50])
def test_a_hostile_file_is_refused(text: str, tmp_path: Path) -> None:
    """With what is wrong, and whichever form it is in."""
    path = tmp_path / "plan.json"
    path.write_text(text)

    with pytest.raises(GraphError, match=re.escape(HOSTILE[text])):
        Node.load(path)


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise("abcdefghi"))
YAML = {
    BOMB: "anchors and aliases",
    "schema_version: 1\ngraph: &x {call: greedy}": "anchors and aliases",
    "schema_version: 1\ngraph: !!python/object/apply:os.system ['touch x']": "the tag",
    "schema_version: 1\ngraph: !!binary aGk=": "the tag",
    "schema_version: 1\ngraph: {call: greedy, <<: {call: vote}}": "it is no YAML",
    "schema_version: 1\ngraph: {call: greedy, call: vote}": "given twice",
    "schema_version: 1\ngraph: {call: greedy, options: {1: 2}}": "valid string",
    "schema_version: 1\ngraph: {[a]: greedy}": "a key is a text",
    "schema_version: 1\ngraph: 2001-01-01": "graph",
    "schema_version: 1\n---\nschema_version: 1": "it is no YAML",
    "[" * 90_000: "nested more than",
    "- " * 40_000: "nested more than",
    "? " * 40_000: "nested more than",
    "schema_version: 1\ngraph: " + "1:" * 20_000 + "1": "no strategy",
    "{" + "a," * 40_000 + "}": "given twice",
    "\x00": "it is no YAML",
}


@pytest.mark.parametrize("text", YAML, ids=lambda text: text[:50])
def test_hostile_yaml_is_refused(text: str, tmp_path: Path) -> None:
    """Before anything is made of it."""
    path = tmp_path / "plan.yaml"
    path.write_text(text)

    with pytest.raises(GraphError, match=re.escape(YAML[text])):
        Node.load(path)
    assert [p.name for p in tmp_path.iterdir()] == ["plan.yaml"]


@pytest.mark.parametrize("name", ["plan.txt", "missing.json", ".", "zero.yaml"])
def test_what_is_no_such_file_is_refused(name: str, tmp_path: Path) -> None:
    """A folder and a device as well."""
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")

    with pytest.raises(GraphError, match=r"is no file|is called"):
        Node.load(tmp_path / name)


def test_a_text_that_is_json_is_a_strategy() -> None:
    """So whoever takes a text takes a saved graph."""
    text = to_json(Sample(n=2) >> Vote())

    outcome = ttc.solve("?", text, model=FakeEngine("The answer is 7."), seed=0)

    assert outcome.answer == "7"


def test_a_file_of_another_encoding_is_refused(tmp_path: Path) -> None:
    """It is UTF-8."""
    path = tmp_path / "plan.json"
    path.write_bytes(b"\xff\xfe{}")

    with pytest.raises(GraphError, match="cannot be read"):
        Node.load(path)

"""The worst case of every registered node, at the worst of lengths."""

from __future__ import annotations

import string
from dataclasses import replace
from typing import get_args

import pytest

from tests.contract.test_strategies import CASES
from ttc import Message, Problem, solve
from ttc.graph import Cost, Node
from ttc.ports import Request, Verifier
from ttc.strategies import BestOfN, TreeOfThoughts, Vote
from ttc.strategies.tree.tree_of_thoughts import TreeOrder
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Branch, Outcome
from ttc.verifiers import (
    AskBack,
    CodeT,
    Judge,
    PairwiseJudge,
    RolloutValue,
    SelfVerify,
    ThoughtValue,
    ThoughtVote,
    Tournament,
)

_WORD = 8
PROBLEM = Problem(
    messages=(
        Message(role="system", content="Be exact."),
        Message(role="user", content="What is 2 of 10 + 1?"),
    ),
    tests=("assert double(2) == 4",),
    metadata={"entry_point": "double"},
)


class Letters(FakeEngine):
    """It writes long words, and reads every text letter by letter: the worst of tokenizers."""

    def root(self, problem: Problem, role: str) -> Branch:
        """A prompt of as many tokens as bytes."""
        root = super().root(problem, role)
        return replace(root, token_ids=tuple(root.text.encode()))

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """So are other texts, but for a short word by itself."""
        longer = super().append(branch, text, as_token=as_token)
        is_one = as_token or len(text) < _WORD // 2
        return longer if is_one else replace(longer, token_ids=tuple(text.encode()))


def wordy(request: Request) -> str:
    """As much as a call may write, other words in each; most calls come to an answer."""
    letters = string.ascii_lowercase[request.seed % 26] * (_WORD - 3)
    end = f"The answer is {request.seed % 3}." if request.seed % 5 else "It goes on."
    count = max(0, request.max_tokens - len(end.split()) - 1)
    return " ".join([f"{letters}{n % 100:02}" for n in range(count)] + [end])


def checked(graph: Node, engine: FakeEngine) -> tuple[Cost, Outcome]:
    """The worst case, and what became of a run; it never spends more."""
    outcome = solve(PROBLEM, graph, model=engine, models={"judge": engine}, seed=7)
    worst = graph.worst_case(outcome.problem, engine)
    for resource in ("tokens", "calls", "verifier_calls"):
        most, spent = getattr(worst, resource), getattr(outcome.usage, resource)
        assert most is None or spent <= most, f"{spent} {resource} of {most}"
    return worst, outcome


@pytest.mark.parametrize("name", CASES)
def test_no_node_spends_more_than_its_worst_case(name: str) -> None:
    """And that is a number; what tools write is bounded by the context alone."""
    uses_tools = name in ("agent", "language_agent_tree_search")
    graph = CASES[name](3, ScriptedVerifier({"1": 1.0, "2": 0.5}))
    worst, _ = checked(
        graph, Letters(wordy, token_bytes=_WORD, context=6_000 if uses_tools else None)
    )

    assert None not in (worst.tokens, worst.calls, worst.verifier_calls)


VERIFIERS: dict[str, Verifier] = {
    "judge": Judge(samples=2, temperature=0.5),
    "self_verify": SelfVerify(),
    "self_verify_in_chains": SelfVerify(chains=2),
    "rollout_value": RolloutValue(m=2, verifier=Judge()),
    "ask_back": AskBack(),
    "thought_value": ThoughtValue(),
    "pairwise_judge": PairwiseJudge(),
    "tournament": Tournament(),
    "thought_vote": ThoughtVote(),
    "code_t": CodeT(),
}


@pytest.mark.parametrize("name", VERIFIERS)
def test_no_verifier_that_asks_spends_more_than_its_worst_case(name: str) -> None:
    engine = Letters(wordy, token_bytes=_WORD)
    worst, outcome = checked(BestOfN(n=4, verifier=VERIFIERS[name]), engine)

    assert None not in (worst.tokens, worst.calls, worst.verifier_calls)
    assert outcome.usage.calls > 4, "it asked nothing"


@pytest.mark.parametrize("search", get_args(TreeOrder))
@pytest.mark.parametrize("verifier", [ThoughtVote(), ThoughtValue(), RolloutValue(m=2)])
def test_no_search_with_a_verifier_that_asks_spends_more(
    search: TreeOrder, verifier: Verifier
) -> None:
    graph = (
        TreeOfThoughts(verifier, search=search, width=2, max_steps=3, max_expansions=8) >> Vote()
    )
    worst, _ = checked(graph, Letters(wordy, token_bytes=_WORD))

    assert None not in (worst.tokens, worst.calls, worst.verifier_calls)


@pytest.mark.parametrize("name", ["self_refine", "mixture_of_agents", "knockout", "agent"])
def test_what_is_unknown_has_no_worst_case(name: str) -> None:
    """Neither how long words are, nor a context; of tools it is never known how much they write."""
    graph = CASES[name](3, ScriptedVerifier({}))

    assert graph.worst_case(PROBLEM, FakeEngine(wordy)).tokens is None

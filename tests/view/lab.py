"""Runs to look at: searches and votes on a fake engine, kept in a journal."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ttc
from ttc import Budget, Outcome
from ttc.ports import Request
from ttc.strategies import BeamSearch, Vote
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Candidate
from ttc.view import RunView

__all__ = ["QUESTION", "SEARCH", "VOTE", "big_view", "keep", "quality", "search", "talker", "until"]

QUESTION = "A train leaves at 9:40 and arrives at 13:05. How many minutes does the journey take?"
VOTE = "sample(n=8) >> vote()"

STEPS = (
    "From 9:40 to 13:40 are four hours, which is 240 minutes.",
    "The train arrives 35 minutes before 13:40.",
    "Count the hours first: 9:40 to 12:40 are three hours.",
    "Three hours are 180 minutes, and 25 minutes remain.",
    "Then 240 - 35 = 205 minutes.",
    "From 9:40 to 10:00 are 20 minutes, and from 10:00 to 13:05 are 185.",
    "Adding up gives 180 + 25 = 205.",
    "Perhaps the train stops on the way, which would not change the journey.",
    "So 13:05 - 9:40 = 3:65, which is no time of day; borrow an hour.",
)
ENDS = ("The answer is 205.", "The answer is 205.", "The answer is 215.", "The answer is 325.")


def talker(end: float = 0.35) -> Callable[[Request], str]:
    """Steps of a solution, drawn by the seed of the request, until one of them ends it."""

    def say(request: Request) -> str:
        rng = random.Random(request.seed)
        depth = sum(1 for _ in request.branch.lineage()) - 1
        if depth >= 2 and rng.random() < end + 0.1 * depth:
            return rng.choice(ENDS)
        return rng.choice(STEPS) + f" ({rng.randrange(100)})\n\n"

    return say


def unsure(request: Request) -> float:
    """The log probability of a reply's tokens: another one for each call."""
    return -random.Random(request.seed + 1).expovariate(1.2) - 0.02


def quality(candidate: Candidate) -> float:
    """A score between 0 and 1, which a trajectory has for good."""
    return random.Random(candidate.branch.output).betavariate(2.5, 1.8)


def search(num_beams: int = 4, beam_width: int = 4, max_steps: int = 6) -> Any:
    """A beam search with a vote."""
    verifier = ScriptedVerifier(quality, name="step_quality")
    beams = BeamSearch(
        verifier=verifier, num_beams=num_beams, beam_width=beam_width, max_steps=max_steps
    )
    return beams >> Vote(weighted=True)


SEARCH = search()


def keep(
    path: Path,
    strategy: Any = SEARCH,
    *,
    engine: FakeEngine | None = None,
    question: str = QUESTION,
    tokens: int = 6_000,
) -> Outcome:
    """A run, kept in a journal."""
    engine = engine or FakeEngine(talker(), logprob=unsure, concurrency=8)
    budget = Budget(tokens=tokens)
    return ttc.solve(question, strategy, model=engine, journal=path, seed=11, budget=budget)


def big_view(num_nodes: int = 10_000, *, width: int = 6) -> RunView:
    """A search of many nodes, told as a journal would tell it."""
    view, rng = RunView("big"), random.Random(3)
    graph = {
        "nodes": {"prompt": "prompt", "0.beam_search": "0.beam_search (num_beams=9)"},
        "edges": [["prompt", "0.beam_search"]],
    }
    problem = {"prompt": None, "messages": [{"role": "user", "content": QUESTION}]}
    view.begin({"problem": problem, "text": "beam_search()", "budget": {"tokens": 900_000}}, graph)
    view.prompt("prompt#policy:0", "policy", QUESTION)
    for number in range(1, num_nodes + 1):
        parent = (number - 1) // width
        above = f"0.beam_search#{parent}" if parent else "prompt#policy:0"
        row, at = f"0.beam_search#{number}", number / 100
        text = f"{rng.choice(STEPS)} ({number})"
        view.asked(row, parent=above, given="", role="policy", at=at)
        segment = {"text": text, "token_ids": [1] * 12, "logprobs": [-0.4] * 12}
        view.answered(row, segment, at + 0.2)
        usage = {"tokens": 12, "calls": 1, "output_tokens": 12}
        record = {"path": "0.beam_search", "kind": "call", "index": number, "usage": usage}
        view.recorded({**record, "detail": {"finish": "stop"}}, at + 0.2)
        status = "finished" if parent and rng.random() < 0.2 else "open"
        note = {"node": number, "parent": parent or None, "action": "step", "call": row}
        view.noted(
            "0.beam_search", {**note, "status": status, "value": rng.random(), "twin": None}, at
        )
        if rng.random() < 0.3:
            view.noted("0.beam_search", {"dropped": [number]}, at)
    view.ended({"answer": "205", "stopped_by": "completed", "usage": {"tokens": 12 * num_nodes}})
    return view


def until(page: Any, expression: str) -> None:
    """Waits for a page; Playwright's own way would evaluate text, which the policy forbids."""
    for _ in range(1_000):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"it never came to {expression}")

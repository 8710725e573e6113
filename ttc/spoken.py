"""What a turn of a model's says: an answer in its words, or calls of the problem's tools.

Where it calls tools, the calls are its answer, in one form that equal calls share: so candidates
that call vote by what they call. A call that cannot be read, or of a tool that there is not, is no
answer.
"""

from __future__ import annotations

import json
from collections.abc import Hashable

from ttc.ports import Engine
from ttc.tool_calls import BadCall, Form, SpokenTurn, Tools, canonical, parameters_of, read_turn
from ttc.types import Branch, Problem

__all__ = ["answer_of", "begun_text", "form_for", "read_calls"]


def answer_of(problem: Problem, branch: Branch, engine: Engine) -> tuple[str | None, Hashable]:
    """The answer of a branch, and what equal answers share."""
    from ttc.answers import answer_key, extract_answer

    if problem.tools and branch.finish_reason == "stop":
        calls, turn = read_calls(branch.output, engine, problem.tools)
        if turn.calls:
            return calls, None if calls is None else ("calls", calls)
    answer = extract_answer(
        begun_text(problem, branch) + branch.output,
        problem.answer_format,
        finish_reason=branch.finish_reason,
    )
    return answer, answer_key(answer, problem.answer_format)


def begun_text(problem: Problem, branch: Branch) -> str:
    """What the prompt holds of the assistant's turn: an open thought, and text to go on from."""
    given = problem.messages[-1].content if problem.continue_last else ""
    prompt = next(branch.lineage()).text.removesuffix(given)
    return ("<think>" if prompt.rstrip().endswith("<think>") else "") + given


def form_for(engine: Engine) -> Form:
    """How an engine's model writes calls; JSON between tags or alone, where it does not say."""
    form: Form = getattr(engine, "call_form", "hermes")
    return form


def read_calls(text: str, engine: Engine, tools: Tools) -> tuple[str | None, SpokenTurn]:
    """A turn, and its calls as one text; `None` where there are none, or not all are good."""
    turn, known = read_turn(text, form_for(engine), tools), parameters_of(tools)
    good = [
        canonical(call)
        for call in turn.calls
        if not isinstance(call, BadCall) and call.name in known
    ]
    is_whole = bool(good) and len(good) == len(turn.calls)
    return json.dumps(good) if is_whole else None, turn

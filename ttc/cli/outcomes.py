"""An outcome for people, as text and a table of votes, and for programs, as one JSON object."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ttc.cli.terminal import counted, say, show, table
from ttc.registry import room
from ttc.safe_text import one_line
from ttc.strict_json import pretty
from ttc.types import Candidate, Outcome

__all__ = ["SCHEMA_VERSION", "as_json", "failure", "show_outcome"]

SCHEMA_VERSION = 1
_ANSWER_WIDTH = 60


def as_json(outcome: Outcome) -> str:
    """One JSON object. A number that is not finite is `null`, as JSON has none."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "answer": outcome.answer,
        "confidence": outcome.confidence,
        "text": outcome.text,
        "stopped_by": outcome.stopped_by,
        "seed": outcome.seed,
        "usage": asdict(outcome.usage),
        "usage_by_role": {role: asdict(usage) for role, usage in outcome.usage_by_role.items()},
        "candidates": [_candidate(candidate) for candidate in outcome.candidates],
        "timing_dependent": list(outcome.timing_dependent),
        "numerics": dict(outcome.numerics),
        "speculation": dict(outcome.speculation),
    }
    return pretty(content)


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "answer": candidate.answer,
        "status": candidate.status,
        "text": candidate.text,
        "scores": {
            name: {"value": score.value, "range": score.range}
            for name, score in candidate.scores.items()
        },
        "error": candidate.error,
    }


def failure(outcome: Outcome) -> str | None:
    """Why every call failed; `None` where any candidate came through."""
    errors = [candidate.error for candidate in outcome.candidates if candidate.status == "failed"]
    if not errors or len(errors) < len(outcome.candidates):
        return None
    calls = "the only call" if len(errors) == 1 else f"all {len(errors)} calls"
    return f"{calls} failed: {errors[0]}"


def show_outcome(outcome: Outcome) -> None:
    """Writes an outcome to stdout: the answer, the votes, and what the run came to."""
    say(_headline(outcome))
    votes = _votes(outcome)
    if votes:
        say("")
        show(table(("answer", "votes", "share", ""), votes, right="votes,share"))
    say("")
    show(table(("", ""), _facts(outcome)))


def _headline(outcome: Outcome) -> str:
    if outcome.answer is not None:
        return outcome.answer
    count = counted(len(outcome.candidates), "candidate")
    if outcome.stopped_by == "no_finite_score":
        return f"no answer: no verifier could score any of {count}"
    if outcome.stopped_by == "abstained":
        return f"no answer: the one among {count} was not sure enough"
    if len(outcome.candidates) == 1:
        return f"no answer was found; the text:\n\n{outcome.candidates[0].text.strip()}"
    return f"no answer was found in {count}"


def _votes(outcome: Outcome) -> list[tuple[str, str, str, str]]:
    """The rows of the table of votes, the most frequent answer first."""
    tally: Any = room("strategies").Tally()
    for candidate in outcome.candidates:
        tally.add(candidate)
    rows = []
    for candidate, votes in sorted(tally.votes(), key=lambda pair: -pair[1]):
        is_chosen = outcome.candidate is not None and candidate.key == outcome.candidate.key
        answer = one_line(candidate.answer or "", _ANSWER_WIDTH)
        rows.append((answer, str(votes), _share(votes, tally), "chosen" if is_chosen else ""))
    silent = tally.num_samples - sum(votes for _, votes in tally.votes())
    if rows and silent:
        rows.append(("(no answer)", str(silent), _share(silent, tally), ""))
    return rows


def _share(votes: int, tally: Any) -> str:
    return f"{votes / tally.num_samples:.0%}"


def _facts(outcome: Outcome) -> list[tuple[str, str]]:
    usage, confidence = outcome.usage, outcome.confidence
    spent = [counted(usage.tokens, "token"), counted(usage.calls, "call")]
    if usage.verifier_calls:
        spent.append(counted(usage.verifier_calls, "verifier call"))
    spent.append(f"{counted(usage.tokens_cancelled, 'token')} cancelled")
    if usage.tokens_lost:
        spent.append(f"at most {counted(usage.tokens_lost, 'token')} lost to a kill")
    spent.append(f"{usage.seconds or 0.0:.1f} s")
    failed = [candidate.error for candidate in outcome.candidates if candidate.status == "failed"]
    facts = [
        ("confidence", "unknown" if confidence is None else f"{confidence:.2f}"),
        ("usage", ", ".join(spent)),
        ("stopped by", outcome.stopped_by),
        ("timing dependent", "; ".join(outcome.timing_dependent) or "no"),
        ("seed", str(outcome.seed)),
    ]
    if failed:
        facts.insert(2, ("failed calls", f"{len(failed)}: {one_line(failed[0] or '')}"))
    return facts

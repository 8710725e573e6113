"""What a run came to: the chosen candidate, what was spent, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from ttc.errors import TTCError
from ttc.run import Run
from ttc.types import Candidate, Outcome

__all__ = ["outcome_of"]

_FRUITLESS = ("no_valid_answer", "no_finite_score", "abstained")


def outcome_of(run: Run, chosen: Sequence[Candidate], error: TTCError | None) -> Outcome:
    """The outcome of a run that has ended.

    Args:
        run: the run.
        chosen: what the strategy gave, the last one its choice.
        error: a bug in a node, or why the run never began.
    """
    best = run.best if run.refusal is not None else None
    if run.refusal is not None:  # its traceback would keep the whole run alive with the outcome
        run.refusal.__traceback__ = run.refusal.__context__ = None
    candidate = chosen[-1] if chosen else best
    valid = candidate if candidate is not None and candidate.key is not None else None
    usage = run.usage
    return Outcome(
        problem=run.problem,
        candidate=valid,
        candidates=run.considered or tuple(chosen),
        usage=usage,
        usage_by_role=MappingProxyType(dict(run.usage_by_role)),
        trace=run.journal.trace(),
        stopped_by=_stopped_by(run, valid, error),
        refusal=run.refusal,
        timing_dependent=(*run.timing, *_unrepeatable(run), *run.journal.timing()),
        seconds_by=MappingProxyType(run.seconds_by),
        seed=run.seed,
        numerics=MappingProxyType({role: e.numerics for role, e in run.engines.items()}),
        speculation=MappingProxyType(
            {role: how for role, e in run.engines.items() if (how := e.capabilities.speculation)}
        ),
        prices=MappingProxyType(run.prices),
        oracle=run.oracle,
        error=error,
    )


def _unrepeatable(run: Run) -> list[str]:
    """Models that took part, and that give other texts when they are asked again."""
    engines = {role: run.engines[role] for role in run.usage_by_role if role in run.engines}
    names = {e.name for e in engines.values() if not e.capabilities.replayable}
    return [
        f"the model {name} may answer otherwise when it is asked again" for name in sorted(names)
    ]


def _stopped_by(run: Run, candidate: Candidate | None, error: TTCError | None) -> str:
    if error is not None:
        return "error"
    if run.refusal is not None:
        return run.refusal.resource
    last = reversed(run.decisions)
    if candidate is None:
        return next((rule for rule in last if rule in _FRUITLESS), _FRUITLESS[0])
    return next((rule for rule in last if rule not in _FRUITLESS), "completed")

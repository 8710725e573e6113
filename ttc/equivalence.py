"""Equivalence: whether candidates say the same, for the nodes of a run.

Keys, expansion and bounds decide in this process; the rest is computed in a jailed one. What that
takes of a processor is booked, and a check that a limit ended makes the run depend on timing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ttc.graph import Node
from ttc.run import Run
from ttc.types import Candidate, Usage

__all__ = ["equivalent", "prepare"]


def prepare(graph: Node) -> None:
    """Starts what compares answers, where a node has `equivalence="symbolic"`.

    Candidates come meanwhile, so the first comparison need not wait.
    """
    if any(getattr(p.node, "equivalence", "key") == "symbolic" for p in graph.walk()):
        from ttc.sandbox.symbolic import shared_pool

        shared_pool().start()


async def equivalent(
    run: Run, path: str, pairs: Sequence[tuple[Candidate, Candidate]]
) -> tuple[bool | None, ...]:
    """Whether the answers of each pair are equal; `None` where that could not be decided.

    Recorded as a decision of the node at a path.
    """
    from ttc.sandbox.symbolic import Check, shared_pool

    format = run.problem.answer_format
    checks = [Check(left=a.answer or "", right=b.answer or "", format=format) for a, b in pairs]
    checked = await shared_pool().check_all(checks)
    if any(one.was_cut for one in checked):
        run.timing["a limit ended a symbolic check"] = None
    usage = Usage(sandbox_seconds=sum(one.cpu_seconds for one in checked))
    run.book("sandbox", usage)
    run.record(path, usage, rule="equivalence", verdicts=[one.verdict for one in checked])
    return tuple(one.verdict for one in checked)

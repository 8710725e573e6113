"""How ttc grades a recorded pool of completions, beside the verdicts that were published with it.

Run as `python -m ttc.benchmarks.verifiers POOL`. POOL holds one problem in a line: its reference
`gold` and `candidates` with `text`, the published grader's `answer` and `correct`, and a `reward`.
Answers are extracted and graded anew. The table has the mean accuracy, the coverage, the best by
reward and the majority; after it comes every disagreement with its reason.

`--references PATH` names a file of references (`answer` in each line) that are graded against
themselves: all must be equal. `--second-opinion` asks math-verify as well. `--human-eval` grades
HumanEval's solutions, which must pass, and a near miss of each, which must fail: twice, shuffled.
`--speed` counts checks per second, and `--json PATH` writes the figures to a file.

Rates are those of one core, by processor time, which a busy machine disturbs least, and by wall
time.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from ttc.answers import Classes, answer_key, extract_answer, parse_answer
from ttc.benchmarks.hidden_tests import HiddenTests, human_eval_solved, near_miss
from ttc.benchmarks.math_equal import MathEqual
from ttc.benchmarks.metrics import coverage, wilson
from ttc.benchmarks.results import Value, write_result
from ttc.benchmarks.tasks import Reference
from ttc.sandbox.limits import Limits
from ttc.sandbox.symbolic import Check, shared_pool
from ttc.types import Branch, Candidate

__all__ = [
    "Disagreement",
    "Graded",
    "disagreements",
    "grade_pool",
    "human_eval_check",
    "main",
    "reflexive",
    "speed",
    "summary",
]

_GRADER = MathEqual(text=True, format="boxed")


@dataclass(frozen=True, kw_only=True)
class Graded:
    """One problem of the pool with the grades of all its candidates."""

    id: str
    gold: str
    answers: tuple[str | None, ...]
    """As ttc extracts them."""
    correct: tuple[bool, ...]
    """As ttc grades them; undecided is not right."""
    reasons: tuple[str, ...]
    published_answers: tuple[str, ...]
    published: tuple[bool, ...]
    """The verdicts that came with the pool."""
    rewards: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A candidate that ttc grades otherwise than the pool does."""

    id: str
    candidate: int
    gold: str
    answer: str | None
    published_answer: str
    correct: bool
    reason: str

    def __str__(self) -> str:
        verdict = "right" if self.correct else "wrong"
        return (
            f"problem {self.id}, candidate {self.candidate}: gold {self.gold!r}, ttc reads "
            f"{self.answer!r} as {verdict} ({self.reason}), the pool {self.published_answer!r} as "
            f"{'wrong' if self.correct else 'right'}"
        )


def grade_pool(path: Path, grader: MathEqual = _GRADER) -> list[Graded]:
    """Extracts and grades every candidate of a pool."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_grade(json.loads(line), grader) for line in lines if line.strip()]


def _grade(row: dict[str, Any], grader: MathEqual) -> Graded:
    given = row["candidates"]
    answers = tuple(extract_answer(one["text"], "boxed") for one in given)
    reference = Reference(answer=row["gold"])
    scores = [grader(reference, _candidate(answer)) for answer in answers]
    reasons = [" ".join(f"{k}: {v}" for k, v in score.evidence.items()) for score in scores]
    return Graded(
        id=str(row["id"]),
        gold=row["gold"],
        answers=answers,
        correct=tuple(score.value == 1.0 for score in scores),
        reasons=tuple(reasons),
        published_answers=tuple(one["answer"] for one in given),
        published=tuple(one["correct"] for one in given),
        rewards=tuple(one["reward"] for one in given),
    )


def _candidate(answer: str | None) -> Candidate:
    branch = Branch(text="", token_ids=None)
    return Candidate(branch=branch, answer=answer, key=answer_key(answer), status="finished")


def disagreements(graded: Sequence[Graded]) -> list[Disagreement]:
    """Every candidate on whose grade ttc and the pool differ."""
    return [
        Disagreement(
            id=one.id,
            candidate=index,
            gold=one.gold,
            answer=one.answers[index],
            published_answer=one.published_answers[index],
            correct=one.correct[index],
            reason=one.reasons[index],
        )
        for one in graded
        for index, verdict in enumerate(one.published)
        if verdict != one.correct[index]
    ]


def summary(graded: Sequence[Graded]) -> dict[str, tuple[float, float]]:
    """Each measure by ttc's grades, and by the pool's own."""
    ours, theirs = [one.correct for one in graded], [one.published for one in graded]
    best = [max(range(len(one.rewards)), key=one.rewards.__getitem__) for one in graded]
    picked = [_majority(_classes(one.answers)) for one in graded]
    plain = [_majority(one.published_answers) for one in graded]
    return {
        "mean accuracy": (fmean(map(fmean, ours)), fmean(map(fmean, theirs))),
        "coverage": (coverage(ours), coverage(theirs)),
        "best by reward": (_accuracy(ours, best), _accuracy(theirs, best)),
        "majority": (_accuracy(ours, picked), _accuracy(theirs, plain)),
    }


def _accuracy(correct: Sequence[Sequence[bool]], chosen: Sequence[int | None]) -> float:
    pairs = zip(correct, chosen, strict=True)
    return fmean(index is not None and grades[index] for grades, index in pairs)


def _majority(classes: Sequence[Hashable | None]) -> int | None:
    """The first candidate of the largest class; the earliest of equal ones."""
    votes = Counter(one for one in classes if one is not None)
    return classes.index(max(votes, key=votes.__getitem__)) if votes else None


def _classes(answers: Sequence[str | None]) -> list[Hashable | None]:
    """The class of each answer, by symbolic equivalence."""
    classes, seen = Classes(), dict[Hashable, str]()
    keys = [answer_key(answer) for answer in answers]
    for key, answer in zip(keys, answers, strict=True):
        if key is None or answer is None or key in seen:
            continue
        pool = shared_pool()
        checks = {other: Check(left=answer, right=text) for other, text in seen.items()}
        classes.add(
            key,
            {other: pool.check(check, is_patient=True).verdict for other, check in checks.items()},
        )
        seen[key] = answer
    return [None if key is None else classes.of(key) for key in keys]


def reflexive(path: Path, grader: MathEqual = _GRADER) -> tuple[list[str], Counter[str]]:
    """References that are not equal to themselves, and how many there are of each kind."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    answers = [row["answer"] for row in rows]
    kinds = Counter(parsed.kind for a in answers if (parsed := parse_answer(a)) is not None)
    boxed = [extract_answer(f"So it is $\\boxed{{{answer}}}$.", "boxed") for answer in answers]
    wrong = [
        answer
        for answer, said in zip(answers, boxed, strict=True)
        if grader(Reference(answer=answer), _candidate(said)).value != 1.0
    ]
    return wrong, kinds


def _rate(name: str, count: int, cpu: float, wall: float) -> dict[str, Value]:
    """A row of how many there were to a second of a core."""
    sys.stdout.write(f"{name}: {count / cpu:.0f} a second by processor time, ")
    sys.stdout.write(f"{count / wall:.0f} by wall time\n")
    rates = {"value": round(count / cpu, 1), "by_wall_time": round(count / wall, 1)}
    return {"name": name, **rates, "unit": "1/s of a core", "count": count}


def _used() -> float:
    """Processor seconds of this process and of the processes that it has reaped."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def _report(graded: Sequence[Graded]) -> list[dict[str, Value]]:
    rows: list[dict[str, Value]] = []
    n = len(graded)
    sys.stdout.write(f"{'':16}{'ttc':>8}{'pool':>8}\n")
    for name, (ours, theirs) in summary(graded).items():
        sys.stdout.write(f"{name:16}{ours:8.3f}{theirs:8.3f}\n")
        row: dict[str, Value] = {
            "name": name,
            "value": round(ours, 5),
            "published": round(theirs, 5),
        }
        if name != "mean accuracy":
            low, high = wilson(round(ours * n), n)
            row |= {"ci95_low": round(low, 4), "ci95_high": round(high, 4)}
        rows.append(row | {"problems": n})
    found = disagreements(graded)
    sys.stdout.write(f"\n{len(found)} disagreements\n" + "".join(f"- {one}\n" for one in found))
    rows.append({"name": "disagreements", "value": len(found)})
    rows += [{"name": "disagreement", "value": str(one)} for one in found]
    return rows


def _second_opinion(graded: Sequence[Graded]) -> list[dict[str, Value]]:
    """Where math-verify judges a distinct pair of answer and reference otherwise than ttc."""
    other = MathEqual(text=True, format="boxed", by="math_verify")
    pairs = {
        (one.gold, answer): right
        for one in graded
        for answer, right in zip(one.answers, one.correct, strict=True)
    }
    differ: list[str] = []
    for (gold, answer), right in pairs.items():
        score = other(Reference(answer=gold), _candidate(answer))
        if (score.value == 1.0) != right:
            says = {None: "unknown", 0.0: "wrong", 1.0: "right"}[score.value]
            differ.append(f"gold {gold!r}, answer {answer!r}: math-verify says {says}")
    sys.stdout.write(f"\nmath-verify differs on {len(differ)} of {len(pairs)} pairs\n")
    sys.stdout.write("".join(f"- {one}\n" for one in differ))
    rows: list[dict[str, Value]] = [
        {"name": "math-verify differs", "value": len(differ), "pairs": len(pairs)}
    ]
    rows += [{"name": "difference", "value": one} for one in differ]
    return rows


def speed(checks: int = 300) -> list[dict[str, Value]]:
    """How many checks a core does in a second: those decided in this process, and by sympy.

    Processor time, so that a busy machine is not taken for a slow check. No pair is met twice.
    """
    simple = [
        pair
        for k in range(2, 2 + checks // 3)
        for pair in (
            (f"{k}/4", f"{k * 25}\\%"),
            (f"(x+{k})^2", f"x^2+{2 * k}x+{k * k}"),
            (rf"\frac{{x^2-{k * k}}}{{x-{k}}}", f"x+{k}"),
        )
    ]
    algebra = [
        pair
        for k in range(2, 2 + checks // 3)
        for pair in (
            (f"|{k}x|", f"{k}|x|"),
            (rf"\ln(x^{{{2 * k}}})", rf"{2 * k}\ln|x|"),
            (
                rf"\frac{{1}}{{1+\sqrt{{{k * k + 1}}}}}",
                rf"\frac{{\sqrt{{{k * k + 1}}}-1}}{{{k * k}}}",
            ),
        )
    ]
    pool = shared_pool()
    pool.start().result()
    rows: list[dict[str, Value]] = []
    for name, pairs in (("in this process", simple), ("by sympy", algebra)):
        wall, begun, elsewhere = time.perf_counter(), time.process_time(), 0.0
        for left, right in pairs:
            checked = pool.check(Check(left=left, right=right))
            elsewhere += checked.cpu_seconds
            if checked.verdict is not True:
                raise RuntimeError(f"{left} and {right} are equal, and the verdict is {checked}")
        cpu = time.process_time() - begun + elsewhere
        rows.append(_rate(f"checks {name}", len(pairs), cpu, time.perf_counter() - wall))
    return rows


def human_eval_check(rounds: int = 2, *, most: int | None = None) -> list[dict[str, Value]]:
    """Grades HumanEval's solutions and a near miss of each, shuffled; and tells what was wrong."""
    given = list(human_eval_solved())[:most]
    work = [(*one, is_right) for one in given for is_right in (True, False)] * rounds
    Random(0).shuffle(work)
    grader, wrong = HiddenTests(limits=Limits(seconds=60, cpu_seconds=60)), list[str]()
    for item, solution, is_right in work:
        program = f"{item.problem.prompt}{solution}"
        if not is_right:
            program = near_miss(program, item.problem.metadata["entry_point"])
        grade = grader(item.reference, _program(program))
        if grade.value != float(is_right):
            wrong.append(f"{item.problem.id}, {'right' if is_right else 'near miss'}: {grade}")
    sys.stdout.write(f"\n{len(work) - len(wrong)} of {len(work)} HumanEval programs graded right\n")
    sys.stdout.write("".join(f"- {one}\n" for one in wrong))
    right: dict[str, Value] = {"value": len(work) - len(wrong), "of": len(work), "rounds": rounds}
    rows: list[dict[str, Value]] = [{"name": "HumanEval graded right", **right}]
    rows += [{"name": "HumanEval graded wrong", "value": one} for one in wrong]
    return rows


def _program(text: str) -> Candidate:
    return Candidate(branch=Branch(text=text, token_ids=None), text=text, status="finished")


def main(arguments: Sequence[str] | None = None) -> None:
    """Grades, prints, and writes the result where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("pool", type=Path)
    parser.add_argument("--references", type=Path, help="references to grade against themselves")
    parser.add_argument("--second-opinion", action="store_true", help="ask math-verify as well")
    parser.add_argument("--human-eval", action="store_true", help="grade HumanEval as well")
    parser.add_argument("--speed", action="store_true", help="count checks per second as well")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args(arguments)
    wall, cpu = time.perf_counter(), _used()
    graded = grade_pool(given.pool)
    wall = time.perf_counter() - wall
    shared_pool().close()  # what its processes have used is known once they are reaped
    rows = _report(graded)
    count = sum(len(one.answers) for one in graded)
    rows.append(_rate("candidates graded, the start included", count, _used() - cpu, wall))
    if given.references is not None:
        wrong, kinds = reflexive(given.references)
        total = sum(kinds.values())
        counts = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
        sys.stdout.write(
            f"\n{total - len(wrong)} of {total} references equal themselves: {counts}\n"
        )
        sys.stdout.write("".join(f"- {one}\n" for one in wrong))
        rows.append({"name": "reflexive references", "value": total - len(wrong), "of": total})
    if given.second_opinion:
        rows += _second_opinion(graded)
    if given.human_eval:
        rows += human_eval_check()
    if given.speed:
        rows += speed()
    if given.json is not None:
        command = ["python", "-m", "ttc.benchmarks.verifiers", *(arguments or sys.argv[1:])]
        write_result(given.json, command=command, rows=rows, seed=0)


if __name__ == "__main__":
    main()

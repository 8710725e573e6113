"""What arithmetic decides: greedy answers in int8 and in the file's own formats against fp32.

    python -m ttc.benchmarks.parity.numerics "gsm8k[300:400]" --data DATA --model MODEL
        --work FOLDER [--limit N] [--json PATH]

The same greedy strategy runs on the same problems with each arithmetic; a kill loses nothing. Each
is compared with the first, fp32 by default: accuracy paired by problem with its interval, p values
adjusted by Holm's method for how many there are, and how many texts are the same to the letter.
fp32 is several times slower than the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import get_args

from ttc.benchmarks.harness.results import Result
from ttc.benchmarks.harness.verdicts import said
from ttc.benchmarks.metrics import bootstrap, detectable_difference, difference_of_grades, holm
from ttc.benchmarks.parity.greedy import asked_by, greedy_results, parser_of, text_of, told
from ttc.benchmarks.results import Value
from ttc.cli.engines import engine_of
from ttc.cli.terminal import Fault
from ttc.config import Arithmetic
from ttc.errors import TTCError

__all__ = ["ARITHMETICS", "compared", "main"]

ARITHMETICS: tuple[Arithmetic, ...] = ("fp32", "int8", "file")
"""The first is what others are compared with."""


def compared(found: Mapping[str, Mapping[str, Result]], seed: int) -> list[dict[str, Value]]:
    """A row for each arithmetic, and one for each but the first against the first.

    Args:
        found: results by problem, by arithmetic.
        seed: of the bootstrap.
    """
    (first, base), *others = found.items()
    problems = list(base)
    rows: list[dict[str, Value]] = []
    for name, results in found.items():
        tokens = [result.usage.get("tokens") or 0 for result in results.values()]
        values = [results[problem].value for problem in problems]
        low, high = bootstrap(values, seed=seed)
        rows.append(
            {
                "name": name,
                "problems": len(problems),
                "accuracy_percent": round(100 * fmean(values), 2),
                "low": round(100 * low, 2),
                "high": round(100 * high, 2),
                "mean_tokens": round(fmean(tokens), 1),
            }
        )
    theirs = [base[problem].value for problem in problems]
    mine = {name: [results[p].value for p in problems] for name, results in others}
    gains = {name: difference_of_grades(values, theirs, seed=seed) for name, values in mine.items()}
    adjusted = holm([gain.p for gain in gains.values()])
    for (name, gain), p in zip(gains.items(), adjusted, strict=True):
        results = found[name]
        num = len(problems)
        rows.append(
            {
                "name": f"{name} against {first}",
                "problems": num,
                "difference_points": round(100 * gain.mean, 2),
                "low": round(100 * gain.low, 2),
                "high": round(100 * gain.high, 2),
                "adjusted_p": round(p, 4),
                "detectable_points": round(100 * detectable_difference(mine[name], theirs), 1)
                if num > 1
                else None,
                "verdict": said(gain, p, num),
                "same_texts": sum(text_of(results[p]) == text_of(base[p]) for p in problems),
                "same_answers": sum(results[p].answer == base[p].answer for p in problems),
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs, tells, and writes the figures where it is asked to."""
    parser = parser_of("Greedy answers by arithmetic.")
    parser.add_argument(
        "--arithmetics", default=",".join(ARITHMETICS), help="the first is the base"
    )
    options = parser.parse_args(arguments)
    names = options.arithmetics.split(",")
    if len(names) < 2 or not set(names) <= set(get_args(Arithmetic)):
        raise SystemExit(f"--arithmetics: name two or more of {', '.join(get_args(Arithmetic))}")
    try:
        found = {
            name: greedy_results(
                asked_by(options), options.work / name, partial(engine_of, arithmetic=name)
            )
            for name in names
        }
    except (TTCError, Fault) as error:
        raise SystemExit(str(error)) from None
    told(compared(found, 0), options, "numerics", arguments)


if __name__ == "__main__":
    main()

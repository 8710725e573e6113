"""Tables of a page in Markdown, out of the summaries that `ttc eval --json` writes.

Run as `python -m ttc.benchmarks.report.page PAGE RESULTS`. What stands in the page between
`<!-- FILE.json -->` and `<!-- /FILE.json -->` becomes the tables of that file of the folder
RESULTS: accuracies under each budget with their intervals, the verdicts, and below them the
problems, the machine and the date. All else in the page stays.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ttc.errors import RecordError

__all__ = ["renewed", "tables"]

_MARK = re.compile(r"^<!-- (/?)(\S+\.json) -->$", re.MULTILINE)
_BLOCK = re.compile(
    r"^<!-- (?P<file>\S+\.json) -->\n.*?^<!-- /(?P=file) -->$", re.DOTALL | re.MULTILINE
)
_AMOUNT = re.compile(r"(\w+)=(\d+)")
Row = dict[str, Any]


def renewed(page: str, results: Path) -> str:
    """The page with all of its tables as the files are now.

    Raises:
        RecordError: a file that the page names is missing, or is no summary of an evaluation; or
            a mark has no other end.
    """
    marks = [closes + file for closes, file in _MARK.findall(page)]
    for opens, closes in zip(marks[::2], [*marks[1::2], ""], strict=False):
        if closes != f"/{opens}":
            raise RecordError(
                f"the mark <!-- {opens} --> is not followed by <!-- /{opens} -->: tables stand "
                "between two such lines, each on its own"
            )
    if not marks:
        raise RecordError("the page has no tables: put <!-- FILE.json --> and <!-- /FILE.json -->")

    def block(found: re.Match[str]) -> str:
        name = found["file"]
        try:
            told = tables(json.loads((results / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"the page names {name}, which cannot be read as the summary of an evaluation "
                f"({error!r}): write it with `ttc eval ... --json {results / name}`"
            ) from error
        return f"<!-- {name} -->\n{told}\n<!-- /{name} -->"

    return _BLOCK.sub(block, page)


def tables(summary: Row) -> str:
    """A summary in Markdown: strategies, verdicts, and what they are of."""
    rows: list[Row] = summary["rows"]
    tasks = [row for row in rows if row["kind"] == "task"]
    cells = [row for row in rows if row["kind"] in {"strategy", "upper bound"}]
    verdicts = [row for row in rows if row["kind"] == "verdict"]
    parts = [_strategies(tasks, cells), *([_verdicts(tasks, verdicts)] if verdicts else [])]
    return "\n\n".join((*parts, _below(summary, tasks, cells)))


def _strategies(tasks: Sequence[Row], cells: Sequence[Row]) -> str:
    """A line for each strategy, a column for each budget; spend and cuts at the last one."""
    lines: dict[str, dict[str, Row]] = {}
    for cell in cells:
        label, budget = _parts(tasks, cell)
        bound = " (upper bound)" if cell["kind"] == "upper bound" else ""
        lines.setdefault(label + bound, {})[budget] = cell
    budgets = list(dict.fromkeys(budget for line in lines.values() for budget in line))
    heads = [_amount(budget) for budget in budgets]
    last = f" at {heads[-1]}" if len(heads) > 1 else ""
    head = ["strategy", *heads, f"spent{last}", f"cut{last}"]
    return _table(
        head,
        (
            [label, *(_accuracy(line.get(budget)) for budget in budgets), *_spent(line, budgets)]
            for label, line in lines.items()
        ),
    )


def _verdicts(tasks: Sequence[Row], verdicts: Sequence[Row]) -> str:
    head = ["compared", "difference in points", "verdict", "detectable"]
    lines = []
    for row in verdicts:
        label, budget = _parts(tasks, row)
        difference = f"{row['difference_points']:+.1f} {_interval(row)}"
        detectable = f"{row['detectable_points']:.1f}"
        lines.append([f"{label}, {_amount(budget)}", difference, row["verdict"], detectable])
    return _table(head, lines)


def _below(summary: Row, tasks: Sequence[Row], cells: Sequence[Row]) -> str:
    """On what it was measured."""
    problems = ", ".join(f"{task['problems']} problems of `{task['name']}`" for task in tasks)
    pools = dict.fromkeys(task["pool"].rpartition(", digest")[0] for task in tasks if task["pool"])
    drawn = f", {', '.join(pools)}, in {tasks[0]['repeats']} orders" if pools else ""
    machine = summary["machine"]
    vectors = machine.get("vectors")
    kind = f"{machine['cpu']}, {machine['cores']} cores{f' ({vectors})' if vectors else ''}"
    return f"{problems}{drawn}; {kind}; {summary['date']}.{_used_up(tasks, cells)}"


def _used_up(tasks: Sequence[Row], cells: Sequence[Row]) -> str:
    """Which runs had fewer samples than their budget would have paid for."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        label, budget = _parts(tasks, cell)
        if cell.get("pool_used_up"):
            share = f"{cell['pool_used_up']:,} of {cell['runs']:,} at {_amount(budget)}"
            found.setdefault(share, []).append(label)
    told = "; ".join(f"{share} ({', '.join(labels)})" for share, labels in found.items())
    return f" Runs that ended as no samples were left: {told}." if told else ""


def _parts(tasks: Sequence[Row], row: Row) -> tuple[str, str]:
    """What a row's name tells before its budget, and the budget; one task alone is not named."""
    label, _, budget = row["name"].rpartition(", ")
    if len(tasks) == 1:
        label = label.replace(f"{tasks[0]['name']}, ", "", 1)
    return label, budget


def _accuracy(cell: Row | None) -> str:
    return "-" if cell is None else f"{cell['accuracy_percent']:.1f} % {_interval(cell)}"


def _spent(line: dict[str, Row], budgets: Sequence[str]) -> list[str]:
    cell = line.get(budgets[-1], {})
    spent, cut = cell.get("tokens_of_a_problem"), cell.get("truncated_percent")
    return [
        "-" if spent is None else f"{spent:,.0f} tokens",
        "-" if cut is None else f"{cut:.0f} %",
    ]


def _interval(row: Row) -> str:
    return f"[{row['low']:.1f}, {row['high']:.1f}]"


def _amount(budget: str) -> str:
    found = _AMOUNT.fullmatch(budget)
    return f"{int(found[2]):,} {found[1]}" if found else budget


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page with its tables as the files are now, or leaves it as it is."""
    parser = argparse.ArgumentParser(description="Renews the tables of a page in Markdown.")
    parser.add_argument("page", type=Path)
    parser.add_argument("results", type=Path, help="the folder of the summaries")
    options = parser.parse_args(arguments)
    try:
        page = renewed(options.page.read_text(encoding="utf-8"), options.results)
    except RecordError as error:
        raise SystemExit(str(error)) from None
    options.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

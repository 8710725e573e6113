"""The README is a program: its code runs, its output is true, and its figures were measured."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.meta.tree import ROOT

RESULT = ROOT / "benchmarks" / "results" / "demo.json"
README = (ROOT / "README.md").read_text(encoding="utf-8")
HEAD = (
    "| strategy | accuracy | 95 % interval | tokens | tokens per problem |",
    "|---|---:|---:|---:|---:|",
)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_first_program_prints_what_stands_below_it() -> None:
    """Exactly, on any machine: it runs on the fake engine."""
    program, output = _blocks("python")[0], _blocks("text")[0]

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )

    assert done.stderr == ""
    assert done.stdout == output


def test_the_first_program_fits_on_a_screen() -> None:
    """Twelve lines, blank ones not counted."""
    lines = [line for line in _blocks("python")[0].splitlines() if line]

    assert len(lines) <= 12


def test_the_table_holds_the_figures_of_the_result() -> None:
    """Every figure of the demo comes from `benchmarks/results/demo.json`."""
    if not RESULT.exists():
        pytest.skip("benchmarks/results/demo.json is missing: nothing was measured yet")
    table = README.partition("<!-- demo -->\n")[2].partition("<!-- /demo -->")[0]

    assert table == _table(json.loads(RESULT.read_text(encoding="utf-8"))["rows"])


def test_a_table_is_written_as_the_command_shows_it() -> None:
    """One decimal of a percentage; an upper bound is no result, and says so."""
    row = {
        "name": "the best of 16",
        "oracle": True,
        "num_problems": 24,
        "accuracy": 0.5,
        "ci95_low": 0.314,
        "ci95_high": 0.6861,
        "tokens": 12_345,
    }

    line = _table([row]).splitlines()[-1]

    assert line == "| the best of 16 (upper bound) | 50.0% | 31.4% to 68.6% | 12,345 | 514 |"


def _table(rows: list[dict[str, object]]) -> str:
    return "".join(f"{line}\n" for line in (*HEAD, *map(_row, rows)))


@dataclass(frozen=True)
class Gain:
    """A line of the table of gains: which rows of which file it tells."""

    task: str
    file: str
    strategy: str
    called: str
    tokens: int

    def line(self) -> str:
        rows = json.loads((RESULT.parent / f"{self.file}.json").read_text(encoding="utf-8"))["rows"]
        found = {row["name"].partition(", ")[2]: row for row in rows}
        at = f"tokens={self.tokens}"
        one, own = (found[f"{name}, {at}"] for name in ("one", self.strategy))
        verdict = found[f"{self.strategy} > one, {at}"]
        assert verdict["verdict"] == "better"
        gain = f"{verdict['difference_points']:+.1f} [{verdict['low']:.1f}, {verdict['high']:.1f}]"
        cells = (
            self.task,
            f"{one['accuracy_percent']:.1f} %",
            f"{self.called}, {self.tokens:,} tokens",
            f"{own['accuracy_percent']:.1f} %",
            gain,
        )
        return f"| {' | '.join(cells)} |\n"


GAINS = [
    Gain("GSM8K, Qwen2.5-Coder-0.5B", "proof_gsm8k", "vote", "a vote", 4000),
    Gain(
        "HumanEval, the same",
        "proof_human_eval_tested",
        "tested",
        "what passes the docstring's examples",
        2000,
    ),
    Gain("sums, SmolLM2-135M", "proof_chain_sum", "vote", "a vote", 4000),
]


def test_the_table_of_gains_holds_the_figures_of_the_results() -> None:
    """Each is of a comparison that was named before the run, and came out better."""
    head = (
        "| task, model | one sample | with | comes to | gain in points |\n"
        "|---|---:|---|---:|---:|\n"
    )
    table = README.partition("<!-- gains -->\n")[2].partition("<!-- /gains -->")[0]

    assert table == head + "".join(gain.line() for gain in GAINS)


def _row(row: dict[str, object]) -> str:
    name = f"{row['name']} (upper bound)" if row["oracle"] else row["name"]
    per_problem = float(str(row["tokens"])) / float(str(row["num_problems"]))
    interval = f"{row['ci95_low']:.1%} to {row['ci95_high']:.1%}"
    cells = (name, f"{row['accuracy']:.1%}", interval, f"{row['tokens']:,}", f"{per_problem:,.0f}")
    return f"| {' | '.join(map(str, cells))} |"


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (
            "chart_gsm8k",
            "On the {problems} problems here it is better than one sample, by {points} points for "
            "{times} times the tokens, and cannot be told from a vote of equally many tokens",
        ),
        ("first_chart", "gains {points} points for {times} times the tokens of one sample"),
        ("first_chart", "On [{problems} sums](benchmarks/results/first_chart.json)"),
    ],
)
def test_what_it_brings_is_what_was_measured(file: str, told: str) -> None:
    """The text below the chart tells the figures of its files, rounded."""
    rows = json.loads((RESULT.parent / f"{file}.json").read_text(encoding="utf-8"))["rows"]
    found = {row["name"]: row for row in rows}
    one, same = (found[f"chosen against {name}"] for name in ("one sample", "self-consistency"))
    (chosen,) = (row for name, row in found.items() if name.startswith("chosen: "))
    figures = {
        "problems": chosen["problems"],
        "points": format(one["difference_points"], ".0f"),
        "times": format(chosen["tokens"] / one["tokens_of_the_other"], ".0f"),
    }

    assert told.format(**figures) in " ".join(README.split("## What it brings")[1].split())
    assert (one["verdict"], same["verdict"]) == ("better", "not distinguishable")

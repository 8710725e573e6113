"""`ttc graph`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ttc.text_form import parse

Cli = Callable[..., subprocess.CompletedProcess[str]]


def test_text_is_a_table_and_the_worst_case(run_ttc: Cli) -> None:
    """Parameters that are defaults are left out, and no line is folded."""
    done = run_ttc("graph", "self_consistency(n=16)")

    assert done.returncode == 0
    assert done.stdout == (
        "path      node                            takes        gives\n"
        "0.sample  Sample(n=16, temperature=0.8)   1 open       16 finished\n"
        "1.vote    Vote(stop=CannotBeOvertaken())  16 finished  1 finished\n"
        "\n"
        "worst case: 16 calls, 8,192 output tokens; prompts are not counted\n"
    )


def test_inner_nodes_have_rows_of_their_own(run_ttc: Cli) -> None:
    """By path; verifier calls are bounded as well."""
    rung = "(sample(n=2) | sample(n=1)) >> sequence_probability() >> best()"

    done = run_ttc("graph", f"cascade({rung}, greedy(), accept=confidence(0.9))")

    paths = [line.split()[0] for line in done.stdout.splitlines() if line[:1] == "0"]
    assert paths == [
        "0.cascade",
        "0.cascade/0/0.pool",
        "0.cascade/0/0.pool/0.sample",
        "0.cascade/0/0.pool/1.sample",
        "0.cascade/0/1.verify",
        "0.cascade/0/2.best",
        "0.cascade/1/0.sample",
        "0.cascade/1/1.vote",
    ]
    assert "worst case: 4 calls, 2,048 output tokens, 3 verifier calls;" in done.stdout


@pytest.mark.parametrize("format", ["mermaid", "dot"])
def test_drawings_are_those_of_the_graph(format: str, run_ttc: Cli) -> None:
    """Ready for a file."""
    done = run_ttc("graph", "greedy()", "--format", format)

    assert done.stdout == getattr(parse("greedy()"), format)()


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_the_file_of_a_saved_graph_is_a_strategy(run_ttc: Cli, tmp_path: Path, suffix: str) -> None:
    """Where its text is one."""
    text = "sample(n=4) >> vote()"
    parse(text).save(path := tmp_path / f"plan.{suffix}")

    assert run_ttc("graph", str(path)).stdout == run_ttc("graph", text).stdout


def test_a_file_that_is_not_there_is_told(run_ttc: Cli, tmp_path: Path) -> None:
    """In a line."""
    done = run_ttc("graph", str(tmp_path / "plan.yaml"))

    assert done.returncode != 0
    assert "is no file" in done.stderr

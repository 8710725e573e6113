"""The example programs do what they say, and print the same every time."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _output(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_the_vote_ends_early_and_its_trace_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    """Six of eight calls decide it, and the trace holds every token that was spent."""
    answer, stopped_by, *records, total = _output("vote_on_a_budget.py", capsys)

    assert answer == "answer: 391 (confidence 0.83)"
    assert stopped_by == "stopped by: cannot_be_overtaken"
    spent = [int(record.split()[-2]) for record in records]
    assert len(records) == 7
    assert total == f"{sum(spent)} tokens of 100, 6 calls of 8"


def test_own_parts_compose_with_built_in_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """Each answer is checked once, and the one that passes is chosen."""
    *checks, answer, cost = _output("own_parts.py", capsys)

    assert sorted(checks) == ["381: 0.0", "391: 1.0", "401: 0.0"]
    assert answer == "answer: 391"
    assert cost == "8 calls, 3 checks"


def test_the_cascade_climbs_for_the_hard_problem_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Easy problems cost three calls, the hard one fifteen."""
    lines = _output("many_problems.py", capsys)

    assert lines[:3] == [
        "What is 2 + 2? 4 (1.00; 3 calls, accepted)",
        "What is 17 * 23? 391 (0.83; 15 calls, completed)",
        "What is 3 + 5? 8 (1.00; 3 calls, accepted)",
    ]


def test_branches_of_an_agent_run_python(capsys: pytest.CaptureFixture[str]) -> None:
    """Each keeps its own variables from one cell to the next."""
    assert _output("python_agent.py", capsys) == [
        "answer: 385 (confidence 1.00)",
        "12 turns, 8 calls of tools",
    ]


def test_an_agent_that_reads_is_not_misled_into_an_act(capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused, and the agent goes on."""
    assert _output("retrieval_agent.py", capsys) == [
        "answer: 30",
        "search: ok",
        "send: refused",
        "messages sent: 0",
    ]


def test_an_agent_calls_a_tool_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """Of another process."""
    assert _output("mcp_agent.py", capsys) == ["tools: rate", "answer: 117"]


def test_an_agent_is_served_under_a_name_of_the_operator_s(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A client may ask for it, and for none of its own."""
    assert _output("serve_agent.py", capsys) == [
        "answer: 391",
        "a client's own: strategy_not_allowed",
    ]


def test_every_example_is_tested() -> None:
    """A new one needs a test here."""
    tested = Path(__file__).read_text(encoding="utf-8")

    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tested] == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_prints_the_same_twice(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever runs it sees what the documentation says."""
    assert _output(path.name, capsys) == _output(path.name, capsys)

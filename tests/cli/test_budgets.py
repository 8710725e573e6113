"""The text of a budget, and what a budget that holds no call lacks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ttc.cli.budgets import parse_budget
from ttc.cli.terminal import Fault
from ttc.testing import FakeEngine

Cli = Callable[..., subprocess.CompletedProcess[str]]
Use = Callable[[FakeEngine], FakeEngine]
LIMITS = {
    "tokens": st.integers(0, 10**9),
    "calls": st.integers(0, 10**6),
    "verifier_calls": st.integers(0, 10**6),
    "seconds": st.floats(0, 1e6),
}


@given(limits=st.fixed_dictionaries({}, optional=LIMITS).filter(bool), data=st.data())
def test_a_budget_is_read_back_from_its_text(limits: dict[str, float], data: st.DataObject) -> None:
    """Whatever the order of the names, and with spaces around them."""
    names = data.draw(st.permutations(sorted(limits)))
    space = data.draw(st.sampled_from(["", " "]))
    text = ",".join(f"{space}{name}{space}={space}{limits[name]!r}" for name in names)

    budget = parse_budget(text)

    assert {k: v for k, v in asdict(budget).items() if v is not None} == limits


@given(text=st.text() | st.from_regex(r"(tokens|calls|seconds|x)=[-+.\de]*(,\w*=\S*)?"))
def test_any_text_is_a_budget_or_one_line_of_fault(text: str) -> None:
    """Nothing else comes out of the parser."""
    said = "--budget: nothing"
    try:
        parse_budget(text)
    except Fault as fault:
        said = str(fault)

    assert said.startswith("--budget: ")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' has no ="),
        ("tokens", "'tokens' has no ="),
        ("tokens=5,", "'' has no ="),
        ("token=5", "'token' is no limit"),
        ("tokens=5,calls=1,tokens=6", "tokens comes twice"),
        ("tokens=many", "tokens is a whole number of at least 0, not 'many'"),
        ("tokens=1.5", "tokens is a whole number of at least 0, not '1.5'"),
        ("calls=-1", "calls is a whole number of at least 0, not '-1'"),
        ("seconds=-0.5", "seconds is a number of at least 0, not '-0.5'"),
        ("seconds=nan", "seconds is a number of at least 0, not 'nan'"),
        ("seconds=inf", "seconds is a number of at least 0, not 'inf'"),
    ],
)
def test_a_bad_budget_is_named(text: str, message: str) -> None:
    """The name, the value, and what would be right."""
    with pytest.raises(Fault) as caught:
        parse_budget(text)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    "strategy",
    [
        "greedy()",
        "self_consistency(n=3, max_tokens=7)",
        "sample(n=2, max_tokens=40, at_least=30) >> vote()",
        "sample(max_tokens=40, tail=tail(cue='so the answer is', max_tokens=5)) >> vote()",
    ],
)
def test_a_refused_call_says_the_least_that_it_needs(
    strategy: str, run_ttc: Cli, use_engine: Use
) -> None:
    """With one token less no call is made, and with that many the first one is."""
    engine = use_engine(FakeEngine("The answer is 4."))
    arguments = ("solve", "What is 2 + 2?", "--strategy", strategy, "--budget")
    refused = run_ttc(*arguments, "tokens=3")
    needed = int(re.findall(r"at least (\d+)", refused.stderr)[0])

    below = run_ttc(*arguments, f"tokens={needed - 1}")
    calls_below = engine.calls
    enough = run_ttc(*arguments, f"tokens={needed}")

    assert (refused.returncode, below.returncode, enough.returncode) == (2, 2, 0)
    assert calls_below == 0 < engine.calls


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(limit=st.integers(0, 40))
def test_a_command_spends_no_more_tokens_than_its_budget(
    run_ttc: Cli, use_engine: Use, limit: int
) -> None:
    """A run that had any is told as a result, and one that had none as a fault."""
    engine = use_engine(FakeEngine("The answer is 4."))

    done = run_ttc("solve", "q", "--strategy", "greedy(max_tokens=30)", f"--budget=tokens={limit}")

    assert engine.output_tokens <= limit
    assert (done.returncode == 0) == (engine.calls == 1)

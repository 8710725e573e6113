"""The forms in which tests come, on honest programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sandbox.bench import QUICK, Bench
from ttc.sandbox.extraction import Completion
from ttc.sandbox.forms import Asserts, CheckFunction, GeneratedTests, InProcess, StandardIO

ADD = "def add(a, b): return a + b"


@pytest.fixture(scope="module")
def bench(bench: Bench) -> Bench:
    return bench


def test_a_check_function_gets_the_candidate(bench: Bench) -> None:
    tests = CheckFunction(
        code="def check(candidate):\n    assert candidate(1, 2) == 3\n    assert add(2, 2) == 4",
        entry_point="add",
    )
    execution = bench.execute(ADD, tests)
    assert (execution.verdict, execution.calls, execution.proof) == ("passed", 2, "separate")


def test_helpers_of_the_prompt_run_in_the_judge(bench: Bench) -> None:
    tests = CheckFunction(
        code="def check(candidate):\n    assert helper(candidate(1, 2)) == 6",
        entry_point="add",
        prompt="def helper(x):\n    return 2 * x\n\ndef add(a, b):\n    '''Add.'''\n",
    )
    assert bench.execute(f"{ADD}\ndef helper(x): return 6", tests).passed
    assert not bench.execute("def add(a, b): return 0\ndef helper(x): return 6", tests).passed


def test_asserts_may_use_every_name_of_the_candidate(bench: Bench) -> None:
    program = """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def total(self): return self.a + self.b
def longest(pairs): return max(pair.b - pair.a for pair in pairs)
def count(n):
    yield from range(n)
def fail(): raise KeyError("no")
"""
    asserts = (
        "assert longest([Pair(5, 24), Pair(15, 25)]) == 19",
        "assert Pair(1, 2).total() == 3 and Pair(1, 2).a == 1",
        "assert list(count(3)) == [0, 1, 2]",
        "try:\n    fail()\n    assert False\nexcept KeyError:\n    pass",
    )
    execution = bench.asserts(program, *asserts)
    assert execution.passed, execution.reason


def test_an_argument_that_the_candidate_changes_changes(bench: Bench) -> None:
    program = "def push(a, b, c):\n    a.append(1); b['k'] = 2; c.discard(3)"
    test = "a, b, c = [0], {}, {3}\npush(a, b, c)\nassert (a, b, c) == ([0, 1], {'k': 2}, set())"
    assert bench.asserts(program, test).passed


def test_a_function_can_be_an_argument(bench: Bench) -> None:
    program = "def apply(f, items): return [f(x) for x in items]"
    assert bench.asserts(program, "assert apply(lambda x: x * x, [1, 2]) == [1, 4]").passed


def test_standard_containers_keep_their_types(bench: Bench) -> None:
    program = "from collections import Counter, deque\ndef f(x): return Counter(x), deque(x), 1.0"
    test = "c, d, e = f('aab')\nassert c == {'a': 2, 'b': 1} and list(d) == list('aab')\n"
    assert bench.asserts(program, test + "assert type(e) is float and c.most_common(1)").passed


@pytest.mark.parametrize(
    "tests",
    [
        (),
        ("",),
        ("# only a comment",),
        ("def test_add():\n    assert add(1, 2) == 3",),
        ("assert True",),
        ("assert add(1, 2 == 3",),
        ("import not_there",),
    ],
)
def test_tests_that_say_nothing_are_invalid(bench: Bench, tests: tuple[str, ...]) -> None:
    """SB-11: no call was made, so nothing has passed."""
    execution = bench.execute(ADD, Asserts(asserts=tests))
    assert execution.verdict == "invalid_tests"
    assert execution.reason
    assert execution.calls == 0


def test_output_is_compared_outside(bench: Bench) -> None:
    tests = StandardIO(cases=(("1 2\n", "3\n"), ("5 5\n", "10\n")))
    right = bench.execute("a, b = map(int, input().split())\nprint(a + b)", tests)
    assert (right.verdict, right.results, right.proof) == ("passed", (True, True), "output")
    wrong = bench.execute("print(3)", tests)
    assert (wrong.verdict, wrong.results) == ("failed", (True, False))
    failing = bench.execute("print(3)\nraise ValueError('no')", tests)
    assert (failing.verdict, failing.reason) == ("failed", "ValueError: no")


def test_a_long_input_reaches_a_slow_reader(bench: Bench) -> None:
    text = "x" * (1 << 20)
    tests = StandardIO(cases=((text, str(len(text))),))
    assert bench.execute("import sys\nprint(len(sys.stdin.read()))", tests).passed
    assert bench.execute("print(1 << 20)", tests).passed  # a program that reads nothing


def test_the_main_part_of_a_script_runs_and_that_of_a_module_does_not(bench: Bench) -> None:
    program = f"{ADD}\nif __name__ == '__main__':\n    print('main')\n    raise SystemExit(3)"
    script = bench.execute(program)
    assert (script.verdict, script.output) == ("failed", "main\n")
    assert bench.asserts(program, "assert add(1, 1) == 2").passed


def test_generated_tests_have_a_result_each(bench: Bench) -> None:
    program = "def f(x, y=0):\n    while x == 3: pass\n    return [x + y]"
    tests = GeneratedTests(
        tests=(
            "assert f(1) == [1]",
            "assert f(3) == [3]",
            "assert f(2, y=5) == [7]",
            "assert f(2) == [3]",
            "value = f(4)\nassert value[0] == 4",
            "assert f(",
        ),
        entry_point="f",
    )
    execution = bench.execute(program, tests, replace(QUICK, seconds=1))
    assert execution.results == (True, False, True, False, True, False)
    assert execution.verdict == "timeout"


def test_generated_code_runs_in_a_judge_of_its_own(bench: Bench) -> None:
    tests = GeneratedTests(
        tests=("import builtins\nbuiltins.max = None\nassert f(1) == 1", "assert max([f(1)]) == 1"),
        entry_point="f",
    )
    assert bench.execute("def f(x): return x", tests).results == (True, True)


def test_tests_in_the_candidates_process_say_so(bench: Bench) -> None:
    tests = InProcess(tests=("assert add(1, 2) == 3",))
    execution = bench.execute(ADD, tests)
    assert (execution.verdict, execution.proof) == ("passed", "in_process")
    assert bench.execute("def add(a, b): return 4", tests).verdict == "failed"


def test_a_completion_is_taken_apart_in_the_jail(bench: Bench) -> None:
    completion = Completion(text=f"Sure:\n```python\n{ADD}\n```\n", entry_point="add")
    tests = Asserts(asserts=("assert add(1, 2) == 3",))
    assert bench.run(bench.sandbox.execute(completion, tests, limits=QUICK)).passed


def test_text_that_kills_a_parser_kills_the_run_alone(bench: Bench) -> None:
    completion = Completion(text="-" * 500_000 + "1", entry_point="add")
    tests = Asserts(asserts=("assert add(1, 2) == 3",))
    execution = bench.run(bench.sandbox.execute(completion, tests, limits=QUICK))
    assert execution.verdict in {"failed", "memory"}


def test_a_run_tells_what_it_used(bench: Bench) -> None:
    program = "def spin():\n    for _ in range(3_000_000): pass"
    execution = bench.asserts(program, "assert spin() is None")
    assert execution.call_seconds is not None
    assert execution.cpu_seconds > 0.02
    assert execution.peak_bytes > 1 << 20


def test_runs_repeat_to_the_letter(bench: Bench) -> None:
    program = "import random\nprint(random.random(), hash('x'), {'a', 'b', 'c'})"
    assert bench.execute(program).output == bench.execute(program).output

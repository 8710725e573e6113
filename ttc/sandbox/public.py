"""The public tests of a problem, and the program that a text makes for them.

A problem says in its `metadata` how its `tests` are meant:

- `test_form`: `asserts` (by default), statements that use the program's names; `check`, code that
  defines `check(candidate)`; `stdin`, JSON pairs of input and expected output.
- `entry_point`: the function that is asked for; `check` needs it.
- `code_prompt`: code that the program goes on from; by default the raw `prompt`, if there is one.
"""

from __future__ import annotations

import json

from ttc.errors import VerifierError
from ttc.sandbox.extraction import Completion
from ttc.sandbox.forms import Asserts, CheckFunction, StandardIO, Tests
from ttc.types import Problem

__all__ = ["completion_of", "tests_of"]


def completion_of(problem: Problem, text: str) -> Completion:
    """The program that a model's text holds, as an answer to a problem."""
    return Completion(
        text=text,
        prompt=problem.metadata.get("code_prompt", problem.prompt or ""),
        entry_point=problem.metadata.get("entry_point"),
    )


def tests_of(problem: Problem) -> Tests:
    """The public tests of a problem, in the form that it names.

    Raises:
        VerifierError: it has none, or their form is not one of the three.
    """
    if not problem.tests:
        raise VerifierError(f"the problem {problem.id!r} has no public tests; give it tests=(...)")
    form = problem.metadata.get("test_form", "asserts")
    if form == "asserts":
        return Asserts(asserts=problem.tests)
    if form == "check":
        name = problem.metadata.get("entry_point")
        if not isinstance(name, str):
            raise VerifierError(
                f"the tests of {problem.id!r} have the form `check`, which needs the name of the "
                f"function: metadata={{'entry_point': ...}}, not {name!r}"
            )
        prompt = problem.metadata.get("code_prompt", problem.prompt or "")
        return CheckFunction(code="\n".join(problem.tests), entry_point=name, prompt=prompt)
    if form == "stdin":
        return StandardIO(cases=tuple(_pair(problem, test) for test in problem.tests))
    raise VerifierError(
        f"the tests of {problem.id!r} have the form {form!r}; it is asserts, check or stdin"
    )


def _pair(problem: Problem, test: str) -> tuple[str, str]:
    try:
        given, expected = json.loads(test)
    except ValueError as error:
        raise VerifierError(
            f"a test of {problem.id!r} is no JSON pair of input and output: {test[:100]!r}"
        ) from error
    return str(given), str(expected)

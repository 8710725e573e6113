"""What the judge's process runs: the tests, with the candidate's names bound to proxies.

It is given the nonce, the prompt and the tests, and never loads a line of the candidate. Its
verdict goes to the caller by a socket that the candidate does not have.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType
from typing import Any, NoReturn

from ttc.sandbox import codec
from ttc.sandbox.extraction import program_of
from ttc.sandbox.peer import Gone, Peer

__all__ = ["main", "run_in_process"]


def main(link: int, candidate: int) -> None:
    """Takes the tests from `link`, runs them against the candidate, and writes the verdict."""
    work = codec.receive(link, limit=None)
    peer = Peer(candidate, _nothing, calls_only=True)
    try:
        verdict = _judged(work, peer)
    except Gone:
        verdict = {}
    if peer.gone is not None:  # whatever the tests made of it
        verdict |= {"verdict": "failed", "reason": str(peer.gone), "has_ended": peer.has_ended}
    _tell(link, {**verdict, "calls": peer.num_calls, "call_seconds": peer.seconds, **_nonce(work)})


def run_in_process(link: int) -> None:
    """Runs program and tests in one interpreter; the program can forge the verdict."""
    work = codec.receive(link, limit=None)
    names: dict[str, Any] = {"__name__": "candidate"}
    verdict: dict[str, Any] = {"verdict": "passed", "calls": 1, **_nonce(work)}
    try:
        exec(compile(program_of(work), "<candidate>", "exec"), names)
        for test in work["tests"]:
            exec(compile(test, "<tests>", "exec"), names)
    except BaseException as error:  # noqa: BLE001 - tests and program may raise anything
        verdict |= {"verdict": "failed", "reason": _told(error)}
    _tell(link, verdict)


def _nonce(work: Mapping[str, Any]) -> dict[str, Any]:
    return {"nonce": work["nonce"]}


def _tell(link: int, verdict: Mapping[str, Any]) -> NoReturn:
    codec.send(link, verdict)
    os._exit(0)


def _nothing(name: str) -> NoReturn:
    raise NameError(f"name {name!r} is not for the candidate")


def _judged(work: Mapping[str, Any], peer: Peer) -> dict[str, Any]:
    loaded = peer.next_message()
    if "loaded" not in loaded:
        name = next(iter(loaded.get("raised", [])), "an error")
        return {"verdict": "failed", "reason": f"loading: {name}: {loaded.get('text', '')}"[:1000]}
    if "cases" in work:
        return _run_cases(work["cases"], work["entry_point"], peer)
    return _run_tests(work, peer)


def _run_tests(work: Mapping[str, Any], peer: Peer) -> dict[str, Any]:
    """Runs the pieces of test code in one namespace; the first that raises decides."""
    names: dict[str, Any] = {"__name__": "judge"}
    try:
        exec(compile(work["prompt"], "<prompt>", "exec"), names)
        code = [compile(test, "<tests>", "exec") for test in work["tests"]]
    except Exception as error:  # noqa: BLE001 - a fault of the tests, not of the candidate
        return {"verdict": "invalid_tests", "reason": _told(error)}
    entry_point = work["entry_point"]
    for name in {entry_point, *_unknown(code, names)} - {None}:
        names[name] = peer.named(name)
    passed = 0
    try:
        for test in code:
            exec(test, names)
            passed += 1
        if work["check"]:
            names["check"](names[entry_point])
    except Gone:
        raise
    except BaseException as error:  # noqa: BLE001 - tests may raise anything
        verdict = "failed" if peer.num_calls else "invalid_tests"
        return {"verdict": verdict, "reason": _told(error), "passed": passed}
    if not peer.num_calls:
        return {"verdict": "invalid_tests", "reason": "the tests never called the candidate"}
    return {"verdict": "passed", "passed": passed}


def _run_cases(cases: Sequence[Any], entry_point: str, peer: Peer) -> dict[str, Any]:
    """Calls the candidate with given values and compares; each case has a result of its own."""
    call, results = peer.named(entry_point), []
    for given, named, expected in cases:
        arguments = [codec.decode(form) for form in given]
        by_name = {name: codec.decode(form) for name, form in named.items()}
        try:
            results.append(bool(call(*arguments, **by_name) == codec.decode(expected)))
        except Gone:
            break  # the results tell how far it came
        except Exception:  # noqa: BLE001 - the candidate raised, or gave what does not compare
            results.append(False)
    verdict = "passed" if results and all(results) and len(results) == len(cases) else "failed"
    return {"verdict": verdict, "passed": sum(results), "results": results}


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:1000]
    except Exception:  # noqa: BLE001 - a text of its own making
        return type(error).__name__


def _unknown(code: Iterable[CodeType], names: Mapping[str, Any]) -> set[str]:
    """Names that the tests use and nobody but the candidate can have defined."""
    used: set[str] = set()
    waiting = list(code)
    while waiting:
        one = waiting.pop()
        used.update(one.co_names)
        waiting += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
    return {name for name in used if name not in names and not hasattr(builtins, name)}

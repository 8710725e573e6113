"""Which sources of the vLLM adapter have kept the contract, as its last whole run tells.

vLLM is too big for every run of the gate, so `make test-vllm` writes down what it has passed, and
the gate fails where the sources are no longer those.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

__all__ = ["RECORD", "record", "sources"]

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("passed.json")
_FILES = (
    *("engine/vllm/*.py", "engine/texts.py", "engine/writing.py", "engine/thread.py"),
    *("ttc/testing/engine_checks.py", "tests/vllm/test_vllm.py"),
)


def sources() -> dict[str, str]:
    """The digests of the adapter, of what it is made of, and of what it has to pass."""
    files = sorted(path for pattern in _FILES for path in ROOT.glob(pattern))
    return {str(path.relative_to(ROOT)): sha256(path.read_bytes()).hexdigest() for path in files}


def record(passed: dict[str, str], *, vllm: str, tests: int) -> None:
    """Writes down that sources have passed.

    Args:
        passed: their digests, as they were when the tests began.
        vllm: the version that they ran on.
        tests: how many tests that were.
    """
    told = {"vllm": vllm, "tests": tests, "sources": passed}
    RECORD.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

"""Acts happen at most once, also where the process is killed in the middle of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.acting import run
from ttc.tool_call import UNKNOWN_EFFECT

if sys.platform == "win32":
    pytest.skip("kill -9", allow_module_level=True)


@pytest.mark.parametrize(
    ("mode", "lines", "told"),
    [("before", 0, UNKNOWN_EFFECT), ("after", 1, UNKNOWN_EFFECT), ("told", 1, "launched x")],
)
def test_an_act_happens_at_most_once_through_a_kill(
    tmp_path: Path, mode: str, lines: int, told: str
) -> None:
    """Of three branches that want it; an intent without a result is never made again."""
    journal, world = tmp_path / "journal", tmp_path / "world"
    world.touch()
    arguments = [sys.executable, "-m", "tests.tools.acting", mode, str(journal), str(world)]
    assert subprocess.run(arguments, check=False).returncode == -9

    outcome = run(str(journal), str(world))

    assert world.read_text() == "x\n" * lines
    assert outcome.answer == "5"
    assert outcome.candidate is not None
    texts = [segment.text for segment in outcome.candidate.branch.lineage()]
    assert any(told in text for text in texts)
    again = run(str(journal), str(world))
    assert world.read_text() == "x\n" * lines
    assert again.answer == outcome.answer

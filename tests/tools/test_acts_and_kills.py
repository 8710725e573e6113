"""Acts happen at most once, also where the process is killed in the middle of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.acting import MODES, run
from ttc.tool_call import UNKNOWN_EFFECT

if sys.platform == "win32":
    pytest.skip("kill -9", allow_module_level=True)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs were killed."""
    folder = tmp_path_factory.mktemp("killed")
    for mode in MODES:
        (folder / f"{mode}.world").touch()
    arguments = [sys.executable, "-m", "tests.tools.acting", str(folder)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["-9"] * len(MODES)
    return folder


@pytest.mark.parametrize(
    ("mode", "lines", "told"),
    [("before", 0, UNKNOWN_EFFECT), ("after", 1, UNKNOWN_EFFECT), ("told", 1, "launched x")],
)
def test_an_act_happens_at_most_once_through_a_kill(
    killed: Path, mode: str, lines: int, told: str
) -> None:
    """Of three branches that want it; an intent without a result is never made again."""
    journal, world = killed / f"{mode}.journal", killed / f"{mode}.world"
    outcome = run(str(journal), str(world))

    assert world.read_text() == "x\n" * lines
    assert outcome.answer == "5"
    assert outcome.candidate is not None
    texts = [segment.text for segment in outcome.candidate.branch.lineage()]
    assert any(told in text for text in texts)
    again = run(str(journal), str(world))
    assert world.read_text() == "x\n" * lines
    assert again.answer == outcome.answer

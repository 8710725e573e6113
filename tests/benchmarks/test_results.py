"""Result files."""

import json
import math
import platform
from pathlib import Path

import pytest

from ttc.benchmarks.results import commit, machine, write_result


def _write(path: Path, value: float = 0.5) -> dict[str, object]:
    command = ["/usr/bin/python3", "bench.py", "--model=/home/me/m.gguf", "--n", "4"]
    write_result(path, command=command, rows=[{"name": "greedy", "accuracy": value}], seed=7)
    result: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return result


def test_a_result_says_what_was_measured_and_how(tmp_path: Path) -> None:
    """Everything that is needed to run it again."""
    result = _write(tmp_path / "result.json")

    assert set(result) == {
        *("schema_version", "date", "command", "seed", "commit", "machine", "rows"),
    }
    assert result["rows"] == [{"name": "greedy", "accuracy": 0.5}]
    assert result["seed"] == 7


def test_a_result_names_no_folder(tmp_path: Path) -> None:
    """Of an absolute path only the file's name stays."""
    result = _write(tmp_path / "result.json")

    assert result["command"] == "python3 bench.py --model=m.gguf --n 4"


def test_a_machine_is_told_by_what_a_measurement_depends_on() -> None:
    """Processor, cores, memory, system and versions; neither host nor user."""
    assert set(machine()) == {"cpu", "vectors", "cores", "ram_gib", "os", "python", "torch"}
    assert machine()["python"] == platform.python_version()


def test_a_number_that_is_no_json_leaves_no_file(tmp_path: Path) -> None:
    """VO-07: neither NaN nor half a file is written."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        _write(tmp_path / "result.json", math.nan)

    assert list(tmp_path.iterdir()) == []


def test_the_commit_is_a_hash_or_unknown() -> None:
    """With a mark if files differ from it."""
    found = commit()

    assert found is None or len(found.removesuffix("-dirty")) == 40

"""The benchmark for GPUs, on a machine without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ttc.benchmarks.perf import gpu


def test_a_dry_run_goes_through_every_part_and_measures_nothing(tmp_path: Path) -> None:
    """Its rows say so; what needs no clock is told all the same."""
    path = tmp_path / "gpu.json"

    gpu.main(["--dry-run", "--json", str(path)])

    rows = json.loads(path.read_text())["rows"]
    assert {row["part"] for row in rows} == set(gpu.PARTS)
    assert {row["device"] for row in rows} == {"none: a dry run"}
    measured = ("ms", "tb_s", "tflop_s", "tokens_s", "fraction_of_copy", "untied_over_tied")
    assert all(row.get(name) is None for row in rows for name in measured)
    assert [row["error"] for row in rows if "error" in row] == [0.0] * 14
    assert all(row["invariant"] for row in rows if "invariant" in row)


def test_without_a_gpu_it_ends_at_once_and_says_what_to_do() -> None:
    """Or figures of a processor would be taken for those of a GPU."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here, which is what this test needs to be missing")

    with pytest.raises(SystemExit, match="no GPU that PyTorch can use; --dry-run"):
        gpu.main([])

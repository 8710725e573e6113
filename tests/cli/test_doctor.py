"""`ttc doctor`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Never

import pytest

from ttc.engine.local.native.build import load_library
from ttc.registry import DISTRIBUTION

Cli = Callable[..., subprocess.CompletedProcess[str]]


def test_the_doctor_tells_everything(run_ttc: Cli) -> None:
    """A line for each thing that matters."""
    done = run_ttc("doctor")

    assert (done.returncode, done.stderr) == (0, "")
    for name in (
        *("ttc", "python", "platform", "cores", "memory", "wait policy", "torch", "kernels"),
        *("grammars", "sandbox", "pip", "TTC_HOME"),
        *("extra local", "extra eval", "model smollm2-135m"),
    ):
        assert f"\n{name} " in f"\n{done.stdout}"
    assert "could not be found out" not in done.stdout
    assert "OMP_WAIT_POLICY=" in done.stdout


def test_the_doctor_hints_at_what_to_do(
    run_ttc: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A model that is not on disk, an extra that is not installed."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    monkeypatch.setattr("ttc.cli.doctor._is_installed", lambda name: name != "torch")

    out = run_ttc("doctor").stdout

    assert "not on disk; `ttc pull smollm2-135m`" in out
    assert f'missing torch; pip install "{DISTRIBUTION}[local]"' in out


def test_the_doctor_tells_whether_the_kernels_are_built(
    run_ttc: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Which ones, by which compiler; looking builds none."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "cc -g0")

    def line() -> str:
        return next(x for x in run_ttc("doctor").stdout.splitlines() if x.startswith("kernels "))

    before = line()
    load_library()

    assert re.search(r" (AVX-512 VNNI|AVX2|portable), not built yet,.* compiler cc -g0$", before)
    assert ", built, compiler cc -g0" in line()


def test_the_doctor_tells_what_a_missing_compiler_costs(
    run_ttc: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And which name was looked for."""
    monkeypatch.setenv("CC", "no-such-compiler")

    out = run_ttc("doctor").stdout

    assert "none, so models compute in fp32" in out
    assert "'no-such-compiler', which CC names" in out


def test_the_doctor_never_fails(run_ttc: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that does says so itself, in its place."""

    def broken(*_: object) -> Never:
        raise OSError("broken\nbadly")

    for name in ("room", "version", "metadata", "find_spec", "_read"):
        monkeypatch.setattr(f"ttc.cli.doctor.{name}", broken)

    done = run_ttc("doctor")

    assert done.returncode == 0
    assert "could not be found out: OSError: broken badly" in done.stdout

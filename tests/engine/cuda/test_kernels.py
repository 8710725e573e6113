"""The kernels in Triton, proved without a GPU: each proof in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    find_spec("triton") is None,
    reason="Triton is missing, so no kernel is proved here; install the extra `cuda`",
)


def run(file: str) -> None:
    """Runs the tests of a file; what they say is what is told where one fails.

    What Triton has compiled before it finds again, by kernel, target, options and compiler.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file)],
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.timeout(600)
def test_every_kernel_computes_what_pytorch_does_in_the_interpreter() -> None:
    """Also that a row's bits do not depend on its company, where the hardware would allow it."""
    run("interpreted.py")


@pytest.mark.timeout(600)
def test_every_kernel_compiles_for_three_generations_without_spills() -> None:
    """With the instructions of their tensor cores; `make kernels` compiles every variant."""
    run("compiled.py")


def test_nothing_for_gpus_is_imported_by_an_engine_on_the_cpu() -> None:
    """Neither Triton nor the modules that would launch its kernels."""
    program = (
        "import sys, ttc.engine.local.engine, ttc.engine.local.source\n"
        "wrong = [m for m in sys.modules if m.startswith(('triton', 'ttc.engine.local.cuda'))]\n"
        "print(wrong)"
    )
    done = _python(program)

    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_pytorch_computes_with_a_warning_where_triton_is_missing() -> None:
    """The same steps; the command that installs it is told."""
    program = (
        "import sys, torch\n"
        "sys.modules['triton'] = None\n"
        "import importlib.util\n"
        "importlib.util.find_spec = lambda name: None\n"
        "from ttc.engine.local.cuda import place\n"
        "place.find_spec = importlib.util.find_spec\n"
        "ops = place._ops(None, 'bf16', torch.bfloat16, torch.device('cpu'))\n"
        "sys.exit(type(ops).__name__ != 'TorchOps')"
    )
    done = _python(program)

    assert done.returncode == 0
    assert "Triton is not installed; pip install" in done.stderr


def _python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=110
    )

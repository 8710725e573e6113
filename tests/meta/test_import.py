"""`import ttc` is quick and light."""

import json
import subprocess
import sys

MAX_SECONDS = 0.3
HEAVY = ("torch", "numpy", "networkx", "pydantic", "typer", "rich", "tokenizers", "gguf", "jinja2")
ROOMS = ("ttc.strategies", "ttc.verifiers", "ttc.engine", "ttc.benchmarks", "ttc.cli")

PROGRAM = """
import json, sys, time
started = time.perf_counter()
import ttc
print(json.dumps([time.perf_counter() - started, sorted(sys.modules)]))
"""


def _imported() -> tuple[float, set[str]]:
    """How long `import ttc` takes in a new interpreter, and what it loads."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    seconds, modules = json.loads(done.stdout)
    return seconds, set(modules)


def test_importing_ttc_takes_less_than_three_tenths_of_a_second() -> None:
    """The best of five, so that a busy machine is not taken for a slow import."""
    assert min(_imported()[0] for _ in range(5)) < MAX_SECONDS


def test_importing_ttc_loads_no_heavy_package_and_no_room() -> None:
    """Each is loaded by whoever needs it."""
    _, modules = _imported()

    assert [name for name in (*HEAVY, *ROOMS) if name in modules] == []


def test_the_sandbox_can_be_imported_where_there_is_no_jail() -> None:
    """As on Windows, so that `ttc doctor` and the verifiers load there."""
    program = (
        "import sys; sys.modules.update(resource=None, fcntl=None)\n"
        "import ttc.verifiers, ttc.program_call, ttc.cli.doctor"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

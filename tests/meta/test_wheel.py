"""What is shipped: the wheel, built out of the sdist, holds the tree and one top-level name."""

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.meta.tree import ROOMS, ROOT, library

BUILT = "ttc/engine/local/native/installed/"
FIRST_USE = """
import json
from ttc.engine.local.native import build, compiler
from ttc.errors import EngineError

told = {"file": build.__file__, "library": build.load_library()._name, "doctor": build.describe()}
compiler.processor = lambda: "flags: of another processor"
try:
    build.load_library()
except EngineError as error:
    told["elsewhere"] = str(error)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel of a copy of the tree, so that nothing old lies in its way."""
    copy = tmp_path_factory.mktemp("wheel") / "ttc"
    copy.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("ttc", *ROOMS, "tests"):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    return zipfile.ZipFile(next((copy / "dist").glob("*.whl")))


def _code(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_every_module_of_the_tree(wheel: zipfile.ZipFile) -> None:
    """A sub-package that pyproject.toml does not list would be missing while all tests pass."""
    modules = {source.module.replace(".", "/") for source in library()}
    shipped = {name.removesuffix(".py").removesuffix("/__init__") for name in _code(wheel)}

    assert modules - shipped == set(), "list its package in pyproject.toml"


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    """No tests, no results, no benchmarks of the engine, and no room under its bare name."""
    modules = {source.module.replace(".", "/") for source in library()}
    extra = {
        name
        for name in _code(wheel)
        if name.endswith(".py")
        and name.removesuffix(".py").removesuffix("/__init__") not in modules
    }

    assert extra == set()
    kernels = {f"ttc/{path.relative_to(ROOT)}" for path in (ROOT / "engine").rglob("*.[ch]")}
    page = {f"ttc/view/assets/{path.name}" for path in (ROOT / "ttc/view/assets").iterdir()}
    others = {name for name in _code(wheel) if not name.endswith(".py")}
    built = {name for name in others if name.startswith(BUILT)}
    assert others - built == {"ttc/py.typed", *kernels, *page}
    assert sorted(Path(name).suffix for name in built) == [".json", ".so"]


def test_the_wheel_has_one_top_level_name(wheel: zipfile.ZipFile) -> None:
    """Others own `strategies`, `verifiers`, `engine` and `benchmarks`."""
    (listed,) = (name for name in wheel.namelist() if name.endswith("top_level.txt"))

    assert wheel.read(listed).decode().split() == ["ttc"]
    assert {name.partition("/")[0] for name in _code(wheel)} == {"ttc"}


def test_the_wheel_ships_the_licence_and_the_command(wheel: zipfile.ZipFile) -> None:
    """Both are found by whoever installs it."""
    names = wheel.namelist()
    (entries,) = (name for name in names if name.endswith("entry_points.txt"))

    assert any(name.endswith("/LICENSE") for name in names)
    assert "ttc = ttc.cli:main" in wheel.read(entries).decode()


@pytest.fixture(scope="module")
def first_use(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the kernels say where the wheel is installed and there is no compiler."""
    folder = tmp_path_factory.mktemp("installed")
    site, pip = folder / "site", [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "--no-compile", "--target", str(site), str(wheel.filename)],
        check=True,
        capture_output=True,
    )
    own = {"PYTHONPATH": str(site), "PATH": str(folder), "TTC_HOME": str(folder / "home")}
    environment = {name: os.environ[name] for name in os.environ.keys() - {"CC"}} | own
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, str] = json.loads(done.stdout)
    return told | {"site": str(site), "home": str((folder / "home").exists())}


def test_what_is_installed_needs_no_compiler_on_such_a_processor(
    first_use: dict[str, str],
) -> None:
    """The library that came with it is loaded, and none is kept elsewhere."""
    assert first_use["file"].startswith(first_use["site"])
    assert first_use["library"].startswith(f"{first_use['site']}/{BUILT}")
    assert ", built at installation, compiler " in first_use["doctor"]
    assert first_use["home"] == "False"


def test_what_was_built_for_another_processor_is_not_loaded(first_use: dict[str, str]) -> None:
    """It might hold instructions that this one has not; a library is built here, by a compiler."""
    assert first_use["elsewhere"].startswith("there is no C compiler")


def test_the_wheel_is_for_this_system_and_any_python(wheel: zipfile.ZipFile) -> None:
    """As its kernels are; they know nothing of Python."""
    assert f"-py3-none-{platform.system().lower()}_" in str(wheel.filename)

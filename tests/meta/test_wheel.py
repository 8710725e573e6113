"""What is shipped: the wheel, built out of the sdist, holds the tree and one top-level name."""

import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.meta.tree import ROOMS, ROOT, library


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel of a copy of the tree, so that nothing old lies in its way."""
    copy = tmp_path_factory.mktemp("wheel") / "ttc"
    copy.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("ttc", *ROOMS, "tests"):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
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
    assert others == {"ttc/py.typed", *kernels, *page}


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

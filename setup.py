"""Puts the kernels into a wheel, built for processors such as this one; all else is in pyproject.

Where there is no C compiler that can build them, or `CC` names one that is not there, the wheel has
none and is for any machine: the first model that is loaded builds them there. So does it where the
processor can do something else than that on which the wheel was made.
"""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

NATIVE = Path("engine", "local", "native")


def kernels_compiler() -> Any:
    """The module that compiles kernels. The package it is from cannot be imported here."""
    path = Path(__file__).parent / NATIVE / "compiler.py"
    spec = importlib.util.spec_from_file_location("kernels_compiler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildPy(build_py):
    """Copies the package, and adds the kernels."""

    has_kernels = False

    def run(self) -> None:
        """Whoever works on the project itself has kernels built when they change."""
        super().run()
        if not self.editable_mode:
            self.has_kernels = self._add_kernels(Path(self.build_lib, "ttc", NATIVE, "installed"))

    def _add_kernels(self, folder: Path) -> bool:
        kernels = kernels_compiler()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            command = kernels.find_compiler()
            notes = {
                "compiler": kernels.version_of(command),
                "kernels": kernels.kernel_set(command),
            }
            name = kernels.library_name(notes["compiler"], kernels.OPTIONS, "step")
            kernels.compile_library(command, kernels.OPTIONS, "step", folder / name)
        except kernels.CompilerError as error:
            folder.rmdir()
            self.warn(f"the wheel holds no kernels: {error}")
            return False
        (folder / "kernels.json").write_text(json.dumps(notes), encoding="utf-8")
        return True


class Wheel(bdist_wheel):
    """A wheel with kernels is for one system and any Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """The wheel's tags."""
        self.plat_name_supplied |= self.get_finalized_command("build_py").has_kernels
        return super().get_tag()


setup(cmdclass={"build_py": BuildPy, "bdist_wheel": Wheel})

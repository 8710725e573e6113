"""Every model that there is: the built-in ones, and all that lie on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ttc.engine.local.hub.details import Details, read_details
from ttc.engine.local.hub.files import parts
from ttc.engine.local.hub.models import MODELS, hub_folder, models_folder, pulled, taken_in
from ttc.errors import ModelFileError

__all__ = ["Entry", "catalog"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model that a name finds, or would find if it were pulled."""

    name: str
    origin: str
    """`built-in`, `taken in` or `hub`."""
    details: Details
    path: Path | None
    """What the engine opens; `None` where it is not on disk."""
    num_bytes: int | None
    """The size on disk."""
    fault: str | None = None
    """Why it cannot be used, where it cannot."""


def catalog() -> Iterator[Entry]:
    """The built-in models, those taken in and those of the hub; reads headers, and never fails."""
    for name, recipe in MODELS.items():
        path = models_folder() / recipe.file
        if path.is_file():
            yield _entry(name, "built-in", path, [path])
        else:
            yield Entry(
                name=name, origin="built-in", details=recipe.details, path=None, num_bytes=None
            )
    for name, path in taken_in().items():
        inside = path.iterdir() if path.is_dir() else map(path.with_name, parts(path.name))
        yield _entry(name, "taken in", path, inside)
    for name, record in pulled().items():
        folder = record.folder(hub_folder())
        yield _entry(name, "hub", record.path(hub_folder()), map(folder.joinpath, record.files))


def _entry(name: str, origin: str, path: Path, files: Iterable[Path]) -> Entry:
    fault = None
    try:
        details = read_details(path)
    except (ModelFileError, OSError) as error:
        details, fault = Details(), str(error)
    size = sum(file.stat().st_size for file in files if file.is_file())
    return Entry(name=name, origin=origin, details=details, path=path, num_bytes=size, fault=fault)

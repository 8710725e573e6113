"""Sources: where the file of a data set lies. A local folder, an installed package, a hub.

The first that has it wins, in this order, so that nothing is fetched that is there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ttc.errors import RecordError
from ttc.registry import install_hint

__all__ = ["Found", "HubFile", "Source", "fetched", "locate"]


class HubFile(NamedTuple):
    """A file of a data set on a hub."""

    repo: str
    path: str
    revision: str = "main"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a data set may lie."""

    name: str
    """The name of its file in a local folder."""
    package: tuple[str, str] | None = None
    """A package, and the file's place in it."""
    hub: HubFile | None = None


class Found(NamedTuple):
    """A file, and in words where it comes from; never a folder of this machine."""

    path: Path
    told: str


def locate(source: Source, folders: Sequence[Path]) -> Found:
    """The file of a data set.

    Raises:
        RecordError: it is nowhere; the message says where it was looked for.
    """
    for folder in folders:
        path = folder / source.name
        if path.is_file():
            return Found(path, f"the file {source.name}")
    if source.package is not None:
        found = _in_package(*source.package)
        if found is not None:
            return found
    looked = ", ".join(map(str, folders)) or "no folder"
    if source.hub is not None:
        return fetched(source.hub, f"{source.name} was looked for in {looked}, and ")
    raise RecordError(
        f"{source.name} lies in none of {looked}, and no package and no hub is known to have it; "
        "put it there, or name its folder by --data"
    )


def _in_package(package: str, place: str) -> Found | None:
    try:
        path = Path(str(files(package) / place))
    except ModuleNotFoundError:
        return None
    return Found(path, f"the package {package}") if path.is_file() else None


def fetched(wanted: HubFile, looked: str = "") -> Found:
    """A file of a hub.

    Args:
        wanted: the file.
        looked: what else was tried, which an error tells.

    Raises:
        RecordError: it cannot be fetched.
    """
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ModuleNotFoundError as error:
        raise RecordError(
            f"{looked}{wanted.repo} is fetched by {error.name}, which is missing: "
            f"{install_hint('local')}"
        ) from error
    try:
        path = hf_hub_download(
            wanted.repo, wanted.path, repo_type="dataset", revision=wanted.revision
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise RecordError(
            f"{looked}{wanted.path} of the data set {wanted.repo} cannot be fetched: "
            f"{' '.join(str(error).split())}; put the file into a folder and name that by --data"
        ) from error
    return Found(Path(path), f"the data set {wanted.repo} at {wanted.revision}")

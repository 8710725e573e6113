"""Models of a hub: how one is named, which of its files are fetched, and what has been pulled.

    org/name                    the branch `main`
    org/name@REVISION           a branch, a tag or a commit
    org/name:FILE.gguf          one GGUF file of several; of a split one, any part
    org/name@REVISION:FILE.gguf

A pull leaves the files in a folder of their commit and then, as its last step, a record that
names them: what has no record is not there. Knows no network; `client` does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from ttc.engine.local.hub.files import check_name, folder_files, parts
from ttc.errors import ModelFileError

__all__ = [
    "HubId",
    "Record",
    "choose",
    "find_pulled",
    "forget",
    "records",
    "repo_folder",
    "write_record",
]

MAIN = "main"
_MOST_LETTERS = 96
_PIECE = r"[A-Za-z0-9_](?:[A-Za-z0-9_.]|-(?!-))*"
_ID = re.compile(rf"({_PIECE}/{_PIECE})(?:@([^:\s]+))?(?::(\S.*\.gguf))?")


@dataclass(frozen=True, kw_only=True)
class HubId:
    """What names a model of a hub."""

    repo: str
    revision: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """The name in a text; `None` where there is none."""
        found = _ID.fullmatch(text)
        if found is None or not text.isprintable():
            return None
        repo, revision, file = found.groups()
        if repo.endswith(".gguf") or len(repo) > _MOST_LETTERS:  # the path of a file, or no id
            return None
        return cls(repo=repo, revision=revision, file=file)

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        return self.repo + revision + ("" if self.file is None else f":{self.file}")


@dataclass(frozen=True, kw_only=True)
class Record:
    """A model that has been pulled."""

    repo: str
    revision: str
    """As it was asked for."""
    commit: str
    file: str | None
    """The GGUF file, or the first part of a split one; `None` for a folder."""
    files: Mapping[str, str]
    """The name of every file, and its digest."""

    @property
    def name(self) -> str:
        """The name that finds it."""
        revision = None if self.revision == MAIN else self.revision
        return str(HubId(repo=self.repo, revision=revision, file=self.file))

    def folder(self, hub: Path) -> Path:
        """Where its files lie."""
        return repo_folder(hub, self.repo) / self.commit

    def path(self, hub: Path) -> Path:
        """What the engine opens."""
        return self.folder(hub) / self.file if self.file else self.folder(hub)

    def answers(self, wanted: HubId) -> bool:
        """Whether it is what is wanted, where only the repository must be named."""
        is_revision = wanted.revision in (None, self.revision, self.commit)
        if wanted.repo != self.repo or not is_revision:
            return False
        return wanted.file is None or _names(self.file, wanted.file)


def _names(file: str | None, wanted: str) -> bool:
    """Whether a file, by its first part, is what is wanted: by its path, or its name alone."""
    first = parts(wanted)[0]
    return file is not None and first in (file, file.rpartition("/")[2])


def choose(wanted: HubId, names: Collection[str]) -> list[str]:
    """The files of a repository that make the wanted model; of a GGUF file the first part first.

    Args:
        wanted: what was asked for.
        names: all files of the repository.

    Raises:
        ModelFileError: there is no model, or there are several, or the name of a file is unsafe.
    """
    files = [name for name in names if name.endswith(".gguf")]
    firsts = sorted({parts(name)[0] for name in files})
    if not firsts and wanted.file is None:
        chosen = folder_files(names, wanted.repo)
    else:
        chosen = parts(_one(wanted, firsts))
    for name in chosen:
        check_name(name, wanted.repo)
        if name not in names:
            raise ModelFileError(f"{wanted.repo} lacks {name}, a part of its split file")
    return chosen


def _one(wanted: HubId, firsts: list[str]) -> str:
    """The one GGUF file that is wanted."""
    found = [first for first in firsts if first == wanted.file] or [
        first for first in firsts if wanted.file is None or _names(first, wanted.file)
    ]
    if len(found) == 1:
        return found[0]
    if not firsts:
        raise ModelFileError(f"{wanted.repo} holds no GGUF file; pull {wanted.repo} without :FILE")
    how = f"{len(found)} files that are" if found else "no file"
    what = f"{how} {wanted.file!r}" if wanted.file else f"{len(firsts)} GGUF files"
    example = HubId(repo=wanted.repo, revision=wanted.revision, file=firsts[0])
    raise ModelFileError(
        f"{wanted.repo} holds {what}; choose one, as in `ttc pull {example}`, of "
        + ", ".join(found or firsts)
    )


def repo_folder(hub: Path, repo: str) -> Path:
    """Where everything of a repository lies."""
    return hub / repo.replace("/", "--")


def records(hub: Path, repo: str = "*/*") -> Iterator[Record]:
    """What has been pulled and is still there, of one repository or of all, by name."""
    for path in sorted(hub.glob(f"{repo_folder(hub, repo).name}/*.json")):
        record = _read(path)
        if record and all((record.folder(hub) / name).is_file() for name in record.files):
            yield record


def _read(path: Path) -> Record | None:
    try:
        values = json.loads(path.read_bytes())
        del values["schema_version"]
        return Record(**values)
    except (OSError, ValueError, TypeError, KeyError):
        return None  # damaged: to pull again mends it


def write_record(hub: Path, record: Record) -> None:
    """Makes a model that is in its place known, and drops commits that nothing names any more."""
    target = _record_file(hub, record)
    staged = target.with_name(f".{target.stem}")
    staged.write_text(json.dumps({"schema_version": 1, **asdict(record)}), encoding="utf-8")
    os.replace(staged, target)
    _drop_unnamed(hub, record.repo)


def forget(hub: Path, record: Record) -> None:
    """Makes a model unknown, and drops its files unless another name of it is known."""
    _record_file(hub, record).unlink()
    _drop_unnamed(hub, record.repo)


def _record_file(hub: Path, record: Record) -> Path:
    key = quote(f"{record.revision}:{record.file or ''}", safe="")
    return repo_folder(hub, record.repo) / f"{key}.json"


def _drop_unnamed(hub: Path, repo: str) -> None:
    """Drops commits and files that nothing names."""
    folder = repo_folder(hub, repo)
    kept: dict[str, set[str]] = {}
    for other in records(hub, repo):
        kept.setdefault(other.commit, set()).update(other.files)
    for commit in folder.iterdir():
        if not commit.is_dir() or commit.name.startswith("."):
            continue
        if commit.name not in kept:
            shutil.rmtree(commit, ignore_errors=True)
            continue
        for file in commit.rglob("*"):
            if file.is_file() and file.relative_to(commit).as_posix() not in kept[commit.name]:
                file.unlink()


def find_pulled(wanted: HubId, hub: Path) -> Path | None:
    """Where a pulled model lies; the branch `main` comes before other revisions.

    Raises:
        ModelFileError: several answer to the name.
    """
    found = [record for record in records(hub, wanted.repo) if record.answers(wanted)]
    found = [record for record in found if record.revision == (wanted.revision or MAIN)] or found
    paths = {record.path(hub): record.name for record in found}
    if len(paths) > 1:
        names = ", ".join(paths.values())
        raise ModelFileError(f"{str(wanted)!r} is pulled more than once; name one of {names}")
    return next(iter(paths), None)

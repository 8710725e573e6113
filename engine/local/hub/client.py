"""Fetches models from a hub, through huggingface_hub's client.

Every file is fetched from the commit that the revision stands for, into a file that is named by
its digest; so what an interruption left is gone on with, and what comes is checked. Nothing is
unpickled or run. The library reads some settings when it is imported, so ttc passes its own.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import constants, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RevisionNotFoundError,
)
from huggingface_hub.utils import WeakFileLock, get_session, hf_raise_for_status

from ttc.config import Settings, hub_token
from ttc.engine.local.hub.files import Progress, place
from ttc.engine.local.hub.repository import (
    MAIN,
    HubId,
    Record,
    choose,
    records,
    repo_folder,
    write_record,
)
from ttc.errors import ModelFileError

__all__ = ["pull_from_hub"]

# What every failure of the network raises: versions of the library bring their own HTTP client.
_HTTP_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]
_MAX_FAILURES = 4
_PAUSE_S = 1.0
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file of a repository."""

    name: str
    bytes: int
    digest: str
    """The SHA-256 of a large file; of a small one the SHA-1 that git gives it."""


def pull_from_hub(wanted: HubId, hub: Path, settings: Settings, progress: Progress) -> Path:
    """Fetches a model, less what is there already; safe to run many times at once.

    Args:
        wanted: what is fetched.
        hub: the folder of everything that comes from the hub.
        settings: where the hub is.
        progress: is called now and then from this thread, with the stage `download`.

    Returns:
        What the engine opens: a GGUF file, the first part of one, or a folder.

    Raises:
        ModelFileError: it cannot be had, or is no model.
        OSError: it cannot be stored.
    """
    folder = repo_folder(hub, wanted.repo)
    with _faults(wanted):
        endpoint = settings.hub.value or constants.ENDPOINT
        commit, files = _listing(wanted, endpoint)
        folder.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(folder / ".lock"):
            there = _fetch_all(wanted.repo, commit, files, folder, endpoint, progress)
            for file in files:
                place(there[file.digest], folder / commit / file.name)
            record = Record(
                repo=wanted.repo,
                revision=wanted.revision or MAIN,
                commit=commit,
                file=files[0].name if files[0].name.endswith(".gguf") else None,
                files={file.name: file.digest for file in files},
            )
            write_record(hub, record)
            for file in files:
                _part(folder, file).unlink(missing_ok=True)
    return record.path(hub)


def _listing(wanted: HubId, endpoint: str) -> tuple[str, list[_File]]:
    """The commit of a revision, and the files of it that make the model."""
    revision = quote(wanted.revision or MAIN, safe="")
    response = get_session().get(
        f"{endpoint}/api/models/{wanted.repo}/revision/{revision}",
        params={"blobs": True},
        headers=_headers(),
        timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
    )
    hf_raise_for_status(response)
    try:
        told = response.json()
        commit, files = str(told["sha"]), {str(e["rfilename"]): e for e in told["siblings"]}
        return commit, [_described(name, files[name], commit) for name in choose(wanted, files)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            "the hub's answer cannot be understood; is the address in HF_ENDPOINT that of a hub?"
        ) from error


def _described(name: str, entry: Mapping[str, Any], commit: str) -> _File:
    """A file as the hub tells of it; digests become names of files, so they are checked."""
    large = entry.get("lfs")
    size, digest = entry.get("size"), str(large["sha256"] if large else entry.get("blobId"))
    if not isinstance(size, int) or not all(map(_DIGEST.fullmatch, (digest, commit))):
        raise ModelFileError(f"the hub does not tell size and digest of {name}; use another hub")
    return _File(name=name, bytes=size, digest=digest)


def _headers() -> dict[str, str]:
    """What is sent with every request: ttc's own, as the library would tell more than is needed."""
    token = hub_token()
    headers = {"User-Agent": "ttc", "Accept-Encoding": "identity"}
    return headers if token is None else headers | {"Authorization": f"Bearer {token}"}


def _fetch_all(
    repo: str,
    commit: str,
    files: Sequence[_File],
    folder: Path,
    endpoint: str,
    progress: Progress,
) -> Mapping[str, Path]:
    """A place of every digest: in another pull of the repository, or fetched now."""
    there = {
        digest: record.folder(folder.parent) / name
        for record in records(folder.parent, repo)
        for name, digest in record.files.items()
    }
    wanted = {file.digest: file for file in files if file.digest not in there}
    _check_space(folder, list(wanted.values()))
    total = sum({file.digest: file.bytes for file in files}.values())
    done = total - sum(file.bytes for file in wanted.values())
    for file in wanted.values():
        part = _part(folder, file)
        url = hf_hub_url(repo, file.name, revision=commit, endpoint=endpoint)
        _fetch(url, file, part, partial(_tell, progress, done, total))
        if _digest(part, file) != file.digest:
            part.unlink()
            raise ModelFileError(f"{file.name} of {repo} came damaged; pull it again")
        done += file.bytes
        there[file.digest] = part
    progress("download", total, total)
    return there


def _tell(progress: Progress, before: int, total: int, done: int) -> None:
    progress("download", before + done, total)


def _part(folder: Path, file: _File) -> Path:
    """Where a file grows; an interruption leaves it there."""
    return folder / ".parts" / file.digest


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check_space(folder: Path, files: Sequence[_File]) -> None:
    needed = sum(file.bytes - min(_size(_part(folder, file)), file.bytes) for file in files)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ModelFileError(
            f"{needed:,} bytes are to be fetched and {free:,} are free at {folder}; make room, or "
            "set TTC_HOME to a folder on a larger disk"
        )


def _fetch(url: str, file: _File, part: Path, tell: Callable[[int], None]) -> None:
    """Fetches what a part lacks, and tries again as long as something comes."""
    part.parent.mkdir(exist_ok=True)
    if _size(part) > file.bytes:
        part.unlink()
    part.touch()
    failures = 0
    while (done := _size(part)) < file.bytes:
        fault: Exception = ModelFileError(
            f"the hub stops {file.name} after {done:,} of {file.bytes:,} bytes; pull it again"
        )
        try:
            _stream(url, file, part, tell)
        except HfHubHTTPError:
            raise
        except _HTTP_ERROR as error:
            fault = error
        failures = 0 if _size(part) > done else failures + 1
        if failures == _MAX_FAILURES:
            raise fault
        time.sleep(_PAUSE_S * failures)


def _stream(url: str, file: _File, part: Path, tell: Callable[[int], None]) -> None:
    """Goes on with a part, until the hub ends."""
    headers = _headers()
    if done := _size(part):
        headers["Range"] = f"bytes={done}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
        if response.is_error:
            response.read()
        hf_raise_for_status(response)
        with part.open("ab" if response.status_code == 206 else "wb") as out:
            for piece in response.iter_bytes():
                if out.tell() + len(piece) > file.bytes:
                    raise ModelFileError(f"{file.name} is longer than the hub says; pull it again")
                out.write(piece)
                tell(out.tell())


def _digest(path: Path, file: _File) -> str:
    with path.open("rb") as content:
        if len(file.digest) == 64:
            return hashlib.file_digest(content, "sha256").hexdigest()
        blob = hashlib.sha1(b"blob %d\0" % file.bytes, usedforsecurity=False)
        return hashlib.file_digest(content, lambda: blob).hexdigest()


@contextmanager
def _faults(wanted: HubId) -> Iterator[None]:
    """Turns what the library raises into one sentence that says what to do."""
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise ModelFileError(
            f"{wanted} cannot be pulled: huggingface_hub was told to stay offline; unset "
            "HF_HUB_OFFLINE"
        ) from error
    except HfHubHTTPError as error:
        raise ModelFileError(_refusal(wanted, error)) from error
    except _HTTP_ERROR as error:
        raise ModelFileError(
            f"{wanted} cannot be pulled: the hub cannot be reached ({type(error).__name__}: "
            f"{error}); check the network and HF_ENDPOINT, then pull again to go on"
        ) from error


def _refusal(wanted: HubId, error: HfHubHTTPError) -> str:
    status = error.response.status_code
    repo, revision = wanted.repo, wanted.revision or MAIN
    if isinstance(error, GatedRepoError):
        return (
            f"{repo} is gated: accept its conditions on its page, and set HF_TOKEN to a token of "
            "that account"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"{repo} has no revision {revision!r}; name a branch, a tag or a commit of it"
    if status in (401, 403) and hub_token():
        return (
            f"the hub refuses {repo} to this HF_TOKEN ({status}); check the spelling, and that the "
            "token is valid and may read it"
        )
    if status in (401, 403, 404):
        return (
            f"the hub shows no repository {repo!r} ({status}); check the spelling, or, if it is "
            "private, set HF_TOKEN"
        )
    return f"the hub answers {status} for {repo}; pull again later to go on"

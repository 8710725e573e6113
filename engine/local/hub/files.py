"""The files that make a model: which of a list of names are needed, and how they are put in place.

Two kinds of models are known: a GGUF file, which may be split into several, and a folder with
`config.json`, the tokenizer's files and safetensors. Pickles (`.bin`, `.pt`) can run code when
they are opened; they are never taken. Knows no network and reads no weights.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from filecmp import cmp
from pathlib import Path, PurePosixPath, PureWindowsPath

from ttc.errors import ModelFileError

__all__ = [
    "CONFIG",
    "INDEX",
    "SINGLE",
    "Progress",
    "check_name",
    "first_part",
    "folder_files",
    "parts",
    "place",
    "stem",
    "take_in",
]

Progress = Callable[[str, int, int | None], None]
"""Is told a stage, the bytes that are done, and of how many (`None` where that is unknown)."""

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_SMALL = (
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "README.md",
)
_SHARD = re.compile(r"model[^/]*-\d{5}-of-\d{5}\.safetensors")
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_PIECE_BYTES = 1 << 20


def parts(name: str) -> list[str]:
    """The names of all parts of a split GGUF file, by that of any; else the name alone."""
    found = _PART.search(name)
    count = int(found[2]) if found else 1
    if found is None or not 1 <= int(found[1]) <= count:
        return [name]
    return [f"{name[: found.start()]}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]


def first_part(path: Path) -> Path:
    """The first file of a split GGUF file, by any of its parts; else the path itself."""
    return path.with_name(parts(path.name)[0])


def stem(name: str) -> str:
    """The name of a GGUF file without its ending, and without the number of its part."""
    found = _PART.search(name)
    return name[: found.start()] if found else name.removesuffix(".gguf")


def folder_files(names: Iterable[str], where: str) -> list[str]:
    """What of a folder makes a model.

    Args:
        names: all that lies in it.
        where: the folder, for messages.

    Raises:
        ModelFileError: there is no model, or its weights are pickles.
    """
    there = set(names)
    small = [name for name in _SMALL if name in there]
    shards = sorted(filter(_SHARD.fullmatch, there))
    weights = [*shards, INDEX] if shards and INDEX in there else []
    if SINGLE in there:  # the engine reads it, and no shard beside it
        weights = [SINGLE]
    if CONFIG in there and weights:
        return small + weights
    pickles = sorted(name for name in there if name.endswith(_PICKLES))
    if pickles and not weights:
        raise ModelFileError(
            f"{where} holds its weights as pickles alone ({pickles[0]}), which can run code when "
            "they are opened; take one with safetensors or a GGUF file"
        )
    lacking = f"no {CONFIG}" if weights else f"neither a GGUF file nor {SINGLE}"
    raise ModelFileError(f"{where} is no model: it holds {lacking}; take another one")


def check_name(name: str, where: str) -> None:
    """Refuses a name that could lead out of the folder that it is put into, on any system.

    Raises:
        ModelFileError: it is such a name.
    """
    pieces = name.split("/")
    is_odd = any(piece in ("", ".", "..") or PureWindowsPath(piece).drive for piece in pieces)
    if is_odd or "\\" in name or not name.isprintable() or PurePosixPath(name).is_absolute():
        raise ModelFileError(
            f"{where} offers a file named {name!r}, which could lead anywhere; do not use it"
        )


def place(source: Path, target: Path, tell: Callable[[int], None] = lambda count: None) -> None:
    """Puts a file somewhere, at once: by a hard link, or by a copy where there can be none.

    Args:
        source: what is put; it stays.
        target: where; what is there is replaced.
        tell: is told the bytes of each piece.
    """
    if target.exists() and target.samefile(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".place-") as temporary:
        staged = Path(temporary) / "file"
        try:
            os.link(source.resolve(strict=True), staged)
            tell(staged.stat().st_size)
        except OSError:  # another disk, another owner, or a file system without links
            with source.open("rb") as read, staged.open("wb") as out:
                while piece := read.read(_PIECE_BYTES):
                    out.write(piece)
                    tell(len(piece))
        os.replace(staged, target)


def take_in(source: Path, models: Path, progress: Progress) -> Path:
    """Puts a GGUF file, all parts of a split one, or a folder among the models.

    Args:
        source: the file, or the folder.
        models: the folder of models. The name in it is that of the source, without an ending.
        progress: is told of the stage `copy`.

    Returns:
        What the engine opens: the first file, or the folder.

    Raises:
        ModelFileError: it is no model, or its name is that of another one.
    """
    moves = _moves(source)
    target = models / (source.resolve().name if source.is_dir() else first_part(source).name)
    name = target.name if source.is_dir() else stem(target.name)
    others = {
        models / name,
        models / f"{name}.gguf",
        *models.glob(f"{glob.escape(name)}-00001-of-*.gguf"),
    }
    if name.startswith(".") or name == "hub" or any(p.exists() for p in others - {target}):
        raise ModelFileError(f"{name!r} is taken among {models}; rename {source} and pull it again")
    if target.exists():
        if all(_is_same(file, models / at) for file, at in moves):
            return target
        raise ModelFileError(
            f"{target} is another model than {source}; rename one of them and pull again"
        )
    models.mkdir(parents=True, exist_ok=True)
    total, done = sum(file.stat().st_size for file, _ in moves), 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        progress("copy", done, total)

    with tempfile.TemporaryDirectory(dir=models, prefix=".pull-") as temporary:
        staging = Path(temporary)
        for file, at in moves:
            place(file, staging / at, tell)
        for entry in sorted(staging.iterdir(), reverse=True):  # the first part last: it is found
            os.rename(entry, models / entry.name)
    return target


def _moves(source: Path) -> list[tuple[Path, str]]:
    """Each file of a model, and its place below the folder of models."""
    if source.is_dir():
        folder = source.resolve().name
        there = os.listdir(source)
        if CONFIG not in there and (found := [n for n in there if n.endswith(".gguf")]):
            raise ModelFileError(
                f"{source} is no model, its files may be: pull {source / found[0]}"
            )
        names = folder_files(there, str(source))
        return [(source / name, f"{folder}/{name}") for name in names]
    with source.open("rb") as file:
        if file.read(4) != b"GGUF" or source.suffix != ".gguf":
            raise ModelFileError(f"{source} is no GGUF file; give a file.gguf, or a model's folder")
    files = [source.with_name(name) for name in parts(source.name)]
    if missing := [file for file in files if not file.is_file()]:
        raise ModelFileError(f"{missing[0]} is missing; a split model needs all its parts")
    return [(file, file.name) for file in files]


def _is_same(one: Path, other: Path) -> bool:
    return other.is_file() and (one.samefile(other) or cmp(one, other, shallow=False))

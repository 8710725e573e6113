"""GGUF files: what gguf-py writes is read, and what is damaged or hostile is refused."""

from __future__ import annotations

import hashlib
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from gguf.quants import quantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.reference import make_model, write_gguf
from ttc.engine.local.files.gguf import read_gguf
from ttc.engine.local.files.gguf_config import gguf_config, gguf_weights
from ttc.errors import ModelFileError

Keys = Callable[[GGUFWriter], None]


def no_keys(writer: GGUFWriter) -> None:
    """Writes none."""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file with gguf-py."""

    def make(
        tensors: dict[str, tuple[np.ndarray[Any, Any], Kind]] | None = None,
        keys: Keys = no_keys,
        **options: Any,
    ) -> Path:
        path = tmp_path / "model.gguf"
        writer = GGUFWriter(path, "llama", **options)
        keys(writer)
        for name, (values, kind) in (tensors or {}).items():
            data = values if kind == Kind.F32 else quantize(values, kind)
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


def matrix(*shape: int) -> np.ndarray[Any, Any]:
    """Random numbers, the same every time."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def test_tensors_are_found_by_name(write: Callable[..., Path]) -> None:
    """Beside others, with their shapes, whatever the alignment."""
    tensors = {name: (matrix(rows, 32), Kind.F32) for name, rows in (("a", 3), ("b", 5))}
    tensors["v"] = (matrix(7), Kind.F32)
    path = write(tensors, lambda writer: writer.add_custom_alignment(64))
    file = read_gguf(path)

    assert {name: tensor.shape for name, tensor in file.tensors.items()} == {
        "a": (3, 32),
        "b": (5, 32),
        "v": (7,),
    }
    for name, (values, _) in tensors.items():
        assert np.array_equal(file.tensors[name][:].numpy(), values)


def test_metadata_of_every_type_is_read(write: Callable[..., Path]) -> None:
    """Numbers, flags, texts and lists."""

    def keys(writer: GGUFWriter) -> None:
        writer.add_uint8("a", 200)
        writer.add_int64("b", -5)
        writer.add_float32("c", 0.5)
        writer.add_bool("d", True)
        writer.add_string("e", "é")
        writer.add_array("f", ["x", ""])
        writer.add_array("g", [1, 2, 3])

    metadata = read_gguf(write(keys=keys)).metadata

    assert [metadata[key] for key in "abcdefg"] == [200, -5, 0.5, True, "é", ["x", ""], [1, 2, 3]]


def test_a_tensor_of_an_unsupported_type_is_named(write: Callable[..., Path]) -> None:
    """With its type, and what would work."""
    path = write({"odd": (matrix(2, 256), Kind.TQ2_0)})

    with pytest.raises(ModelFileError, match=r"'odd' has the type TQ2_0.*use a file of F32"):
        read_gguf(path)


def test_the_fingerprint_is_the_digest_of_the_file(write: Callable[..., Path]) -> None:
    """So that anyone can compare it."""
    path = write({"a": (matrix(3, 32), Kind.F32)})

    assert read_gguf(path).fingerprint() == hashlib.sha256(path.read_bytes()).hexdigest()


def split_model(folder: Path) -> Path:
    """A model in several files, as llama.cpp splits one."""
    model = make_model("qwen2")
    write_gguf(model, folder / "m.gguf", split_max_tensors=20)
    return sorted(folder.glob("m-*.gguf"))[0]


def test_a_split_model_is_read_by_its_first_file(tmp_path: Path) -> None:
    """All its tensors, and nothing else, are those of one file."""
    first = split_model(tmp_path)
    whole = read_gguf(write_gguf(make_model("qwen2"), tmp_path / "whole.gguf"))
    file = read_gguf(first)

    assert len(file.parts) == 3
    assert gguf_weights(file, gguf_config(file)).keys() == whole.tensors.keys()
    assert all(
        np.array_equal(file.tensors[name].raw, tensor.raw) for name, tensor in whole.tensors.items()
    )
    assert file.fingerprint() != read_gguf(first.with_name("whole.gguf")).fingerprint()


def test_a_split_model_must_be_whole(tmp_path: Path) -> None:
    """A part alone, one that is missing, and one in another's place."""
    first = split_model(tmp_path)
    second, third = sorted(tmp_path.glob("m-*.gguf"))[1:]

    with pytest.raises(ModelFileError, match=r"open the first, whose name ends in -00001-of-00003"):
        read_gguf(second)
    content = third.read_bytes()
    third.write_bytes(second.read_bytes())
    with pytest.raises(ModelFileError, match=r"is no part 3 of 3"):
        read_gguf(first)
    third.unlink()
    with pytest.raises(ModelFileError, match=r"00003-of-00003\.gguf cannot be read"):
        read_gguf(first)
    third.write_bytes(content)
    assert len(read_gguf(first).parts) == 3


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """Also an empty one, none, and an old or a big-endian one."""
    other, empty, old = tmp_path / "other", tmp_path / "empty", tmp_path / "old"
    other.write_bytes(b"PK\x03\x04 a zip file")
    empty.touch()

    with pytest.raises(ModelFileError, match="no GGUF file"):
        read_gguf(other)
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_gguf(empty)
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_gguf(tmp_path / "absent")
    for version in (b"\1\0\0\0", b"\0\0\0\3"):
        old.write_bytes(b"GGUF" + version + bytes(64))
        with pytest.raises(ModelFileError, match="GGUF version"):
            read_gguf(old)


def test_a_cut_file_is_refused_wherever_it_was_cut(write: Callable[..., Path]) -> None:
    """In its header or in its tensors."""
    path = write({"a": (matrix(4, 32), Kind.F32)}, lambda w: w.add_array("words", ["a", "bc"]))
    whole = path.read_bytes()
    for length in [*range(4, 230), len(whole) - 1 - (len(whole) - 4 * 32 * 4) % 32]:
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"ends inside its header|is incomplete"):
            read_gguf(path)


def text(value: str) -> bytes:
    """A string as GGUF has it."""
    return struct.pack("<Q", len(value)) + value.encode()


def header(tensors: int = 0, pairs: int = 0) -> bytes:
    """The first bytes of a file."""
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs)


def tensor(dims: list[int], offset: int = 0, type_: int = 0, name: str = "a") -> bytes:
    """The header of a tensor."""
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + shape + struct.pack("<IQ", type_, offset)


def array(type_: int, count: int) -> bytes:
    """A key whose value is a list that claims a length."""
    return text("k") + struct.pack("<IIQ", 9, type_, count)


HUGE = 1 << 60
HOSTILE = {
    "a dimension of none": (header(1) + tensor([4, 0]), r"'a' of shape \(0, 4\)"),
    "a product beyond all bytes": (header(1) + tensor([1 << 33, 1 << 33]), "is incomplete"),
    "an offset past the end": (header(1) + tensor([4], offset=1 << 62), "is incomplete"),
    "a type without a name": (header(1) + tensor([4], type_=999), "has the type number 999"),
    "a type that was withdrawn": (header(1) + tensor([4], type_=4), "has the type number 4"),
    "nine dimensions": (header(1) + tensor([1] * 9), "has 9 dimensions"),
    "no dimension": (header(1) + tensor([]), "has 0 dimensions"),
    "half a block": (header(1) + tensor([16, 2], type_=8), "no whole number of Q8_0 blocks"),
    "a vector of blocks": (header(1) + tensor([32], type_=8) + bytes(99), "vector 'a'"),
    "one name twice": (header(2) + tensor([1]) * 2 + bytes(99), "'a' is there twice"),
    "one key twice": (header(0, 2) + 2 * (text("k") + struct.pack("<IB", 0, 1)), "'k' is there"),
    "many tensors": (header(HUGE) + bytes(99), "claims 1152921504606846976 tensors"),
    "many keys": (header(0, HUGE) + bytes(99), "claims 0 tensors and 1152921504606846976 keys"),
    "all tensors that are allowed": (header((1 << 22) - 1), "ends inside its header"),
    "a long string": (header(0, 1) + struct.pack("<Q", 1 << 62), "ends inside its header"),
    "a long list of numbers": (header(0, 1) + array(4, HUGE), "beyond 4194304 values"),
    "a long list of strings": (header(0, 1) + array(8, HUGE), "beyond 4194304 values"),
    "a list longer than the file": (header(0, 1) + array(4, 1 << 21), "ends inside its header"),
    "strings beyond the file": (header(0, 1) + array(8, 1 << 21), "ends inside its header"),
    "lists in a list": (header(0, 1) + array(9, 1) + bytes(99), "'k' has the type 9"),
    "a value of no type": (header(0, 1) + text("k") + struct.pack("<I", 77), "'k' has the type 77"),
    "an alignment in words": (
        header(0, 1) + text("general.alignment") + struct.pack("<I", 8) + text("32"),
        "general.alignment is '32'",
    ),
    "no alignment": (
        header(0, 1) + text("general.alignment") + struct.pack("<II", 4, 0),
        "general.alignment is 0",
    ),
    "an alignment past the end": (
        header(1, 1) + text("general.alignment") + struct.pack("<II", 4, 1 << 31) + tensor([1]),
        "is incomplete",
    ),
    "twenty bytes": (header()[:20], "ends inside its header"),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_hostile_header_is_refused_at_once(fault: str, tmp_path: Path) -> None:
    """WT-06: In less than a second, and without memory for what it claims."""
    content, message = HOSTILE[fault]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    start = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=message):
            read_gguf(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert time.process_time() - start < 1
    assert peak < 200_000


@pytest.fixture(scope="module")
def whole_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model."""
    path = tmp_path_factory.mktemp("whole") / "model.gguf"
    return write_gguf(make_model("qwen2", num_hidden_layers=1), path)


@given(st.data())
@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_header_never_raises_anything_else(
    whole_model: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Bytes changed at will: the model is described, or refused with our own error."""
    content = bytearray(whole_model.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 2000))
        changed = data.draw(st.binary(min_size=1, max_size=8))
        content[place : place + len(changed)] = changed
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    try:
        file = read_gguf(path)
        weights = gguf_weights(file, gguf_config(file))
    except ModelFileError:
        return
    assert all(len(rows[:1]) == 1 for rows in weights.values())

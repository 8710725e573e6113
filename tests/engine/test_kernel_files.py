"""Libraries of kernels that are damaged: they are built anew, or named with what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ttc.engine.local.native import build, compiler
from ttc.errors import EngineError

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "garbage": lambda whole: b"no library" * 100,
    "cut": lambda whole: whole[: len(whole) // 2],
    "another machine": lambda whole: whole[:0x12] + b"\x16\x00" + whole[0x14:],  # IBM S/390
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_of_the_cache_is_built_anew(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With one warning that names the file."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    found, options = compiler.find_compiler(), ["-DTTC_PORTABLE"]
    name = compiler.library_name(compiler.version_of(found), options, "roofs")
    made = tmp_path / "kernels" / name
    made.parent.mkdir()
    compiler.compile_library(found, options, "roofs", made)
    whole = made.read_bytes()
    made.write_bytes(DAMAGES[damage](whole))

    library = build.load_library(options, "roofs")

    assert library._name == str(made)
    assert made.stat().st_size == len(whole)
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith("kept kernels cannot be loaded, so they are built anew")
    assert made.name in told


def test_a_damaged_installed_library_is_named_where_none_can_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to do; without a compiler there was no word of it."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    monkeypatch.setattr(build, "INSTALLED", tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None)
    (tmp_path / "kernels.json").write_text('{"compiler": "another", "kernels": "AVX2"}')
    installed = tmp_path / compiler.library_name("another", build.OPTIONS, "step")
    installed.write_text("no library")

    with pytest.raises(
        EngineError, match=rf"{installed.name}.*; install ttc anew, or a C compiler"
    ):
        build.load_library()

"""`ttc config`, and what the settings do to the other commands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ttc.ports import Engine
from ttc.testing import FakeEngine

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of settings, which is not there; and a home."""
    for name in (
        "TTC_MODEL",
        "TTC_ARITHMETIC",
        "TTC_SPECULATE",
        "TTC_ACCEPTANCE",
        "TTC_OFFLINE",
        "HF_HUB_OFFLINE",
        "HF_ENDPOINT",
        "HF_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TTC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path))
    return tmp_path / "config.toml"


def test_config_tells_each_setting_and_its_source(file: Path, run_ttc: Cli) -> None:
    """And where the file is, or would be."""
    before = run_ttc("config").stdout
    file.write_text('model = "mine"')
    done = run_ttc("config")

    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line]
    assert [line[0] for line in lines[1:-1]] == [
        "home",
        "model",
        "arithmetic",
        "speculate",
        "acceptance",
        "offline",
        "hub",
        "journal_mb",
        "token",
    ]
    assert lines[1][1].endswith("home  environment TTC_HOME")
    assert lines[2][1].split(maxsplit=1) == ["mine", f"file {file}"]
    assert lines[6][1].split() == ["false", "default"]
    assert before.endswith(f"\nfile {file}, which is not there\n")
    assert done.stdout.endswith(f"\nfile {file}\n")


def test_config_as_json_is_one_object(
    file: Path, run_ttc: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token is set or unset, and a password in an address is left out."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_ENDPOINT", "https://me:hf_secret@mirror:8080/x")

    out = run_ttc("config", "--json").stdout

    found = json.loads(out)
    assert (found["schema_version"], found["file"]) == (1, str(file))
    assert found["settings"]["offline"] == {"value": False, "source": "default"}
    assert found["settings"]["token"] == {"value": "set", "source": "environment HF_TOKEN"}
    assert found["settings"]["hub"]["value"] == "https://...@mirror:8080/x"
    assert "hf_secret" not in out


def test_the_default_model_is_a_setting(
    file: Path, run_ttc: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an option comes before it."""
    asked: list[str] = []

    def load(model: str | Engine, progress: object = None) -> Engine:
        if not isinstance(model, str):
            return model
        asked.append(model)
        return FakeEngine("The answer is 4.")

    monkeypatch.setattr("ttc.registry.load_engine", load)
    file.write_text('model = "from-file"')
    run_ttc("solve", "q")
    monkeypatch.setenv("TTC_MODEL", "from-env")
    run_ttc("solve", "q")
    run_ttc("solve", "q", "--model", "from-option")

    assert asked == ["from-file", "from-env", "from-option"]
    assert "[default: from-env]" in " ".join(run_ttc("solve", "--help").stdout.split())


def test_the_arithmetic_is_a_setting_and_an_option_of_local_models(
    file: Path, run_ttc: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is unknown, or is asked of a pool, is refused before anything is loaded."""
    asked: list[str | None] = []

    def load(
        model: str | Engine, progress: object = None, *, arithmetic: str | None = None
    ) -> Engine:
        if not isinstance(model, str):
            return model
        asked.append(arithmetic)
        return FakeEngine("The answer is 4.")

    monkeypatch.setattr("ttc.registry.load_engine", load)
    run_ttc("solve", "q", "--no-keep", "--arithmetic", "file")
    wrong = run_ttc("solve", "q", "--arithmetic", "int3")
    pool = run_ttc("solve", "q", "--model", "x.jsonl", "--arithmetic", "int8")
    monkeypatch.setenv("TTC_ARITHMETIC", "int3")
    unset = run_ttc("config")

    assert asked == ["file"]
    assert wrong.stderr == "ttc: --arithmetic: 'int3' is none of int8, file, fp32, bf16\n"
    assert "a pool computes nothing" in pool.stderr
    assert "(environment TTC_ARITHMETIC); set it to one of int8, file," in unset.stderr


def test_what_drafts_is_an_option_of_local_models(
    run_ttc: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its acceptance; both are settings, too."""
    asked: list[dict[str, str]] = []

    def load(model: str | Engine, progress: object = None, **options: str) -> Engine:
        if not isinstance(model, str):
            return model
        asked.append(options)
        return FakeEngine("The answer is 4.")

    monkeypatch.setattr("ttc.registry.load_engine", load)
    run_ttc("solve", "q", "--no-keep", "--speculate", "ngram", "--acceptance", "maximal")
    run_ttc("demo", "--problems", "1", "--samples", "2", "--speculate", "tree")
    wrong = run_ttc("solve", "q", "--acceptance", "lossy")
    served = run_ttc("solve", "q", "--model", "openai:m@http://x", "--speculate", "ngram")
    monkeypatch.setenv("TTC_ACCEPTANCE", "lossy")
    unset = run_ttc("config")

    assert asked == [{"speculate": "ngram", "acceptance": "maximal"}, {"speculate": "tree"}]
    assert wrong.stderr == "ttc: --acceptance: 'lossy' is none of coupled, maximal\n"
    assert "--speculate is for local models" in served.stderr
    assert "(environment TTC_ACCEPTANCE); set it to one of coupled, maximal" in unset.stderr


def test_a_wrong_file_is_one_line_where_it_matters(file: Path, run_ttc: Cli) -> None:
    """And nowhere else."""
    file.write_text("colour = 'red'")

    for command in (("config",), ("solve", "q"), ("models",)):
        done = run_ttc(*command)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"ttc: {file}: 'colour' is no setting; known: home, model, arithmetic, speculate, "
            "acceptance, offline, hub, journal_mb\n"
        )
    assert run_ttc("graph", "greedy()").returncode == 0
    assert "'colour' is no setting" in run_ttc("doctor").stdout

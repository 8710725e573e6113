"""Loading a model from its path: what is reported, and that files of all kinds can be talked to."""

from __future__ import annotations

import gc
import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from gguf import GGUFWriter
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.engine.reference import make_model, save, write_gguf
from ttc.engine.local import LocalEngine, load
from ttc.engine.local.plan import Plan, Span
from ttc.engine.local.source import open_model
from ttc.engine.local.text.vocabulary import BYTE_LETTERS
from ttc.errors import EngineError, ModelFileError
from ttc.ports import Request

END = "<|endoftext|>"
LETTERS = sorted(BYTE_LETTERS, key=lambda letter: BYTE_LETTERS[letter])
WORDS = [*LETTERS, "th"]
NUM_TOKENS, NUM_ROWS = 258, 300


def model() -> Any:
    """A model with more rows than there are tokens."""
    return make_model("qwen2", vocab_size=NUM_ROWS)


def tokenizer_keys(writer: GGUFWriter) -> None:
    """A vocabulary of bytes, one pair and an end."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*WORDS, END])
    writer.add_token_merges(["t h"])
    writer.add_token_types([1] * 257 + [3])
    writer.add_eos_token_id(257)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A GGUF file."""
    return write_gguf(model(), tmp_path / "tiny.gguf", keys=tokenizer_keys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the same model."""
    path = save(model(), tmp_path / "tiny")
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(WORDS)}, [("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "generation_config.json").write_text('{"eos_token_id": 257}')
    return path


def test_a_file_and_a_folder_of_one_model_say_the_same(
    file: Path, folder: Path, ask: Callable[..., Request]
) -> None:
    """Token by token; their fingerprints differ, and so do their numerics."""
    said, numerics = [], []
    for path in (file, folder):
        with LocalEngine.load(path) as engine:
            calls = [engine.submit(ask("hello", 20, seed=i, temperature=2.0)) for i in range(4)]
            said.append([call.future.result().token_ids for call in calls])
            numerics.append(engine.numerics)

    assert said[0] == said[1]
    assert len(set(numerics)) == 2


def test_only_what_pytorch_computes_depends_on_the_number_of_threads(
    file: Path, ask: Callable[..., Request]
) -> None:
    """The kernels' bits do not, so their numerics leave it out: a pool goes on, on other cores."""
    told: dict[str, list[str]] = {"int8": [], "fp32": []}
    logprobs = []
    for kind in ("int8", "fp32"):
        for threads in (1, 2):
            with LocalEngine.load(file, arithmetic=kind, threads=threads) as engine:
                told[kind].append(engine.numerics)
                logprobs.append(engine.submit(ask("hello", 20)).future.result().logprobs)

    assert told["int8"][0] == told["int8"][1]
    assert logprobs[0] == logprobs[1]
    assert [each.count("threads=") for each in told["fp32"]] == [1, 1]
    assert told["fp32"][0] != told["fp32"][1]


def test_rows_without_a_token_are_never_drawn(file: Path, ask: Callable[..., Request]) -> None:
    """At a temperature at which every seventh token would be one."""
    with LocalEngine.load(file) as engine:
        calls = [engine.submit(ask("hello", 40, seed=i, temperature=100.0)) for i in range(8)]
        drawn = [token for call in calls for token in call.future.result().token_ids or ()]

    assert len(drawn) > 100
    assert max(drawn) < NUM_TOKENS


def test_weights_may_be_rounded_to_bfloat16(file: Path, ask: Callable[..., Request]) -> None:
    """The numerics say so, and first tokens are mostly the same."""
    firsts = []
    kinds: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
    for kind in kinds:
        with LocalEngine.load(file, arithmetic=kind) as engine:
            assert {"fp32": "float32", "bf16": "bfloat16"}[kind] in engine.numerics
            calls = [engine.submit(ask(text, 1, temperature=0)) for text in "abcdefghij"]
            firsts.append([call.future.result().token_ids for call in calls])

    assert sum(a == b for a, b in zip(*firsts, strict=True)) >= 6


def test_an_engine_is_kept_for_each_arithmetic(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none is named, that of the settings computes."""
    first, again = load(str(file), arithmetic="fp32"), load(str(file), arithmetic="fp32")
    monkeypatch.setenv("TTC_ARITHMETIC", "bf16")
    engines = [first, again, load(str(file))]
    for engine in engines:
        engine.close()

    assert first is again
    assert "bfloat16" in engines[2].numerics


def test_an_engine_is_kept_for_each_way_to_speculate(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none is named, that of the settings drafts."""
    plain, drafting = load(str(file)), load(str(file), speculate="ngram")
    monkeypatch.setenv("TTC_SPECULATE", "ngram")
    monkeypatch.setenv("TTC_ACCEPTANCE", "maximal")
    engines = [plain, drafting, load(str(file))]
    for engine in engines:
        engine.close()

    assert len(set(engines)) == 3
    assert plain.numerics == drafting.numerics
    told = [engine.capabilities.speculation for engine in engines]
    assert told == ["", "ngram, coupled", "ngram, maximal"]
    assert "maximal(ngram)" in engines[2].numerics


def test_a_draft_model_knows_the_first_tokens_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their logits are those of the whole model."""
    whole = open_model(file, "int8").build()
    monkeypatch.setattr("ttc.engine.local.source._DRAFTED", 100)
    short = open_model(file, "int8", drafts=True).build()
    logits = [
        model.forward(
            torch.tensor([1, 2]), Plan([Span([0], 0, 2)]), model.make_pool(1), torch.tensor([1])
        ).clone()
        for model in (whole, short)
    ]

    assert logits[1].shape == (1, 100)
    assert torch.equal(logits[0][:, :100], logits[1])


def test_progress_is_told_in_stages(file: Path) -> None:
    """First the file, of unknown amount, then layer by layer."""
    told: list[tuple[str, int, int | None]] = []
    LocalEngine.load(file, progress=lambda *step: told.append(step)).close()

    assert told == [("open", 0, None), *(("load", done, 4) for done in range(5))]


def test_what_progress_raises_ends_the_loading(file: Path) -> None:
    """And leaves no thread."""

    def stop(stage: str, done: int, total: int | None) -> None:
        if done == 2:
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        LocalEngine.load(file, progress=stop)
    assert threading.active_count() <= before


@pytest.mark.parametrize("name", ["model.bin", "consolidated.00.pth", "model.pt"])
def test_a_pickle_is_refused_before_it_is_opened(name: str, tmp_path: Path) -> None:
    """Whether or not it is there."""
    with pytest.raises(ModelFileError, match=r"is a pickle, which can run code"):
        open_model(tmp_path / name)


def test_weights_without_their_folder_are_refused(folder: Path) -> None:
    """They do not say what model they are of."""
    with pytest.raises(ModelFileError, match=r"holds weights alone; give its folder"):
        open_model(folder / "model.safetensors")


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    """Its last tokens would have no embedding."""
    small = make_model("qwen2", vocab_size=200)
    path = write_gguf(small, tmp_path / "m.gguf", keys=tokenizer_keys)

    with pytest.raises(ModelFileError, match="tokenizer has 258 tokens, and the model knows 200"):
        open_model(path)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without one."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)


def test_without_a_compiler_pytorch_computes_and_says_so(
    file: Path, no_compiler: None, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, and the numerics of the engine."""
    with caplog.at_level(logging.WARNING), LocalEngine.load(file) as engine:
        assert "float32" in engine.numerics

    assert caplog.text.count("no C compiler") == 1


def test_a_compiler_that_is_not_there_is_as_none(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`CC` is a command, and may name what is missing."""
    monkeypatch.setenv("CC", "no-such-compiler -O1")
    with caplog.at_level(logging.WARNING), LocalEngine.load(file) as engine:
        assert "float32" in engine.numerics

    assert "no C compiler 'no-such-compiler', which CC names" in caplog.text


def test_kernels_that_cannot_be_kept_are_as_none(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A home that nobody can write to still computes."""
    (tmp_path / "kernels").touch()
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    with caplog.at_level(logging.WARNING), LocalEngine.load(file) as engine:
        assert "float32" in engine.numerics

    assert "the kernels cannot be kept" in caplog.text


def test_int8_that_was_asked_for_is_never_replaced(file: Path, no_compiler: None) -> None:
    """Without a compiler it is refused."""
    with pytest.raises(EngineError, match="no C compiler"):
        LocalEngine.load(file, arithmetic="int8")


def test_a_file_is_opened_without_torch(file: Path) -> None:
    """So both can be done at once; together they take most of a small model's loading."""
    code = (
        "import sys; from pathlib import Path; from ttc.engine.local.source import open_model; "
        "open_model(Path(sys.argv[1])); sys.exit('torch' in sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code, str(file)], check=True, timeout=60)


def test_the_engine_of_a_path_is_loaded_once(file: Path) -> None:
    """And its loading is told of; garbage is collected again after it."""
    told: list[str] = []
    engine = load(str(file), lambda stage, done, total: told.append(stage))

    assert load(str(file)) is engine
    assert told == ["open", *["load"] * 5]
    assert gc.isenabled()
    engine.close()

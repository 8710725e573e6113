"""Tokenizers of model folders: what several files say together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as pre

from tests.engine.texts import mixed_texts
from ttc.engine.local.sequence import Sequence
from ttc.engine.local.text.stream import TextStream
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.local.text.vocabulary import BYTE_LETTERS
from ttc.errors import ModelFileError
from ttc.ports import Request
from ttc.types import Branch, Sampling

Make = Callable[..., Path]
PLAIN = [text for text in mixed_texts(2000, seed=1) if "<" not in text]
NAMES = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|eot|>"]


def byte_tokenizer() -> Tokenizer:
    """As Llama 3 and Qwen have it."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.Sequence(
        [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=list(BYTE_LETTERS), show_progress=False
    )
    tokenizer.train_from_iterator(PLAIN, trainer)
    return tokenizer


def spaced_tokenizer(scheme: str) -> Tokenizer:
    """As Llama 2 has it: with a normalizer, or with the pre-tokenizer of later conversions."""
    learner = Tokenizer(models.BPE(byte_fallback=True))
    learner.pre_tokenizer = pre.Metaspace(prepend_scheme="first")
    letters = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=1200, special_tokens=letters, limit_alphabet=60, show_progress=False
    )
    learner.train_from_iterator(PLAIN, trainer)
    model = json.loads(learner.to_str())["model"]
    tokenizer = Tokenizer(
        models.BPE(
            model["vocab"],
            [tuple(merge) for merge in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    if scheme == "normalizer":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
    else:
        tokenizer.pre_tokenizer = pre.Metaspace(prepend_scheme=scheme, split=False)
    strip = [] if scheme == "never" else [decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


@pytest.fixture(scope="module")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a folder of a tokenizer with added tokens, and of any other files."""

    def make(tokenizer: Tokenizer, **files: object) -> Path:
        tokenizer.add_special_tokens(NAMES[:3])
        texts = ("<tool_call>", NAMES[3], "<think>")
        tokenizer.add_tokens([AddedToken(text, normalized=False) for text in texts])
        path = tmp_path_factory.mktemp("model")
        tokenizer.save(str(path / "tokenizer.json"))
        for name, value in files.items():
            (path / f"{name}.json").write_text(json.dumps(value))
        return path

    return make


def without_structure(path: Path) -> Tokenizer:
    """The library's own reading, with control tokens spelt out."""
    spec = json.loads((path / "tokenizer.json").read_text())
    for token in spec["added_tokens"]:
        token["special"] |= token["content"] in NAMES
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.mark.parametrize("kind", ["bytes", "normalizer", "first", "always", "never"])
def test_tokens_and_texts_are_those_of_the_library(make_folder: Make, kind: str) -> None:
    """For every way in which a text gets a space in front, or none."""
    path = make_folder(byte_tokenizer() if kind == "bytes" else spaced_tokenizer(kind))
    tokens, theirs = TextTokens.from_folder(path), without_structure(path)
    texts = mixed_texts(1500, seed=2)
    ours = [tokens.encode(text) for text in texts]

    assert [
        t
        for t, ids in zip(texts, ours, strict=True)
        if theirs.encode(t, add_special_tokens=False).ids != ids
    ] == []
    assert [
        ids for ids in ours if theirs.decode(ids, skip_special_tokens=False) != tokens.decode(ids)
    ] == []
    assert not {i for ids in ours for i in ids} & set(tokens.control.values())


@pytest.mark.parametrize("kind", ["bytes", "normalizer", "first", "always", "never"])
def test_streaming_gives_the_text_of_the_whole(make_folder: Make, kind: str) -> None:
    """From the start of a sequence; and text that goes on is exact."""
    path = make_folder(byte_tokenizer() if kind == "bytes" else spaced_tokenizer(kind))
    tokens = TextTokens.from_folder(path)
    for text in mixed_texts(300, seed=3):
        ids = tokens.encode(text)
        stream = TextStream(trims=tokens.trims_after(()))
        pieces = [stream.feed(tokens.bytes_of(i)).text for i in ids]

        assert "".join(pieces) + stream.flush().text == tokens.decode(ids)
        if kind != "bytes":  # whose library normalises
            assert tokens.decode(tokens.encode(text, after="text"), after="text") == text


@pytest.mark.parametrize(
    ("kind", "after_control"), [("normalizer", True), ("first", False), ("never", False)]
)
def test_a_space_in_front_comes_where_the_library_gives_one(
    make_folder: Make, kind: str, after_control: bool
) -> None:
    """After a control token, too, or only at the start of a sequence."""
    tokens = TextTokens.from_folder(make_folder(spaced_tokenizer(kind)))
    spelt = {after: tokens.encode("the", after=after) for after in ("control", "text")}

    assert (spelt["control"] != spelt["text"]) == after_control
    assert tokens.decode(spelt["text"], after="text") == "the"


def test_every_declared_end_ends_a_text(make_folder: Make) -> None:
    """ST-10: The union of four files, numbers and lists."""
    path = make_folder(
        byte_tokenizer(),
        config={"eos_token_id": 5, "vocab_size": 1000},
        generation_config={"eos_token_id": [5, 9]},
        tokenizer_config={"eos_token": {"content": "<|im_end|>"}},
        special_tokens_map={"eot_token": "<|eot|>"},
    )
    tokens = TextTokens.from_folder(path)

    ends = {tokens.control["<|im_end|>"], tokens.control["<|eot|>"]}
    assert tokens.end_ids == {5, 9} | ends


@pytest.mark.parametrize(
    ("script", "kept", "stop"),
    [([1, 2, 9, 3], [1, 2, 9], 9), ([1, 7, 3], [1, 7], 7), ([1, 2, 3], [1, 2, 3], None)],
)
def test_a_call_ends_at_the_first_of_several_ends(
    make_folder: Make, script: list[int], kept: list[int], stop: int | None
) -> None:
    """ST-10: whichever file declared it, else by its length; the end is computed, and no text."""
    path = make_folder(
        byte_tokenizer(),
        config={"eos_token_id": 5},
        generation_config={"eos_token_id": [5, 9]},
    )
    vocabulary = TextTokens.from_folder(path)
    spelt = {token: vocabulary.bytes_of(token).decode() for token in script}
    request = Request(
        branch=Branch(text="A", token_ids=(65,)),
        max_tokens=3,
        sampling=Sampling(),
        seed=0,
        until=(7,),
    )
    call = Sequence(request, [65], 3, vocabulary, None)
    branch = None
    for token in script:
        if (chunk := call.accept(token, -1.0, None, None, None)) is not None:
            branch = chunk.branch
        if branch is not None:
            break

    assert branch is not None
    assert (branch.token_ids, branch.stop_reason) == (tuple(kept), stop)
    assert branch.finish_reason == ("length" if stop is None else "stop")
    assert branch.text == "".join(spelt[token] for token in kept if token != stop)


@pytest.mark.parametrize(
    ("files", "starts"),
    [
        ({}, True),
        ({"tokenizer_config": {"add_bos_token": False, "bos_token": "<|begin|>"}}, False),
        ({"tokenizer_config": {"add_bos_token": True, "bos_token": "<|begin|>"}}, True),
        ({"tokenizer_config": {"add_bos_token": True, "bos_token": None}}, False),
    ],
    ids=["post-processor", "switched off", "switched on", "without a token"],
)
def test_the_start_is_that_of_the_configuration_or_the_pipeline(
    make_folder: Make, files: dict[str, object], starts: bool
) -> None:
    """A switch wins over the pipeline."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(NAMES[:1])
    begin = tokenizer.token_to_id("<|begin|>")
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(),
            processors.TemplateProcessing("<|begin|> $A", special_tokens=[("<|begin|>", begin)]),
        ]
    )
    tokens = TextTokens.from_folder(make_folder(tokenizer, **files))

    assert tokens.start_id == (begin if starts else None)


def test_structure_is_what_any_file_calls_so_or_what_looks_so(make_folder: Make) -> None:
    """A thought and a tool call are text, whoever calls them special."""
    path = make_folder(
        byte_tokenizer(),
        tokenizer_config={
            "additional_special_tokens": ["[REST]", "<think>"],
            "pad_token": "[PAD]",
            "added_tokens_decoder": {"990": {"content": "[REST]"}, "991": {"content": "[PAD]"}},
        },
        added_tokens={"[LATE]": 992},
    )
    tokens = TextTokens.from_folder(path)

    assert set(tokens.control) == {*NAMES, "[REST]", "[PAD]"}
    assert tokens.encode("[LATE]") == [992]
    assert tokens.decode(tokens.encode("<think>")) == "<think>"
    assert len(tokens.encode("<think>")) == 1
    assert tokens.special == {"pad_token": "[PAD]"}


def test_rows_without_a_token_are_never_sampled(make_folder: Make) -> None:
    """Embeddings are padded beyond the tokens, and numbers may have gaps."""
    path = make_folder(
        byte_tokenizer(), config={"text_config": {"vocab_size": 910}}, added_tokens={"x y": 908}
    )
    tokens = TextTokens.from_folder(path)

    assert tokens.size == 910
    assert tokens.unsampled_ids == {906, 907, 909}
    assert tokens.bytes_of(909) == b""


def broken(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(byte_tokenizer().to_str())
    return spec | changes


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"has neither tokenizer\.json nor tokenizer\.model, and no other"),
        ({"tokenizer": "{"}, "cannot be read"),
        ({"tokenizer": []}, "holds no JSON object"),
        ({"tokenizer": broken(model={"type": "Unigram"})}, "'Unigram' is not supported.*'BPE'"),
        ({"tokenizer": broken(model={"type": "BPE"})}, "damaged: KeyError"),
        ({"tokenizer": broken(model=7)}, "None is not supported"),
        ({"tokenizer": broken(pre_tokenizer=None)}, "neither ByteLevel nor SentencePiece"),
        ({"tokenizer": broken(pre_tokenizer={"type": "New"})}, "the pre_tokenizer is not known"),
        ({"tokenizer": broken(), "config": {"eos_token_id": 9000}}, r"eos_token_id has \{9000\}"),
        (
            {
                "tokenizer": broken(
                    added_tokens=[{"id": 900, "content": "<|x|>", "rstrip": True, "special": True}]
                )
            },
            r"'<\|x\|>' takes spaces beside it",
        ),
    ],
)
def test_a_folder_of_another_kind_is_refused(
    tmp_path: Path, files: dict[str, object], message: str
) -> None:
    """By the file and what is wrong in it."""
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (tmp_path / f"{name}.json").write_text(text)

    with pytest.raises(ModelFileError, match=message):
        TextTokens.from_folder(tmp_path)

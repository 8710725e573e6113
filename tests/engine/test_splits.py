"""Byte-level vocabularies of every kind, against a reference that merges by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.engine.texts import mixed_texts
from ttc.engine.local.files.gguf import GGUFFile, read_gguf
from ttc.engine.local.hub.models import find, models_folder
from ttc.engine.local.text.bpe import SPLITS, byte_level
from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.stream import TextStream
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.local.text.vocabulary import BYTE_LETTERS
from ttc.types import Message, ToolCall

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SUFFIX = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
REFERENCE = {
    "default": [GPT2],
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}|[^\p{N}]+", GPT2],
    "llama-bpe": [SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST],
    "qwen2": [SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST],
    "tekken": [
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
}
ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2"}
TEXTS_OF_EACH_KIND = 2000
SUM = {"a": 2, "b": 3}
QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"

Spell = Callable[[str], list[int]]


def reference(pre: str, tokens: list[str], merges: list[str]) -> Spell:
    """Splits with the patterns in turn, and merges the best pair until there is none."""
    ids = {token: i for i, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    letters = {byte: letter for letter, byte in BYTE_LETTERS.items()}

    @cache
    def word_ids(word: str) -> list[int]:
        symbols = [letters[byte] for byte in word.encode()]
        if SPLITS[pre].whole_words and "".join(symbols) in ids:
            return [ids["".join(symbols)]]
        while True:
            pairs = list(pairwise(symbols))
            best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)), default=None)
            if best not in ranks:
                return [ids[symbol] for symbol in symbols]
            at = pairs.index(best)
            symbols[at : at + 2] = ["".join(best)]

    def spell(text: str) -> list[int]:
        words = [text]
        for pattern in REFERENCE[pre]:
            words = [found for word in words for found in regex.findall(pattern, word)]
        return [i for word in words for i in word_ids(word)]

    return spell


@pytest.fixture(scope="module", params=REFERENCE)
def pair(request: pytest.FixtureRequest) -> tuple[TextTokens, Spell]:
    """A trained vocabulary of each kind, and its reference."""
    pre = request.param
    learner = byte_level(models.BPE(), SPLITS[pre], ())
    trainer = trainers.BpeTrainer(
        vocab_size=1200, initial_alphabet=list(BYTE_LETTERS), show_progress=False
    )
    learner.train_from_iterator(mixed_texts(2000, seed=1), trainer)
    ids = learner.get_vocab()
    tokens = [*sorted(ids, key=lambda token: ids[token]), "<|im_end|>"]
    merges = [" ".join(merge) for merge in _merges(learner)]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 1) + [3],
    }
    file = GGUFFile(path=Path("trained.gguf"), metadata=metadata, tensors={})
    return TextTokens.from_gguf(file), reference(pre, tokens, merges)


def _merges(learner: Tokenizer) -> list[list[str]]:
    merges: list[list[str]] = json.loads(learner.to_str())["model"]["merges"]
    return merges


def test_every_kind_is_compared() -> None:
    """A kind that is added to the table must be added here."""
    assert set(REFERENCE) | set(ALIASES) == set(SPLITS)
    assert all(SPLITS[alias] == SPLITS[name] for alias, name in ALIASES.items())


def test_tokens_are_those_of_the_reference(pair: tuple[TextTokens, Spell]) -> None:
    """Thousands of texts of every sort."""
    tokens, spell = pair
    texts = mixed_texts(TEXTS_OF_EACH_KIND, seed=2)

    assert [t for t in texts if tokens.encode(t) != spell(t)] == []


def test_texts_come_back_whole_and_piece_by_piece(pair: tuple[TextTokens, Spell]) -> None:
    """Decoding is exact, and streaming gives the same."""
    tokens, _ = pair
    for text in mixed_texts(TEXTS_OF_EACH_KIND, seed=3):
        ids = tokens.encode(text)
        stream = TextStream()
        pieces = [stream.feed(tokens.bytes_of(i)).text for i in ids]

        assert tokens.decode(ids) == text
        assert "".join(pieces) + stream.flush().text == text
        assert not set(ids) & set(tokens.control.values())


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_comes_back(pair: tuple[TextTokens, Spell], text: str) -> None:
    """Whatever letters it is made of."""
    tokens, _ = pair

    assert tokens.decode(tokens.encode(text)) == text


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2-135m", QWEN])
def test_real_vocabularies_give_the_tokens_of_transformers(name: str) -> None:
    """Its own reading of the same file, with control tokens spelt out, and no slower."""
    path = models_folder() / name if name == QWEN else find(name)
    if not path.is_file():
        pytest.skip(f"{path} is missing; put it there to test a second vocabulary")
    mapping = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    file = read_gguf(path)
    started = perf_counter()
    tokens = TextTokens.from_gguf(file)
    built_s = perf_counter() - started
    architecture, described, _ = mapping.get_gguf_tokenizer(str(path))
    theirs, _ = mapping.convert_gguf_tokenizer(architecture, described)
    theirs.encode_special_tokens = True
    if described["pre_tokenizer_type"] == "smollm":  # which transformers reads as plain GPT-2
        theirs.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), theirs.pre_tokenizer]
        )
    texts = mixed_texts(2000, seed=4)
    started = perf_counter()
    ours = [tokens.encode(text) for text in texts]
    encoded_s = perf_counter() - started
    letters = sum(map(len, texts))

    assert [t for t, ids in zip(texts, ours, strict=True) if theirs.encode(t).ids != ids] == []
    assert built_s < 3
    assert encoded_s / letters * 10_000 < 0.1
    assert [t for t, ids in zip(texts, ours, strict=True) if tokens.decode(ids) != t] == []


@pytest.mark.model
def test_a_real_template_gives_the_prompt_of_transformers() -> None:
    """With tools, in text and in tokens."""
    path = models_folder() / QWEN
    if not path.is_file():
        pytest.skip(f"{path} is missing; put it there to test a second template")
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    mapping = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    architecture, described, config = mapping.get_gguf_tokenizer(str(path))
    theirs, _ = mapping.convert_gguf_tokenizer(architecture, described)
    file = read_gguf(path)
    template = ChatTemplate.from_gguf(file, TextTokens.from_gguf(file))
    tool = {"type": "function", "function": {"name": "add", "parameters": {"a": "<b>"}}}
    messages = [
        Message(role="user", content="Add 2 and 3."),
        Message(role="assistant", content="", tool_calls=(ToolCall(name="add", arguments=SUM),)),
        Message(role="tool", content="5"),
    ]
    said: list[dict[str, Any]] = [{"role": m.role, "content": m.content} for m in messages]
    said[1] |= {"tool_calls": [{"function": {"name": "add", "arguments": SUM}}]}
    texts, _ = utils.render_jinja_template(
        [said],
        tools=[tool],
        chat_template=config["chat_template"],
        add_generation_prompt=True,
    )

    assert template is not None
    prompt = template.render(messages, tools=[tool])
    assert prompt.text == texts[0]
    assert prompt.token_ids == theirs.encode(texts[0], add_special_tokens=False).ids

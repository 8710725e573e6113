"""SentencePiece vocabularies, against Google's own library and against merging by hand."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.texts import mixed_texts
from ttc.engine.local import LocalEngine
from ttc.engine.local.files.gguf import GGUFFile, Value
from ttc.engine.local.source import ModelSource
from ttc.engine.local.text.spm import ScoredPairs
from ttc.engine.local.text.stream import TextStream
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.ports import Request
from ttc.types import Problem, Sampling

NUM_TEXTS = 3000
CALL = "<tool_call>"

Train = Callable[..., sentencepiece.SentencePieceProcessor]
Load = Callable[..., TextTokens]


@pytest.fixture(scope="module")
def train() -> Train:
    """Trains a vocabulary in a tenth of a second."""

    def make(**changes: object) -> sentencepiece.SentencePieceProcessor:
        model = io.BytesIO()
        options: dict[str, Any] = {
            "model_type": "bpe",
            "vocab_size": 1500,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "allow_whitespace_only_pieces": True,
            "character_coverage": 0.99,
            "user_defined_symbols": [CALL],
            "control_symbols": ["[INST]", "[/INST]"],
            "minloglevel": 2,
        }
        texts = [text.replace("\x00", "") for text in mixed_texts(3000, seed=1)]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=model, **(options | changes)
        )
        return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    return make


def of_processor(processor: sentencepiece.SentencePieceProcessor, **changes: Value) -> TextTokens:
    """The vocabulary as a GGUF file holds it."""
    ids = range(processor.get_piece_size())
    kinds = {
        processor.is_unknown: 2,
        processor.is_control: 3,
        processor.is_unused: 5,
        processor.is_byte: 6,
    }
    types = [next((type_ for is_, type_ in kinds.items() if is_(i)), 1) for i in ids]
    tokens = [processor.id_to_piece(i) for i in ids]
    types = [4 if token == CALL else type_ for token, type_ in zip(tokens, types, strict=True)]
    metadata: dict[str, Value] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [processor.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": processor.bos_id(),
        "tokenizer.ggml.eos_token_id": processor.eos_id(),
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
    }
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return TextTokens.from_gguf(GGUFFile(path=Path("spm.gguf"), metadata=metadata, tensors={}))


@pytest.fixture(scope="module")
def theirs(train: Train) -> sentencepiece.SentencePieceProcessor:
    """A vocabulary as Llama 2 has it, small."""
    return train()


@pytest.fixture(scope="module")
def spaced(theirs: sentencepiece.SentencePieceProcessor) -> TextTokens:
    """The same, read by us."""
    return of_processor(theirs)


def test_tokens_and_texts_are_those_of_sentencepiece(
    spaced: TextTokens, theirs: sentencepiece.SentencePieceProcessor
) -> None:
    """Thousands of texts of every sort, there and back."""
    texts = mixed_texts(NUM_TEXTS, seed=2)
    ours = [spaced.encode(text) for text in texts]

    assert [t for t, ids in zip(texts, ours, strict=True) if theirs.encode(t) != ids] == []
    assert [t for t, ids in zip(texts, ours, strict=True) if spaced.decode(ids) != t] == []
    assert [ids for ids in ours if theirs.decode(ids) != spaced.decode(ids)] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"split_by_whitespace": False},
        {"byte_fallback": False, "character_coverage": 0.98},
        {"add_dummy_prefix": False},
        {"split_by_unicode_script": False, "split_by_number": False, "split_digits": True},
    ],
    ids=["across words", "without bytes", "without a space in front", "other splits"],
)
def test_other_vocabularies_give_the_tokens_of_sentencepiece(
    train: Train, changes: dict[str, object]
) -> None:
    """Whatever its training allowed to merge."""
    processor = train(**changes)
    tokens = of_processor(processor, add_space_prefix=bool(changes.get("add_dummy_prefix", True)))

    wrong = [t for t in mixed_texts(1000, seed=3) if tokens.encode(t) != processor.encode(t)]

    assert wrong == []


def with_unused(model: bytes, unused: Callable[[int], bool]) -> bytes:
    """A model whose pieces of these numbers are unused.

    It is a protocol buffer: pieces are its fields of number 1, which come first, and the type of a
    piece is the field 3 of those, where 5 is unused and the last one counts.
    """
    at, pieces = 0, list[bytes]()
    while model[at] == 0x0A:
        size, at = model[at + 1], at + 2
        assert size < 0x80, "a longer piece would need a longer length"
        body = model[at : at + size] + (b"\x18\x05" if unused(len(pieces)) else b"")
        pieces.append(bytes([0x0A, len(body)]) + body)
        at += size
    return b"".join(pieces) + model[at:]


def test_unused_tokens_fall_apart_into_what_made_them(
    theirs: sentencepiece.SentencePieceProcessor,
) -> None:
    """As where a vocabulary is cut down after its training."""
    model = with_unused(theirs.serialized_model_proto(), lambda i: i > 300 and i % 3 == 0)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokens = of_processor(processor)

    wrong = [t for t in mixed_texts(1000, seed=4) if tokens.encode(t) != processor.encode(t)]

    assert len(tokens.unsampled_ids) == 400
    assert wrong == []


def test_tokens_are_those_that_transformers_converts_to(
    spaced: TextTokens, theirs: sentencepiece.SentencePieceProcessor
) -> None:
    """But for texts that begin with a space, which it takes for the one that it would add."""
    utils = pytest.importorskip("transformers.tokenization_utils_base")
    transformers = pytest.importorskip("transformers")
    ids = range(theirs.get_piece_size())
    vocab = {theirs.id_to_piece(i): i for i in ids}
    scores = {theirs.id_to_piece(i): theirs.get_score(i) for i in ids if i >= 260}
    converted = transformers.LlamaTokenizer(
        vocab=vocab, merges=utils.generate_merges(vocab, scores), add_bos_token=False
    )
    texts = [text for text in mixed_texts(1500, seed=6) if text[0] != " " and "<" not in text]

    assert [t for t in texts if spaced.encode(t) != converted.encode(t)] == []


def by_hand(text: str, scores: dict[str, float]) -> list[str]:
    """The best pair merges, the leftmost of equals, until there is none."""
    pieces = list(text)
    while True:
        unions = ["".join(pair) for pair in pairwise(pieces)]
        best = max(unions, key=lambda union: scores.get(union, -1.0), default="")
        if best not in scores:
            return pieces
        at = unions.index(best)
        pieces[at : at + 2] = [best]


@given(
    st.dictionaries(
        st.text("ab\u2581", min_size=2, max_size=4), st.integers(0, 3).map(float), max_size=12
    ),
    st.text("ab\u2581", max_size=16),
)
def test_of_equal_scores_the_leftmost_merges(scores: dict[str, float], text: str) -> None:
    """A fixed order of merges could not say so."""
    single = dict.fromkeys("ab\u2581", 0.0)
    names = [*single, *scores]
    ids = {name: i for i, name in enumerate(names)}
    pairs = ScoredPairs(single | scores, ids, bytes_={}, unknown=None)

    assert [names[i] for i in pairs.tokens(text)] == by_hand(text, scores)


def streamed(tokens: TextTokens, ids: Sequence[int], *, prompt: Sequence[int] = ()) -> str:
    stream = TextStream(trims=tokens.trims_after(prompt))
    return "".join(stream.feed(tokens.bytes_of(i)).text for i in ids) + stream.flush().text


def test_streaming_gives_the_text_of_the_whole(spaced: TextTokens) -> None:
    """From the start of a sequence, and as one that goes on."""
    for text in mixed_texts(500, seed=5):
        ids = spaced.encode(text)
        start = [spaced.control["<s>"]]

        assert streamed(spaced, ids, prompt=start) == spaced.decode(ids) == text
        for cut in range(1, len(ids), 7):
            went_on = streamed(spaced, ids[cut:], prompt=ids[:cut])
            halves = b"".join(map(spaced.bytes_of, ids[:cut])).removeprefix(b" ")
            if spaced.decode(ids[:cut]).encode() == halves:  # no character is cut in two
                assert spaced.decode(ids[:cut]) + went_on == text


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["\u2581In", "\u2581a", "\u2581box", "."], "In a box."),
        (["\u2581", "\u2581\u2581if", "\u2581x"], "  if x"),
    ],
)
def test_one_space_at_the_start_is_none(
    make_spaced: Load, pieces: list[str], expected: str
) -> None:
    """ST-06: One, and no more, and once."""
    tokens = make_spaced(pieces)
    ids = [3 + i for i in range(len(pieces))]

    assert tokens.decode(ids) == streamed(tokens, ids) == expected


def test_text_that_goes_on_keeps_its_space(make_spaced: Load) -> None:
    """ST-06: Prompt and text are what all their tokens say."""
    tokens = make_spaced(["\u2581is", "\u2581it", "?", "\u2581yes"])

    assert streamed(tokens, [6], prompt=[1, 3, 4, 5]) == " yes"
    assert tokens.decode([3, 4, 5, 6]) == tokens.decode([3, 4, 5]) + " yes"
    assert tokens.decode([6], after="text") == " yes"
    assert streamed(tokens, [6], prompt=[1]) == "yes"


def test_a_text_gets_a_space_only_where_it_begins(spaced: TextTokens) -> None:
    """At the start and after a control token, not where it goes on from another text."""
    start, after, text = (spaced.encode("the", after=a) for a in ("nothing", "control", "text"))

    assert start == after
    assert spaced.decode(start, after="text") == " the"
    assert spaced.decode(text, after="text") == "the"
    assert spaced.encode("") == []


def test_prompts_outputs_and_appended_texts_join(tiny: ModelSource, make_spaced: Load) -> None:
    """A branch's text is what all its tokens say, also where it begins with nothing."""
    spare = [f"[{i}]" for i in range(tiny.config.vocab - 9)]
    tokens = make_spaced(["\u2581", "a", "b", "\u2581a", "\u2581b", "ab", *spare])
    with LocalEngine(replace(tiny, tokens=tokens), name="tiny") as engine:
        for prompt, added in (("a", "b"), ("", "b"), ("", " b"), ("b ", " a")):
            root = engine.root(Problem(prompt=prompt), "policy")
            branch = engine.append(engine.append(root, added), "b")
            request = Request(branch=branch, max_tokens=5, sampling=Sampling(), seed=1)
            last = engine.submit(request).future.result()
            ids = [i for segment in last.lineage() for i in segment.token_ids or ()]

            assert ids[0] == 1
            assert tokens.decode(ids) == prompt + added + "b" + last.text


def test_texts_of_control_and_byte_tokens_stay_text(spaced: TextTokens) -> None:
    """They are spelt out; a user-defined token is text."""
    ids = spaced.encode("<s></s>[INST]<unk><0x0A><tool_call>")

    assert spaced.decode(ids) == "<s></s>[INST]<unk><0x0A><tool_call>"
    assert not set(ids) & {0, *spaced.control.values()}
    assert spaced.bytes_of(ids[-1]) == b"<tool_call>"


def test_what_a_sentencepiece_file_leaves_unsaid(spaced: TextTokens) -> None:
    """Sequences have a start, and the unknown token is never drawn."""
    assert spaced.start_id == spaced.control["<s>"]
    assert spaced.end_ids == {spaced.control["</s>"]}
    assert spaced.unsampled_ids == {0}
    assert spaced.special == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


@pytest.fixture(scope="module")
def make_spaced() -> Load:
    """Makes a vocabulary of `<unk>`, `<s>`, `</s>` and these pieces."""

    def make(pieces: list[str]) -> TextTokens:
        metadata: dict[str, Value] = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *pieces],
            "tokenizer.ggml.scores": [0.0] * (3 + len(pieces)),
            "tokenizer.ggml.token_type": [2, 3, 3] + [1] * len(pieces),
            "tokenizer.ggml.bos_token_id": 1,
        }
        return TextTokens.from_gguf(GGUFFile(path=Path("x.gguf"), metadata=metadata, tensors={}))

    return make

"""The vocabulary of a model folder, as Hugging Face lays it out.

`tokenizer.json` says how text is cut; the `tokenizers` library does it. Where there is none,
`tokenizer.model` does, and it is cut as in a GGUF file. `tokenizer_config.json`,
`special_tokens_map.json`, `added_tokens.json`, `generation_config.json` and `config.json` say which
tokens are special and which end a text: what any of them declares to be an end is one.

Differs from transformers: control tokens are never read out of a text, an added token that looks
like one is one, and added tokens are looked for in a text as it is, not in a normalised one, whose
spaces they would swallow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from ttc.engine.local.text.bpe import merge_model
from ttc.engine.local.text.gguf_vocabulary import gguf_vocabulary
from ttc.engine.local.text.sentencepiece import AddedPiece, read_sentencepiece
from ttc.engine.local.text.vocabulary import (
    Prefix,
    Vocabulary,
    is_control,
    letter_bytes,
    spaced_bytes,
)
from ttc.errors import ModelFileError

__all__ = ["folder_vocabulary", "read_json"]

_MODEL_OPTIONS = (
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)
_PIECES = "tokenizer.model"
_ENDS = ("eos_token", "eot_token", "eom_token")
_Json = dict[str, Any]


def read_json(path: Path) -> _Json:
    """A file's JSON object; empty where there is no such file.

    Raises:
        ModelFileError: it cannot be read, or is no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}; fetch it again") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} holds no JSON object; fetch it again")
    return value


def folder_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a folder.

    Raises:
        ModelFileError: it is missing, damaged or of a kind that is not supported.
    """
    files = {
        name: read_json(path / f"{name}.json")
        for name in (
            "tokenizer",
            "tokenizer_config",
            "special_tokens_map",
            "added_tokens",
            "generation_config",
            "config",
        )
    }
    spec = files["tokenizer"]
    if not spec and (path / _PIECES).is_file():
        return _of_pieces(path, files)
    if not spec:
        raise ModelFileError(
            f"{path} has neither tokenizer.json nor {_PIECES}, and no other tokenizer file is "
            "supported; convert the tokenizer, or use a GGUF file"
        )
    model = spec.get("model")
    kind = model.get("type", "BPE") if isinstance(model, dict) else None
    if kind != "BPE":
        raise ModelFileError(
            f"{path / 'tokenizer.json'}: the model {kind!r} is not supported; use one of 'BPE'"
        )
    try:
        return _vocabulary(path, files)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"{path / 'tokenizer.json'} or a file beside it is damaged: {error!r}; fetch it again"
        ) from error


@dataclass(frozen=True)
class _Added:
    """An added token."""

    id: int
    text: str
    is_control: bool
    options: _Json
    """Its flags in `tokenizer.json`."""


def _vocabulary(path: Path, files: Mapping[str, _Json]) -> Vocabulary:
    spec = files["tokenizer"]
    special = _special(files)
    added = _added(path, files, frozenset(special.values()))
    ids = dict(spec["model"]["vocab"]) | {token.text: token.id for token in added}
    control = {token.text: token.id for token in added if token.is_control}
    unknown: int | None = ids.get(spec["model"].get("unk_token"))
    size = max(_rows(files["config"]), max(ids.values()) + 1)
    named = {ids[special[name]] for name in _ENDS if special.get(name) in ids}
    end_ids = _checked_ends(path, files, named, size)
    meaningless = set(range(size)).difference(ids.values())
    meaningless |= {unknown} if unknown is not None else set()
    is_bytes = _find(spec.get("pre_tokenizer"), "ByteLevel") is not None
    prefix = _prefix(spec)
    return Vocabulary(
        spell=_spell(spec, ids, control, added),
        bytes_of=_spelling(ids, _token_bytes(spec, is_bytes), added, unknown),
        size=size,
        control=control,
        special=special,
        end_ids=end_ids,
        start_id=_start_id(files, special, ids),
        unsampled_ids=frozenset(meaningless - end_ids),
        prefix=prefix,
        trims=prefix != "never" and not is_bytes,
    )


def _of_pieces(path: Path, files: Mapping[str, _Json]) -> Vocabulary:
    """The vocabulary of a folder without a `tokenizer.json`."""
    special = _special(files)
    try:
        added = _added(path, files, frozenset(special.values()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"{path}: added tokens are damaged: {error!r}") from error
    tokens = [AddedPiece(token.id, token.text, token.is_control) for token in added]
    file = read_sentencepiece(path / _PIECES, tokens)
    found = gguf_vocabulary(file)
    size = max(found.size, _rows(files["config"]))
    named = {found.control[special[name]] for name in _ENDS if special.get(name) in found.control}
    end_ids = _checked_ends(path, files, found.end_ids | named, size)
    starts = files["tokenizer_config"].get("add_bos_token", True)
    return replace(
        found,
        size=size,
        special={**found.special, **special},
        end_ids=end_ids,
        start_id=found.start_id if starts else None,
        unsampled_ids=(found.unsampled_ids | set(range(found.size, size))) - end_ids,
    )


def _checked_ends(
    path: Path, files: Mapping[str, _Json], named: Collection[int], size: int
) -> frozenset[int]:
    """All ends, those that the configurations declare by number among them."""
    end_ids = frozenset(named).union(
        _declared_ends(files["config"]), _declared_ends(files["generation_config"])
    )
    if wrong := {i for i in end_ids if not 0 <= i < size}:
        raise ModelFileError(
            f"{path}: eos_token_id has {wrong}, and the tokens are 0 to {size - 1}"
        )
    return end_ids


def _special(files: Mapping[str, _Json]) -> dict[str, str]:
    """Texts of special tokens by name; the configuration wins over the older map."""
    special = {}
    for name, value in (files["special_tokens_map"] | files["tokenizer_config"]).items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            special[name] = text
    return special


def _added(path: Path, files: Mapping[str, _Json], named: frozenset[str]) -> list[_Added]:
    """The added tokens of all files; the flags of the first that has one, special in any."""
    listed = [(int(item["id"]), item) for item in files["tokenizer"].get("added_tokens") or ()]
    decoder = files["tokenizer_config"].get("added_tokens_decoder") or {}
    listed += [(int(i), item) for i, item in decoder.items()]
    listed += [(int(i), {"content": text}) for text, i in files["added_tokens"].items()]
    extra = files["special_tokens_map"] | files["tokenizer_config"]
    for value in extra.get("additional_special_tokens") or ():
        named |= {value["content"] if isinstance(value, dict) else value}
    specials = named.union(item["content"] for _, item in listed if item.get("special"))
    added: dict[str, _Added] = {}
    for i, item in listed:
        text = item["content"]
        is_structure = is_control(text, special=text in specials)
        if is_structure and (item.get("lstrip") or item.get("rstrip")):
            raise ModelFileError(
                f"{path}: the added token {text!r} takes spaces beside it (lstrip or rstrip), "
                "which is not supported for control tokens"
            )
        added.setdefault(text, _Added(i, text, is_structure, item))
    return list(added.values())


def _spell(
    spec: _Json, ids: Mapping[str, int], control: Mapping[str, int], added: Sequence[_Added]
) -> Callable[[str, bool], list[int]]:
    """How text is cut, with the space of the prefix and without it."""
    options = {
        key: value for key in _MODEL_OPTIONS if (value := spec["model"].get(key)) is not None
    }
    # A control token that is no token of the model can come out of no text. A letter without a
    # token needs the unknown one there.
    spelt = {text: i for text, i in ids.items() if text not in control}
    if unknown := options.get("unk_token"):
        spelt[unknown] = ids[unknown]
    model = merge_model(spelt, spec["model"]["merges"], **options)
    texts = [
        AddedToken(
            token.text,
            normalized=False,
            **{flag: bool(token.options.get(flag)) for flag in ("single_word", "lstrip", "rstrip")},
        )
        for token in added
        if not token.is_control
    ]
    tokenizers = []
    for stages in (_without_prefix(spec), spec):
        shell: _Json = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": stages.get("normalizer"),
            "pre_tokenizer": stages.get("pre_tokenizer"),
            "model": {"type": "BPE", "vocab": {}, "merges": []},
        }
        tokenizer = _from_json(shell)
        tokenizer.model = model
        tokenizer.add_tokens(texts)
        tokenizers.append(tokenizer)

    def spell(text: str, prefixed: bool) -> list[int]:
        return list(tokenizers[prefixed].encode(text, add_special_tokens=False).ids)

    return spell


def _from_json(shell: _Json) -> Any:
    try:
        return Tokenizer.from_str(json.dumps(shell))
    except Exception as error:  # the library raises bare exceptions
        raise ValueError(f"the normalizer or the pre_tokenizer is not known: {error}") from error


def _stages(part: Any) -> Iterator[_Json]:
    """A stage of the pipeline and those inside it."""
    if isinstance(part, dict):
        yield part
        for inner in (*part.get("normalizers", ()), *part.get("pretokenizers", ())):
            yield from _stages(inner)


def _find(part: Any, kind: str) -> _Json | None:
    return next((stage for stage in _stages(part) if stage.get("type") == kind), None)


def _prefix(spec: _Json) -> Prefix:
    """When the pipeline gives a text a space that it does not have."""
    space = _find(spec.get("pre_tokenizer"), "Metaspace")
    if space is not None:
        default = "always" if space.get("add_prefix_space", True) else "never"
        scheme: Prefix = space.get("prepend_scheme", default)
        if scheme != "never":
            return scheme
    letters = _find(spec.get("pre_tokenizer"), "ByteLevel") or {}
    if letters.get("add_prefix_space") or _find(spec.get("normalizer"), "Prepend"):
        return "always"
    return "never"


def _without_prefix(spec: _Json) -> _Json:
    """The pipeline for a text that goes on from another one."""
    bare: _Json = json.loads(
        json.dumps({key: spec.get(key) for key in ("normalizer", "pre_tokenizer")})
    )
    for stage in _stages(bare["pre_tokenizer"]):
        if stage.get("type") == "Metaspace":
            stage["prepend_scheme"] = "never"
        if "add_prefix_space" in stage:
            stage["add_prefix_space"] = False
    for stage in _stages(bare["normalizer"]):
        if stage.get("type") == "Prepend":
            stage["prepend"] = ""
    return bare


def _token_bytes(spec: _Json, is_bytes: bool) -> Callable[[str], bytes]:
    """What a token adds to the text, by the alphabet that tokens are written in."""
    if is_bytes:
        return letter_bytes
    is_spaced = _find(spec.get("pre_tokenizer"), "Metaspace") or _find(
        spec.get("normalizer"), "Replace"
    )
    if not (is_spaced and spec["model"].get("byte_fallback")):
        raise ValueError("the pre_tokenizer is neither ByteLevel nor SentencePiece's with bytes")
    return spaced_bytes


def _spelling(
    ids: Mapping[str, int],
    token_bytes: Callable[[str], bytes],
    added: Sequence[_Added],
    unknown: int | None,
) -> Callable[[int], bytes]:
    """What each token adds to the text, found out when it is first asked."""
    texts = {i: text for text, i in ids.items()}
    fixed = {token.id: b"" if token.is_control else token.text.encode() for token in added}
    if unknown is not None:
        fixed.setdefault(unknown, "\ufffd".encode())

    @cache
    def bytes_of(token_id: int) -> bytes:
        if token_id in fixed:
            return fixed[token_id]
        return token_bytes(texts[token_id]) if token_id in texts else b""

    return bytes_of


def _start_id(
    files: Mapping[str, _Json], special: Mapping[str, str], ids: Mapping[str, int]
) -> int | None:
    """The token that begins every sequence: as configured, else as the post-processor has it."""
    wanted = files["tokenizer_config"].get("add_bos_token")
    if isinstance(wanted, bool):
        return ids.get(special.get("bos_token", "")) if wanted else None
    part = files["tokenizer"].get("post_processor")
    for stage in (part, *part.get("processors", ())) if isinstance(part, dict) else ():
        first = (stage.get("single") or [{}])[0]
        if "SpecialToken" in first:
            return ids[first["SpecialToken"]["id"]]
    return None


def _rows(config: _Json) -> int:
    """The rows of the model's embedding."""
    return max(part.get("vocab_size") or 0 for part in (config, config.get("text_config") or {}))


def _declared_ends(config: _Json) -> Iterator[int]:
    for part in (config, config.get("text_config") or {}):
        value = part.get("eos_token_id")
        yield from value if isinstance(value, list) else [] if value is None else [value]

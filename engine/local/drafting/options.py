"""How an engine speculates, as its user asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttc.config import ACCEPTANCES, Acceptance, Arithmetic
from ttc.engine.local.drafting.draft import Drafter
from ttc.engine.local.drafting.ngram import NgramDrafter
from ttc.engine.local.hub.models import find
from ttc.engine.local.source import ModelSource, open_model
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import ModelFileError

if TYPE_CHECKING:
    from ttc.engine.local.model import Model

__all__ = ["Drafting", "drafting_of"]


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """Who drafts, and how drafts are accepted."""

    name: str
    """Who, as a user names it."""
    make: Callable[[], Drafter]
    """Called once, on the engine's thread."""
    acceptance: Acceptance = "coupled"

    def __str__(self) -> str:
        return f"{self.name}, {self.acceptance}"


def drafting_of(
    speculate: str | os.PathLike[str] | None,
    acceptance: Acceptance,
    tokens: TextTokens,
    arithmetic: Arithmetic | None,
) -> Drafting | None:
    """What `LocalEngine.load` is asked for; `None` where nothing drafts.

    Raises:
        ValueError: the two do not go together, or there is no such acceptance.
        ModelFileError: there is no such draft model, or it has another vocabulary.
    """
    if acceptance not in ACCEPTANCES:
        known = " or ".join(map(repr, ACCEPTANCES))
        raise ValueError(f"acceptance is {known}, not {acceptance!r}")
    if speculate is None:
        if acceptance != "coupled":
            raise ValueError(
                f"acceptance={acceptance!r} says how drafts are accepted; give "
                "speculate= to say who drafts"
            )
        return None
    if speculate == "tree":
        if acceptance == "maximal":
            raise ValueError(
                "acceptance='maximal' lets drafts decide what comes, and what siblings wrote by "
                "now is a matter of timing; use speculate='ngram', a draft model, or 'coupled'"
            )
        return Drafting(name="tree", make=lambda: NgramDrafter("tree"), acceptance=acceptance)
    if speculate == "ngram":
        decides = acceptance == "maximal"
        return Drafting(
            name="ngram", make=lambda: NgramDrafter("own", decides=decides), acceptance=acceptance
        )
    return _by_model(speculate, acceptance, tokens, arithmetic)


def _by_model(
    model: str | os.PathLike[str],
    acceptance: Acceptance,
    tokens: TextTokens,
    arithmetic: Arithmetic | None,
) -> Drafting:
    try:
        path = find(model)
    except ModelFileError as error:
        raise ModelFileError(f"speculate is 'ngram', 'tree' or a draft model: {error}") from error
    source = open_model(path, arithmetic, drafts=True)
    check_vocabulary(source.tokens, tokens, os.fspath(model))
    return Drafting(
        name=path.stem, make=lambda: _draft_model(source, acceptance), acceptance=acceptance
    )


def _draft_model(source: ModelSource, acceptance: Acceptance) -> Drafter:
    from ttc.engine.local.drafting.draft_model import DraftModel

    model: Model = source.build()
    return DraftModel(
        model,
        name=f"{model.numerics} head={model.config.vocab} sha={source.fingerprint[:16]}",
        unsampled=source.tokens.unsampled_ids,
        acceptance=acceptance,
    )


def check_vocabulary(draft: TextTokens, tokens: TextTokens, name: str) -> None:
    """Whether the same numbers stand for the same tokens.

    Raises:
        ModelFileError: they do not.
    """
    how = "a draft model needs the tokens of the model that it drafts for; use one of its family"
    if draft.size != tokens.size:
        raise ModelFileError(
            f"{name!r} has {draft.size} tokens, and the model has {tokens.size}: {how}"
        )
    for token in range(tokens.size):
        if draft.bytes_of(token) != tokens.bytes_of(token):
            pair = f"{draft.bytes_of(token)!r}, and for the model {tokens.bytes_of(token)!r}"
            raise ModelFileError(f"in {name!r} the token {token} stands for {pair}: {how}")
    if (draft.control, draft.end_ids) != (tokens.control, tokens.end_ids):
        raise ModelFileError(f"{name!r} has other control tokens than the model: {how}")

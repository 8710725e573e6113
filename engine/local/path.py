"""The tokens that a call goes on from."""

from __future__ import annotations

from ttc.types import Branch

__all__ = ["path_tokens", "segment_tokens"]


def path_tokens(branch: Branch) -> list[int]:
    """The tokens that a call on this branch goes on from.

    An end token that closed a segment is left out: the call goes on in its place, as the texts of
    the segments do. The tokens of a stop string stay, since a stop string may begin inside a token.
    """
    return [token for segment in branch.lineage() for token in segment_tokens(segment)]


def segment_tokens(segment: Branch) -> tuple[int, ...]:
    """What a segment adds to the tokens that a call goes on from."""
    if segment.token_ids is None:
        raise ValueError(
            "the branch has a segment without tokens, so another engine made it; "
            "extend branches with the engine that made their root"
        )
    closed = segment.finish_reason == "stop" and isinstance(segment.stop_reason, int)
    return segment.token_ids[:-1] if closed else segment.token_ids

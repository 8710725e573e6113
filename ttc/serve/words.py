"""Words: what of a turn is certainly no call of a tool, as the turn comes.

A call is only known once its turn has ended: one that is cut or cannot be read makes words of all
that was written. So from where a call may begin everything is held back.
"""

from __future__ import annotations

from collections.abc import Mapping

from ttc.tool_calls import Form, Tools, parameters_of

__all__ = ["Words"]

_MARKS: Mapping[Form, str] = {
    "hermes": "<tool_call>",
    "xml": "<tool_call>",
    "llama": "<|python_tag|>",
    "mistral": "[TOOL_CALLS]",
}
_FENCE = "```"
_JSON = ("{", "[", '"')


class Words:
    """Divides a turn whose thought was taken off.

    Args:
        form: how the model writes calls. Of ReAct's lines all is held: any turn may end in a call.
        tools: what may be called.
    """

    def __init__(self, form: Form, tools: Tools) -> None:
        self._mark = _MARKS.get(form, "")
        self._names = tuple(parameters_of(tools))
        self._held = ""
        self._has_words = False
        self._may_go_on = bool(self._mark)

    def feed(self, piece: str) -> str:
        """What is certain by now. Blanks at its end wait: before a call they are none of it."""
        self._held += piece
        if not self._may_go_on:
            return ""
        if not self._has_words:
            seen = self._held.lstrip()
            if not seen or self._may_be_call(seen):
                return ""
            self._has_words = True
        at = self._held.find(self._mark)
        if at < 0:
            at = len(self._held) - _overlap(self._held, self._mark)
        else:
            self._may_go_on = False
        said = self._held[:at].rstrip()
        self._held = self._held[len(said) :]
        return said

    def _may_be_call(self, seen: str) -> bool:
        """Whether a turn that begins so may be calls without a mark, and nothing else."""
        if _FENCE.startswith(seen[: len(_FENCE)]):
            _, line, body = seen.partition("\n")
            return not line or not body.strip() or self._may_be_call(body.lstrip())
        return seen.startswith(_JSON) or any(_may_be_named(seen, name) for name in self._names)


def _may_be_named(seen: str, name: str) -> bool:
    """Whether a text may become a tool's name with an object behind it."""
    if not seen.startswith(name):
        return name.startswith(seen)
    return seen[len(name) :].lstrip()[:1] in ("", "{", "[")


def _overlap(text: str, mark: str) -> int:
    """The length of the longest end of a text that a mark begins with."""
    lengths = range(min(len(text), len(mark) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(mark[:length])), 0)

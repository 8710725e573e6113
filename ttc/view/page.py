"""The page: HTML, style and script put together, with the policy of what it may do.

It asks nobody but its own server, and as a file nobody at all. The policy allows this one script
and this one style by their hashes, so no text of a model can become either.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from ttc.view.sources import RunLine

__all__ = ["SCRIPTS", "headers", "list_page", "live_page", "written_page"]

SCRIPTS = (
    "state.js",
    "layout.js",
    "paint.js",
    "tree.js",
    "graph.js",
    "charts.js",
    "details.js",
    "main.js",
)
"""In the order in which they stand in the page."""


def live_page(name: str) -> str:
    """The page of a run that asks its server for what there is, and for what is new.

    Args:
        name: the run's, for the title.
    """
    return _filled(name, {"live": True}, {}, connect="'self'")


def written_page(document: Mapping[str, Any], texts: Mapping[str, Any]) -> str:
    """A page that holds all of a run and needs no server.

    Args:
        document: what `RunView.document` gives.
        texts: the text of every call.
    """
    return _filled(document["name"], document, texts, connect="'none'")


def list_page(runs: Sequence[RunLine]) -> str:
    """The list of runs; it needs no script."""
    rows = "".join(map(_listed, runs))
    none = '<p class="empty">No runs are kept. <code>ttc solve</code> keeps one.</p>'
    empty = "" if runs else none
    return _put(
        "list.html",
        POLICY=escape(_policy("'none'")),
        STYLE=_style(),
        COUNT=f"{len(runs):,}",
        ROWS=rows,
        EMPTY=empty,
    )


def headers() -> dict[str, str]:
    """What a server says with everything that it gives: the policy, and to keep it private."""
    return {
        "Content-Security-Policy": _policy("'self'") + "; frame-ancestors 'none'",
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _filled(
    name: str, document: Mapping[str, Any], texts: Mapping[str, Any], *, connect: str
) -> str:
    return _put(
        "page.html",
        POLICY=escape(_policy(connect)),
        TITLE=escape(name),
        STYLE=_style(),
        SCRIPT=_script(),
        DOCUMENT=_embedded(document),
        TEXTS=_embedded(texts),
    )


def _put(asset: str, **parts: str) -> str:
    """A page with its holes filled; what fills them is not looked at again."""
    head, *rest = _asset(asset).split("{{")
    made = [head]
    for part in rest:
        hole, _, after = part.partition("}}")
        made += [parts[hole], after]
    return "".join(made)


def _listed(run: RunLine) -> str:
    tokens = "" if run.tokens is None else f"{run.tokens:,}"
    cells = (run.question, run.answer or "", run.strategy)
    question, answer, strategy = (escape(_short(cell)) for cell in cells)
    name = escape(run.name)
    return (
        f'<tr><td><a href="{escape(quote(run.name))}">{name}</a></td>'
        f'<td><span class="chip {escape(run.state)}">{escape(run.state)}</span></td>'
        f"<td><bdi>{question}</bdi></td><td><bdi>{answer}</bdi></td>"
        f'<td class="number">{tokens}</td><td class="code"><bdi>{strategy}</bdi></td></tr>'
    )


def _short(text: str, most: int = 120) -> str:
    line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def _embedded(value: Any) -> str:
    """JSON that cannot end the element that it stands in, nor open another one."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII: no character is left to be special
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(connect: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(_script())}'",
            f"style-src '{_hash(_style())}'",
            f"connect-src {connect}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"


@cache
def _style() -> str:
    return _asset("page.css")


@cache
def _asset(name: str) -> str:
    return files("ttc.view").joinpath("assets", name).read_text(encoding="utf-8")

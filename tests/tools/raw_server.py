"""A server of a few lines, which starts at once, and is as hostile as it is asked to be.

python -S tests/tools/raw_server.py [other | odd]
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

FLOODS = ("endless_line", "endless_lines", "forged_replies", "endless_brackets")
NAMES = ("add", *FLOODS, "endless_requests", "die", "babble", "go_deaf")
"""Tools that do what they are called."""
_MEGABYTE = 1 << 20


def write(text: str) -> None:
    """To whoever asks, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def message(id: Any, **content: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, **content}) + "\n"


def told(id: Any, text: str) -> str:
    return message(id, result={"content": [{"type": "text", "text": text}]})


def flood(name: str) -> None:
    """Writes 64 MiB, and then hangs."""
    asking = message(7, method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
    forged = told("x", "z" * 1_000)
    pieces = {
        "endless_line": "x" * _MEGABYTE,
        "endless_lines": ("y" * 1_023 + "\n") * (_MEGABYTE // 1_024),
        "endless_requests": asking * (_MEGABYTE // len(asking)),
        "forged_replies": forged * (_MEGABYTE // len(forged)),
        "endless_brackets": "[" * _MEGABYTE,
    }
    for _ in range(64):
        write(pieces[name])
    time.sleep(600)


def call(id: Any, name: str, arguments: dict[str, Any]) -> None:
    if name in FLOODS or name == "endless_requests":
        flood(name)
    if name == "die":
        os._exit(3)
    if name == "babble":
        write("no JSON\n[]\n{}\nnull\n\n" + told(None, "nobody's") + told(id + 1, "another's"))
        write(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": 3}) + "\n")
    write(told(id, str(arguments.get("a", 0) + arguments.get("b", 0))))
    if name == "go_deaf":
        time.sleep(600)


def listed(name: str) -> dict[str, Any]:
    number = {"type": "integer"}
    schema: dict[str, Any] = {"type": "object", "properties": {"a": number, "b": number}}
    if "odd" in sys.argv:
        schema = {"type": "object", "properties": {"a": 3}, "required": [5]}
    return {"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": name == "add"}}


def main() -> None:
    names = [*NAMES, "sneak"] if "other" in sys.argv else NAMES
    for line in sys.stdin:
        asked = json.loads(line)
        id, params = asked.get("id"), asked.get("params") or {}
        match asked["method"]:
            case "initialize":
                known = {"protocolVersion": params["protocolVersion"], "capabilities": {}}
                named = {"serverInfo": {"name": "raw", "version": "1"}}
                write(message(id, result={**known, **named}))
            case "tools/list":
                write(message(id, result={"tools": [listed(name) for name in names]}))
            case "tools/call":
                call(id, params["name"], params.get("arguments") or {})


if __name__ == "__main__":
    main()

"""Programs as MCP servers that flood, babble, go deaf or die: they end a call, and cost little."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.lab import called
from tests.tools.raw_server import FLOODS, NAMES
from ttc.tools import ToolResult, mcp_stdio
from ttc.tools.mcp import McpServer

pytest.importorskip("mcp")
RAW = [sys.executable, "-S", str(Path(__file__).parent / "raw_server.py")]
MOST = 1 << 18


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[McpServer]:
    """One that may say little, and whose end nobody waits for."""
    monkeypatch.setattr(mcp_stdio, "MOST_BYTES", MOST)
    monkeypatch.setattr(mcp_stdio, "_PATIENCE_S", 0.05)
    with McpServer("raw", command=RAW, effects=dict.fromkeys(NAMES, "pure")) as server:
        yield server


def told(server: McpServer, name: str, *, seconds: float = 60.0) -> ToolResult:
    """What a call comes to."""
    tool = next(tool for tool in server.tools if tool.name == name)
    object.__setattr__(tool, "seconds", seconds)
    (result,) = called((tool, {"a": 1, "b": 1}), after_untrusted=False)  # type: ignore[arg-type]
    return result


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_takes_no_more_memory_than_its_limit_and_ends_the_call(
    server: McpServer, name: str
) -> None:
    """It would write 64 MiB. The model is told why, and the calls that follow fail at once."""
    tracemalloc.start()
    try:
        result = told(server, name)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2 * MOST + (2 << 20)
    assert (result.status, "wrote more than 262,144 bytes" in result.text) == ("error", True)
    assert told(server, "add").status == "error"


def test_one_that_asks_without_end_and_never_listens_piles_nothing_up(server: McpServer) -> None:
    """Its requests are refused one by one, so it waits for itself until the call's time is over."""
    tracemalloc.start()
    try:
        result = told(server, "endless_requests", seconds=0.5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2 * MOST + (2 << 20)
    assert result.status == "timeout"


def test_what_is_no_reply_is_read_past(server: McpServer) -> None:
    """No JSON, no message, nobody's reply, and one to a call that nobody has made."""
    assert [told(server, name).text for name in ("babble", "add")] == ["2", "2"]


def test_what_is_said_between_replies_is_counted_anew_after_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many replies, which together are longer than one may be, are no flood."""
    monkeypatch.setattr(mcp_stdio, "MOST_BYTES", 2_048)
    with McpServer("raw", command=RAW, effects={"add": "pure"}) as server:
        uses = [(server.tools[0], {"a": n, "b": 10**9}) for n in range(40)]
        results = called(*uses, after_untrusted=False)  # type: ignore[arg-type]

    assert {result.status for result in results} == {"ok"}


def test_one_that_dies_fails_its_calls(server: McpServer) -> None:
    assert [told(server, name).status for name in ("die", "add")] == ["error", "error"]


def test_one_that_reads_no_more_costs_a_call_its_time(server: McpServer) -> None:
    """And it is ended all the same."""
    assert told(server, "go_deaf").text == "2"
    assert told(server, "add", seconds=0.3).status == "timeout"

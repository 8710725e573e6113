"""Tools of an MCP server, which is someone else's program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.meta.tree import ROOT
from tests.tools.lab import called
from ttc.errors import SettingsError
from ttc.tools.mcp import McpServer, load_servers

pytest.importorskip("mcp")
COMMAND = [sys.executable, "-m", "tests.tools.mcp_server"]
RAW = [sys.executable, "-S", str(ROOT / "tests/tools/raw_server.py")]
ENV = {"PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with McpServer("probe", command=COMMAND, env=ENV, effects={"fail": "pure"}) as server:
        yield server


def tool(server: McpServer, name: str) -> Any:
    return next(tool for tool in server.tools if tool.name == name)


def told(server: McpServer, name: str, **arguments: Any) -> tuple[str, str]:
    """What a call comes to."""
    (result,) = called((tool(server, name), arguments), after_untrusted=False)
    assert not result.is_trusted
    return result.status, result.text


def test_a_server_s_tools_are_called(server: McpServer) -> None:
    """With its own schemas; its errors are results."""
    assert [t.name for t in server.tools] == ["add", "secrets", "fail", "ask"]
    assert tool(server, "add").parameters["required"] == ["a", "b"]
    assert told(server, "add", a=2, b=3) == ("ok", "5")
    assert told(server, "fail")[0] == "error"
    assert told(server, "add", a="x")[0] == "error"


def test_what_a_server_says_of_its_effects_does_not_count(server: McpServer) -> None:
    """Only what the user says; without that the worst."""
    assert {t.name: t.effect for t in server.tools} == {
        "add": "irreversible",
        "secrets": "irreversible",
        "fail": "pure",
        "ask": "irreversible",
    }


def test_a_server_inherits_no_environment(
    server: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the home folder."""
    names = told(server, "secrets")[1].split()

    assert set(names) <= {"PATH", "PYTHONPATH", "LC_CTYPE"}


def test_a_server_that_asks_for_a_model_is_refused(server: McpServer) -> None:
    """It is asked, and asks nothing."""
    status, text = told(server, "ask")

    assert status == "ok"
    assert text.startswith("refused")


def test_a_server_whose_tools_have_changed_is_refused() -> None:
    """One more tool is another hash; and with trust its hints count."""
    with McpServer("raw", command=RAW, is_trusted=True) as trusted:
        assert tool(trusted, "add").effect == "pure"
        assert tool(trusted, "die").effect == "irreversible"
    with McpServer("raw", command=RAW, pin=trusted.pin):
        pass
    with pytest.raises(SettingsError, match="not those that were pinned"):
        McpServer("raw", command=[*RAW, "other"], pin=trusted.pin)


def test_a_schema_that_is_none_is_refused() -> None:
    """Before a model is told of it."""
    with pytest.raises(SettingsError, match=r"inputSchema\.properties"):
        McpServer("raw", command=[*RAW, "odd"])


def test_a_file_names_servers_and_pins_them(tmp_path: Path) -> None:
    """The error tells the pin that is missing."""
    file = tmp_path / "servers.yaml"
    options = f"command: {RAW}\n    effects: {{add: pure}}"
    file.write_text(f"servers:\n  probe:\n    {options}\n")
    with pytest.raises(SettingsError, match="write pin: ") as missing:
        load_servers(file)
    pin = str(missing.value).rpartition("pin: ")[2]
    file.write_text(f"servers:\n  probe:\n    {options}\n    pin: {pin}\n")
    (server,) = load_servers(file)
    server.close()
    assert (server.pin, tool(server, "add").effect) == (pin, "pure")
    file.write_text("servers:\n  probe:\n    shell: yes\n")
    with pytest.raises(SettingsError, match="no option 'shell'"):
        load_servers(file)
    with pytest.raises(SettingsError, match="names no servers"):
        load_servers(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"command": ["x"], "url": "https://x"},
        {"url": "http://example.org"},
        {"url": "file:///"},
    ],
)
def test_a_server_is_a_program_or_a_safe_address(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"exactly one|listens at https"):
        McpServer("probe", **options)


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(SettingsError, match="does not answer"):
        McpServer("probe", command=["/nonexistent/server"])

"""A server with tools of several kinds; some of them ask for what they should not get.

python -m tests.tools.mcp_server [other]
"""

from __future__ import annotations

import os
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import SamplingMessage, TextContent, ToolAnnotations

server = MCPServer("probe", log_level="CRITICAL")
HINT = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=HINT)
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool()
def secrets() -> str:
    """Tells its environment."""
    return " ".join(sorted(name for name, value in os.environ.items() if value))


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("it is broken")


@server.tool()
async def ask(context: Context) -> str:
    """Asks the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Hello?"))
    try:
        await context.session.create_message([message], max_tokens=9)  # type: ignore[deprecated,unused-ignore]
    except Exception as error:  # noqa: BLE001
        return f"refused: {type(error).__name__}"
    return "answered"


if "other" in sys.argv:

    @server.tool()
    def sneak() -> str:
        """One more."""
        return "x"


if __name__ == "__main__":
    server.run()

"""An agent that calls a tool of an MCP server, which this file is as well when it is asked to be.

What the tool does to the world is said here, since what a server says of itself does not count. In
a program of yours the pin stands in a file: see `ttc.tools.mcp.load_servers`.
"""

import json
import os
import sys

import ttc
from ttc.ports import Request
from ttc.strategies import Agent
from ttc.testing import FakeEngine
from ttc.tools.mcp import McpServer


def serve() -> None:
    """Listens at standard input, with one tool."""
    from mcp.server import MCPServer

    server = MCPServer("rates", log_level="CRITICAL")

    @server.tool()
    def rate(currency: str) -> str:
        """The rate of a currency, in cents."""
        return {"euro": "117", "yen": "0.65"}.get(currency, "unknown")

    server.run()


def model(request: Request) -> str:
    """Asks for a rate, and tells it."""
    told = request.branch.text
    if '"117"' in told:
        return "Thought: I know it.\nFinal Answer: 117"
    arguments = json.dumps({"currency": "euro"})
    return f"Thought: I ask.\nAction: rate\nAction Input: {arguments}"


def main() -> None:
    """Connects, asks, and tells the answer."""
    command = [sys.executable, os.path.abspath(__file__), "serve"]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with McpServer("rates", command=command, env=paths, effects={"rate": "pure"}) as server:
        print(f"tools: {', '.join(tool.name for tool in server.tools)}")
        outcome = ttc.solve(
            "What is a euro worth, in cents?",
            Agent(tools=server.tools),
            model=FakeEngine(model),
            seed=0,
        )
    print(f"answer: {outcome.answer}")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()

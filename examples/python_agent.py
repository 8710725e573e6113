"""An agent that runs Python in the jail, four branches of it, and a vote over their answers.

Each branch has variables of its own, which are kept from call to call. The model here is scripted,
so that the example gives the same everywhere; put the name of a real one in its place.
"""

import json

import ttc
from ttc.ports import Request
from ttc.strategies import Agent, Vote
from ttc.testing import FakeEngine

CELLS = ["squares = [n * n for n in range(1, 11)]", "sum(squares)"]


def model(request: Request) -> str:
    """Writes two cells, one after the other, and then the answer that the second one told."""
    turns = [segment for segment in request.branch.lineage() if segment.call is not None]
    if len(turns) < len(CELLS):
        arguments = json.dumps({"code": CELLS[len(turns)]})
        return f"Thought: I compute it.\nAction: python\nAction Input: {arguments}"
    told = request.branch.text.split('"')[1]
    return f"Thought: I know it.\nFinal Answer: {told}"


outcome = ttc.solve(
    "What is the sum of the first ten squares?",
    Agent(tools=["python"], n=4) >> Vote(),
    model=FakeEngine(model),
    seed=0,
)
print(f"answer: {outcome.answer} (confidence {outcome.confidence:.2f})")
spent = outcome.usage_by_role
print(f"{spent['policy'].calls} turns, {spent['tools'].calls} calls of tools")

"""An agent behind OpenAI's API: the operator names it, and a client asks for it by that name.

What a client writes can name no agent, since tools act; what the operator has named may hold
anything. The server runs in the background here; `ttc serve --named sums="agent(…)"` is the same.
"""

import json

import openai

from ttc.ports import Request
from ttc.serve import App, Service, Settings, background
from ttc.testing import FakeEngine

AGENT = "agent(tools=(calculator(), ), n=3) >> vote()"


def model(request: Request) -> str:
    """Computes a product, and tells it."""
    told = request.branch.text
    if '"391"' in told:
        return "Thought: I know it.\nFinal Answer: 391"
    arguments = json.dumps({"expression": "17 * 23"})
    return f"Thought: I compute it.\nAction: calculator\nAction Input: {arguments}"


service = Service({"fake": FakeEngine(model)}, settings=Settings(named={"sums": AGENT}))
with background(App(service)) as url, openai.OpenAI(base_url=url, api_key="none") as client:
    question = [{"role": "user", "content": "What is 17 * 23?"}]
    reply = client.chat.completions.create(model="fake@sums", messages=question, seed=0)  # type: ignore[arg-type]
    print(f"answer: {reply.choices[0].message.content}")
    try:
        client.chat.completions.create(model=f"fake@{AGENT}", messages=question)  # type: ignore[arg-type]
    except openai.PermissionDeniedError as error:
        print(f"a client's own: {error.code}")

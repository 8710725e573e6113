"""The server: OpenAI's API in front of every strategy.

    from ttc.serve import App, Service, Settings, background

    service = Service({"fake": engine}, settings=Settings(strategy="self_consistency(n=8)"))
    with background(App(service)) as url:
        client = openai.OpenAI(base_url=url, api_key="none")

On a command line it is `ttc serve`. It needs the extra `serve`.
"""

from ttc.serve.app import App
from ttc.serve.keys import Key, Keys, new_key
from ttc.serve.refusal import Refusal
from ttc.serve.server import Server, background
from ttc.serve.service import Service
from ttc.serve.settings import Settings

__all__ = [
    "App",
    "Key",
    "Keys",
    "Refusal",
    "Server",
    "Service",
    "Settings",
    "background",
    "new_key",
]

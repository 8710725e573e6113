"""OpenAI-compatible servers as engines: vLLM, SGLang, llama.cpp, ttc's own, and hosted ones.

`engine` is the port, and `service` what a user says of the servers. `probe` finds out what they do
and writes a `report`. `bodies` and `replies` speak the API, `frames` the event stream; `failures`
says what may be sent again, `call` sends, and `routes` says where to and when.
"""

from __future__ import annotations

from ttc.engine.openai.engine import OpenAIEngine
from ttc.engine.openai.probe import connect, probe
from ttc.engine.openai.report import Report
from ttc.engine.openai.service import Service, named

__all__ = ["OpenAIEngine", "Report", "Service", "connect", "named", "probe"]

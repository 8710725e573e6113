"""vLLM in the process as an engine. `engine` is the port, `calls` what runs on vLLM's loop."""

from __future__ import annotations

from ttc.engine.vllm.engine import VllmEngine

__all__ = ["VllmEngine"]

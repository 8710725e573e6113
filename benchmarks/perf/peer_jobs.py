"""Jobs of a peer's process: read from its input, answered on its output, one a line, as JSON.

It runs in an environment of the peer's own, and imports nothing of ttc.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

__all__ = ["own_output", "serve"]

Generate = Callable[[list[list[int]], int, int], list[list[list[int]]]]


@contextmanager
def own_output() -> Iterator[TextIO]:
    """The process's output; whatever else is printed goes where errors go."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        yield answers


def serve(generate: Generate, answers: TextIO) -> None:
    """Answers jobs until there are no more. The first line says that all is loaded."""

    def answer(**found: Any) -> None:
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    answer()
    for line in sys.stdin:
        job = json.loads(line)
        begun = time.perf_counter()
        outputs = generate(job["prompts"], job["samples"], job["tokens"])
        answer(seconds=time.perf_counter() - begun, outputs=outputs)

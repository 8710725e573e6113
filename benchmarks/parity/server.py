"""lm-evaluation-harness on ttc's own server against `ttc eval`: texts, scores and extraction.

    python -m ttc.benchmarks.parity.server "gsm8k[300:400]" --data DATA --model MODEL
        --work FOLDER [--lm-eval PYTHON] [--limit N] [--json PATH]

One engine does both: `ttc eval` asks it greedily, and then a server on this machine has it, where
the harness asks the same questions, out of a file, by chat. The harness is in an environment of its
own, that of PYTHON; by default one is made in FOLDER, with pip. Texts have to be the same to the
letter. The harness reads a text by two patterns, and ttc by its extractor and its equality; where a
score differs, the problem is listed with what each has read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import takewhile
from operator import eq
from pathlib import Path
from statistics import fmean
from typing import Any

from ttc.benchmarks.data import task_named
from ttc.benchmarks.harness.results import Result
from ttc.benchmarks.parity.greedy import asked_by, greedy_results, parser_of, text_of, told
from ttc.benchmarks.results import Value
from ttc.benchmarks.tasks import Task
from ttc.errors import RecordError, TTCError
from ttc.ports import Engine
from ttc.registry import load_engine

__all__ = ["FILTERS", "by_the_harness", "main", "rows"]

FILTERS = ("boxed", "last-number")
"""How the harness reads a text."""
_MODEL = "model"
_CLIENT = Path(__file__).with_name("lm_eval_client.py")


def by_the_harness(
    engine: Engine, task: Task, folder: Path, python: Path, max_tokens: int
) -> dict[str, Any]:
    """What the harness got from the server, and how it scored that.

    Raises:
        RecordError: it failed; its last words are told.
    """
    from ttc.serve import App, Service, Settings, background

    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"id": p.id, "question": p.messages[0].content, "answer": reference.answer})
        for p, reference in task.items
    ]
    (folder / "questions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    hidden = {"PYTHONPATH": "", "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1"}
    settings = Settings(deadline_s=3600.0)
    with background(App(Service({_MODEL: engine}, settings=settings))) as url:
        command = [str(python), str(_CLIENT), url, _MODEL, str(folder), str(max_tokens)]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **hidden}, check=False
        )
    said = done.stdout.strip().splitlines()
    if done.returncode or not said:
        raise RecordError(f"lm-evaluation-harness failed: {done.stderr[-2_000:]}")
    told: dict[str, Any] = json.loads(said[-1])
    return told


def rows(ours: Mapping[str, Result], theirs: Mapping[str, Any]) -> list[dict[str, Value]]:
    """A row of all, and one for each problem whose text or score differs.

    Args:
        ours: what `ttc eval` came to, by problem.
        theirs: what the client told.
    """
    found = theirs["problems"]
    whole: dict[str, Value] = {
        "name": "ttc eval and lm-evaluation-harness",
        "lm_eval": theirs["version"],
        "problems": len(ours),
        "same_texts": sum(found[p]["text"] == text_of(result) for p, result in ours.items()),
        "accuracy_percent_by_ttc": round(100 * fmean(r.value for r in ours.values()), 2),
    }
    for name in FILTERS:
        scores = {p: float(found[p][name][1]) for p in ours}
        whole[f"accuracy_percent_by_{name}"] = round(100 * fmean(scores.values()), 2)
        whole[f"scores_that_differ_by_{name}"] = sum(scores[p] != ours[p].value for p in ours)
    return [whole, *_differing(ours, found)]


def _differing(ours: Mapping[str, Result], found: Mapping[str, Any]) -> Iterator[dict[str, Value]]:
    for problem, result in ours.items():
        mine = found[problem]
        own, other = text_of(result), mine["text"] or ""
        differs = [name for name in FILTERS if float(mine[name][1]) != result.value]
        if own == other and not differs:
            continue
        agreed = sum(takewhile(bool, map(eq, own, other)))
        yield {
            "name": problem,
            "same_text": own == other,
            "same_characters": agreed,
            "then_ttc_has": own[agreed : agreed + 40],
            "then_the_harness_has": other[agreed : agreed + 40],
            "read_by_ttc": result.answer,
            "right_by_ttc": bool(result.value),
            **{f"read_by_{name}": str(mine[name][0]) for name in FILTERS},
            **{f"right_by_{name}": bool(float(mine[name][1])) for name in FILTERS},
        }


def _environment(folder: Path) -> Path:
    """A Python that has lm-evaluation-harness; it is made where it is missing."""
    python = folder / "lm-eval" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / "lm-eval")], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "lm-eval[api]"], check=True)
    return python


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs both, tells, and writes the figures where it is asked to."""
    parser = parser_of("lm-evaluation-harness on ttc's server.")
    parser.add_argument("--lm-eval", type=Path, help="a Python that has it")
    options = parser.parse_args(arguments)
    asked = asked_by(options)
    try:
        python = options.lm_eval or _environment(options.work)
        task, engine = task_named(options.task, asked.asking), load_engine(options.model)
        ours = greedy_results(asked, options.work / "eval", lambda _: nullcontext(engine))
        task = task.only(tuple(item for item in task.items if item.problem.id in ours))
        theirs = by_the_harness(engine, task, options.work, python, options.max_tokens)
    except TTCError as error:
        raise SystemExit(str(error)) from None
    told(rows(ours, theirs), options, "server", arguments)


if __name__ == "__main__":
    main()

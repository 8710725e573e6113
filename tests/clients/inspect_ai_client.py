"""inspect_ai: a task of ten samples."""

import json
import os
import sys
import tempfile
from importlib.metadata import version

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

URL, MODEL = sys.argv[1:3]


def main() -> None:
    """Ten items."""
    os.environ |= {"TTC_API_KEY": "none", "TTC_BASE_URL": URL}
    samples = [
        Sample(input=f"What is {n} + {n}? Answer with a number.", target=str(2 * n))
        for n in range(10)
    ]
    task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=includes())
    with tempfile.TemporaryDirectory() as folder:
        (log,) = eval(task, model=f"openai-api/ttc/{MODEL}", log_dir=folder, display="none")
        done = [sample for sample in log.samples or () if sample.error is None]
        errors = [] if log.status == "success" else [str(log.error)]
        scores = [metric.value for score in log.results.scores for metric in score.metrics.values()]
        told = {"version": version("inspect-ai"), "items": len(done), "errors": errors}
        print(json.dumps({**told, "accuracy": scores[0]}))


main()

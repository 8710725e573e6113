"""lm-evaluation-harness: a task of ten items, by chat."""

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager

URL, MODEL = sys.argv[1:3]
TASK = """
task: ttc_sums
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n\\n"]
  max_gen_toks: 48
filter_list:
  - name: last
    filter:
      - function: regex
        regex_pattern: "(-?[0-9]+)"
        group_select: -1
      - function: take_first
metric_list:
  - metric: exact_match
"""


def main() -> None:
    """Ten items."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "sums.jsonl"
        items = [
            {"question": f"What is {n} + {n}? Answer with a number.", "answer": str(2 * n)}
            for n in range(10)
        ]
        data.write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
        (folder / "ttc_sums.yaml").write_text(TASK.format(data=data), encoding="utf-8")
        found = lm_eval.simple_evaluate(
            model="local-chat-completions",
            model_args={
                "model": MODEL,
                "base_url": f"{URL}/chat/completions",
                "num_concurrent": 4,
                "max_retries": 1,
            },
            tasks=["ttc_sums"],
            task_manager=TaskManager(include_path=str(folder)),
            apply_chat_template=True,
            bootstrap_iters=0,
        )
    accuracy = found["results"]["ttc_sums"]["exact_match,last"]
    samples = found["samples"]["ttc_sums"]
    empty = [s["doc"]["question"] for s in samples if s["resps"][0][0] is None]
    told = {"version": version("lm_eval"), "items": len(samples), "errors": empty}
    print(json.dumps({**told, "accuracy": accuracy}))


main()

"""The client's side: lm-evaluation-harness on a task in a local file, run by a Python that has it.

    PYTHON lm_eval_client.py URL MODEL FOLDER MAX_TOKENS

It imports nothing of ttc. FOLDER holds `questions.jsonl`, and gets the task's YAML. Each text is
read by two filters, as the harness's own GSM8K has them: by a mark, here a box, and the last number
of all. It writes a line of JSON for each problem, and one with its version.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

__all__ = ["main"]

_TASK = r"""
task: ttc_local
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: []
  max_gen_toks: {max_tokens}
filter_list:
  - name: boxed
    filter:
      - function: regex
        regex_pattern: '\\boxed\{{([^{{}}]*)\}}'
        group_select: -1
      - function: take_first
  - name: last-number
    filter:
      - function: regex
        regex_pattern: '(-?[$0-9.,]{{2,}})|(-?[0-9]+)'
        group_select: -1
      - function: take_first
metric_list:
  - metric: exact_match
    ignore_case: true
    regexes_to_ignore:
      - ","
      - '\$'
      - '\.$'
"""


def main() -> None:
    """Asks all questions at a server, and tells what came of each."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    url, model, place, max_tokens = sys.argv[1:5]
    folder = Path(place)
    task = _TASK.format(data=folder / "questions.jsonl", max_tokens=max_tokens)
    (folder / "ttc_local.yaml").write_text(task, encoding="utf-8")
    found = lm_eval.simple_evaluate(
        model="local-chat-completions",
        model_args={
            "model": model,
            "base_url": f"{url}/chat/completions",
            "num_concurrent": 8,
            "max_retries": 1,
        },
        tasks=["ttc_local"],
        task_manager=TaskManager(include_path=str(folder)),
        apply_chat_template=True,
        bootstrap_iters=0,
        log_samples=True,
    )
    told: dict[str, dict[str, object]] = {}
    for sample in found["samples"]["ttc_local"]:
        mine = told.setdefault(sample["doc"]["id"], {"text": sample["resps"][0][0]})
        mine[sample["filter"]] = [sample["filtered_resps"][0], sample["exact_match"]]
    sys.stdout.write(json.dumps({"version": version("lm_eval"), "problems": told}) + "\n")


if __name__ == "__main__":
    main()

"""lm-evaluation-harness: ten items by chat, and ten by log-likelihoods of tokens."""

import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import lm_eval
from lm_eval.models.openai_completions import LocalCompletionsAPI
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


CHOICES = """
task: ttc_choices
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{text}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
target_delimiter: ""
metric_list:
  - metric: acc
"""


class Table:
    """A tokenizer that knows the texts of the task, by the model's own vocabulary."""

    eos_token = bos_token = None
    eos_token_id = bos_token_id = None

    def __init__(self, tokens: dict[str, list[int]]) -> None:
        self._tokens = tokens

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return self._tokens[text]


def likelihoods() -> tuple[int, float]:
    """Ten items, in batches of token ids; the items that were done, and their accuracy."""
    given = json.loads(Path(os.environ["TTC_LIKELIHOODS"]).read_text(encoding="utf-8"))
    model = LocalCompletionsAPI(
        model=MODEL.partition("@")[0],
        base_url=f"{URL}/completions",
        tokenizer_backend=None,
        batch_size=4,
        max_retries=1,
    )
    model.tokenizer, model.tokenizer_backend = Table(given["tokens"]), "remote"
    model.tokenized_requests = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "choices.jsonl"
        data.write_text("\n".join(map(json.dumps, given["items"])), encoding="utf-8")
        (folder / "ttc_choices.yaml").write_text(CHOICES.format(data=data), encoding="utf-8")
        found = lm_eval.simple_evaluate(
            model=model,
            tasks=["ttc_choices"],
            task_manager=TaskManager(include_path=str(folder)),
            bootstrap_iters=0,
        )
    return len(found["samples"]["ttc_choices"]), found["results"]["ttc_choices"]["acc,none"]


def main() -> None:
    """Twice ten items."""
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
    num_choices, chosen = likelihoods()
    told = {"version": version("lm_eval"), "items": min(len(samples), num_choices), "errors": empty}
    print(json.dumps({**told, "accuracy": accuracy, "accuracy_by_likelihood": chosen}))


main()

"""What other tools have written, as pools."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ttc import Message, RecordError, Sampling
from ttc.pools import Pool
from ttc.pools.imports import import_pool

DATA = Path(os.environ.get("TTC_DATA", Path(__file__).parents[3] / "shared" / "data")) / "pools"
"""Shared data, in a folder beside the checkout unless the environment says otherwise."""


def taken_in(tmp_path: Path, *rows: Any, **more: Any) -> Pool:
    """The pool of some rows."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return import_pool(path, **more)


def lm_eval(doc_id: int = 0, filter: str = "strict", **more: Any) -> dict[str, Any]:
    """A sample as lm-evaluation-harness logs it."""
    arguments = {"until": ["\n\n"], "do_sample": True, "temperature": 0.6, "max_gen_toks": 64}
    return {
        "doc_id": doc_id,
        "doc": {"question": "2 + 2?"},
        "target": "4",
        "arguments": {"gen_args_0": {"arg_0": "Q: 2 + 2?\nA:", "arg_1": arguments}},
        "resps": [["4", "5"]],
        "filtered_resps": ["4"],
        "filter": filter,
        "exact_match": 1.0,
        **more,
    }


def test_samples_of_lm_eval_become_a_pool(tmp_path: Path) -> None:
    """Each response once, though there is a row for every filter."""
    pool = taken_in(tmp_path, lm_eval(), lm_eval(filter="loose"), lm_eval(1))

    assert [(c.key, c.text) for c in pool] == [
        ("0#0", "4"),
        ("0#1", "5"),
        ("1#0", "4"),
        ("1#1", "5"),
    ]
    first = pool.of("0")[0]
    assert (first.prompt, first.until, first.max_tokens) == ("Q: 2 + 2?\nA:", ("\n\n",), 64)
    assert first.sampling == Sampling(temperature=0.6)
    assert not hasattr(first, "target")


def test_samples_of_older_and_of_chat_runs_are_read(tmp_path: Path) -> None:
    """Arguments were pairs once, and a conversation is written as JSON."""
    turns = json.dumps([{"role": "user", "content": "2 + 2?"}])
    old = taken_in(tmp_path, lm_eval(arguments=[["Q: 2 + 2?", {"do_sample": False}]]))
    chat = taken_in(tmp_path, lm_eval(arguments={"gen_args_0": {"arg_0": [turns]}}))

    assert old.of("0")[0].sampling == Sampling(temperature=0.0)
    assert chat.of("0")[0].messages == (Message(role="user", content="2 + 2?"),)


def test_likelihoods_are_no_completions(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="document 0 holds likelihoods and no texts"):
        taken_in(tmp_path, lm_eval(resps=[[[-1.5, True]]]))


def test_request_outputs_of_vllm_become_a_pool(tmp_path: Path) -> None:
    step = {"7": {"logprob": -0.5, "rank": 1}, "8": {"logprob": -1.5, "rank": 2}}
    made = {
        "index": 0,
        "text": "4",
        "token_ids": [7],
        "cumulative_logprob": -0.5,
        "logprobs": [step],
        "finish_reason": "stop",
        "stop_reason": None,
    }
    cut = {**made, "index": 1, "finish_reason": "length"}
    gone = {**made, "index": 2, "finish_reason": "abort"}
    row = {"request_id": "9", "prompt": "2 + 2", "prompt_token_ids": [1, 2]}

    pool = taken_in(tmp_path, {**row, "outputs": [made, cut, gone]})

    first, second, third = pool.of("9")
    assert (first.text, first.token_ids, first.prompt_ids) == ("4", (7,), (1, 2))
    assert (first.logprobs, first.top_means) == ((-0.5,), (-1.0,))
    assert [c.finish_reason for c in (first, second, third)] == ["stop", "length", "error"]
    assert third.error == "its engine ended it: abort"


def batch(custom_id: str = "p", **more: Any) -> dict[str, Any]:
    """A line of the output of a batch run."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}
    body = {"model": "m", "choices": [choice], "usage": {"completion_tokens": 3}}
    return {"custom_id": custom_id, "response": {"status_code": 200, "body": body}, **more}


def asked(tmp_path: Path) -> Path:
    """The requests of a batch run."""
    path = tmp_path / "requests.jsonl"
    turns = [{"role": "user", "content": "2 + 2?"}]
    body = {"model": "m", "messages": turns, "temperature": 0.5, "max_tokens": 9, "stop": "\n"}
    path.write_text(json.dumps({"custom_id": "p", "body": body}), encoding="utf-8")
    return path


def test_a_batch_of_vllm_becomes_a_pool_with_its_requests(tmp_path: Path) -> None:
    pool = taken_in(tmp_path, batch(), requests=asked(tmp_path))

    (found,) = pool
    assert (found.text, found.num_tokens, found.model) == ("4", 3, "m")
    assert (found.max_tokens, found.until) == (9, ("\n",))
    assert found.sampling == Sampling(temperature=0.5)
    with pytest.raises(RecordError, match="p is answered, and not asked; pass the file of the req"):
        taken_in(tmp_path, batch())


def test_an_answer_that_failed_is_no_result(tmp_path: Path) -> None:
    """BK-10."""
    lost = {**batch(), "response": None, "error": {"message": "lost"}}

    (found,) = taken_in(tmp_path, lost, requests=asked(tmp_path))

    assert found.failed
    assert found.error == '{"message": "lost"}'


def test_a_length_tells_what_was_cut(tmp_path: Path) -> None:
    row = {"id": 1, "question": "?", "candidates": [{"text": "a", "num_tokens": n} for n in (3, 9)]}

    pool = taken_in(tmp_path, row, max_tokens=9)

    assert [c.finish_reason for c in pool] == ["stop", "length"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": 1}, "is of no known format; there is candidates, lm_eval, vllm, vllm_batch"),
        ({"question": "?", "candidates": [{}]}, "cannot be taken in as candidates: KeyError: 'id'"),
        ([1], "is of no known format"),
    ],
)
def test_what_is_no_pool_is_refused(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        taken_in(tmp_path, row)


@pytest.mark.parametrize(
    ("name", "size", "columns", "tokens"),
    [
        ("gsm8k100x16_qwen05.jsonl", 1600, (), 435_429),
        ("math100x8_reward.jsonl", 800, ("reward",), 0),
    ],
)
def test_pools_of_earlier_experiments_are_taken_in(
    name: str, size: int, columns: tuple[str, ...], tokens: int
) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not there; set TTC_DATA to the folder of data")

    pool = import_pool(DATA / name)

    assert (len(pool), len(pool.problems), pool.columns) == (size, 100, columns)
    assert sum(c.length or 0 for c in pool) == tokens

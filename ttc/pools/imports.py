"""Imports: pools out of what other tools have written.

    candidates  a line for each problem: `question` and `candidates`, each with `text` and perhaps
                `num_tokens`, `reward` and other numbers, which become scores
    lm_eval     the samples that lm-evaluation-harness logs (`samples_*.jsonl`)
    vllm        request outputs of vLLM, a line each, with `prompt` and `outputs`
    vllm_batch  the output of `vllm run-batch`, whose prompts are in the file of its requests

References, verdicts and extracted answers stay behind: a pool holds what was asked and what was
answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ttc.errors import RecordError
from ttc.lines import read_lines
from ttc.pools.pool import Completion, Pool
from ttc.types import FinishReason, Message, Sampling

__all__ = ["FORMATS", "import_pool"]

Values = Mapping[str, Any]
Reader = Callable[[Iterable[Values], Mapping[str, Values]], Iterator[Completion]]

_ENDS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length"}
_TOP = 20


def import_pool(
    path: Path,
    format: str | None = None,
    *,
    requests: Path | None = None,
    sampling: Sampling | None = None,
    max_tokens: int | None = None,
    counting: Callable[[str], int] | None = None,
) -> Pool:
    """The pool that a file of another tool holds.

    Args:
        path: the file.
        format: one of `FORMATS`; found out by default.
        requests: the requests that the file answers, where it does not tell them itself.
        sampling: how its completions were drawn, where the file does not say.
        max_tokens: the most tokens that each might have had; one that has as many was cut.
        counting: counts the tokens of a text, where the file does not tell their number.

    Raises:
        RecordError: it is of no known format, or does not hold what a pool needs.
    """
    rows = _rows(path)
    if not rows:
        raise RecordError(f"{path} is empty")
    format = format or _format_of(rows[0], path)
    if format not in FORMATS:
        raise RecordError(f"{format!r} is no format; there is {', '.join(FORMATS)}")
    asked = {} if requests is None else {str(r["custom_id"]): r for r in _rows(requests)}

    def completed(completion: Completion) -> Completion:
        tokens = completion.length
        if tokens is None and counting is not None:
            tokens = counting(completion.text)
        end = completion.finish_reason
        if end is None and tokens is not None and max_tokens is not None:
            end = "length" if tokens >= max_tokens else "stop"
        return replace(
            completion,
            num_tokens=tokens,
            finish_reason=end,
            sampling=completion.sampling or sampling,
            max_tokens=completion.max_tokens or max_tokens,
        )

    try:
        return Pool(map(completed, FORMATS[format](rows, asked)))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise RecordError(f"{path} cannot be taken in as {format}: {reason}") from error


def _rows(path: Path) -> list[Values]:
    try:
        lines, rest = read_lines(path)
        return [json.loads(line) for line in [*lines, rest] if line.strip()]
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{path} is no file of JSON lines: {error}") from error


def _format_of(row: Values, path: Path) -> str:
    marks = {
        "candidates": ("question", "candidates"),
        "lm_eval": ("doc_id", "resps", "arguments"),
        "vllm": ("prompt", "outputs"),
        "vllm_batch": ("custom_id", "response"),
    }
    for format, names in marks.items():
        if isinstance(row, dict) and all(name in row for name in names):
            return format
    raise RecordError(f"{path} is of no known format; there is {', '.join(FORMATS)}")


def _candidates(rows: Iterable[Values], asked: Mapping[str, Values]) -> Iterator[Completion]:
    for row in rows:
        for index, made in enumerate(row["candidates"]):
            scores = {
                name: float(value)
                for name, value in made.items()
                if isinstance(value, int | float)
                and not isinstance(value, bool)
                and name != "num_tokens"
            }
            yield Completion(
                problem=str(row["id"]),
                index=index,
                messages=(Message(role="user", content=row["question"]),),
                text=made["text"],
                num_tokens=made.get("num_tokens"),
                scores=scores,
            )


def _lm_eval(rows: Iterable[Values], asked: Mapping[str, Values]) -> Iterator[Completion]:
    """One row for each problem and filter; the responses are the same for every filter."""
    for row in rows:
        prompt, options = _arguments(row["arguments"])
        messages = _conversation(prompt)
        responses = row["resps"][0] if isinstance(row["resps"][0], list) else row["resps"]
        if not all(isinstance(text, str) for text in responses):
            raise RecordError(
                f"document {row['doc_id']} holds likelihoods and no texts; take in the samples of "
                "a task that generates"
            )
        for index, text in enumerate(responses):
            yield Completion(
                problem=str(row["doc_id"]),
                index=index,
                messages=messages,
                prompt=None if messages else prompt,
                text=text,
                max_tokens=options.get("max_gen_toks"),
                until=tuple(options.get("until") or ()),
                sampling=_sampling(options),
            )


def _arguments(arguments: Any) -> tuple[str, Values]:
    """The prompt and the options, as newer and as older releases write them."""
    if isinstance(arguments, dict):
        first = next(iter(arguments.values()))
        prompt, options = first["arg_0"], first.get("arg_1")
    else:
        prompt, options = arguments[0]
    if isinstance(prompt, list):
        prompt = prompt[0]
    return prompt, options if isinstance(options, dict) else {}


def _conversation(prompt: str) -> tuple[Message, ...]:
    """The messages of a prompt for a chat, which is written as JSON; none for a plain one."""
    try:
        turns = json.loads(prompt)
        return tuple(Message(role=turn["role"], content=turn["content"]) for turn in turns)
    except (ValueError, TypeError, KeyError):
        return ()


def _sampling(options: Values) -> Sampling | None:
    if options.get("do_sample") is False:
        return Sampling(temperature=0.0)
    if "temperature" not in options:
        return None
    chosen = {name: options[name] for name in ("top_k", "top_p", "min_p") if options.get(name)}
    return Sampling(temperature=options["temperature"], **chosen)


def _vllm(rows: Iterable[Values], asked: Mapping[str, Values]) -> Iterator[Completion]:
    for place, row in enumerate(rows):
        prompt_ids = row.get("prompt_token_ids")
        for made in row["outputs"]:
            logprobs, tops = _logprobs(made)
            yield Completion(
                problem=str(row.get("request_id", place)),
                index=made["index"],
                prompt=row["prompt"],
                text=made["text"],
                prompt_ids=None if prompt_ids is None else tuple(prompt_ids),
                token_ids=tuple(made["token_ids"]),
                logprobs=logprobs,
                top_means=tops,
                **_end(made.get("finish_reason")),
            )


def _logprobs(made: Values) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """The log probability of each token, and the means of the greatest ones."""
    steps = made.get("logprobs")
    if not steps:
        return None, None
    values = [
        {int(i): v["logprob"] if isinstance(v, dict) else v for i, v in step.items()}
        for step in steps
    ]
    own = tuple(step[token] for step, token in zip(values, made["token_ids"], strict=True))
    tops = [sorted(step.values(), reverse=True)[:_TOP] for step in values]
    return own, tuple(sum(top) / len(top) for top in tops) if len(tops[0]) > 1 else None


def _vllm_batch(rows: Iterable[Values], asked: Mapping[str, Values]) -> Iterator[Completion]:
    for row in rows:
        name = str(row["custom_id"])
        if name not in asked:
            raise RecordError(f"{name} is answered, and not asked; pass the file of the requests")
        body = asked[name]["body"]
        about = {
            "problem": name,
            "messages": tuple(
                Message(role=turn["role"], content=turn["content"])
                for turn in body.get("messages", ())
            ),
            "prompt": body.get("prompt"),
            "sampling": _sampling(body),
            "max_tokens": body.get("max_completion_tokens", body.get("max_tokens")),
            "until": _texts(body.get("stop")),
            "seed": body.get("seed"),
            "model": body.get("model"),
        }
        answer = (row.get("response") or {}).get("body") or {}
        if row.get("error") or "choices" not in answer:
            error = json.dumps(row.get("error") or answer)
            yield Completion(index=0, finish_reason="error", error=error, **about)
            continue
        usage, choices = answer.get("usage") or {}, answer["choices"]
        for made in choices:
            text = made["message"]["content"] if "message" in made else made["text"]
            yield Completion(
                index=made["index"],
                text=text or "",
                num_tokens=usage.get("completion_tokens") if len(choices) == 1 else None,
                **about,
                **_end(made.get("finish_reason")),
            )


def _texts(stop: Any) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def _end(reason: str | None) -> dict[str, Any]:
    """How a completion ended; one that was given up failed."""
    if reason is None or reason in _ENDS:
        return {"finish_reason": None if reason is None else _ENDS[reason]}
    return {"finish_reason": "error", "error": f"its engine ended it: {reason}"}


FORMATS: Mapping[str, Reader] = {
    "candidates": _candidates,
    "lm_eval": _lm_eval,
    "vllm": _vllm,
    "vllm_batch": _vllm_batch,
}
"""Readers by the name of their format."""

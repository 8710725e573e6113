"""The embedded engine: `ttc.ports.Engine` on a thread of its own.

Requests go into an inbox; the engine's thread alone computes, takes what has come and hands results
out by concurrent futures, so any number of event loops and threads may share one engine.

What a call's branch holds:

- `token_ids` and `logprobs` are those of every token that was computed, and that is charged: the
  end token and the tokens of a stop string included. `text` holds neither.
- `entropies`, `self_certainties` and `top_logprobs` are there where the sampling asks for them.
- A branch that an end token closed goes on in that token's place when it is extended. One that a
  stop string ended goes on after it: the model sees the stop string, though `text` lacks it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Self

import torch

from ttc.costs import Costs
from ttc.engine.local.attention import CHUNK
from ttc.engine.local.batch import Batch, Counters
from ttc.engine.local.kv import KVPool
from ttc.engine.local.sequence import Sequence, path_tokens
from ttc.engine.local.source import Arithmetic, ModelSource, Progress, open_model
from ttc.engine.local.text.prompt import Prompt
from ttc.engine.local.text.tokenizer import clean_text
from ttc.engine.local.text.vocabulary import After
from ttc.engine.local.threads import thread_count
from ttc.engine.local.worker import LocalGeneration, Worker
from ttc.errors import ContextOverflow, EngineError
from ttc.ports import Capabilities, Request
from ttc.types import MAX_LOGPROBS, Branch, Chunk, Problem

__all__ = ["LocalEngine"]


class LocalEngine:
    """A model in this process; see `ttc.ports.Engine`. Made by `load`, ended by `close` or `with`.

    Args:
        source: the model.
        name: the model, as a user names it.
        threads: how many to compute with; as many as this process may use by default.
        kv_bytes: the memory for keys and values, taken as it fills. It bounds the context, too.
        max_sequences: the most calls that compute in one step.
    """

    def __init__(
        self,
        source: ModelSource,
        *,
        name: str,
        threads: int | None = None,
        kv_bytes: int = 2 << 30,
        max_sequences: int = 128,
    ) -> None:
        num_threads = thread_count() if threads is None else threads
        num_pages = kv_bytes // KVPool.page_bytes(source.config)
        if min(num_threads, num_pages, max_sequences) < 1:
            raise ValueError(
                f"threads ({num_threads}) and max_sequences ({max_sequences}) are at least 1, and "
                f"kv_bytes ({kv_bytes}) at least one page of {KVPool.page_bytes(source.config)}"
            )

        def build(lock: threading.Lock) -> Batch:
            torch.set_num_threads(num_threads)
            return Batch(
                source.build(),
                num_pages=num_pages,
                max_sequences=max_sequences,
                lock=lock,
                unsampled=source.tokens.unsampled_ids,
            )

        self._worker = Worker(build)
        try:
            self._batch = self._worker.batch.result()
        except BaseException:  # an interrupt, say: no thread may be left inside torch
            self._worker.close()
            raise
        self._tokens, self._template = source.tokens, source.template
        self._name = name
        self._costs = source.config.costs
        self._context = min(source.config.context, num_pages * CHUNK)
        self._numerics = (
            f"torch-{torch.__version__} cpu {torch.backends.cpu.get_cpu_capability()} "
            f"threads={num_threads} {self._batch.model.numerics} sha={source.fingerprint[:16]}"
        )
        # Runs when the engine is forgotten, and at exit: a thread inside torch must not outlive it.
        self._finalizer = weakref.finalize(self, self._worker.close)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        arithmetic: Arithmetic | None = None,
        threads: int | None = None,
        kv_bytes: int = 2 << 30,
        max_sequences: int = 128,
        progress: Progress = lambda stage, done, total: None,
    ) -> Self:
        """Loads a GGUF file, or a folder with `config.json` and safetensors files.

        Args:
            path: the file (of a split model, the first one) or the folder.
            name: the model, as a user names it; the path's last part by default.
            arithmetic: `int8` (weights and activations, in C), or `fp32` or `bf16` in PyTorch. By
                default `int8`, and `fp32` with a warning where there is no C compiler.
            threads: see the class, as for `kv_bytes` and `max_sequences`.
            kv_bytes: see the class.
            max_sequences: see the class.
            progress: is told a stage, how much of it is done and of how much: `open`, of an unknown
                amount, and then `load`, in layers. It is called from two threads, one at a time.
                What it raises ends the loading.

        Raises:
            ModelFileError: the model is missing, damaged or of a kind that is not supported.
            EngineError: `int8` was asked for, and the kernels cannot be built.
        """
        return cls(
            open_model(Path(path), arithmetic, progress),
            name=Path(path).stem if name is None else name,
            threads=threads,
            kv_bytes=kv_bytes,
            max_sequences=max_sequences,
        )

    @property
    def name(self) -> str:
        """The model, as a user names it."""
        return self._name

    @property
    def numerics(self) -> str:
        """What decides the bits of a result."""
        return self._numerics

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return Capabilities(
            tokens=True,
            fork=True,
            cancel=True,
            logprobs=MAX_LOGPROBS,
            entropy=True,
            prefix_cache=True,
            replayable=True,
        )

    @property
    def context(self) -> int:
        """The most tokens of prompt and output together: the model's, or what the memory holds."""
        return self._context

    @property
    def costs(self) -> Costs:
        """What the model spends on each token."""
        return self._costs

    @property
    def counters(self) -> Counters:
        """What the engine has done since it was loaded."""
        return self._batch.counters

    @property
    def num_live(self) -> int:
        """Calls that have joined the batch and not left it."""
        return len(self._batch.running)

    @property
    def kv_bytes_used(self) -> int:
        """Bytes of keys and values that running calls hold."""
        return self._batch.kv_bytes_used

    def root(self, problem: Problem, role: str) -> Branch:
        """The problem's prompt.

        Messages go through the model's chat template, and the assistant's next message is asked
        for. A raw prompt is plain text as it stands.

        Raises:
            ContextOverflow: the prompt does not fit.
            EngineError: there is no chat template, or it refuses the messages.
        """
        text, token_ids = self._prompt(problem)
        start = self._tokens.start_id
        if start is not None and token_ids[:1] != [start]:
            token_ids = [start, *token_ids]
        self._check_fit(len(token_ids))
        return Branch(role=role, text=text, token_ids=tuple(token_ids))

    def _prompt(self, problem: Problem) -> Prompt:
        if problem.prompt is not None:
            text = clean_text(problem.prompt)
            return Prompt(text, self._tokens.encode(text))
        if self._template is None:
            raise EngineError(
                f"the model {self._name!r} has no chat template; give the problem as prompt="
            )
        return self._template.render(
            problem.messages,
            tools=problem.tools,
            continue_last=problem.continue_last,
            options=problem.template_options,
        )

    def append(self, branch: Branch, text: str) -> Branch:
        """A branch that goes on with `text`, as plain tokens; no token before it changes.

        On a branch that an end token closed, the text takes that token's place.
        """
        text = clean_text(text)
        before = (token for segment in branch.lineage() for token in segment.token_ids or ())
        after: After = "nothing" if self._tokens.trims_after(before) else "text"
        token_ids = tuple(self._tokens.encode(text, after=after))
        return Branch(parent=branch, role=branch.role, text=text, token_ids=token_ids)

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> LocalGeneration:
        """Queues a call and returns at once.

        A `max_tokens` beyond the context is cut there, with `finish_reason` "length".

        Raises:
            ContextOverflow: the prompt and one token do not fit.
            EngineError: the engine is closed, or the prompt is empty.
            ValueError: a number or an end of the request makes no sense.
        """
        self._check(request)
        prompt = path_tokens(request.branch)
        if not prompt:
            raise EngineError(
                "the prompt is empty; give the model at least one token to go on from"
            )
        self._check_fit(len(prompt))
        limit = min(request.max_tokens, self._context - len(prompt))
        sequence = Sequence(request, prompt, limit, self._tokens, on_chunk)
        return self._worker.submit(sequence)

    def _check(self, request: Request) -> None:
        if request.max_tokens < 1:
            raise ValueError(f"max_tokens is at least 1, not {request.max_tokens}")
        for end in request.until:
            if end == "":
                raise ValueError(
                    "until holds an empty string, which ends every call before it starts"
                )
            if isinstance(end, int) and not 0 <= end < self._tokens.size:
                raise ValueError(
                    f"until holds the token {end}; tokens are 0 to {self._tokens.size - 1}"
                )

    def _check_fit(self, prompt_length: int) -> None:
        if prompt_length + 1 > self._context:
            raise ContextOverflow(
                f"the prompt has {prompt_length} tokens and needs room for one more, and the "
                f"context holds {self._context}; shorten the prompt"
            )

    def close(self) -> None:
        """Ends the engine's thread; calls that wait or run fail. A second call is harmless."""
        self._finalizer()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more calls."""
        return not self._finalizer.alive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

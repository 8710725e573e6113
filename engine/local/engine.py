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
import weakref
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from typing import Self, Unpack

import torch

from ttc.config import Acceptance, Arithmetic
from ttc.constraints import Constraint
from ttc.costs import Costs
from ttc.engine.local.building import Sizes, batch_builder
from ttc.engine.local.cutting import Cutter
from ttc.engine.local.drafting.options import Drafting, drafting_of
from ttc.engine.local.grammar import Grammar, Grammars, begun_tokens, has_grammars
from ttc.engine.local.meter import Counters, Meter
from ttc.engine.local.native.roofs import Roofs, measure_roofs
from ttc.engine.local.path import path_tokens
from ttc.engine.local.plan import PAGE
from ttc.engine.local.price import Price, price_of
from ttc.engine.local.reader import Reader
from ttc.engine.local.reading import Read
from ttc.engine.local.sequence import Sequence
from ttc.engine.local.source import Device, KVType, ModelSource, Progress, open_model
from ttc.engine.local.text.prompt import Prompt
from ttc.engine.local.text.tokenizer import clean_text
from ttc.engine.local.text.vocabulary import After
from ttc.engine.local.threads import thread_count
from ttc.engine.local.worker import LocalGeneration, Worker
from ttc.errors import EngineError
from ttc.ports import Capabilities, Request
from ttc.tool_calls import Form, form_of
from ttc.types import MAX_LOGPROBS, Branch, Chunk, NextTokens, Problem

__all__ = ["LocalEngine"]


class LocalEngine:
    """A model in this process; see `ttc.ports.Engine`. Made by `load`, ended by `close` or `with`.

    Args:
        source: the model.
        name: the model, as a user names it.
        threads: how many to compute with; as many as this process may use by default.
        kv_bytes: the memory for keys and values, taken as it fills. It bounds the context, too.
            What is known of tokens takes up to a sixteenth of it besides, and a MiB at least.
        max_sequences: the most calls that compute in one step.
        drafting: what drafts tokens, if anything does.
    """

    def __init__(
        self,
        source: ModelSource,
        *,
        name: str,
        threads: int | None = None,
        kv_bytes: int = 2 << 30,
        max_sequences: int = 128,
        drafting: Drafting | None = None,
    ) -> None:
        num_threads = thread_count() if threads is None else threads
        self._worker = Worker(
            batch_builder(
                source,
                threads=num_threads,
                kv_bytes=kv_bytes,
                max_sequences=max_sequences,
                drafting=drafting,
            )
        )
        try:
            self._batch = self._worker.batch.result()
        except BaseException:  # an interrupt, say: no thread may be left inside torch
            self._worker.close()
            raise
        self._tokens, self._template = source.tokens, source.template
        self._speculation = "" if drafting is None else str(drafting)
        self._cutter = Cutter(source.tokens)
        self._grammars = Grammars(source.tokens)
        self.spell, self.vocab_size = source.tokens.bytes_of, source.tokens.size
        self._reward, self._name, self._threads = source.config.reward, name, num_threads
        self._costs = self._batch.model.costs
        self._context = min(source.config.context, self._batch.num_pages * PAGE)
        self._reader = Reader(
            source.config,
            name=name,
            num_tokens=source.tokens.size,
            context=self._context,
            enqueue=self._worker.enqueue,
            lock=self._worker.lock,
        )
        self._numerics = (
            f"torch-{torch.__version__} {_machine(source.device)} "
            f"{self._batch.numerics} sha={source.fingerprint[:16]}"
        )
        # Runs when the engine is forgotten, and at exit: a thread inside torch must not outlive it.
        self._device = source.device
        self._finalizer = weakref.finalize(self, self._worker.close)

    @classmethod
    def load(  # noqa: PLR0913 - all keywords but one, each of its own
        cls,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        device: Device = "cpu",
        arithmetic: Arithmetic | None = None,
        kv_type: KVType | None = None,
        speculate: str | os.PathLike[str] | None = None,
        acceptance: Acceptance = "coupled",
        progress: Progress = lambda stage, done, total: None,
        **sizes: Unpack[Sizes],
    ) -> Self:
        """Loads a GGUF file, or a folder with `config.json` and safetensors files.

        Args:
            path: the file (of a split model, the first one) or the folder.
            name: the model, as a user names it; the path's last part by default.
            arithmetic: `int8` or `file` (a GGUF file's own codes) in C, `fp32` or `bf16` in torch.
                By default `int8`, and `fp32` with a warning where there is no C compiler. On a GPU
                all four, by default `bf16`.
            device: `cuda` for a GPU, with kernels in Triton, or PyTorch's alone, with a warning,
                where Triton is not installed.
            kv_type: `int8` for keys and values of a byte each, on a GPU or by the kernels in C.
            speculate: what drafts tokens: `ngram` (the call's own text), `tree` (that of all calls
                that go on from the same root) or a smaller model of the same vocabulary.
            acceptance: how drafts are accepted: `coupled`, with the very results that there are
                without drafts, or `maximal`, with results of the same distribution.
            progress: is told a stage, how much of it is done and of how much: `open`, of an unknown
                amount, and then `load`, in layers. It is called from two threads, one at a time.
                What it raises ends the loading.
            sizes: `threads`, `kv_bytes` and `max_sequences`: see the class.

        Raises:
            ModelFileError: the model is missing, damaged or of a kind that is not supported.
            EngineError: what was asked for needs kernels that cannot be built, or codes of a file;
                or PyTorch finds no GPU.
        """
        source = open_model(Path(path), arithmetic, progress, device=device, kv_type=kv_type)
        return cls(
            source,
            name=Path(path).stem if name is None else name,
            drafting=drafting_of(speculate, acceptance, source.tokens, arithmetic),
            **sizes,
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
        common = Capabilities(tokens=True, cancel=True, prefix_cache=True, replayable=True)
        if self._reward is not None:
            return replace(common, reward=True)
        return replace(
            common,
            fork=True,
            cut=True,
            priority=True,
            next_tokens=MAX_LOGPROBS,
            logprobs=MAX_LOGPROBS,
            entropy=True,
            score=True,
            price=True,
            grammar=has_grammars(),
            logit_bias=True,
            hidden_states=True,
            speculation=self._speculation,
        )

    @property
    def context(self) -> int:
        """The most tokens of prompt and output together: the model's, or what the memory holds."""
        return self._context

    @property
    def token_bytes(self) -> int:
        """The most bytes that one token adds to a text."""
        return self._tokens.longest

    @property
    def costs(self) -> Costs:
        """What the model spends on each token."""
        return self._costs

    @property
    def call_form(self) -> Form:
        """How the model writes calls of tools."""
        return form_of(None if self._template is None else self._template.with_tools)

    @property
    def counters(self) -> Counters:
        """What the engine has done since it was loaded."""
        return self._batch.counters

    @property
    def meter(self) -> Meter:
        """What steps compute, read and take."""
        return self._batch.meter

    def roofs(self) -> Roofs:
        """Measures the processor's roofs anew, which gives every step its fraction of them.

        It takes about a second, and should find the machine idle.

        Raises:
            EngineError: the kernels cannot be built, or the model computes on a GPU.
        """
        if self._device == "cuda":
            raise EngineError(
                "roofs are measured of the CPU; benchmarks/perf/gpu.py measures those of a GPU"
            )
        self.meter.roofs = roofs = measure_roofs(self._threads)
        return roofs

    def price(
        self,
        *,
        context: int,
        branches: int = 1,
        tokens: int = 1,
        uncached: int = 0,
        beside: int | None = None,
    ) -> Price:
        """What more branches cost, as things run now: for when to run them, never for whether.

        Args:
            context: tokens that the branches go on from, which they share.
            branches: how many.
            tokens: the length of each.
            uncached: how many of the shared tokens have to be computed first.
            beside: branches that run from there in any case; by default those that run now.
        """
        beside = len(self._batch.schedule.running) if beside is None else beside
        return price_of(
            self._batch.curve,
            self.meter,
            context=context,
            branches=branches,
            tokens=tokens,
            uncached=uncached,
            beside=beside,
        )

    def prometheus(self) -> str:
        """What the meter has counted, in Prometheus' text form."""
        schedule = self._batch.schedule
        gauges = {
            "running_calls": float(len(schedule.running)),
            "waiting_calls": float(schedule.num_waiting),
            "kv_bytes_used": float(self.kv_bytes_used),
        }
        return self.meter.prometheus(self._name, gauges)

    @property
    def num_live(self) -> int:
        """Calls that have joined the batch and not left it."""
        return len(self._batch.schedule.running)

    @property
    def kv_bytes_used(self) -> int:
        """Bytes of keys and values that running calls hold."""
        return self._batch.kv_bytes_used

    def root(self, problem: Problem, role: str) -> Branch:
        """The problem's prompt.

        Messages go through the model's chat template, and the assistant's next message is asked
        for, but of a reward model, which reads the conversation as it is. A raw prompt is plain
        text as it stands.

        Raises:
            ContextOverflow: the prompt does not fit.
            EngineError: there is no chat template, or it refuses the messages.
        """
        text, token_ids = self._prompt(problem)
        start = self._tokens.start_id
        if start is not None and token_ids[:1] != [start]:
            token_ids = [start, *token_ids]
        self._reader.check_fit(len(token_ids))
        return Branch(role=role, text=text, token_ids=tuple(token_ids))

    def _prompt(self, problem: Problem) -> Prompt:
        if problem.prompt is not None:
            text = clean_text(problem.prompt)
            return Prompt(text, self._tokens.encode(text))
        if self._template is None:
            raise EngineError(f"{self._name!r} has no chat template; give the problem as prompt=")
        return self._template.render(
            problem.messages,
            tools=problem.tools,
            continue_last=problem.continue_last,
            asks=self._reward is None,
            options=problem.template_options,
        )

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with `text`, as plain tokens; no token before it changes.

        On a branch that an end token closed, the text takes that token's place. With `as_token` the
        text is the name of one token, which may be a control token.

        Raises:
            EngineError: no one token is called so.
        """
        text = clean_text(text)
        if as_token:
            token_ids = self._token(text)
            return Branch(parent=branch, role=branch.role, text=text, token_ids=token_ids)
        before = (token for segment in branch.lineage() for token in segment.token_ids or ())
        after: After = "nothing" if self._tokens.trims_after(before) else "text"
        token_ids = tuple(self._tokens.encode(text, after=after))
        return Branch(parent=branch, role=branch.role, text=text, token_ids=token_ids)

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """A branch's first tokens; see `ttc.ports.Engine`."""
        return self._cutter.cut(branch, num_tokens)

    def _token(self, name: str) -> tuple[int, ...]:
        ids = [self._tokens.control[name]] if name in self._tokens.control else None
        ids = self._tokens.encode(name, after="text") if ids is None else ids
        if len(ids) != 1:
            raise EngineError(
                f"the vocabulary of {self._name!r} has no one token {name!r}, but {len(ids)}; "
                "name a token of the model"
            )
        return (ids[0],)

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> LocalGeneration:
        """Queues a call and returns at once.

        A `max_tokens` beyond the context is cut there, with `finish_reason` "length".

        Raises:
            ContextOverflow: the prompt and one token do not fit.
            EngineError: the engine is closed, or the prompt is empty.
            ValueError: a number or an end of the request makes no sense; or its constraint cannot
                be held to, or does not allow what the branch has begun under it.
        """
        self._check(request)
        prompt = path_tokens(request.branch)
        if not prompt:
            raise EngineError("the prompt is empty; give the model one token at least")
        self._reader.check_fit(len(prompt))
        limit = min(request.max_tokens, self._context - len(prompt))
        grammar = self._grammar(request)
        sequence = Sequence(request, prompt, limit, self._tokens, on_chunk, grammar)
        return self._worker.submit(sequence, self._cutter)

    def check_constraint(self, constraint: Constraint) -> None:
        """Compiles a constraint, unless that was done before; see `ttc.ports.Engine`.

        Raises:
            ValueError: it is not supported, no text satisfies it, or llguidance is missing.
        """
        self._grammars.begin(constraint)

    def _grammar(self, request: Request) -> Grammar | None:
        constraint = request.sampling.constraint
        if constraint is None:
            return None
        begun = begun_tokens(request.branch, constraint, self._tokens.end_ids)
        return self._grammars.begin(constraint, begun)

    def score(
        self, branch: Branch, suffixes: Seq[Branch], *, owner: str = ""
    ) -> Read[tuple[float, ...]]:
        """Queues the scoring of suffixes: the last segments of branches that leave `branch`."""
        return self._reader.score(branch, suffixes, owner)

    def reward(self, branch: Branch, rows: Seq[int], *, owner: str = "") -> Read[tuple[float, ...]]:
        """Queues the rewards of rows of a branch, in the order of `labels`."""
        return self._reader.reward(branch, rows, owner)

    def hidden(self, branch: Branch, rows: Seq[int], *, owner: str = "") -> Read[tuple[float, ...]]:
        """Queues the hidden states of rows of a branch: float32, after the last norm."""
        return self._reader.hidden(branch, rows, owner)

    def next_tokens(
        self, branch: Branch, top: int, *, at: Seq[int] | None = None, owner: str = ""
    ) -> Read[NextTokens]:
        """Queues the reading of the most probable next tokens; see `ttc.ports.Engine`."""
        return self._reader.next_tokens(branch, top, at, owner)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the outputs of a reward model are called; empty for a language model."""
        return self._reader.labels

    def _check(self, request: Request) -> None:
        self._reader.check_head(request.branch, "generates nothing")
        if request.max_tokens < 1:
            raise ValueError(f"max_tokens is at least 1, not {request.max_tokens}")
        for end in request.until:
            if end == "":
                raise ValueError("until holds an empty string, which ends every call at once")
            if isinstance(end, int) and not 0 <= end < self._tokens.size:
                most = self._tokens.size - 1
                raise ValueError(f"until holds the token {end}; tokens are 0 to {most}")
        for token, _ in request.sampling.logit_bias[-1:]:  # they are in order
            if token >= self._tokens.size:
                most = self._tokens.size - 1
                raise ValueError(f"logit_bias names the token {token}; tokens are 0 to {most}")

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


def _machine(device: Device) -> str:
    """What decides bits besides the model and what computes it."""
    if device == "cuda":
        return f"cuda-{torch.version.cuda} {torch.cuda.get_device_name()}"
    return f"cpu {torch.backends.cpu.get_cpu_capability()}"

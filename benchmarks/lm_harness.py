"""A model for lm-evaluation-harness: its tasks, answered by a strategy of ttc within a budget.

    python -m ttc.benchmarks.lm_harness --model ttc --tasks TASK
        --model_args "model=smollm2-135m,strategy=vote,tokens=4000"

on one line registers the model `ttc` and hands over to lm-evaluation-harness. A strategy is one of
`STRATEGIES`, or the path of a saved graph, since its text would hold commas.

It generates texts and does nothing else: tasks that ask for likelihoods are refused. Where a task
names stop strings, the text is cut before the first of them; where it limits the tokens, the budget
stays what it is, and a text is not cut by it, since a strategy's own calls have a limit of theirs.
An argument that nothing here reads is refused, but for the size of a batch: the harness sends one
always, and the engine has its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ttc.errors import EngineError
from ttc.registry import install_hint, load_engine
from ttc.solve import solve_many
from ttc.types import Budget, Message, Outcome, Problem

__all__ = ["STRATEGIES", "Answers", "known", "main", "register"]

STRATEGIES: Mapping[str, str] = {
    "greedy": "greedy(max_tokens=512)",
    "vote": "sample(n='budget', temperature=0.8, max_tokens=512, ahead=8) >> vote()",
}
"""Strategies by a name without commas."""
_CHAT = '[{"role"'
_ARGUMENTS = ("model", "strategy", "tokens", "seed")
_ALWAYS_SENT = ("batch_size",)


class Answers:
    """Answers contexts of a task by a strategy; knows nothing of lm-evaluation-harness."""

    def __init__(
        self, *, model: str, strategy: str = "greedy", tokens: int | None = None, seed: int = 0
    ) -> None:
        """A model and a strategy.

        Args:
            model: as everywhere in ttc.
            strategy: one of `STRATEGIES`, or the path of a saved graph.
            tokens: what one context may spend.
            seed: of the runs.

        Raises:
            EngineError: the model cannot be had.
        """
        self._engine = load_engine(model)
        self._strategy: Any = STRATEGIES.get(strategy)
        if self._strategy is None:
            from ttc.graph import Node

            self._strategy = Node.load(strategy)
        self._budget, self._seed = Budget(tokens=tokens), seed

    def texts(self, asked: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
        """What the strategy chose for each context, cut before the task's stop strings.

        Args:
            asked: contexts, each with the task's options of generation.

        Raises:
            EngineError: one of them could not be answered.
        """
        problems = [_problem(context, str(place)) for place, (context, _) in enumerate(asked)]
        outcomes = solve_many(
            problems,
            self._strategy,
            model=self._engine,
            per_problem=self._budget,
            seed=self._seed,
        )
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return [
            _cut(_text_of(outcome), options.get("until"))
            for outcome, (_, options) in zip(outcomes, asked, strict=True)
        ]


def known(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a model is made with.

    Raises:
        ValueError: one is unknown, or no model is named.
    """
    unknown = sorted(arguments.keys() - set(_ARGUMENTS) - set(_ALWAYS_SENT))
    if unknown or "model" not in arguments:
        fault = f"does not know {', '.join(unknown)}" if unknown else "needs model=NAME"
        raise ValueError(f"the model ttc {fault}; it takes {', '.join(_ARGUMENTS)}")
    return {name: value for name, value in arguments.items() if name in _ARGUMENTS}


def _text_of(outcome: Outcome) -> str:
    """What was chosen; where no candidate has an answer to choose by, the first one's text."""
    if outcome.text is not None:
        return outcome.text
    return next((candidate.text for candidate in outcome.candidates), "")


def chat(history: Sequence[Mapping[str, str]]) -> str:
    """A conversation as the text of a context, which `Answers` reads back."""
    return json.dumps(list(history), ensure_ascii=False)


def _problem(context: str, id: str) -> Problem:
    if not context.startswith(_CHAT):
        return Problem(id=id, prompt=context)
    turns = tuple(
        Message(role=turn["role"], content=turn["content"]) for turn in json.loads(context)
    )
    return Problem(id=id, messages=turns)


def _cut(text: str, until: str | Sequence[str] | None) -> str:
    stops = [until] if isinstance(until, str) else list(until or ())
    places = [text.index(stop) for stop in stops if stop and stop in text]
    return text[: min(places)] if places else text


def register() -> type[Any]:
    """Registers the model `ttc` with lm-evaluation-harness, and gives its class.

    Raises:
        ModuleNotFoundError: lm-evaluation-harness is not installed.
    """
    try:
        from lm_eval.api.model import LM
        from lm_eval.api.registry import register_model
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is missing; install lm-eval beside ttc: {install_hint('eval')}",
            name=error.name,
        ) from error

    class TTC(LM):  # type: ignore[misc]  # lm_eval is not typed
        """A strategy of ttc as a model."""

        def __init__(self, **arguments: Any) -> None:
            super().__init__()
            self._answers = Answers(**known(arguments))

        def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
            """The texts that a task's contexts get."""
            return self._answers.texts([request.args for request in requests])

        def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
            """Always refused."""
            raise EngineError("a strategy writes texts and has no likelihoods; choose such a task")

        loglikelihood_rolling = loglikelihood

        def apply_chat_template(
            self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
        ) -> str:
            """The conversation itself: the engine has its model's template."""
            return chat(chat_history)

        @property
        def tokenizer_name(self) -> str:
            """Names the template in what is kept of a run."""
            return "ttc"

    registered: type[Any] = register_model("ttc")(TTC)
    return registered


def main(arguments: Sequence[str] | None = None) -> None:
    """Registers the model, and hands over to lm-evaluation-harness."""
    register()
    from lm_eval.__main__ import cli_evaluate

    if arguments is not None:
        sys.argv = ["lm_eval", *arguments]
    cli_evaluate()


if __name__ == "__main__":
    main()

"""vLLM in the process, on a real model: `make test-vllm` runs it, and it skips elsewhere."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ttc
from ttc import Budget, Problem, Sampling
from ttc.constraints import Choice
from ttc.ports import Request
from ttc.testing import check_engine
from ttc.types import Branch

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-vllm` installs it")

from ttc.engine.vllm import VllmEngine

MODEL = os.environ.get("TTC_VLLM_MODEL", "")
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]
QUESTION = Problem.ask("Name three animals.")


@pytest.fixture(scope="module")
def engine() -> Iterator[VllmEngine]:
    if not Path(MODEL).is_dir():
        pytest.skip(f"TTC_VLLM_MODEL is {MODEL!r}, which is no folder of a model")
    options: dict[str, Any] = {"dtype": "float32", "max_model_len": 1024, "max_num_seqs": 16}
    made = VllmEngine.load(MODEL, **options, enforce_eager=True)  # compiling takes minutes
    yield made
    made.close()


def result(engine: VllmEngine, branch: Branch, **more: Any) -> Branch:
    given = {"max_tokens": 8, "sampling": Sampling(temperature=0), "seed": 1, **more}
    return engine.submit(Request(branch=branch, **given)).future.result(120)


def test_it_keeps_the_contract(engine: VllmEngine) -> None:
    assert check_engine(engine, max_tokens=6).failed == ()


def test_a_vote_and_a_search_run_on_it(engine: VllmEngine) -> None:
    for strategy in (
        "sample(n=4, max_tokens=24, temperature=0.8) >> vote()",
        "beam_search(num_beams=2, beam_width=2, max_steps=2, verifier=mean_logprob()) >> vote()",
    ):
        outcome = ttc.solve(
            "What is 2 + 3?", strategy, model=engine, budget=Budget(tokens=600), seed=0
        )

        assert outcome.usage.tokens <= 600
        assert all(c.status in ("finished", "truncated") for c in outcome.candidates)


def test_scores_are_what_generation_reports(engine: VllmEngine) -> None:
    root = engine.root(QUESTION, "policy")
    made = result(engine, root)
    (scored,) = engine.score(root, (made,)).future.result(120)

    assert made.logprobs is not None
    for own, told in zip(scored, made.logprobs, strict=True):
        assert math.isclose(own, told, abs_tol=1e-3)


def test_samples_share_their_prompt(engine: VllmEngine) -> None:
    long = Problem.ask("Read: " + "the cat sat on the mat and " * 20 + "and answer.")
    root = engine.root(long, "policy")
    result(engine, root)
    call = engine.submit(Request(branch=root, max_tokens=2, sampling=Sampling(), seed=2))
    call.future.result(120)

    assert (call.usage.cached_input_tokens or 0) > root.num_tokens // 2


def test_one_seed_draws_alike_and_another_does_not(engine: VllmEngine) -> None:
    root = engine.root(QUESTION, "policy")
    texts = [
        result(
            engine, root, sampling=Sampling(temperature=1.5), seed=seed * 0x9E3779B97F4A7C15 % 2**64
        ).text
        for seed in (1, 1, 2)
    ]

    assert texts[0] == texts[1] != texts[2]


def test_a_choice_is_kept(engine: VllmEngine) -> None:
    root = engine.root(QUESTION, "policy")
    sampling = Sampling(constraint=Choice("yes", "no"))

    assert result(engine, root, sampling=sampling, max_tokens=16).text in ("yes", "no")


def test_an_adapter_that_is_not_there_is_refused(engine: VllmEngine) -> None:
    with pytest.raises(ttc.EngineError, match="no adapter 'math'; it was loaded with none"):
        engine.adapted("math")

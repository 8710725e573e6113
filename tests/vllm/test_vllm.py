"""vLLM in the process, on a real model: `make test-vllm` runs it, and it skips elsewhere."""

from __future__ import annotations

import json
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
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(3000)]
QUESTION = Problem.ask("Name three animals.")


SECONDS = 600.0
RANK = 8


def adapter(folder: Path, *, size: float) -> str:
    """A LoRA adapter of every layer's queries and values; of size 0 it changes nothing."""
    import torch
    from safetensors.torch import save_file

    config = json.loads(Path(MODEL, "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    rows = {"q_proj": hidden, "v_proj": hidden // heads * config["num_key_value_heads"]}
    noise, weights = torch.Generator().manual_seed(0), {}
    for layer in range(config["num_hidden_layers"]):
        for name, count in rows.items():
            where = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{where}.lora_A.weight"] = torch.randn(RANK, hidden, generator=noise)
            weights[f"{where}.lora_B.weight"] = size * torch.randn(count, RANK, generator=noise)
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", "lora_alpha": RANK}
    told |= {"r": RANK, "target_modules": sorted(rows), "base_model_name_or_path": MODEL}
    (folder / "adapter_config.json").write_text(json.dumps(told))
    return str(folder)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    if not Path(MODEL).is_dir():
        pytest.skip(f"TTC_VLLM_MODEL is {MODEL!r}, which is no folder of a model")
    folder = tmp_path_factory.mktemp("adapters")
    adapters = {
        "same": adapter(folder / "same", size=0.0),
        "other": adapter(folder / "other", size=0.5),
    }
    options: dict[str, Any] = {"dtype": "float32", "max_model_len": 1024, "max_num_seqs": 16}
    made = VllmEngine.load(
        MODEL,
        adapters=adapters,
        max_lora_rank=RANK,
        max_loras=2,
        enforce_eager=True,  # compiling takes minutes
        **options,
    )
    yield made
    made.close()


def result(engine: VllmEngine, branch: Branch, **more: Any) -> Branch:
    given = {"max_tokens": 8, "sampling": Sampling(temperature=0), "seed": 1, **more}
    return engine.submit(Request(branch=branch, **given)).future.result(SECONDS)


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
    (scored,) = engine.score(root, (made,)).future.result(SECONDS)

    assert made.logprobs is not None
    for own, told in zip(scored, made.logprobs, strict=True):
        assert math.isclose(own, told, abs_tol=1e-3)


def test_samples_share_their_prompt(engine: VllmEngine) -> None:
    long = Problem.ask("Read: " + "the cat sat on the mat and " * 20 + "and answer.")
    root = engine.root(long, "policy")
    result(engine, root)
    call = engine.submit(Request(branch=root, max_tokens=2, sampling=Sampling(), seed=2))
    call.future.result(SECONDS)

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


def test_a_bias_decides(engine: VllmEngine) -> None:
    root = engine.root(QUESTION, "policy")
    wanted = (engine.append(root, " cat").token_ids or ())[0]
    sampling = Sampling(temperature=0, logit_bias=((wanted, 100.0),))

    assert result(engine, root, sampling=sampling, max_tokens=3).token_ids == (wanted,) * 3


def test_a_choice_is_kept(engine: VllmEngine) -> None:
    root = engine.root(QUESTION, "policy")
    sampling = Sampling(constraint=Choice("yes", "no"))

    assert result(engine, root, sampling=sampling, max_tokens=16).text in ("yes", "no")


def test_samples_that_begin_together_compute_their_prompt_once(engine: VllmEngine) -> None:
    """As one request for so many choices would; each has a seed of its own."""
    long = Problem.ask("Repeat: " + "a dog ran over the hill and " * 60 + "and answer.")
    root = engine.root(long, "policy")
    calls = [
        engine.submit(Request(branch=root, max_tokens=2, sampling=Sampling(), seed=seed << 40))
        for seed in range(4)
    ]
    for call in calls:
        call.future.result(SECONDS)

    used = [call.usage for call in calls]
    computed = sum(usage.input_tokens - (usage.cached_input_tokens or 0) for usage in used)
    assert [usage.input_tokens for usage in used] == [root.num_tokens] * 4
    assert root.num_tokens <= computed < 2 * root.num_tokens


# Adapters


def test_an_adapter_is_a_model_of_its_own(engine: VllmEngine) -> None:
    """One that changes nothing says what the model says, and one that does not."""
    said = {}
    for name in ("", "same", "other"):
        adapted = engine.adapted(name) if name else engine
        said[name] = result(adapted, adapted.root(QUESTION, "policy")).token_ids

    assert said[""] == said["same"] != said["other"]
    assert engine.adapted("other").name == f"{engine.name}+other"
    assert engine.adapted("other").numerics != engine.numerics


def test_an_adapter_keeps_the_contract(engine: VllmEngine) -> None:
    only = ("prompt", "result", "limit", "chunks", "logprobs", "cancel", "fork", "budget")

    assert check_engine(engine.adapted("other"), max_tokens=4, only=only).failed == ()


def test_an_adapter_has_a_role_of_its_own(engine: VllmEngine) -> None:
    """Beside the model itself, under one ledger."""
    outcome = ttc.solve(
        "What is 2 + 3?",
        "sample(n=2, max_tokens=8) >> judge(max_tokens=8) >> best()",
        model=engine,
        models={"judge": engine.adapted("other")},
        budget=Budget(tokens=2_000),
        seed=0,
    )

    spent = outcome.usage_by_role
    assert {"policy", "judge"} <= set(spent)
    assert spent["policy"].tokens + spent["judge"].tokens == outcome.usage.tokens <= 2_000


def test_an_adapter_that_is_not_there_is_refused(engine: VllmEngine) -> None:
    with pytest.raises(ttc.EngineError, match="no adapter 'math'; it was loaded with other, same"):
        engine.adapted("math")

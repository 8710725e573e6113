"""Reward models in the files of Hugging Face: their heads, their labels, and no row read twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ttc.engine.local import LocalEngine  # before torch: it sets how torch's threads wait

# isort: split
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.engine.reference import SIZES, ids_of, logits_of, make_model, save
from ttc.engine.local.files.folder import folder_weights, read_folder
from ttc.engine.local.model import Llama
from ttc.engine.local.native.library import Kernels
from ttc.engine.local.native.model import NativeModel
from ttc.engine.local.source import ModelSource
from ttc.errors import EngineError, ModelFileError
from ttc.ports import Request
from ttc.types import Branch

CONFIGS = {
    "llama": transformers.LlamaConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
    "mistral": transformers.MistralConfig,
}


def classifier(family: str, kind: str, **changes: Any) -> Any:
    """A random model of transformers with a head for whole sequences, or for tokens."""
    torch.manual_seed(3)
    config = CONFIGS[family](**SIZES | changes)
    model = getattr(transformers, f"{type(config).__name__.removesuffix('Config')}{kind}")(config)
    with torch.no_grad():
        model.score.weight.mul_(5)
        if model.score.bias is not None:
            model.score.bias.add_(torch.randn_like(model.score.bias))
    return model.eval()


def with_head(model: Any, folder: Path, architecture: str, head: dict[str, torch.Tensor]) -> Path:
    """A folder of a language model with another head, as reward models' own code writes it."""
    save(model, folder)
    weights = load_file(folder / "model.safetensors")
    save_file(weights | head, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": [architecture], "auto_map": {"AutoModel": "modeling.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def engine_of(tiny: ModelSource) -> Iterator[Callable[[Path], LocalEngine]]:
    """Loads a folder's weights beside the tiny vocabulary, and closes the engines."""
    engines: list[LocalEngine] = []

    def make(path: Path) -> LocalEngine:
        folder = read_folder(path)
        source = replace(
            tiny,
            config=folder.config,
            build=lambda: Llama(folder.config, folder_weights(folder), torch.float32),
        )
        engines.append(LocalEngine(source, name="reward"))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def rewards(engine: LocalEngine, ids: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """What the engine says of rows, (rows, labels)."""
    branch = Branch(text="", token_ids=tuple(ids.tolist()), role="reward")
    return torch.tensor(engine.reward(branch, rows).future.result())


@pytest.mark.parametrize("family", CONFIGS)
def test_a_head_for_sequences_reads_the_last_token(
    family: str, tmp_path: Path, engine_of: Callable[[Path], LocalEngine]
) -> None:
    """One output, as reward models have it; equal to what transformers computes."""
    model, ids = classifier(family, "ForSequenceClassification", num_labels=1), ids_of(150)
    with torch.inference_mode():
        expected = model(ids[None]).logits
    engine = engine_of(save(model, tmp_path))

    assert engine.labels == ("LABEL_0",)
    torch.testing.assert_close(rewards(engine, ids, [149]), expected, rtol=0, atol=1e-3)


def test_labels_are_those_of_the_configuration(
    tmp_path: Path, engine_of: Callable[[Path], LocalEngine]
) -> None:
    """In the order of their numbers; without names they are counted."""
    names = {0: "helpful", 1: "correct", 2: "brief"}
    model = classifier(
        "llama",
        "ForSequenceClassification",
        id2label=names,
        label2id={name: i for i, name in names.items()},
    )
    ids = ids_of(30)
    with torch.inference_mode():
        expected = model(ids[None]).logits
    engine = engine_of(save(model, tmp_path))

    assert engine.labels == ("helpful", "correct", "brief")
    torch.testing.assert_close(rewards(engine, ids, [29]), expected, rtol=0, atol=1e-3)


def test_a_head_for_tokens_reads_every_row(
    tmp_path: Path, engine_of: Callable[[Path], LocalEngine]
) -> None:
    """It has a bias; rows come in the order in which they are asked for."""
    model, ids = classifier("qwen2", "ForTokenClassification", num_labels=2), ids_of(150)
    with torch.inference_mode():
        expected = model(ids[None]).logits[0]
    rows = [149, 0, 63, 64, 7]
    engine = engine_of(save(model, tmp_path))

    torch.testing.assert_close(rewards(engine, ids, rows), expected[rows], rtol=0, atol=1e-3)


@pytest.mark.parametrize(("kind", "labels"), [("ProcessRewardModel", 2), ("RewardModel", 1)])
def test_a_head_of_two_layers_is_that_of_qwens_reward_models(
    kind: str, labels: int, tmp_path: Path, engine_of: Callable[[Path], LocalEngine]
) -> None:
    """Two linear layers with a ReLU between; the language model's own head is passed over."""
    model, ids = make_model("qwen2", tie_word_embeddings=False), ids_of(100)
    torch.manual_seed(5)
    inner, outer = torch.nn.Linear(48, 48), torch.nn.Linear(48, labels)
    head = {
        f"score.{i}.{name}": value.detach().contiguous()
        for i, layer in ((0, inner), (2, outer))
        for name, value in layer.named_parameters()
    }
    with torch.inference_mode():
        hidden = model.model(ids[None]).last_hidden_state[0]
        expected = outer(torch.relu(inner(hidden)))
    engine = engine_of(with_head(model, tmp_path, f"Qwen2For{kind}", head))

    torch.testing.assert_close(rewards(engine, ids, list(range(100))), expected, rtol=0, atol=1e-3)


def test_a_value_head_is_that_of_skyworks_reward_models(
    tmp_path: Path, engine_of: Callable[[Path], LocalEngine]
) -> None:
    """One linear layer, beside a language model's head that is passed over."""
    model, ids = make_model("qwen2"), ids_of(100)
    torch.manual_seed(5)
    layer = torch.nn.Linear(48, 1)
    head = {f"v_head.summary.{n}": v.detach().clone() for n, v in layer.named_parameters()}
    with torch.inference_mode():
        expected = layer(model.model(ids[None]).last_hidden_state[0])
    engine = engine_of(with_head(model, tmp_path, "Qwen2ForPrmModel", head))

    torch.testing.assert_close(rewards(engine, ids, list(range(100))), expected, rtol=0, atol=1e-3)


def test_a_scored_prefix_is_never_computed_again(
    tmp_path: Path, engine_of: Callable[[Path], LocalEngine]
) -> None:
    """A trace of ten steps, scored after each of them: its tokens are computed once."""
    model, ids = classifier("llama", "ForTokenClassification", num_labels=2), ids_of(200)
    engine = engine_of(save(model, tmp_path))
    ends = list(range(19, 200, 20))
    grown = [rewards(engine, ids[: end + 1], ends[: i + 1]) for i, end in enumerate(ends)]
    computed = engine.counters.prompt_tokens
    once = rewards(engine, ids, ends)

    assert computed == 200
    assert engine.counters.prompt_tokens == 200
    assert all(torch.equal(part, once[: len(part)]) for part in grown)
    assert torch.equal(rewards(engine_of(tmp_path), ids, ends), once)


@pytest.mark.parametrize("kind", ["ForTokenClassification", "ForSequenceClassification"])
def test_a_head_is_read_behind_the_kernels_in_c_too(kind: str, tmp_path: Path) -> None:
    """The layers in int8, the head in float32: near the whole model in float32, and repeatable."""
    folder = read_folder(save(classifier("qwen2", kind, num_labels=2), tmp_path))
    ids, weights = ids_of(150), folder_weights(folder)
    exact = logits_of(Llama(folder.config, weights, torch.float32), ids)
    model = NativeModel(folder.config, weights, Kernels())
    found = logits_of(model, ids)

    assert found.shape == (150, 2)
    assert torch.corrcoef(torch.stack([found.flatten(), exact.flatten()]))[0, 1] > 0.97
    assert torch.equal(logits_of(model, ids, piece=7), found)


def test_branches_of_one_prefix_share_it(
    tmp_path: Path, engine_of: Callable[[Path], LocalEngine]
) -> None:
    """Eight continuations of a prefix of 100 tokens, scored at once."""
    engine = engine_of(save(classifier("qwen3", "ForTokenClassification"), tmp_path))
    prefix = Branch(text="", token_ids=tuple(ids_of(100).tolist()))
    paths = [Branch(parent=prefix, text="", token_ids=(i, i, i)) for i in range(8)]
    calls = [engine.reward(path, [99, 102]) for path in paths]
    first = {call.future.result()[0] for call in calls}

    assert len(first) == 1
    assert engine.counters.prompt_tokens == 100 + 8 * 3
    assert sum(103 - (call.usage.cached_input_tokens or 0) for call in calls) == 100 + 8 * 3


def test_a_reward_model_says_what_it_is(
    tmp_path: Path, engine_of: Callable[[Path], LocalEngine], ask: Callable[..., Request]
) -> None:
    """It gives rewards, and neither text nor log probabilities."""
    engine = engine_of(save(classifier("llama", "ForSequenceClassification"), tmp_path))
    branch = Branch(text="", token_ids=(1, 2), role="policy")

    assert engine.capabilities.reward
    assert not engine.capabilities.score
    with pytest.raises(EngineError, match=r"generates nothing; bind another model .*'policy'"):
        engine.submit(ask(branch))
    with pytest.raises(EngineError, match="gives no log probabilities"):
        engine.score(branch, [Branch(parent=branch, text="", token_ids=(1,))])
    with pytest.raises(ValueError, match="rows are some of 0 to 1"):
        engine.reward(branch, [2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id2label": {"0": "a", "1": "a"}}, "id2label"),
        ({"id2label": {"1": "a", "2": "b"}}, "id2label"),
        ({"id2label": []}, "id2label"),
        ({"id2label": {"0": "a"}}, r"'score.weight' has the shape \(2, 48\), not \(1, 48\)"),
        ({"architectures": ["LlamaForRewardModel"]}, r"'score.weight' is not supported"),
        ({"architectures": ["LlamaForQuestionAnswering"]}, "only 'LlamaForCausalLM' or 'Llama"),
    ],
)
def test_a_head_that_does_not_fit_is_named(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Labels without order or number, another head, another kind of model."""
    path = save(classifier("llama", "ForSequenceClassification"), tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | changes))

    with pytest.raises(ModelFileError, match=message):
        folder_weights(read_folder(path))

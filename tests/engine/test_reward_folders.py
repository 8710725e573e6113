"""Reward models as whole folders: weights, tokenizer and template, against transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from ttc.engine.local import LocalEngine  # before torch: it sets how torch's threads wait

# isort: split
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import ttc
from tests.engine.reference import make_model
from tests.engine.test_reward import classifier, with_head
from ttc.config import Arithmetic
from ttc.engine.local.text.vocabulary import BYTE_LETTERS
from ttc.ports import Verifier
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine
from ttc.types import Problem, Score
from ttc.verifiers import OutcomeRewardModel, ProcessRewardModel

QUESTION = "What is 17 * 23?"
STEPS = ["First 17 * 20 is 340.", "Then 17 * 3 is 51.", "So the answer is 391."]
CONTROL = ["<|im_start|>", "<|im_end|>", "<extra_0>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TAG = " \u043a\u0438"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A byte-level tokenizer of transformers, in which plus, minus and tag are one token each."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=list(BYTE_LETTERS), show_progress=False
    )
    inner.train_from_iterator([f"a + b - c{TAG} the answer is 391"] * 50, trainer)
    inner.add_special_tokens(CONTROL)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, chat_template=TEMPLATE, eos_token="<|im_end|>"
    )


@pytest.fixture
def load_with(tokenizer: Any) -> Iterator[Callable[[Path], LocalEngine]]:
    """Loads a folder as a user does, once the tokenizer's files lie in it."""
    engines: list[LocalEngine] = []

    def make(folder: Path, arithmetic: Arithmetic = "fp32") -> LocalEngine:
        tokenizer.save_pretrained(folder)
        engines.append(LocalEngine.load(folder, name="reward", arithmetic=arithmetic))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def language_model(family: str, **changes: Any) -> Any:
    """A random model whose vocabulary is large enough."""
    return make_model(family, vocab_size=384, max_position_embeddings=1024, **changes)


def score_of(verifier: Verifier, text: str, engine: LocalEngine) -> Score:
    """The score of a text, in a whole run."""
    outcome = ttc.solve(
        Problem.ask(QUESTION, answer_format="text"),
        Sample(n=1) >> verifier >> Best(),
        model=FakeEngine(text),
        models={"reward": engine},
        seed=0,
    )
    score = outcome.candidates[0].scores[verifier.name]
    assert score.value is not None, score.evidence
    computed = outcome.usage_by_role["reward"]
    sent, cached = computed.input_tokens, computed.cached_input_tokens
    assert cached is not None
    assert sent - cached == engine.counters.prompt_tokens
    return score


def test_an_outcome_reward_is_that_of_the_templated_conversation(
    tmp_path: Path, tokenizer: Any, load_with: Callable[[Path], LocalEngine]
) -> None:
    """To its last token, which is the template's."""
    model = classifier("llama", "ForSequenceClassification", num_labels=1, vocab_size=384)
    model.save_pretrained(tmp_path)
    said = "\n\n".join(STEPS)
    turns = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": said}]
    ids = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False)
    with torch.inference_mode():
        expected = model(torch.tensor([ids])).logits[0, 0].item()

    score = score_of(OutcomeRewardModel(), said, load_with(tmp_path))
    assert score.value == pytest.approx(expected, abs=1e-3)


def test_qwens_form_reads_its_control_token_after_each_step(
    tmp_path: Path, tokenizer: Any, load_with: Callable[[Path], LocalEngine]
) -> None:
    """As the model's own instructions have it: softmax over two outputs at `<extra_0>`."""
    model = language_model("qwen2")
    torch.manual_seed(5)
    inner, outer = torch.nn.Linear(48, 48), torch.nn.Linear(48, 2)
    head = {
        f"score.{i}.{name}": value.detach().contiguous()
        for i, layer in ((0, inner), (2, outer))
        for name, value in layer.named_parameters()
    }
    with_head(model, tmp_path, "Qwen2ForProcessRewardModel", head)
    turns = [
        {"role": "system", "content": "Reason step by step."},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "<extra_0>".join(STEPS) + "<extra_0>"},
    ]
    ids = torch.tensor(tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False))
    with torch.inference_mode():
        logits = outer(torch.relu(inner(model.model(ids[None]).last_hidden_state[0])))
    at = ids == tokenizer.convert_tokens_to_ids("<extra_0>")
    expected = logits[at].softmax(-1)[:, 1].tolist()

    verifier = ProcessRewardModel(form="qwen", aggregate="product", system=turns[0]["content"])
    score = score_of(verifier, "\n\n".join(STEPS), load_with(tmp_path))
    assert score.evidence["steps"] == pytest.approx(expected, abs=1e-3)


def test_skyworks_form_reads_the_line_break_after_each_step(
    tmp_path: Path, tokenizer: Any, load_with: Callable[[Path], LocalEngine]
) -> None:
    """Each step encoded by itself; the sigmoid of one output."""
    model = language_model("qwen2")
    torch.manual_seed(5)
    layer = torch.nn.Linear(48, 1)
    head = {f"v_head.summary.{n}": v.detach().clone() for n, v in layer.named_parameters()}
    with_head(model, tmp_path, "Qwen2ForPrmModel", head)
    ids = tokenizer.encode(QUESTION + "\n")
    rows = []
    for step in STEPS:
        ids += tokenizer.encode(step) + tokenizer.encode("\n")
        rows.append(len(ids) - 1)
    with torch.inference_mode():
        hidden = model.model(torch.tensor([ids])).last_hidden_state[0]
        expected = layer(hidden)[rows, 0].sigmoid().tolist()

    verifier = ProcessRewardModel(form="skywork", aggregate="min")
    score = score_of(verifier, "\n".join(STEPS), load_with(tmp_path))
    assert score.evidence["steps"] == pytest.approx(expected, abs=1e-3)
    assert score.value == min(score.evidence["steps"])


def test_math_shepherds_form_reads_a_language_model_after_each_tag(
    tmp_path: Path, tokenizer: Any, load_with: Callable[[Path], LocalEngine]
) -> None:
    """The softmax over plus and minus alone."""
    model = language_model("mistral-whole")
    model.save_pretrained(tmp_path)
    text = QUESTION + " " + f"{TAG}\n".join(STEPS) + TAG
    ids = tokenizer.encode(text)
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0]
    tag, plus, minus = (tokenizer.encode(sign)[-1] for sign in (TAG, " +", " -"))
    rows = [place for place, token in enumerate(ids) if token == tag]
    expected = logits[rows][:, [plus, minus]].softmax(-1)[:, 0].tolist()

    verifier = ProcessRewardModel(form="math_shepherd", aggregate="mean")
    score = score_of(verifier, "\n".join(STEPS), load_with(tmp_path))
    assert len(expected) == 3
    assert score.evidence["steps"] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("form", ["qwen", "skywork", "math_shepherd"])
@pytest.mark.parametrize("arithmetic", ["fp32", "int8"])
def test_a_growing_trace_is_read_once(
    form: str, arithmetic: Arithmetic, tmp_path: Path, load_with: Callable[..., LocalEngine]
) -> None:
    """Scored after each of twelve steps, it costs the engine as many tokens as it has."""
    folder = reward_folder(form, tmp_path)
    verifier = ProcessRewardModel(form=form, aggregate="last")  # type: ignore[arg-type]
    engine = load_with(folder, arithmetic)
    delimiter = "\n\n" if form == "qwen" else "\n"
    steps = [f"Step {i}: I multiply {i} by {i * 7}." for i in range(12)]
    traces = [delimiter.join(steps[: i + 1]) for i in range(12)]
    problem = Problem.ask(QUESTION, answer_format="text")
    outcome = ttc.solve(
        problem,
        Sample(n=12) >> ttc.strategies.Verify(verifier, ahead=1) >> Best(),
        model=FakeEngine(traces, in_order=True),
        models={"reward": engine},
    )
    computed = engine.counters.prompt_tokens
    grown = {c.text: c.scores[verifier.name].evidence["steps"] for c in outcome.candidates}
    again = LocalEngine.load(folder, name="fresh", arithmetic=arithmetic)
    with again:
        whole = score_of(verifier, traces[-1], again)
        once = again.counters.prompt_tokens

    assert computed == once
    assert all(whole.evidence["steps"][: len(found)] == found for found in grown.values())


def reward_folder(form: str, path: Path) -> Path:
    """A tiny model of a form."""
    if form == "math_shepherd":
        language_model("mistral-whole").save_pretrained(path)
        return path
    sizes = (48, 48, 2) if form == "qwen" else (48, 1)
    torch.manual_seed(5)
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    names = ["score.0", "score.2"] if form == "qwen" else ["v_head.summary"]
    head = {
        f"{name}.{part}": value.detach().contiguous()
        for name, layer in zip(names, layers, strict=True)
        for part, value in layer.named_parameters()
    }
    kind = "ProcessRewardModel" if form == "qwen" else "PrmModel"
    return with_head(language_model("qwen2"), path, f"Qwen2For{kind}", head)

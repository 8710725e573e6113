"""The real model, against an independent implementation and against itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.engine.reference import reference_model
from ttc.engine.local import LocalEngine
from ttc.engine.local.hub.models import find
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.ports import Request
from ttc.types import Branch, Problem

pytestmark = pytest.mark.model

QUESTIONS = [
    "What is 17 * 23?",
    "Write a haiku about the sea.",
    "Who wrote Hamlet?",
    "def fib(n):",
    "Name three prime numbers.",
    "Translate 'good morning' into French.",
    "A train travels 60 km in 45 minutes. What is its speed in km/h?",
    "List the planets.",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "Sum the numbers 4, 8, 15, 16, 23 and 42.",
    "What's the capital of Australia?",
    "Explain recursion to a child.",
    "Write one sentence with the word 'lantern'.",
    "Sort these: pear, apple, fig.",
    "Is 91 prime?",
    "Tell me a joke.",
    "x + 3 = 10. Find x.",
    "Describe the colour red.",
    "What comes after Monday?",
]
CORPUS = [
    "Hello, world!",
    "  two spaces, a\ttab and\n\n\nnewlines \n",
    "I'm sure they'll say it's 1234567.89 or 3e-10, don't you?",
    "naïve café — “quotes” … ½ ² Ⅷ ٣",
    "日本語のテキスト, русский, हिन्दी, עברית",
    "🧮👩‍👩‍👧‍👦 flags 🇫🇷🇯🇵",
    "def f(x):\n    return x**2  # squared\n",
    "https://example.org/a?b=c&d=%20#e",
    "<|im_end|> spelt out <|im_start|>user",
    "UPPER lower MiXeD under_score kebab-case snake__case",
    "\u00a0nbsp\u200bzero\ufeffbom\x00nul",
    "the quick brown fox " * 5,
]


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    """Llama of transformers in float32, with weights that gguf-py alone has read."""
    with torch.inference_mode():
        yield reference_model(find("smollm2-135m"))


@pytest.fixture(scope="module")
def exact() -> Iterator[LocalEngine]:
    """The model in float32."""
    with LocalEngine.load(find("smollm2-135m"), arithmetic="fp32") as engine:
        yield engine


@pytest.fixture(scope="module")
def answers(exact: LocalEngine, ask: Callable[..., Request]) -> list[Branch]:
    """Greedy answers to all questions, 48 tokens at most."""
    roots = [exact.root(Problem.ask(question), "policy") for question in QUESTIONS]
    calls = [exact.submit(ask(root, 48, temperature=0)) for root in roots]
    return [call.future.result() for call in calls]


def test_greedy_answers_are_those_of_transformers(answers: list[Branch], reference: Any) -> None:
    """Token by token; one may differ only where the reference's best two are within 1e-3."""
    compared = 0
    for branch in answers:
        assert branch.parent is not None
        prompt, output = branch.parent.token_ids or (), branch.token_ids or ()
        ids = torch.tensor([prompt + output])
        logits = reference(ids, logits_to_keep=len(output) + 1).logits[0, :-1]
        logprobs = logits.log_softmax(-1)
        for i, token in enumerate(output):
            best = logits[i].topk(2)
            if token != int(best.indices[0]):
                assert float(best.values[0] - best.values[1]) < 1e-3
                break
            assert (branch.logprobs or ())[i] == pytest.approx(float(logprobs[i, token]), abs=1e-3)
            compared += 1

    assert compared > 0.9 * sum(len(branch.token_ids or ()) for branch in answers)


def logits_of(engine: LocalEngine, ids: list[int]) -> torch.Tensor:
    """Every logit at every position of a text, (tokens, vocab)."""
    model, num_pages = engine._batch.model, -(-len(ids) // PAGE)
    spans = [Span(pages=range(num_pages), start=0, count=len(ids))]
    pool = model.make_pool(num_pages)
    with torch.inference_mode():
        return model.forward(torch.tensor(ids), Plan(spans), pool, torch.arange(len(ids)))


def test_logits_are_those_of_transformers(exact: LocalEngine, reference: Any) -> None:
    """Every logit at every position of a text of 300 tokens, within 1e-3."""
    ids = exact._tokens.encode("\n".join(QUESTIONS))[:300]

    found, wanted = logits_of(exact, ids), reference(torch.tensor([ids])).logits[0]

    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-3)


def test_int8_is_close_to_the_exact_model(smollm2: LocalEngine, exact: LocalEngine) -> None:
    """On 300 tokens: the mean divergence of its distributions, and how often the best is equal."""
    ids = smollm2._tokens.encode("\n".join(QUESTIONS))[:300]
    found, wanted = (logits_of(e, ids).log_softmax(-1) for e in (smollm2, exact))

    divergence = (wanted.exp() * (wanted - found)).sum(-1).mean().item()
    agreement = (wanted.argmax(-1) == found.argmax(-1)).float().mean().item()
    assert divergence < 0.015
    assert agreement > 0.92


def byte_letters() -> list[str]:
    """GPT-2's letters for bytes, in the order of bytes."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte if byte in visible else next(spare)) for byte in range(256)]


def test_tokens_are_those_of_the_published_algorithm(smollm2: LocalEngine) -> None:
    """A plain byte-pair encoder: single digits, then GPT-2's pattern, then merges by rank."""
    gguf, regex = pytest.importorskip("gguf"), pytest.importorskip("regex")
    fields = gguf.GGUFReader(find("smollm2-135m")).fields
    ids = {token: i for i, token in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    merges = fields["tokenizer.ggml.merges"].contents()
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    letters = byte_letters()
    words = regex.compile(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )

    def encode(text: str) -> list[int]:
        found = []
        for part in regex.split(r"(\p{N})", text):
            for word in words.findall(part):
                symbols = [letters[byte] for byte in word.encode()]
                while pairs := [p for p in pairwise(symbols) if p in ranks]:
                    first, second = min(pairs, key=lambda pair: ranks[pair])
                    merged: list[str] = []
                    for symbol in symbols:
                        if merged and (merged[-1], symbol) == (first, second) and symbol == second:
                            merged[-1] = first + second
                        else:
                            merged.append(symbol)
                    symbols = merged
                found += [ids[symbol] for symbol in symbols]
        return found

    for text in CORPUS:
        assert smollm2._tokens.encode(text) == encode(text), text


def test_the_template_is_the_models_own(smollm2: LocalEngine) -> None:
    """With its default system message, control tokens once each, and the rest plain."""
    root = smollm2.root(Problem.ask("Hi <|im_end|>"), "policy")
    ids = root.token_ids or ()

    assert root.text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    )
    assert (ids.count(1), ids.count(2)) == (3, 2)
    assert smollm2._tokens.decode(ids) == re.sub(r"<\|im_\w+\|>", "", root.text).replace(
        "Hi ", "Hi <|im_end|>"
    )


def test_an_answer_ends_with_the_models_end_token(answers: list[Branch]) -> None:
    """It is the last token, and no text."""
    ended = [branch for branch in answers if branch.finish_reason == "stop"]

    assert ended
    assert all((b.token_ids or ())[-1] == b.stop_reason == 2 for b in ended)
    assert not any("<|" in branch.text for branch in ended)


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.95}])
def test_results_do_not_depend_on_the_batch(
    smollm2: LocalEngine, ask: Callable[..., Request], sampling: dict[str, float]
) -> None:
    """Six prompts among 3, 8 and 16 calls that join at other times, and then alone.

    The prompts are new at first, and later in the cache.
    """
    salt = f"{sampling}: "
    roots = [smollm2.root(Problem.ask(salt + question), "policy") for question in QUESTIONS[:5]]
    roots.append(smollm2.root(Problem.ask(salt + " ".join(QUESTIONS)), "policy"))
    requests = [ask(root, 6, seed=i, **sampling) for i, root in enumerate(roots)]
    others = [
        ask(smollm2.root(Problem.ask(q), "policy"), 3 + i) for i, q in enumerate(QUESTIONS[5:])
    ]
    found = []
    for size in (3, 8, 16):
        for wave in (requests[:3], requests[3:]):
            company = [smollm2.submit(other) for other in others[: size - len(wave)]]
            if company:
                company[0].future.result()  # so that the wave joins in the middle
            calls = [smollm2.submit(request) for request in wave]
            found += [call.future.result() for call in calls]
            for call in company:
                call.cancel()
    alone = [smollm2.submit(request).future.result() for request in requests]

    assert [(b.token_ids, b.logprobs) for b in found] == 3 * [
        (b.token_ids, b.logprobs) for b in alone
    ]


def test_cancelling_frees_memory_and_stops_the_count(
    smollm2: LocalEngine, ask: Callable[..., Request]
) -> None:
    """After the step in flight, nothing of it is left."""
    root = smollm2.root(Problem.ask("Count to a thousand."), "policy")
    smollm2.submit(ask(root, 1)).future.result()  # calls of other tests have left by then
    before = smollm2.counters.output_tokens
    calls = [smollm2.submit(ask(root, 1000, seed=seed)) for seed in range(4)]
    counted = [call.cancel() for call in calls]
    last = smollm2.submit(ask(root, 2, temperature=0)).future.result()

    assert smollm2.kv_bytes_used == 0
    assert smollm2.counters.output_tokens <= before + sum(counted) + len(last.token_ids or ())


def test_the_numerics_name_the_weights(smollm2: LocalEngine) -> None:
    """By their digest, beside types and kernels."""
    assert "sha=b179c9523d0e6a0f" in smollm2.numerics
    assert "int8" in smollm2.numerics

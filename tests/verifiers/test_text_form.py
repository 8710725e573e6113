"""Every verifier has a text form, and it round-trips."""

from __future__ import annotations

import math

import pytest

from ttc import GraphError, confidence
from ttc.graph import Node
from ttc.ports import Verifier
from ttc.registry import lookup, names
from ttc.strategies import (
    Abstain,
    Best,
    BestOfN,
    CannotBeOvertaken,
    Cascade,
    Exhausted,
    Greedy,
    Sample,
    SelfConsistency,
    Verify,
    Vote,
)
from ttc.testing import ScriptedVerifier
from ttc.text_form import parse, write
from ttc.types import Tail
from ttc.verifiers import (
    AnswerProbability,
    AskBack,
    Bayes,
    BayesVote,
    Calibrated,
    CodeT,
    Conformal,
    Constraint,
    Entropy,
    Exact,
    FirstDecided,
    Gate,
    GroupConfidence,
    Isotonic,
    JsonSchema,
    Length,
    Margin,
    MeanLogprob,
    Perplexity,
    Platt,
    Product,
    Rank,
    Rates,
    Regex,
    RoundTrip,
    SelfCertainty,
    SemanticEntropy,
    SequenceLogprob,
    SequenceProbability,
    Surprisal,
    TailEntropy,
    WeightedSum,
)

RATES = (Rates(0.9, 0.1), Rates(0.8, 0.3))
PLATT = Platt(slope=2.0, offset=-1.0)

TEXTS: dict[str, Verifier] = {
    "sequence_probability()": SequenceProbability(),
    "sequence_logprob()": SequenceLogprob(),
    "margin()": Margin(),
    "mean_logprob(name='lp')": MeanLogprob(name="lp"),
    "perplexity()": Perplexity(),
    "entropy()": Entropy(),
    "self_certainty()": SelfCertainty(),
    "surprisal()": Surprisal(),
    "group_confidence(take='lowest', window=64)": GroupConfidence(take="lowest", window=64),
    "tail_entropy(window=128)": TailEntropy(window=128),
    "semantic_entropy(weigh='probability')": SemanticEntropy(weigh="probability"),
    "answer_probability()": AnswerProbability(),
    "first_decided(exact('7'), regex('^a'), low=0.25)": FirstDecided(
        Exact("7"), Regex("^a"), low=0.25
    ),
    "weighted_sum(exact('7'), regex('^a'), weights=(2, 1, ))": WeightedSum(
        Exact("7"), Regex("^a"), weights=(2, 1)
    ),
    "product(exact('7'), sequence_probability())": Product(Exact("7"), SequenceProbability()),
    "rank(verifier=surprisal(), power=0.5)": Rank(Surprisal(), power=0.5),
    "gate(check=exact('7'), by=surprisal())": Gate(Exact("7"), Surprisal()),
    "calibrated(verifier=entropy(), by=platt(slope=2.0, offset=-1.0))": Calibrated(
        Entropy(), PLATT
    ),
    "calibrated(entropy(), isotonic(scores=(0, 1), probabilities=(0.5, 1)))": Calibrated(
        Entropy(), Isotonic(scores=(0, 1), probabilities=(0.5, 1))
    ),
    "bayes(exact('7'), regex('a'), rates=(rates(0.9, 0.1), rates(0.8, 0.3)))": Bayes(
        Exact("7"), Regex("a"), rates=RATES
    ),
    "bayes_vote(exact('7'), rates=(rates(0.9, 0.1), ), right=0.4)": BayesVote(
        Exact("7"), rates=RATES[:1], right=0.4
    ),
    "ask_back(numbers=2)": AskBack(numbers=2),
    "code_t(samples=2, role='coder')": CodeT(samples=2, role="coder"),
    "exact('yes', 'no', to_the_letter=True)": Exact("yes", "no", to_the_letter=True),
    "regex('^[0-9]+$', of='answer', whole=True)": Regex("^[0-9]+$", of="answer", whole=True),
    "length('characters', at_most=80)": Length("characters", at_most=80),
    """json_schema('{"type": "object"}')""": JsonSchema({"type": "object"}),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_verifier_is_made_by_its_text(text: str) -> None:
    """As in Python."""
    strategy = f"sample(n=2) >> {text} >> vote()"

    assert parse(strategy) == Sample(n=2) >> TEXTS[text] >> Vote()


@pytest.mark.parametrize("text", TEXTS)
def test_its_text_round_trips(text: str) -> None:
    """What is written is read as the same value."""
    strategy = Sample(n=2) >> TEXTS[text] >> Vote()

    assert parse(write(strategy)) == strategy


@pytest.mark.parametrize(
    "strategy",
    [
        Greedy(),
        SelfConsistency(n=5),
        BestOfN(verifier=SelfCertainty(), n=3),
        (Sample(n=2, until=("a",)) | Sample(temperature=0.5, tail=Tail(cue="So"))) >> Vote(),
        Sample(n=9) >> Vote(stop=CannotBeOvertaken() | (Exhausted() & Exhausted())),
        Cascade(Greedy(), Sample(n=4) >> Vote(), accept=confidence(0.9)),
        Sample() >> Vote() >> Abstain(Conformal(threshold=0.5, error=0.1)),
        Sample() >> Vote() >> Abstain(Conformal(threshold=math.inf, error=0.1)),
        Sample() >> Verify(Entropy(), ahead=3) >> Best(),
    ],
)
def test_a_strategy_round_trips(strategy: Node) -> None:
    """Chains, pools, rules, and graphs within graphs."""
    assert parse(write(strategy)) == strategy


def test_only_what_is_not_a_default_is_written() -> None:
    """So that a text stays short."""
    strategy = Sample(n=3) >> GroupConfidence(take="tail") >> Best()

    assert write(strategy) == (
        "sample(n=3) >> verify(verifier=group_confidence(take='tail')) >> best()"
    )


@pytest.mark.parametrize(
    "verifier", [Constraint(bool), RoundTrip(str), ScriptedVerifier({})], ids=lambda v: v.name
)
def test_what_nobody_has_registered_has_no_text(verifier: Verifier) -> None:
    """It is named, and nothing is left out in silence."""
    with pytest.raises(GraphError, match=r"has no text form: the .* is not registered"):
        write(Sample() >> verifier >> Best())


def test_every_registered_verifier_is_tested_here() -> None:
    """By its name, but for those that take functions."""
    written = {text.partition("(")[0] for text in TEXTS}

    assert set(OURS) - written == {"constraint", "round_trip"}


OURS = [
    name
    for name in names("verifiers")
    if lookup("verifiers", name).__module__.rpartition(".")[2]
    in (
        "calibration",
        "codet",
        "combination",
        "confidence",
        "groups",
        "json_schema",
        "noise",
        "round_trip",
        "semantic",
        "tail_entropy",
        "text",
    )
]

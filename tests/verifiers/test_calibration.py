"""Maps from scores to probabilities."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttc
from tests.verifiers.lab import generated, scored
from ttc import GraphError, confidence
from ttc.strategies import Best, Cascade, Sample, Vote
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.verifiers import (
    Calibrated,
    Isotonic,
    MeanLogprob,
    Platt,
    SelfCertainty,
    fit_isotonic,
    fit_platt,
    load_calibration,
)

PLATT = Platt(slope=2.0, offset=-1.0)
LINE = Isotonic(scores=(0.0, 1.0, 3.0), probabilities=(0.2, 0.6, 0.8))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Calibrations are saved below this folder."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    return tmp_path


def test_adjacent_violators_are_pooled() -> None:
    """0 1 0 1 1: the second and third violate and share a half."""
    fit = fit_isotonic([1, 2, 3, 4, 5], [False, True, False, True, True])

    assert fit.scores == (1, 2, 3, 4, 5)
    assert fit.probabilities == (0, 0.5, 0.5, 1, 1)


def test_a_late_violator_pools_backwards() -> None:
    """1 1 0 0: everything shares a half; the order of the data plays no part."""
    fit = fit_isotonic([4, 1, 3, 2], [False, True, False, True])

    assert (fit.scores, fit.probabilities) == ((1, 4), (0.5, 0.5))


def test_equal_scores_are_one_point() -> None:
    """Two of three right at 1."""
    fit = fit_isotonic([1, 1, 1, 2], [True, False, True, True])

    assert fit(1.0) == pytest.approx(2 / 3)
    assert fit(2.0) == 1.0


@given(st.lists(st.tuples(st.integers(-9, 9), st.booleans()), min_size=1, max_size=40))
@settings(deadline=None)
def test_an_isotonic_fit_rises_and_keeps_the_mean(pairs: list[tuple[int, bool]]) -> None:
    """The mean of the fit over the data is the share of the right."""
    scores, labels = [float(s) for s, _ in pairs], [ok for _, ok in pairs]
    fit = fit_isotonic(scores, labels)
    fitted = [fit(score) for score in sorted(scores)]

    assert fitted == sorted(fitted)
    assert math.fsum(fitted) == pytest.approx(sum(labels))


def test_between_points_it_is_a_line_and_beyond_them_level() -> None:
    """Halfway from 0.2 to 0.6; a quarter of the way from 0.6 to 0.8."""
    assert [LINE(x) for x in (-9.0, 0.5, 1.0, 1.5, 3.0, 9.0)] == pytest.approx(
        [0.2, 0.4, 0.6, 0.65, 0.8, 0.8]
    )


def test_a_logistic_curve_by_hand() -> None:
    """1/(1 + exp(-(2 x 1 - 1))); no score overflows."""
    assert PLATT(1.0) == pytest.approx(1 / (1 + math.exp(-1)))
    assert PLATT(0.5) == 0.5
    assert (PLATT(1e9), PLATT(-1e9)) == (1.0, 0.0)


def test_a_logistic_fit_solves_its_equations() -> None:
    """At the greatest likelihood, residuals sum to 0, alone and times the scores."""
    scores = [-3.0, -1.0, 0.0, 0.5, 2.0, 2.5, 4.0]
    labels = [False, False, True, False, True, False, True]
    fit = fit_platt(scores, labels)
    high, low = 4 / 5, 1 / 6  # (3 + 1)/(3 + 2) and 1/(4 + 2)
    gaps = [(high if ok else low) - fit(s) for s, ok in zip(scores, labels, strict=True)]

    assert math.fsum(gaps) == pytest.approx(0, abs=1e-9)
    assert math.fsum(g * s for g, s in zip(gaps, scores, strict=True)) == pytest.approx(0, abs=1e-8)
    assert fit.slope > 0


@pytest.mark.statistical
def test_a_logistic_fit_finds_the_curve_behind_the_data() -> None:
    """4,000 draws, slope 1.5 and offset -0.5: errors of 0.05 and 0.04; 6 of them, odds 1e-8."""
    rng, truth = random.Random(5), Platt(slope=1.5, offset=-0.5)
    scores = [rng.gauss(0, 1.5) for _ in range(4000)]
    fit = fit_platt(scores, [rng.random() < truth(score) for score in scores])

    assert fit.slope == pytest.approx(1.5, abs=0.35)
    assert fit.offset == pytest.approx(-0.5, abs=0.25)


def test_a_score_that_says_nothing_gives_a_level_curve() -> None:
    """And one that is worse the higher it is does not turn the order around."""
    fit = fit_platt([1.0, 2.0, 3.0, 4.0], [True, True, False, False])

    assert fit.slope == 0
    assert fit(1.0) == fit(4.0) == pytest.approx(0.5)
    assert 0 < fit_platt([1.0, 1.0], [True, True])(1.0) < 1


@pytest.mark.parametrize("calibration", [PLATT, LINE])
def test_a_calibration_is_saved_and_loaded(calibration: Platt | Isotonic, home: Path) -> None:
    """As JSON with a version, under a name or at a path."""
    named = calibration.save("my_scores")
    placed = calibration.save(home / "elsewhere" / "c.json")

    assert named == home / "calibrations" / "my_scores.json"
    assert load_calibration("my_scores") == load_calibration(placed) == calibration
    assert json.loads(named.read_text())["schema_version"] == 1


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "no",
        '{"schema_version": 2, "kind": "platt", "slope": 1, "offset": 0}',
        '{"schema_version": 1, "kind": "spline"}',
        '{"schema_version": 1, "kind": "platt", "slope": 1}',
        '{"schema_version": 1, "kind": "platt", "slope": -1, "offset": 0}',
        '{"schema_version": 1, "kind": "isotonic", "scores": [1, 0], "probabilities": [0, 1]}',
    ],
)
def test_a_file_that_holds_no_calibration_is_refused(content: str, home: Path) -> None:
    """With its path."""
    path = home / "bad.json"
    path.write_text(content)

    with pytest.raises(ValueError, match=r"bad\.json holds no calibration"):
        load_calibration(path)


def test_a_wrapped_verifier_gives_probabilities() -> None:
    """The raw score is the evidence; what is unknown stays so."""
    good, none = scored(
        Calibrated(MeanLogprob(), PLATT), [generated(logprobs=(0.5,)), generated(text="")]
    )

    assert (good.value, good.range, good.is_probability) == (0.5, (0.0, 1.0), True)
    assert good.evidence == {"mean_logprob": 0.5}
    assert none.value is None
    assert none.evidence["unknown"] == "it has no text"


def test_by_default_the_calibration_saved_under_its_name_is_used() -> None:
    """As in `Calibrated(SelfCertainty())`."""
    with pytest.raises(GraphError, match="no calibration is saved as 'self_certainty'; fit one"):
        Calibrated(SelfCertainty())
    LINE.save("self_certainty")

    assert Calibrated(SelfCertainty()).by == LINE


@pytest.mark.parametrize("by", ["../secret", "/etc/passwd", "", ".hidden", "a/b", 7])
def test_a_name_leads_to_no_other_folder(by: object) -> None:
    """A strategy's text may come from a stranger."""
    with pytest.raises(GraphError, match=r"neither a calibration nor the name|no calibration is"):
        Calibrated(SelfCertainty(), by or "")  # type: ignore[arg-type]


def test_a_calibrated_score_is_a_confidence() -> None:
    """So a cascade can accept by it; an uncalibrated one is none."""
    sure = Calibrated(ScriptedVerifier({"1": 0.97}), Platt(slope=100, offset=-90))
    vote = Sample(n=3) >> Vote()

    def run(verifier: object) -> ttc.Outcome:
        cheap = Sample(n=1) >> verifier >> Best()
        strategy = Cascade(cheap, vote, accept=confidence(0.9))
        return ttc.solve("?", strategy, model=FakeEngine("The answer is 1."))

    outcome = run(sure)
    assert outcome.confidence == pytest.approx(1 / (1 + math.exp(-7)))
    assert outcome.usage.calls == 1
    assert run(ScriptedVerifier({"1": 0.97})).usage.calls == 4


@pytest.mark.parametrize(
    ("scores", "labels"), [([], []), ([1.0], [True, False]), ([math.nan], [True])]
)
def test_data_that_cannot_be_fit_are_refused(scores: list[float], labels: list[bool]) -> None:
    """Empty, of two lengths, or not finite."""
    for fit in (fit_isotonic, fit_platt):
        with pytest.raises(ValueError, match=r"cannot be fit|scores are finite"):
            fit(scores, labels)

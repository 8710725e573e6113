"""Reference values for AB-MCTS-M's closed form, by long Markov chains over raw parameters.

    python tests/strategies/tree/mixed_model_reference.py

writes `mixed_model_reference.json` beside it: for each case how often each arm has the highest
draw. It shares nothing with what it checks: 4,000 chains walk over mu, every alpha_j and both
deviations by Metropolis steps on the joint density. Besides one coordinate at a time they move all
levels with mu, and stretch them around mu with sigma_a; else chains stick where sigma_a is small.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PATH = Path(__file__).with_suffix(".json")
CASES: dict[str, list[list[float]]] = {
    "three groups": [[0.2, 0.3, 0.25], [0.7, 0.8], [0.5]],
    "all scores equal": [[0.9, 0.9], [0.9], [0.9, 0.9, 0.9]],
    "one group": [[0.3, 0.6]],
    "100 scores in a group": [[0.4 + 0.004 * i for i in range(100)], [0.4], [0.8, 0.7]],
    "right and wrong": [[0.0, 0.0, 1.0], [1.0, 1.0], [0.0]],
    "twelve groups of one": [[i / 11] for i in range(12)],
}
CHAINS, WARM_UP, SWEEPS, EVERY = 4000, 2000, 8000, 5


class Chains:
    """All chains of one case, side by side; every method is one step of each."""

    def __init__(self, groups: list[list[float]], seed: int) -> None:
        """Starts all over the prior."""
        self.random = np.random.default_rng(seed)
        self.scores = [np.array(group) for group in groups]
        self.mu = self.random.normal(0.5, 0.1, CHAINS)
        self.sigma_a = self.random.uniform(0.05, 0.4, CHAINS)
        self.sigma_y = self.random.uniform(0.1, 0.5, CHAINS)
        self.alpha = self.mu + self.sigma_a * self.random.normal(size=(len(groups), CHAINS))
        self.scale: dict[str, float] = {}
        self.accepted: dict[str, list[float]] = {}

    def fits(self, j: int, alpha: Floats, sigma_y: Floats) -> Floats:
        """Log density of the scores of group j."""
        mean, n = self.scores[j].mean(), len(self.scores[j])
        squares = n * ((self.scores[j] - mean) ** 2).mean() + n * (alpha - mean) ** 2
        density: Floats = -n * np.log(sigma_y) - squares / (2 * sigma_y**2)
        return density

    def all_fit(self, alpha: Floats, sigma_y: Floats) -> Floats:
        """Log density of all scores."""
        fits = np.stack([self.fits(j, alpha[j], sigma_y) for j in range(len(alpha))])
        density: Floats = fits.sum(axis=0)
        return density

    @staticmethod
    def levels(alpha: Floats, mu: Floats, sigma_a: Floats) -> Floats:
        """Log density of the levels."""
        distances = ((alpha - mu) ** 2).sum(axis=0)
        density: Floats = -len(alpha) * np.log(sigma_a) - distances / (2 * sigma_a**2)
        return density

    def step(self, name: str, size: float, ratio: Callable[[Floats], Floats]) -> Floats:
        """The moves by which chains go on: 0 where the proposal was refused."""
        scale = self.scale.setdefault(name, size)
        move = scale * self.random.normal(size=CHAINS)
        taken = np.log(self.random.random(CHAINS)) < ratio(move)
        self.accepted.setdefault(name, []).append(float(taken.mean()))
        return np.where(taken, move, 0.0)

    def sweep(self) -> None:
        """Every move once."""
        for j in range(len(self.alpha)):
            self.alpha[j] += self.step(f"alpha {j}", 0.1, partial(self._one, j))
        self.mu += self.step("mu", 0.1, self._mu)
        shift = self.step("shift", 0.1, self._shift)
        self.mu, self.alpha = self.mu + shift, self.alpha + shift
        self.sigma_a *= np.exp(self.step("sigma_a", 0.5, self._sigma_a))
        stretch = np.exp(self.step("stretch", 0.5, self._stretch))
        self.alpha = self.mu + (self.alpha - self.mu) * stretch
        self.sigma_a *= stretch
        self.sigma_y *= np.exp(self.step("sigma_y", 0.3, self._sigma_y))

    def _one(self, j: int, d: Floats) -> Floats:
        now = self.alpha[j]
        near = (now - self.mu) ** 2 - (now + d - self.mu) ** 2
        fit = self.fits(j, now + d, self.sigma_y) - self.fits(j, now, self.sigma_y)
        density: Floats = near / (2 * self.sigma_a**2) + fit
        return density

    def _mu(self, d: Floats) -> Floats:
        levels = self.levels(self.alpha, self.mu + d, self.sigma_a)
        prior = ((self.mu - 0.5) ** 2 - (self.mu + d - 0.5) ** 2) / (2 * 0.2**2)
        return levels - self.levels(self.alpha, self.mu, self.sigma_a) + prior

    def _shift(self, d: Floats) -> Floats:
        prior = ((self.mu - 0.5) ** 2 - (self.mu + d - 0.5) ** 2) / (2 * 0.2**2)
        fit = self.all_fit(self.alpha + d, self.sigma_y) - self.all_fit(self.alpha, self.sigma_y)
        return prior + fit

    def _sigma_a(self, d: Floats) -> Floats:
        new = self.sigma_a * np.exp(d)
        levels = self.levels(self.alpha, self.mu, new)
        levels -= self.levels(self.alpha, self.mu, self.sigma_a)
        return levels + (self.sigma_a**2 - new**2) / (2 * 0.2**2) + d

    def _stretch(self, d: Floats) -> Floats:
        new = self.sigma_a * np.exp(d)
        alpha = self.mu + (self.alpha - self.mu) * np.exp(d)
        fit = self.all_fit(alpha, self.sigma_y) - self.all_fit(self.alpha, self.sigma_y)
        return fit + (self.sigma_a**2 - new**2) / (2 * 0.2**2) + d

    def _sigma_y(self, d: Floats) -> Floats:
        new = self.sigma_y * np.exp(d)
        fit = self.all_fit(self.alpha, new) - self.all_fit(self.alpha, self.sigma_y)
        within = np.where((new > 0.05) & (new < 0.9), 0.0, -np.inf)
        return fit + (self.sigma_y**2 - new**2) / (2 * 0.3**2) + d + within

    def adapt(self) -> None:
        """Brings the share of accepted moves near 0.44."""
        for name, shares in self.accepted.items():
            self.scale[name] *= float(np.exp(np.mean(shares) - 0.44))
        self.accepted.clear()


def frequencies(groups: list[list[float]], seed: int) -> tuple[list[float], float]:
    """How often a new group, then each group, has the highest draw; and the largest error.

    The error is the standard error of a frequency, from what differs between the chains.
    """
    chains = Chains(groups, seed)
    for i in range(WARM_UP):
        chains.sweep()
        if i % 50 == 49:
            chains.adapt()
    wins = np.zeros((len(groups) + 1, CHAINS))
    for i in range(SWEEPS):
        chains.sweep()
        if i % EVERY == 0:
            new = chains.random.normal(chains.mu, chains.sigma_a)
            levels = np.vstack([new, chains.alpha])
            draws = chains.random.normal(levels, chains.sigma_y)
            wins += draws == draws.max(axis=0)
    shares = wins / (SWEEPS / EVERY)
    error = shares.std(axis=1, ddof=1).max() / CHAINS**0.5
    return [round(float(share), 5) for share in shares.mean(axis=1)], float(error)


def main() -> None:
    """Writes the reference values of all cases."""
    result = {}
    for seed, (name, groups) in enumerate(CASES.items()):
        shares, error = frequencies(groups, seed)
        result[name] = {
            "groups": [[round(score, 3) for score in group] for group in groups],
            "frequencies": shares,
            "standard_error": float(f"{error:.1g}"),
        }
    PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

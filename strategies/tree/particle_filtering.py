"""ParticleFiltering: sample solutions from the model's law reweighted by a verifier.

Source: Puri et al. 2025 (arXiv 2502.01618): sequential Monte Carlo over steps, in which a particle
is weighted by its process reward and particles are resampled by weight. Systematic resampling is
that of Kitagawa 1996.
Differs: weights accumulate between resamplings, ln w += logit(r) / T, so the target is the model's
law times the product over steps of the odds r / (1 - r) to the power 1 / T; `target="final"` takes
differences of logits, and so leaves the odds of the last score. A finished particle stays in and
adds nothing; `freeze_finished` lets it keep its own weight instead. Particles are resampled where
their effective number falls below a share of them, not after every step.
Cost: at most `num_particles` steps for each of at most `max_steps` layers, and as many scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import ClassVar, Literal, get_args

from immutables import Map

from ttc.graph import Flow
from ttc.ports import Scope
from ttc.strategies.tree.nodes import Tree
from ttc.strategies.tree.policy import Expansion, Result
from ttc.strategies.tree.search import TreeSearch
from ttc.types import Candidate, Score

__all__ = ["ParticleFiltering", "Particles", "ParticlesState", "effective_number", "systematic"]

Target = Literal["product", "final"]
_CLIP = 1e-4
_DEAD = -math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Particle:
    """One trajectory of the population."""

    node: int = 0
    log_weight: float = 0.0
    """Since the last resampling."""
    logit: float = 0.0
    """Of its last score."""
    is_moving: bool = True
    """Whether it can still be extended."""


@dataclass(frozen=True, kw_only=True)
class ParticlesState:
    """The state of a particle filter."""

    tree: Tree
    particles: tuple[Particle, ...]
    queue: tuple[int, ...]
    """The particles that are to be extended next."""
    asked_for: Map[int, int] = field(default_factory=Map)
    """The particle that each ask in flight extends."""
    effective: tuple[float, ...] = ()
    """The effective number of particles after each layer."""


@dataclass(frozen=True, kw_only=True)
class Particles:
    """Extends all particles by a step, weighs them and resamples them."""

    num_particles: int
    temperature: float = 1.0
    target: Target = "product"
    resample_below: float = 0.5
    freeze_finished: bool = False

    def init(self) -> ParticlesState:
        """All particles at the root."""
        return ParticlesState(
            tree=Tree.planted(backs_up=False),
            particles=(Particle(),) * self.num_particles,
            queue=tuple(range(self.num_particles)),
        )

    def ask(self, state: ParticlesState, seed: int) -> tuple[ParticlesState, Expansion | None]:
        """The next particle's step; before the first of a layer they are resampled if need be."""
        if not state.queue and not state.tree.num_in_flight:
            state = self._next_layer(state, Random(seed))
        if not state.queue:
            return self._ended(state), None
        place, *queue = state.queue
        tree, expansion = state.tree.expand(state.particles[place].node)
        asked_for = state.asked_for.set(expansion.id, place)
        return replace(state, tree=tree, queue=tuple(queue), asked_for=asked_for), expansion

    def tell(self, state: ParticlesState, result: Result) -> ParticlesState:
        """Moves a particle to its new node and weighs it; one whose step failed dies."""
        tree = state.tree.record(result, gives=False)
        place = state.asked_for[result.id]
        node = tree[result.id if result.duplicate_of is None else result.duplicate_of]
        particle = state.particles[place]
        if node.status in ("open", "finished", "truncated"):
            logit = particle.logit if node.value is None else _logit(node.value)
            gain = logit if self.target == "product" else logit - particle.logit
            moved = Particle(
                node=node.id,
                log_weight=particle.log_weight
                + (0.0 if node.value is None else gain / self.temperature),
                logit=logit,
                is_moving=node.status == "open",
            )
        else:
            moved = replace(particle, log_weight=_DEAD, is_moving=False)
        particles = (*state.particles[:place], moved, *state.particles[place + 1 :])
        asked_for = state.asked_for.delete(result.id)
        return replace(state, tree=tree, particles=particles, asked_for=asked_for)

    def weights(self, state: ParticlesState) -> tuple[float, ...]:
        """The particles' shares of the whole weight; all zero where all have died."""
        return _shares([particle.log_weight for particle in state.particles])

    def weights_of_nodes(self, state: ParticlesState) -> dict[int, float]:
        """The share of the whole weight that the particles at each node have."""
        shares: dict[int, float] = {}
        for particle, share in zip(state.particles, self.weights(state), strict=True):
            shares[particle.node] = min(1.0, shares.get(particle.node, 0.0) + share)
        return shares

    def _ended(self, state: ParticlesState) -> ParticlesState:
        """Gives the particles, each node once, if none can be extended any more."""
        alive = [p.node for p in state.particles if p.log_weight > _DEAD]
        if state.tree.num_in_flight or state.tree.given or not state.tree.num_asks:
            return state
        return replace(state, tree=state.tree.give(*dict.fromkeys(alive)))

    def _next_layer(self, state: ParticlesState, random: Random) -> ParticlesState:
        if state.tree.num_asks:
            state = self._resampled(state, random)
        moving = tuple(i for i, p in enumerate(state.particles) if p.is_moving)
        return replace(state, queue=moving)

    def _resampled(self, state: ParticlesState, random: Random) -> ParticlesState:
        """Redraws particles by weight, unless their effective number is large enough."""
        particles = list(state.particles)
        pool = [i for i, p in enumerate(particles) if p.is_moving or not self.freeze_finished]
        shares = _shares([particles[i].log_weight for i in pool])
        number = effective_number(shares)
        state = replace(state, effective=(*state.effective, number))
        is_over = not any(particle.is_moving for particle in particles)
        if is_over or number >= self.resample_below * len(pool):
            return state
        level = _mean_log([particles[i].log_weight for i in pool])
        chosen = systematic(shares, len(pool), random.random())
        drawn = [replace(particles[pool[source]], log_weight=level) for source in chosen]
        for place, particle in zip(pool, drawn, strict=True):
            particles[place] = particle
        lost = {state.particles[i].node for i in pool} - {p.node for p in particles}
        tree = state.tree.drop(*(id for id in lost if not state.tree[id].children))
        return replace(state, tree=tree, particles=tuple(particles))


def effective_number(shares: Sequence[float]) -> float:
    """The effective sample size, 1 / sum of squares; 0 where all weights are 0."""
    total = math.fsum(share * share for share in shares)
    return 1.0 / total if total else 0.0


def systematic(shares: Sequence[float], count: int, offset: float) -> tuple[int, ...]:
    """Draws `count` places by their shares, at the points (i + offset) / count of their sum."""
    places, cumulative, place = [], shares[0], 0
    for i in range(count):
        while cumulative < (i + offset) / count and place + 1 < len(shares):
            place += 1
            cumulative += shares[place]
        places.append(place)
    return tuple(places)


def _shares(log_weights: Sequence[float]) -> tuple[float, ...]:
    top = max(log_weights, default=_DEAD)
    if top == _DEAD:
        return (0.0,) * len(log_weights)
    weights = [math.exp(value - top) for value in log_weights]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def _mean_log(log_weights: Sequence[float]) -> float:
    """The log of the mean weight."""
    top = max(log_weights)
    if top == _DEAD:
        return _DEAD
    return top + math.log(math.fsum(math.exp(v - top) for v in log_weights) / len(log_weights))


def _logit(value: float) -> float:
    clipped = min(max(value, _CLIP), 1.0 - _CLIP)
    return math.log(clipped / (1.0 - clipped))


@dataclass(frozen=True)
class ParticleFiltering(TreeSearch):
    """Gives solutions with the score `particle_filtering`, their share of the whole weight."""

    remote: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("num_particles",)

    num_particles: int = field(default=16, kw_only=True)
    weight_temperature: float = field(default=1.0, kw_only=True)
    """T: odds count to the power 1 / T, so a low one trusts the verifier more."""
    target: Target = field(default="product", kw_only=True)
    """`product`: the odds of all steps count. `final`: only those of the last."""
    resample_below: float = field(default=0.5, kw_only=True)
    """The share of particles below which their effective number leads to resampling; at 1 they are
    resampled after every step that tells them apart."""
    freeze_finished: bool = field(default=False, kw_only=True)
    """Whether finished particles keep their weight instead of being resampled with the others."""

    @property
    def most_expansions(self) -> int:
        """Every layer in full."""
        return self.num_particles * self.max_steps

    @property
    def most_given(self) -> int:
        """One for each particle."""
        return self.num_particles

    def faults(self, given: Flow) -> list[str]:
        """Odds need scores from 0 to 1; a temperature; a share."""
        faults = super().faults(given)
        if self.verifier.range != (0.0, 1.0):
            faults.append(
                f"the score {self.verifier.name!r} has the range {self.verifier.range}, and odds "
                "need one from 0 to 1; choose a transform of it that has"
            )
        if not 0 < self.weight_temperature < math.inf:
            faults.append(
                f"weight_temperature is finite and above 0, not {self.weight_temperature!r}"
            )
        if not 0 <= self.resample_below <= 1:
            faults.append(f"resample_below lies in 0 to 1, not {self.resample_below!r}")
        if self.target not in get_args(Target):
            faults.append(f"target is product or final, not {self.target!r}")
        if self.name in given.scores:
            faults.append(f"its candidates carry a score {self.name!r} already")
        return faults

    def flow(self, given: Flow) -> Flow:
        """The weight is the score that counts; the verifier's is in its evidence."""
        return replace(super().flow(given), scores={**given.scores, self.name: (0.0, 1.0)})

    def policy(self, scope: Scope) -> Particles:
        """What decides."""
        return self._particles()

    def _particles(self) -> Particles:
        return Particles(
            num_particles=self.num_particles,
            temperature=self.weight_temperature,
            target=self.target,
            resample_below=self.resample_below,
            freeze_finished=self.freeze_finished,
        )

    def complete(self, candidate: Candidate, node: int, state: ParticlesState) -> Candidate:
        """With the weight as its score."""
        verdict = candidate.scores.get(self.verifier.name)
        score = Score(
            value=self._particles().weights_of_nodes(state).get(node),
            verifier=self.name,
            evidence={
                self.verifier.name: None if verdict is None else verdict.value,
                "effective": state.effective,
            },
            call=None if verdict is None else verdict.call,
        )
        kept = {k: s for k, s in candidate.scores.items() if k != self.verifier.name}
        return replace(candidate, scores={**kept, self.name: score})

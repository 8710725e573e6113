"""The cost curve, against machines whose times are known."""

from __future__ import annotations

from random import Random

import pytest

from ttc.costs import Costs
from ttc.engine.local.curve import Curve, Load

COSTS = Costs(flops_per_token=200_000_000, flops_per_draw=60_000_000, attention=((70_000, None),))


def machine(load: Load, slower: float = 1.0) -> float:
    """Memory binds few rows and arithmetic many; attention is a slope."""
    layers = max(8e-3, 0.6e-3 * load.rows)
    head = max(2e-3, 0.2e-3 * load.draws) if load.draws else 0.0
    return slower * (layers + head + 2e-7 * load.seen)


def decoding(rows: int, context: int) -> Load:
    """A step in which every row goes on."""
    return Load(rows=rows, draws=rows, seen=rows * context)


def started() -> Curve:
    """A curve after the load of an engine."""
    curve = Curve(COSTS)
    loads = [decoding(rows, seen) for rows, seen in ((1, 1), (4, 1), (4, 256), (16, 1))]
    curve.start([(load, machine(load)) for load in loads])
    return curve


def some_loads(random: Random, count: int) -> list[Load]:
    """Steps as they come in a search: decoding, and prompts beside it."""
    loads = []
    for _ in range(count):
        rows = random.choice([1, 2, 8, 16, 33, 64])
        load = decoding(rows, random.randrange(50, 1500))
        if random.random() < 0.3:
            prompt = random.randrange(16, 256)
            load = Load(rows=rows + prompt, draws=rows, seen=load.seen + prompt * 200)
        loads.append(load)
    return loads


def test_what_was_measured_at_load_is_predicted_within_a_tenth() -> None:
    """Before the first step."""
    curve = started()

    for load in (decoding(1, 1), decoding(4, 1), decoding(4, 256), decoding(16, 1)):
        assert curve(load) == pytest.approx(machine(load), rel=0.1)


def test_steps_are_predicted_within_a_tenth_after_a_few_hundred() -> None:
    """Nine of ten, with times that vary by a twentieth; and that is what the curve states."""
    curve, random = started(), Random(1)
    for load in some_loads(random, 400):
        curve.note(load, machine(load) * random.uniform(0.95, 1.05))
    errors = sorted(abs(curve(load) / machine(load) - 1) for load in some_loads(random, 200))

    assert errors[180] < 0.1
    assert curve.error is not None
    assert curve.error.steps == 400
    assert curve.error.median < 0.06


def test_steps_that_others_delay_move_little() -> None:
    """One step in ten takes ten times as long."""
    curve, random = started(), Random(2)
    for load in some_loads(random, 400):
        curve.note(load, machine(load) * (10 if random.random() < 0.1 else 1))

    for load in (decoding(1, 300), decoding(64, 300)):
        assert curve(load) == pytest.approx(machine(load), rel=0.5)


def test_a_machine_that_becomes_slower_is_followed() -> None:
    """Within a hundred steps; what those steps do not touch keeps its time."""
    curve, random = started(), Random(3)
    for load in some_loads(random, 300):
        curve.note(load, machine(load))
    for _ in range(100):
        load = decoding(64, 500)
        curve.note(load, machine(load, slower=2))

    assert curve(decoding(64, 500)) == pytest.approx(machine(decoding(64, 500), 2), rel=0.1)
    assert curve(decoding(1, 1)) == pytest.approx(machine(decoding(1, 1)), rel=0.25)


def test_prompts_fill_a_step_up_to_its_time() -> None:
    """Fewer beside many calls that decode, and never less or more than is allowed."""
    curve, random = started(), Random(4)
    for load in some_loads(random, 400):
        curve.note(load, machine(load))
    allowed = range(32, 513)
    alone, beside = (
        curve.most_rows(0.1, allowed, decoding=rows, seen=300 * rows) for rows in (1, 64)
    )
    load = Load(rows=1 + alone, draws=1, seen=300 + alone * 300)

    assert curve(load) <= 0.1
    assert 32 <= beside < alone < 512
    assert curve.most_rows(1e-6, allowed, decoding=64, seen=0) == 32
    assert curve.most_rows(1e6, allowed, decoding=64, seen=0) == 512

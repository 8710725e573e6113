"""What steps are said to read, compute and take; roofs; prices."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.engine.conftest import TINY
from tests.engine.fake_model import Bench
from ttc.engine.local import LocalEngine
from ttc.engine.local.meter import Meter, Seconds, StepRecord
from ttc.engine.local.native.roofs import Roofs, measure_roofs
from ttc.engine.local.plan import PAGE, Span
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.ports import Request

COSTS = TINY.costs(kv_number_bytes=4)
LAYERS = COSTS.flops_per_token
ROOFS = Roofs(read_bytes=1e9, int8_operations=1e11, float_operations=1e10, threads=1)


def cells(spans: list[Span]) -> set[tuple[int, int]]:
    """Every place of the pool that spans read, as page and offset."""
    return {
        (span.pages[position // PAGE], position % PAGE)
        for span in spans
        for position in range(span.start + span.count)
    }


def record(**changes: float) -> StepRecord:
    """A step of a second that reads half of what a second allows."""
    lines: dict[str, float] = {
        "rows": 1, "prefill_tokens": 0, "decode_tokens": 1, "pages": 1, "sharing": 1.0,
        "bytes_read": 5 * 10**8, "bytes_written": 0, "linear_operations": 10**9,
        "attention_operations": 10**9, "predicted_s": 1.0,
    }  # fmt: skip
    return StepRecord(**{**lines, **changes}, seconds=Seconds(0.05, 0.8, 0.1, 0.05))  # type: ignore[arg-type]


def test_bytes_are_those_of_distinct_tokens(tokens: TextTokens) -> None:
    """Counted one by one, in every step of a small tree: shared prompts are read once."""
    bench = Bench(tokens, num_pages=100, max_sequences=8)
    for seed in range(4):
        bench.submit([1] * 50, 20)
        bench.submit([seed] * 20, 30)
    kept: list[list[Span]] = []
    bench.model.on_forward = lambda spans: kept.append(
        [Span(pages=list(s.pages), start=s.start, count=s.count) for s in spans]
    )
    bench.finish()

    assert len(kept) == len(bench.batch.meter.recent) > 20
    for spans, step in zip(kept, bench.batch.meter.recent, strict=True):
        read = len(cells(spans))
        draws = (step.linear_operations - step.rows * LAYERS) // COSTS.flops_per_draw
        weights = (LAYERS + (COSTS.flops_per_draw if draws else 0)) // 2
        assert step.bytes_read == weights + read * COSTS.kv_bytes_per_token
        assert step.prefill_tokens + step.decode_tokens == step.rows
        assert step.rows == sum(span.count for span in spans)
        assert step.sharing == sum(span.start + span.count for span in spans) / read


def test_a_window_is_counted_from_where_a_step_began(tokens: TextTokens) -> None:
    """Two rows of a window of two: the first sees one position, the second two."""
    config = replace(TINY, window=2, windowed=frozenset(range(TINY.num_layers)))
    bench = Bench(tokens, config=config)
    bench.submit([1, 2], 1)
    bench.step()

    each = sum(flops for flops, _ in bench.model.costs.attention)
    assert bench.batch.meter.recent[-1].attention_operations == 3 * each


def test_the_greater_need_binds() -> None:
    """Reading, or the products one after another; the fraction is its part of the time taken."""
    meter = Meter(COSTS, bytes_per_weight=1.06)
    assert meter.fraction(record()) is None
    meter.roofs = ROOFS

    for changes, value, bound in (
        ({}, 0.5, "read"),
        ({"linear_operations": 8e10}, 0.9, "int8"),
        ({"attention_operations": 7e9}, 0.71, "float"),
    ):
        found = meter.fraction(record(**changes))
        assert found is not None
        assert found.value == pytest.approx(value)
        assert found.bound == bound
    assert record().seconds.overhead == pytest.approx(0.1)


def test_counters_are_told_to_prometheus(engine: LocalEngine, ask: Callable[..., Request]) -> None:
    """Each line is a name, the model and a number; totals only grow."""
    engine.submit(ask("abc", 5)).future.result()
    before = dict(re.findall(r'^(\w+)\{model="tiny"\} (\S+)$', engine.prometheus(), re.MULTILINE))
    engine.submit(ask("abd", 5)).future.result()
    text = engine.prometheus()
    after = dict(re.findall(r'^(\w+)\{model="tiny"\} (\S+)$', text, re.MULTILINE))

    assert before["ttc_engine_output_tokens_total"] == "5"
    assert after["ttc_engine_output_tokens_total"] == "10"
    assert all(float(after[k]) >= float(v) for k, v in before.items() if k.endswith("_total"))
    assert text.count("# TYPE") == len(after)
    assert after["ttc_engine_running_calls"] == "0.0"
    assert "ttc_engine_forward_seconds_total" in after


def test_a_label_is_escaped() -> None:
    """Whatever a model is called."""
    text = Meter(COSTS, bytes_per_weight=1.0).prometheus('a"b\\c\nd', {})

    assert r'{model="a\"b\\c\nd"} 0' in text


def test_a_price_adds_up(engine: LocalEngine, ask: Callable[..., Request]) -> None:
    """Of bytes and operations exactly; of time, more work never costs less."""
    engine.submit(ask("abc", 5)).future.result()
    one = engine.price(context=100, tokens=8, beside=0)
    more = engine.price(context=100, tokens=8, branches=4, uncached=100, beside=0)

    assert one.kv_bytes == 8 * COSTS.kv_bytes_per_token
    assert more.kv_bytes == (4 * 8 + 100) * COSTS.kv_bytes_per_token
    assert one.flops == COSTS.flops(start=100, count=8, draws=8)
    assert more.milliseconds > one.milliseconds > 0
    assert one.error is not None
    assert one.error.steps == 5
    with pytest.raises(ValueError, match=r"uncached \(101\)"):
        engine.price(context=100, uncached=101)


@pytest.mark.parametrize("options", [("-march=native",), ("-DTTC_PORTABLE",)])
def test_roofs_are_measured(options: tuple[str, ...]) -> None:
    """No number is beyond what a processor can do, nor below what the slowest does."""
    roofs = measure_roofs(1, options)

    assert 1e8 < roofs.read_bytes < 1e12
    assert 1e8 < roofs.float_operations < 1e12
    assert 1e8 < roofs.int8_operations < 1e13


@pytest.mark.model
def test_each_step_of_a_real_model_has_its_part_of_the_roof(
    smollm2: LocalEngine, ask: Callable[..., Request]
) -> None:
    """Counted, not timed: 32 rows read the weights that one reads, and multiply 32 times."""
    smollm2.roofs()
    last = {}
    for count in (1, 32):
        for call in [smollm2.submit(ask([count] * 40, 12, seed=i)) for i in range(count)]:
            call.future.result()
        last[count] = next(step for step in reversed(smollm2.meter.recent) if step.rows == count)
    weights = smollm2.meter.weight_bytes(draws=1)
    fractions = [smollm2.meter.fraction(step) for step in smollm2.meter.recent]

    assert all(fraction is not None and fraction.value > 0 for fraction in fractions)
    assert last[32].linear_operations == 32 * last[1].linear_operations
    assert all(weights < step.bytes_read < 1.2 * weights for step in last.values())


@pytest.mark.model
def test_loading_measures_no_roofs(smollm2: LocalEngine) -> None:
    """They are measured where someone asks; the cost curve is there from the first step on."""
    assert smollm2.price(context=10, beside=0).milliseconds > 0

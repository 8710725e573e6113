"""The engine on a GPU: is it right, is it the same in any batch, and how near is it to the roofs.

Run as `python benchmarks/perf/gpu.py [--json PATH] [--parts PART ...]`; on an H200 it is made to
take under five minutes. Parts: `correct` (every kernel against PyTorch on the device), `invariant`
(bits of a row alone and in company), `roofs` (what copies and products of bfloat16 reach there),
`products`, `attention`, `rowwise` and `draw` (times, fractions of the roofs, and PyTorch's own
kernels beside them), and `tokens` (steps of whole models with random weights of known shapes, and
transformers' `generate` beside them).

Every row names the device. `--dry-run` goes through all parts on the CPU with tiny shapes and
measures nothing: its times are null, and its rows say so. Numbers of a GPU come from a GPU alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ttc.benchmarks.results import write_result
from ttc.engine.local import LocalEngine  # noqa: F401  before torch: it sets how threads wait

# isort: split
import torch
import torch.nn.functional as F

from ttc.benchmarks.perf.gpu_bench import (
    Bench,
    Row,
    added,
    bench_here,
    built,
    draw_of,
    error_of,
    model_of,
    plain,
    rows_of,
    tree,
    wall_ms,
    weight_of,
)
from ttc.benchmarks.perf.gpu_models import Shapes
from ttc.engine.local.cuda.model import DeviceModel
from ttc.engine.local.cuda.ops import Parts
from ttc.engine.local.cuda.place import is_attention_invariant, is_product_invariant
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.sample import Draw
from ttc.types import Sampling

PARTS = ("correct", "invariant", "roofs", "products", "attention", "rowwise", "draw", "tokens")
ROWS = (1, 4, 16, 64, 512)
KINDS = ("bf16", "int8", "q4")
PREFIX, BRANCHES = 4096, 64
PROMPT, STEPS = 242, 64
BATCHES = (1, 64, 512)


def correct(bench: Bench) -> Iterator[Row]:
    """Every kernel against PyTorch on the same device."""
    for shapes in bench.shapes[:2]:
        for kind in KINDS:
            weight = weight_of(bench, kind, shapes.hidden, shapes.feed_forward)
            for count in (1, 17, 130):
                rows = rows_of(bench, kind, count, shapes.feed_forward)
                pair = [added(ops.product(rows, weight)) for ops in (bench.ops, bench.reference)]
                yield {"name": f"product {kind}", "rows": count, "error": error_of(*pair)}
        tied, untied, cache = tree(bench, shapes, 5, 1040 if bench.is_gpu else 64)
        queries = bench.random(5, shapes.heads, shapes.head_dim)
        for name, step in (("tied", tied), ("untied", untied)):
            pair = [o.attend(queries, cache, step, None) for o in (bench.ops, bench.reference)]
            yield {"name": f"attention {name}", "rows": 5, "error": error_of(*pair)}
        for int8 in (False, True):
            x, norm = (
                bench.random(3, shapes.hidden, dtype=torch.float32),
                bench.random(shapes.hidden),
            )
            normed = [
                plain(o.norm(x.clone(), None, norm.float(), 1e-6, int8))
                for o in (bench.ops, bench.reference)
            ]
            yield {"name": f"norm int8={int8}", "rows": 3, "error": error_of(*normed)}
        model = model_of(bench, shapes, "bf16")
        logits = bench.random(8, shapes.vocab, dtype=torch.float32) * 3
        draws = [draw_of(seed) for seed in range(8)]
        drawn = model.draw(logits, draws).token_ids
        expected = model_of(bench, shapes, "bf16", bench.reference).draw(logits, draws).token_ids
        wrong = sum(a != b for a, b in zip(drawn, expected, strict=True))
        yield {"name": "drawn tokens that differ", "rows": 8, "error": float(wrong)}


def invariant(bench: Bench) -> Iterator[Row]:
    """Whether bits are the same in any company: kernels, and the logits of a whole model."""
    for shapes in bench.shapes:
        config = shapes.config(1)
        for int8 in (False, True):
            is_so = is_product_invariant(bench.ops, config, bench.device, int8=int8)
            yield {"name": f"{shapes.name} product int8={int8}", "invariant": is_so}
        is_so = is_attention_invariant(bench.ops, config, bench.device)
        yield {"name": f"{shapes.name} attention", "invariant": is_so}
    shapes = bench.shapes[0]
    for kind in ("bf16", "int8"):
        model = model_of(bench, shapes, kind)
        length = 600 if bench.is_gpu else 20
        ids = torch.arange(length) % shapes.vocab
        pages = range(length // PAGE + 1)
        found, last = [], torch.empty(0)
        for piece in (length, 7 if bench.is_gpu else 19, length - 1):
            pool = model.make_pool(len(pages))
            for start in range(0, length, piece):
                part = ids[start : start + piece]
                plan = Plan([Span(pages, start, len(part))])
                last = model.forward(part, plan, pool, torch.tensor([len(part) - 1])).clone()
            found.append(last)
        is_so = all(torch.equal(found[0], other) for other in found[1:])
        yield {
            "name": f"{shapes.name} logits {kind}, in any pieces",
            "invariant": is_so,
        }


def roofs(bench: Bench) -> Iterator[Row]:
    """What the device reaches: copies, and products of bfloat16."""
    size = 1 << 30 if bench.is_gpu else 1 << 10
    source = torch.zeros(size, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    ms = bench.ms(lambda: target.copy_(source))
    yield {"name": "copy", "ms": ms, "tb_s": ms and 2 * size / ms / 1e9}
    n = 8192 if bench.is_gpu else 32
    a, b = bench.random(n, n), bench.random(n, n)
    ms = bench.ms(lambda: a @ b)
    yield {"name": "bf16 product", "ms": ms, "tflop_s": ms and 2 * n**3 / ms / 1e9}


def products(bench: Bench) -> Iterator[Row]:
    """Products of every kind and shape, PyTorch's own beside them."""
    known = {row["name"]: row for row in roofs(bench)}
    copy, matmul = known["copy"]["tb_s"], known["bf16 product"]["tflop_s"]
    for shapes in bench.shapes:
        for name, outputs, columns in shapes.matrices:
            for kind in KINDS:
                weight = weight_of(bench, kind, outputs, columns)
                for count in ROWS if bench.is_gpu else ROWS[1:3]:
                    rows = rows_of(bench, kind, count, columns)
                    ms = bench.ms(partial(bench.ops.product, rows, weight))
                    size = weight.weights[0].num_bytes
                    yield {
                        "name": f"{shapes.name} {name} {kind}",
                        "rows": count,
                        "ms": ms,
                        "fraction_of_copy": ms and copy and size / ms / 1e9 / copy,
                        "fraction_of_product": ms
                        and matmul
                        and 2 * count * outputs * columns / ms / 1e9 / matmul,
                        "baselines": "; ".join(baselines(bench, kind, count, outputs, columns)),
                    }


def baselines(bench: Bench, kind: str, count: int, outputs: int, columns: int) -> Iterator[str]:
    """PyTorch's own products of a kind: name and milliseconds, or why there are none."""
    x, values = bench.random(count, columns), bench.random(outputs, columns)
    candidates: dict[str, Callable[[], object]] = {}
    if kind == "bf16":
        candidates["F.linear"] = lambda: F.linear(x, values)
        eight = torch.float8_e4m3fn
        codes, weight = x.to(eight), values.to(eight).T
        one = torch.ones((), device=bench.device)
        candidates["_scaled_mm"] = lambda: torch._scaled_mm(
            codes, weight, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )
    elif kind == "int8":
        ints = torch.ones(max(count, 32), columns, dtype=torch.int8, device=bench.device)
        transposed = torch.ones(outputs, columns, dtype=torch.int8, device=bench.device).T
        candidates["_int_mm"] = lambda: torch._int_mm(ints, transposed)
    elif bench.is_gpu:
        packed = torch._convert_weight_to_int4pack(
            torch.zeros(outputs, columns // 2, dtype=torch.uint8, device=bench.device), 8
        )
        groups = torch.ones(columns // 32, outputs, 2, device=bench.device).bfloat16()
        candidates["_weight_int4pack_mm"] = lambda: torch._weight_int4pack_mm(x, packed, 32, groups)
    for name, work in candidates.items():
        try:
            ms = bench.ms(work)
        except RuntimeError as error:  # a shape that it does not take
            yield f"{name}: {str(error).splitlines()[0][:80]}"
        else:
            yield f"{name} {'unmeasured' if ms is None else f'{ms:.4f} ms'}"


def attention(bench: Bench) -> Iterator[Row]:
    """Branches of one prefix, whose pages are shared, and with pages of their own; and SDPA."""
    prefix = PREFIX if bench.is_gpu else 48
    for shapes in bench.shapes:
        for branches in (1, BRANCHES) if bench.is_gpu else (3,):
            tied, untied, cache = tree(bench, shapes, branches, prefix)
            queries = bench.random(branches, shapes.heads, shapes.head_dim)
            times: Row = {}
            for name, step in (("tied", tied), ("untied", untied)):
                times[f"{name}_ms"] = bench.ms(
                    partial(bench.ops.attend, queries, cache, step, None)
                )
            dense = (branches, shapes.kv_heads, prefix + 32, shapes.head_dim)
            keys, values = bench.random(*dense), bench.random(*dense)
            one = queries[:, :, None]
            times["sdpa_ms"] = bench.ms(
                partial(F.scaled_dot_product_attention, one, keys, values, enable_gqa=True)
            )
            gain = times["untied_ms"] and times["untied_ms"] / times["tied_ms"]
            yield {
                "name": f"{shapes.name} {branches} branches of {prefix}",
                "rows": branches,
                "ms": times.pop("tied_ms"),
                **times,
                "untied_over_tied": gain,
            }


def rowwise(bench: Bench) -> Iterator[Row]:
    """Norms, gates, and pages that are copied."""
    for shapes in bench.shapes:
        for count in (1, 64):
            x = bench.random(count, shapes.hidden, dtype=torch.float32)
            norm = torch.ones(shapes.hidden, device=bench.device)
            parts = Parts(bench.random(2, count, shapes.hidden, dtype=torch.float32), None)
            both = Parts(bench.random(1, count, 2 * shapes.feed_forward, dtype=torch.float32), None)
            works: dict[str, Callable[[], object]] = {
                "norm": partial(bench.ops.norm, x, parts, norm, 1e-6, False),
                "norm to int8": partial(bench.ops.norm, x, parts, norm, 1e-6, True),
                "gate": partial(bench.ops.gate, both, False),
            }
            for name, work in works.items():
                yield {"name": f"{shapes.name} {name}", "rows": count, "ms": bench.ms(work)}
        pages = 512 if bench.is_gpu else 8
        pool = bench.random(4, pages, shapes.kv_heads, PAGE, shapes.head_dim)
        pairs = (
            torch.arange(pages, dtype=torch.int32, device=bench.device).view(2, -1).T.contiguous()
        )
        ms = bench.ms(partial(bench.ops.copy_pages, pool, pairs))
        rate = ms and pool.nbytes / ms / 1e9  # half is read, and as much is written
        yield {"name": f"{shapes.name} copy of pages", "rows": pages // 2, "ms": ms, "tb_s": rate}


def draw(bench: Bench) -> Iterator[Row]:
    """Tokens of rows of logits, to the host and back, in wall-clock time of the whole call."""
    filters: dict[str, Row] = {"plain": {}, "greedy": {"temperature": 0}, "top_p": {"top_p": 0.9}}
    for shapes in bench.shapes[:1]:
        model = model_of(bench, shapes, "bf16")
        for count in (1, 64, 512) if bench.is_gpu else (2,):
            logits = bench.random(count, shapes.vocab, dtype=torch.float32) * 3
            for name, sampling in filters.items():
                draws = [draw_of(seed, **sampling) for seed in range(count)]
                ms = wall_ms(bench, partial(model.draw, logits, draws))
                yield {"name": f"{shapes.name} draw {name}", "rows": count, "ms": ms}


def tokens(bench: Bench) -> Iterator[Row]:
    """Tokens a second of whole models: the prompt is shared, and every branch draws its own."""
    for shapes in bench.shapes:
        for kind in ("bf16", "int8"):
            model = built(bench, shapes, kind, shapes.layers)
            for batch in BATCHES if bench.is_gpu else (2,):
                yield decoded(bench, shapes, kind, model, batch)
            del model
            if bench.is_gpu:
                torch.cuda.empty_cache()
        if shapes is not bench.shapes[-1] or not bench.is_gpu:  # the largest takes too long
            yield from generated(bench, shapes)


def decoded(bench: Bench, shapes: Shapes, kind: str, model: DeviceModel, batch: int) -> Row:
    """A prompt, and steps of all branches; the first ones capture graphs and are not timed."""
    prompt, steps, warm = (PROMPT, STEPS, 8) if bench.is_gpu else (20, 2, 1)
    common, own = prompt // PAGE, (steps + warm + PAGE) // PAGE + 1
    pool = model.make_pool(common + own * batch + 1)
    start = common * PAGE
    whole = Plan([Span(range(common), 0, start)])
    model.forward(torch.arange(start) % shapes.vocab, whole, pool, torch.arange(0))
    pages = [
        [*range(common), *range(common + b * own, common + (b + 1) * own)] for b in range(batch)
    ]
    ids, device_ms, walls = torch.zeros(batch, dtype=torch.int64), [], []
    for at in range(start, start + steps + warm):
        begun = time.perf_counter()
        plan = Plan([Span(each, at, 1) for each in pages])
        begin = bench.mark()
        logits = model.forward(ids, plan, pool, torch.arange(batch))
        end = bench.mark()
        draws = [Draw(sampling=Sampling(), seed=b, position=at) for b in range(batch)]
        ids = torch.tensor(model.draw(logits, draws).token_ids)
        walls.append(time.perf_counter() - begun)
        device_ms.append(begin.elapsed_time(end) if bench.is_gpu else 0.0)
    wall = statistics.median(walls[warm:]) if bench.is_gpu else None
    return {
        "name": f"{shapes.name} {kind}",
        "rows": batch,
        "ms": wall and wall * 1e3,
        "forward_ms": statistics.median(device_ms[warm:]) if bench.is_gpu else None,
        "tokens_s": wall and batch / wall,
    }


def generated(bench: Bench, shapes: Shapes) -> Iterator[Row]:
    """Transformers' `generate` with a random model of the same shape."""
    try:
        import transformers
    except ModuleNotFoundError:
        yield {"name": f"{shapes.name} transformers: not installed", "rows": 0, "ms": None}
        return
    model = shapes.transformers_model(transformers, bench.device)
    for batch in (1, 64) if bench.is_gpu else (2,):
        prompt = torch.ones(batch, PROMPT if bench.is_gpu else 4, dtype=torch.int64)
        steps = STEPS if bench.is_gpu else 2
        options = {"do_sample": True, "min_new_tokens": steps, "max_new_tokens": steps}
        inputs = prompt.to(bench.device)
        mask = torch.ones_like(inputs)
        ms = wall_ms(
            bench,
            partial(model.generate, inputs, attention_mask=mask, **options),
            repeats=1,
        )
        yield {
            "name": f"{shapes.name} transformers",
            "rows": batch,
            "ms": ms and ms / steps,
            "tokens_s": ms and batch * steps / ms * 1e3,
        }


def told(name: str, value: object) -> str:
    """A value of a row, as it is printed."""
    return f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the parts, prints their rows, and writes them where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args(arguments)
    bench, rows = bench_here(dry_run=asked.dry_run), []
    begun = time.perf_counter()
    with torch.inference_mode():
        for part in asked.parts:
            for row in globals()[part](bench):
                rows.append({"device": bench.name, "part": part, **row})
                print(" ".join(told(*each) for each in rows[-1].items()), flush=True)
    print(f"{time.perf_counter() - begun:.0f} s on {bench.name}")
    if asked.json is not None:
        given = sys.argv[1:] if arguments is None else arguments
        command = ["python", "benchmarks/perf/gpu.py", *given]
        write_result(asked.json, command=command, rows=rows, seed=0)


if __name__ == "__main__":
    main()

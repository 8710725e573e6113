"""What steps compute, read and take: each of the last ones, and everything added up.

Bytes are those that have to come from memory: the weights once, the head's where a token is drawn,
the keys and values of every distinct token once, and those that are written. Operations are the
multiplications and additions of products. With the measured roofs of the processor they give the
least time that a step could take, and its part in the time that it took: the fraction of the roof.

Source: Williams, Waterman and Patterson 2009, "Roofline". Differs: products of bytes and products
of floats follow one another, so the times of both are added before reading is compared with them.
Cost: some 10 microseconds for each step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple

from ttc.costs import Costs
from ttc.engine.local.curve import Load
from ttc.engine.local.native.roofs import Roofs
from ttc.engine.local.plan import Reads

__all__ = ["Counters", "Fraction", "Meter", "Seconds", "StepRecord"]

_REMEMBERED = 256


class Seconds(NamedTuple):
    """How long the parts of steps took."""

    plan: float = 0.0
    """Choosing what runs, and giving it memory."""
    forward: float = 0.0
    """The model, with the arrangement of its inputs."""
    sample: float = 0.0
    """Drawing tokens, and reading log probabilities."""
    commit: float = 0.0
    """Taking tokens over and telling them."""

    @property
    def total(self) -> float:
        """All parts."""
        return sum(self)

    @property
    def overhead(self) -> float:
        """The part that is neither model nor sampler; 0 before anything ran."""
        return (self.plan + self.commit) / self.total if self.total else 0.0


class StepRecord(NamedTuple):
    """One step."""

    rows: int
    """Tokens that were computed."""
    prefill_tokens: int
    """Those of them from which nothing was drawn."""
    decode_tokens: int
    """Those from which a token was drawn."""
    pages: int
    """Pages that running calls held."""
    sharing: float
    """How many times less was read than without shared prefixes; at least 1."""
    bytes_read: int
    """Bytes of weights, keys and values."""
    bytes_written: int
    """Bytes of keys and values."""
    linear_operations: int
    """Of layers and head."""
    attention_operations: int
    seconds: Seconds
    predicted_s: float
    """What the cost curve had said that it would take."""


class Fraction(NamedTuple):
    """How near a step came to the least time that it could take."""

    value: float
    """The least time as a part of the time taken."""
    bound: Literal["read", "int8", "float"]
    """Which roof makes up most of the least time."""


@dataclass
class Counters:
    """What the engine has done since it was loaded."""

    steps: int = 0
    output_tokens: int = 0
    """Output tokens computed, those of cancelled calls included."""
    prompt_tokens: int = 0
    """Prompt tokens computed, those found in the cache not included."""
    recomputed_tokens: int = 0
    """Tokens computed again, since their pages had been taken away."""
    draft_tokens: int = 0
    """Drafted tokens that were tried."""
    rejected_draft_tokens: int = 0
    """Those of them that did not become output."""
    wrong_draft_tokens: int = 0
    """Those of them that were the first of their draft to be wrong."""
    preemptions: int = 0
    """How often a call gave its pages back before it had ended."""
    flops: int = 0
    """Operations of all steps, the one that runs now included."""
    bytes_read: int = 0
    bytes_written: int = 0
    path_tokens: int = 0
    """Tokens that attention would have read without shared prefixes."""
    node_tokens: int = 0
    """Tokens that it has read."""
    draft_s: float = 0.0
    """What drafting took, the draft model's steps included; no part of the steps' seconds."""
    kv_byte_seconds: float = 0.0
    """Memory times how long it was held, of calls that have left."""
    plan_s: float = 0.0
    forward_s: float = 0.0
    sample_s: float = 0.0
    commit_s: float = 0.0

    @property
    def seconds(self) -> Seconds:
        """How long the parts of all steps took."""
        return Seconds(self.plan_s, self.forward_s, self.sample_s, self.commit_s)


@dataclass
class Meter:
    """Measures an engine's steps. It is written to by the engine's thread, and read by any.

    Args:
        costs: of the model.
        bytes_per_weight: of its linear layers; below two, their products are of bytes.
    """

    costs: Costs
    bytes_per_weight: float
    counters: Counters = field(default_factory=Counters)
    recent: deque[StepRecord] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """The last steps."""
    roofs: Roofs | None = None
    """The processor's, once somebody has measured them."""

    def note(
        self,
        load: Load,
        reads: Reads,
        seconds: Seconds,
        *,
        prefill_tokens: int,
        attention_operations: int,
        pages: int,
        predicted_s: float,
    ) -> None:
        """Takes a step in; see `StepRecord`."""
        costs, counters, rows = self.costs, self.counters, load.rows
        record = StepRecord(
            rows=rows,
            prefill_tokens=prefill_tokens,
            decode_tokens=rows - prefill_tokens,
            pages=pages,
            sharing=reads.sharing,
            bytes_read=self.weight_bytes(load.draws) + reads.kv_bytes,
            bytes_written=rows * costs.kv_bytes_per_token,
            linear_operations=costs.flops_per_token * rows + costs.flops_per_draw * load.draws,
            attention_operations=attention_operations,
            seconds=seconds,
            predicted_s=predicted_s,
        )
        self.recent.append(record)
        counters.steps += 1
        counters.bytes_read += record.bytes_read
        counters.bytes_written += record.bytes_written
        counters.path_tokens += reads.path_tokens
        counters.node_tokens += reads.node_tokens
        counters.plan_s += seconds.plan
        counters.forward_s += seconds.forward
        counters.sample_s += seconds.sample
        counters.commit_s += seconds.commit

    def weight_bytes(self, draws: int) -> int:
        """Bytes of the weights that a step reads: the head's only where it draws."""
        flops = self.costs.flops_per_token + (self.costs.flops_per_draw if draws else 0)
        return int(flops // 2 * self.bytes_per_weight)

    def fraction(self, record: StepRecord) -> Fraction | None:
        """A step's fraction of the roof; `None` where the roofs have not been measured."""
        if (roofs := self.roofs) is None:
            return None
        is_int8 = self.bytes_per_weight < 2
        linear_roof = roofs.int8_operations if is_int8 else roofs.float_operations
        read = (record.bytes_read + record.bytes_written) / roofs.read_bytes
        linear = record.linear_operations / linear_roof
        attention = record.attention_operations / roofs.float_operations
        if read >= linear + attention:
            return Fraction(read / record.seconds.total, "read")
        bound: Literal["int8", "float"] = "int8" if is_int8 and linear >= attention else "float"
        return Fraction((linear + attention) / record.seconds.total, bound)

    def prometheus(self, model: str, gauges: dict[str, float]) -> str:
        """Everything in Prometheus' text form (version 0.0.4).

        Args:
            model: the value of the label `model`.
            gauges: what else is to be told, by name without the prefix.
        """
        label = '{model="' + _escaped(model) + '"}'
        lines = []
        for each in fields(Counters):
            name = f"ttc_engine_{_unit(each.name)}_total"
            value = getattr(self.counters, each.name)
            lines += [f"# TYPE {name} counter", f"{name}{label} {value}"]
        for key, number in (gauges | self._gauges()).items():
            name = f"ttc_engine_{key}"
            lines += [f"# TYPE {name} gauge", f"{name}{label} {number}"]
        return "\n".join(lines) + "\n"

    def _gauges(self) -> dict[str, float]:
        """Of the last step."""
        if not self.recent:
            return {}
        last = self.recent[-1]
        gauges = {"step_rows": last.rows, "sharing_factor": last.sharing, "pages": last.pages}
        if (fraction := self.fraction(last)) is not None:
            gauges["roof_fraction"] = fraction.value
        return gauges


def _unit(name: str) -> str:
    """A counter's name with its unit spelled out, as Prometheus' conventions ask."""
    return f"{name.removesuffix('_s')}_seconds" if name.endswith("_s") else name


def _escaped(value: str) -> str:
    """A label's value: the text form escapes these three."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

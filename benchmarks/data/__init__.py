"""Data of benchmarks: where it lies, which column is what, how it is asked, what is registered."""

from ttc.benchmarks.data.choices import Options, shuffled
from ttc.benchmarks.data.generated import generated
from ttc.benchmarks.data.named import NAMES, Asking, task_named
from ttc.benchmarks.data.prompts import Prompt, Shot
from ttc.benchmarks.data.rows import read_rows
from ttc.benchmarks.data.schemas import SCHEMAS, Row, Schema, digest_of
from ttc.benchmarks.data.sources import Source, locate

__all__ = [
    "NAMES",
    "SCHEMAS",
    "Asking",
    "Options",
    "Prompt",
    "Row",
    "Schema",
    "Shot",
    "Source",
    "digest_of",
    "generated",
    "locate",
    "read_rows",
    "shuffled",
    "task_named",
]

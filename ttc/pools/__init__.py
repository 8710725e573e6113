"""Pools: files of recorded completions, and what is done with them.

`pool` is the file and what is in it, `draw` fills one from an engine, `imports` reads what other
tools have written, `parquet` writes for them. `ttc.engine.replay` runs strategies on a pool.
"""

from __future__ import annotations

from ttc.pools.pool import Completion, Pool, PoolFile, append, merge, read, score, write

__all__ = ["Completion", "Pool", "PoolFile", "append", "merge", "read", "score", "write"]

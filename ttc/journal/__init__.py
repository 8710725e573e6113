"""The journal: what was asked, granted, used and decided, as the trace of a run and on disk.

`trace` is the journal in memory, and every run has one. `disk` keeps it in a file beside that, out
of which a killed run goes on and a finished one is replayed. `engines` carries an engine's answers
to it and from it, `values` writes things as JSON, and `runs` knows where the files lie.
"""

from __future__ import annotations

from ttc.journal.trace import Journal, derive_seed, digest, fingerprint, in_order

__all__ = ["Journal", "derive_seed", "digest", "fingerprint", "in_order"]

"""What ttc is tested with, and what its users test their strategies with.

from ttc.testing import FakeEngine, check_strategy

engine = FakeEngine(["The answer is 391.", "The answer is 401."])
outcome = ttc.solve("What is 17 * 23?", SelfConsistency(n=4), model=engine, seed=0)

print(check_strategy(lambda n, verifier: Sample(n=n) >> verifier >> Best()))
print(check_engine(engine))
"""

from ttc.manual_clock import ManualClock
from ttc.testing.conformance import (
    CHECK_NAMES,
    Checked,
    NotConforming,
    Report,
    check_strategy,
)
from ttc.testing.engine_checks import ENGINE_CHECK_NAMES, check_engine
from ttc.testing.fakes import FAKE_COSTS, FakeEngine, Script, ScriptedVerifier, finished

__all__ = [
    "CHECK_NAMES",
    "ENGINE_CHECK_NAMES",
    "FAKE_COSTS",
    "Checked",
    "FakeEngine",
    "ManualClock",
    "NotConforming",
    "Report",
    "Script",
    "ScriptedVerifier",
    "check_engine",
    "check_strategy",
    "finished",
]

"""Allocation: one budget over many problems, given away unit by unit to where it helps most.

A unit is one engine call. An allocator (`policies`) is a value that says what a unit is worth to a
problem; `Allocation` (`allocation`) gives units away by it, as a pure machine without a clock or a
task; `Market` (`market`) joins that machine to runs that are alive.
"""

from ttc.allocate.allocation import Allocation, Open
from ttc.allocate.bids import Belief, Bid, Progress, Terms, Unit
from ttc.allocate.market import Bidder, Market, Released, Result, is_direct, run_market
from ttc.allocate.policies import (
    Allocator,
    Bandit,
    GreedyGain,
    OptScale,
    ShadowPrice,
    Uniform,
    UniformStop,
)

__all__ = [
    "Allocation",
    "Allocator",
    "Bandit",
    "Belief",
    "Bid",
    "Bidder",
    "GreedyGain",
    "Market",
    "Open",
    "OptScale",
    "Progress",
    "Released",
    "Result",
    "ShadowPrice",
    "Terms",
    "Uniform",
    "UniformStop",
    "Unit",
    "is_direct",
    "run_market",
]

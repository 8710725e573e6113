"""Verifiers: what returns scores of candidates."""

from ttc.verifiers.confidence import SequenceProbability

__all__ = ["SequenceProbability"]

"""Parity: whether others come to the same, on the same texts, and how much arithmetic decides."""

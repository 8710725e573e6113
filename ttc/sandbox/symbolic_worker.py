"""What a process of the symbolic zygote runs: a placeholder that ends at once."""

from __future__ import annotations

__all__ = ["main"]


def main(link: int) -> None:
    """Ends."""

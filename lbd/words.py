"""Numbers with what they count, as people read them. Pure."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 broker``, ``1,300 brokers``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

"""Which samples of CPU tell of a broker's start, and not of its load. Pure."""

from __future__ import annotations

YOUNG_SECONDS = 130.0
"""The samples of a broker's first two minutes hold start-up work."""

FIRST_CPU = 1e-5
"""A broker that has not sampled yet reports less than this, and not 0."""


def is_of_start_up(age_seconds: float, cpu_percent: float) -> bool:
    """Whether a broker of this age is not to be believed yet; its age is NaN where no report tells it."""
    return age_seconds < YOUNG_SECONDS or cpu_percent <= FIRST_CPU

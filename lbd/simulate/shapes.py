"""How traffic changes with time: a factor on a load's rates at each second of the run. Pure.

Sources: daily waves and one-minute consumers as in the AvgShedder experiments (apache/pulsar #22946, its author's book,
chapter 5).
"""

from __future__ import annotations

from math import cos, tau
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Steady(_Shape):
    """The same all the time."""

    kind: Literal["steady"] = "steady"

    def factor(self, seconds: float) -> float:
        """Always 1."""
        del seconds
        return 1.0


class Wave(_Shape):
    """A cosine around 1, ``amplitude`` up and down."""

    kind: Literal["wave"]
    amplitude: float = Field(ge=0, le=1)
    period_hours: float = Field(24, ge=0.01)
    peak_at_hours: float = 0

    def factor(self, seconds: float) -> float:
        """1 + amplitude at the peak, 1 - amplitude half a period later."""
        return 1 + self.amplitude * cos(tau * (seconds / 3600 - self.peak_at_hours) / self.period_hours)


class Ramp(_Shape):
    """From ``start`` to ``to`` in a straight line, and so for good."""

    kind: Literal["ramp"]
    start: float = Field(1, ge=0, le=1000)
    to: float = Field(ge=0, le=1000)
    at_minutes: float = Field(0, ge=0)
    minutes: float = Field(ge=0)

    def factor(self, seconds: float) -> float:
        """``start`` before, ``to`` behind it."""
        passed = seconds / 60 - self.at_minutes
        if passed < 0:
            return self.start
        share = min(passed / self.minutes, 1.0) if self.minutes else 1.0
        return self.start + (self.to - self.start) * share


class Spike(_Shape):
    """``to`` for some minutes, else 1."""

    kind: Literal["spike"]
    to: float = Field(ge=0, le=1000)
    at_minutes: float = Field(ge=0)
    minutes: float = Field(gt=0)

    def factor(self, seconds: float) -> float:
        """``to`` within the spike."""
        return self.to if 0 <= seconds / 60 - self.at_minutes < self.minutes else 1.0


class OnOff(_Shape):
    """Nothing for a while, then what was missed as well: the mean stays 1, as of a consumer that comes and goes."""

    kind: Literal["on-off"]
    on_minutes: float = Field(1, ge=0.1)
    off_minutes: float = Field(1, ge=0.1)

    def factor(self, seconds: float) -> float:
        """0 while it is off."""
        period = self.on_minutes + self.off_minutes
        return period / self.on_minutes if seconds / 60 % period < self.on_minutes else 0.0


Shape = Annotated[Steady | Wave | Ramp | Spike | OnOff, Field(discriminator="kind")]

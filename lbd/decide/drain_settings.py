"""The ``drain:`` section: how fast ``lbd drain`` and ``lbd fill`` move, and how long a drain lasts."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

LEAST_PER_HOUR = 1000


class DrainSettings(BaseModel):
    """Limits of their own, in place of those for a turn, an hour and a day: a person has asked for all of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_unloads_at_once: int = Field(
        4, ge=1, le=64, description="in flight from the broker that is drained, of bundles with different hash ranges"
    )
    unload_spacing_seconds: float = Field(
        0.5, ge=0, le=3600, description="from the end of one of those to the next: clients reconnect meanwhile"
    )
    max_unloads_per_hour: int | None = Field(
        None,
        ge=0,
        description="from a drained broker, or to one that is filled, within the last hour; null: max(1000, half of "
        "all bundles): one broker is emptied, a fault cannot move a cluster; 0: no limit",
    )
    again_minutes: float = Field(
        10,
        gt=0,
        description="what Pulsar places on a drained broker later is moved off at most once in so many minutes: the "
        "brokers know nothing of a drain, and would give it back at once",
    )
    expires_hours: float = Field(
        24, gt=0, le=87_600, description="a drain that nobody released ends after this; --for says another time"
    )

    def most_per_hour(self, bundles: int) -> int | None:
        """The limit for an hour in a cluster with so many bundles; None: there is none."""
        if self.max_unloads_per_hour is None:
            return max(LEAST_PER_HOUR, bundles // 2)
        return self.max_unloads_per_hour or None

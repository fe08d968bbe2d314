"""The ``turns:`` section: how much is kept for ``lbd explain``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TurnsSettings(BaseModel):
    """What is kept of past turns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_bytes: int = Field(
        64 << 20,
        ge=1 << 20,
        description="disk that the turns kept for lbd explain may take; the oldest go first. At the default interval "
        "this is more than a month of ten brokers, and weeks of a hundred",
    )

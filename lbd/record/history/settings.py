"""The ``history:`` section: what is kept of each round for ``lbd calibrate``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class HistorySettings(BaseModel):
    """What is kept in ``history/``, and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    enabled: bool = Field(True, description="keep load reports, decisions and moves as Parquet, for lbd calibrate")
    retention_days: int = Field(30, ge=1, le=3_660, description="whole days, UTC; older ones are removed")
    max_bytes: int = Field(
        10 << 30, ge=1 << 20, description="disk that history may take; the oldest day goes first, whatever its age"
    )
    step: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="a bundle's rates are stored again once one of them has changed by more than this fraction, and "
        "whole once an hour; 0 stores every sample",
    )

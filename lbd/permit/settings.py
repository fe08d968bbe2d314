"""The ``guardrails:`` section: limits that hold across strategies."""

from __future__ import annotations

from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lbd.load.scoring import broker_conf
from lbd.permit.quiet_hours import QuietHours

Named = TypeVar("Named", tuple[str, ...], dict[str, float | str])


class Guardrails(BaseModel):
    """Each limit with its default and the reason for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cool_down_minutes: float = Field(
        30,
        ge=0,
        **broker_conf(
            "loadBalancerSheddingGracePeriodMinutes",
            "a bundle rests this long after each attempt, and after its owner changed without lbd",
        ),
    )
    excluded_namespaces: tuple[str, ...] = Field(
        (), **broker_conf("loadBalancerSheddingExcludedNamespaces", "tenant/namespace or tenant/*: never moved")
    )
    move_costs: dict[str, float | Literal["never"]] = Field(
        {},
        description="by tenant/namespace or tenant/*: bundles of cheaper namespaces are taken first, dearer ones only "
        "for what those leave; from 0, the default, to never, which is the same as excluding them",
    )
    move_system_namespace: bool = Field(
        False,
        description="pulsar/system holds transaction logs, schemas' change events and topic policies: moving it stalls "
        "clients of other namespaces for the little load that it makes",
    )
    max_unloads_per_turn: int | None = Field(
        None,
        ge=1,
        description="null: max(10, 1 % of the bundles), so that a large cluster is not held to a small one's pace",
    )
    max_traffic_per_turn: float = Field(
        0.1, gt=0, le=1, description="fraction of the cluster's messages or bytes, but at least one bundle a turn"
    )
    max_unloads_per_hour: int | None = Field(
        None,
        ge=0,
        description="within the last hour; null: max(30, 10 % of the bundles): a cold start that must move a third of "
        "them is done within hours, and a fault of lbd's cannot move everything at once; 0: no limit",
    )
    max_unloads_per_day: int | None = Field(
        None,
        ge=0,
        description="within the last 24 hours; null: max(100, 50 % of the bundles): a balanced cluster needs ten a "
        "month, a cold start a third of all once, and more than half is a storm; 0: no limit",
    )
    max_unloads_per_source_per_hour: int | None = Field(
        None,
        ge=0,
        description="null: max(20, half of the bundles it holds): levelling a pair takes less, and a broker that is "
        "emptied faster stalls all its clients at once; 0: no limit",
    )
    max_unloads_per_destination_per_hour: int | None = Field(
        None,
        ge=0,
        description="null: max(20, half of what a broker holds on average): a new broker is filled within hours, while "
        "its caches fill too; 0: no limit",
    )
    max_unloads_per_namespace_per_hour: int | None = Field(
        None,
        ge=0,
        description="null: max(20, half of its bundles): an application keeps half of its bundles where they are "
        "while the other half moves; 0: no limit",
    )
    max_moves_per_bundle: int = Field(
        2,
        ge=0,
        description="within ping_pong_window_hours, retries of a move not counted: what two moves did not mend, the "
        "third will not; 0: no limit",
    )
    second_move_points: float = Field(
        40,
        ge=0,
        description="within ping_pong_window_hours a bundle that lbd moved rests while others that carry half of its "
        "broker's traffic can go instead, unless that broker is so far above the least loaded one, or above "
        "max_destination_score; 0, or max_moves_per_bundle 0: it need not",
    )
    ping_pong_window_hours: float = Field(
        24,
        ge=0,
        le=24,
        description="in it a bundle does not go straight back to where it came from: a daily wave would carry it to "
        "and fro; 0: it may",
    )
    stand_still_after_rounds: int = Field(
        3,
        ge=0,
        description="rounds of moves in a row that brought no pair of brokers closer by min_improvement_points: then "
        "the load is not where the traffic is, and further moves only disturb clients; 0: never",
    )
    min_improvement_points: float = Field(
        3, ge=0, description="scores of brokers at rest vary by two points or so; a levelled pair closes by 7 and more"
    )
    stand_still_minutes: float = Field(
        60, ge=0, description="time for a person to look, and for the load to become another one"
    )
    quiet_hours: tuple[QuietHours, ...] = Field(
        (),
        description="nothing is moved in them; each {from: '22:00', to: '06:00', days: [sat, sun], zone: Europe/Berlin}"
        ", days (of its beginning; none: every day) and zone (UTC) optional; none by default: an overload at night is "
        "one, too",
    )
    max_destination_score: float = Field(
        85,
        gt=0,
        **broker_conf("loadBalancerBrokerOverloadedThresholdPercentage", "points predicted after the move"),
    )
    max_topics_per_broker: int = Field(
        50_000, ge=1, **broker_conf("loadBalancerBrokerMaxTopics", "topics on a destination")
    )
    unload_spacing_seconds: float = Field(
        1,
        ge=0,
        description="from the end of an unload to the next one on the same source: clients of a broker that closes one "
        "bundle after the other stall for seconds",
    )
    max_unloads_at_once: int = Field(4, ge=1, description="unloads in flight, each on a source of its own")
    membership_settle_seconds: float = Field(
        120,
        ge=0,
        description="after a broker came or went: two CPU samples, and time for its bundles to be owned again; twice "
        "as long where brokers went twice within the hour, and so on up to five times: a rolling restart is waited out",
    )

    @field_validator("excluded_namespaces", "move_costs")
    @classmethod
    def _names(cls, names: Named) -> Named:
        wrong = [name for name in names if name.count("/") != 1 or name.startswith("/") or name.endswith("/")]
        if wrong:
            raise ValueError(f"{', '.join(map(repr, wrong))}: wanted tenant/namespace or tenant/*")
        return names

    @field_validator("move_costs")
    @classmethod
    def _costs(cls, costs: dict[str, float | str]) -> dict[str, float | str]:
        wrong = [f"{name}: {cost}" for name, cost in costs.items() if isinstance(cost, float) and cost < 0]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: wanted 0 or more, or never")
        return costs

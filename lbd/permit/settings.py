"""The ``guardrails:`` section: limits that hold across strategies."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from lbd.load.scoring import broker_conf
from lbd.permit.quiet_hours import QuietHours
from lbd.permit.topic_costs import TopicKind
from lbd.section import Section

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

MOST_COST = 1e6

Named = TypeVar("Named", tuple[str, ...], dict[str, float | str])
Costs = TypeVar("Costs", dict[str, float | str], dict[TopicKind, float | str])


def covers(names: Collection[str], namespace: str) -> bool:
    """Whether a list of tenant/namespace and tenant/* has this namespace, or this tenant/*."""
    return namespace in names or f"{namespace.partition('/')[0]}/*" in names


def move_cost(costs: Mapping[str, float | str], namespace: str) -> float:
    """The cost set for a namespace, else for its tenant, else 0; infinite for ``never``."""
    cost = costs.get(namespace, costs.get(f"{namespace.partition('/')[0]}/*", 0.0))
    return float("inf") if cost == "never" else float(cost)


def _checked_names(names: Named) -> Named:
    wrong = [name for name in names if name.count("/") != 1 or name.startswith("/") or name.endswith("/")]
    if wrong:
        raise ValueError(f"{', '.join(map(repr, wrong))}: wanted tenant/namespace or tenant/*")
    return names


class Canary(Section):
    """The few namespaces, and the pace, with which lbd begins to move by itself."""

    namespaces: tuple[str, ...] = Field(
        min_length=1,
        description="While this is set, turns move only bundles of these namespaces, as tenant/namespace or tenant/*, "
        "and lbd says how many bundles of its plan the canary keeps back. Orders of people (lbd unload, drain, rollout "
        "and so on) are not held. Remove canary to let lbd move everything",
    )
    max_moves_per_hour: int = Field(
        1,
        ge=1,
        le=1_000_000,
        description="Unloads requested within the last hour while the canary is in force. Each request counts, "
        "whatever came of it: it may have disconnected clients. Retries and moves by hand count",
    )

    _names = field_validator("namespaces")(_checked_names)


def canary_text(namespaces: Iterable[str], max_moves_per_hour: int) -> str:
    """The limits of a canary as text."""
    return f"only bundles of {', '.join(namespaces)} move, at most {max_moves_per_hour} an hour"


class Guardrails(Section):
    """Each limit with its default and the reason for it."""

    cool_down_minutes: float = Field(
        30,
        ge=0,
        le=10_080,
        **broker_conf(
            "loadBalancerSheddingGracePeriodMinutes",
            "Minutes that a bundle rests after each attempt to move it, and after its owner changed without lbd",
        ),
    )
    excluded_namespaces: tuple[str, ...] = Field(
        (),
        **broker_conf(
            "loadBalancerSheddingExcludedNamespaces",
            "Namespaces whose bundles never move, as tenant/namespace or tenant/*",
        ),
    )
    include_namespaces: tuple[str, ...] = Field(
        (),
        description="If not empty, only bundles of these namespaces move, as tenant/namespace or tenant/*. A namespace "
        "that excluded_namespaces names, too, never moves",
    )
    canary: Canary | None = Field(
        None,
        description="The few namespaces with which lbd begins, and at what pace, as {namespaces: [tenant/namespace, "
        "tenant/*], max_moves_per_hour: 1}. While it is set, turns move nothing else",
    )
    move_costs: dict[str, float | Literal["never"]] = Field(
        {},
        description="Cost of a move by namespace, as tenant/namespace or tenant/*. lbd takes bundles of "
        "cheaper namespaces first, and those of dearer ones only for what the cheaper ones leave."
        " 0 is the default, and never excludes the namespace",
    )
    topic_costs: dict[TopicKind, float | Literal["never"]] = Field(
        {},
        description="Cost of a move of the bundles that hold Pulsar's own topics, on the scale of move_costs: "
        "change-events, transaction-buffers, functions. The default is 10 for each, but never for change-events "
        "while a broker is older than 4.0.12, or of 4.1 or 4.2 and older than 4.2.3: such a move may leave the topics "
        "of the namespace unloadable there. 0 makes such a bundle as any other. Not with profile: stock",
    )
    namespace_properties: bool = Field(
        False,
        description="Whether properties of a namespace bind turns: lbd.balance (off, low or normal) and "
        "lbd.quiet-hours. Admins of its tenant set them with pulsar-admin. lbd reads those of the namespaces whose "
        "bundles a turn would move",
    )
    move_system_namespace: bool = Field(
        False,
        description="Whether bundles of pulsar/system may move. It holds transaction logs, schema change "
        "events and topic policies, so a move stalls clients of other namespaces for little load",
    )
    max_unloads_per_turn: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Unloads in one turn. null means max(10, 1 % of the bundles), so that a large cluster is "
        "not limited to the pace of a small one",
    )
    max_traffic_per_turn: float = Field(
        0.1,
        ge=0.0001,
        le=1,
        description="Fraction of the cluster's messages or bytes that one turn may move. At least one bundle "
        "may always move",
    )
    max_traffic_per_hour: float = Field(
        0.5,
        ge=0.0001,
        le=1000,
        description="Fraction of the cluster's messages or bytes that may be moved within the last hour, so that a "
        "fault of lbd, or of what brokers report, cannot disconnect everybody. At least one bundle may always move. "
        "Each request counts, retries and moves by hand included. Moves of drains and fills do not",
    )
    max_unloads_per_hour: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description="Unloads within the last hour. null means max(30, 5 for each broker, 20 % of the bundles): brokers "
        "that join or come back empty are filled within the hour, and a fault of lbd cannot move everything at once. "
        "0 means no limit",
    )
    max_unloads_per_day: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description="Unloads within the last 24 hours. null means max(100, 15 for each broker, 50 % of the bundles): a "
        "balanced cluster needs ten a month, a cold start needs a third of all bundles once, and more than"
        " half is a storm. 0 means no limit",
    )
    max_unloads_per_broker_per_hour: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description="Unloads from one broker, and also unloads to one broker, within the last hour. null means "
        "max(20, half of what it had an hour ago) from a broker: one that is emptied faster stalls all its clients "
        "at once, and max(20, the bundles that a broker holds on average) to a broker, so that a new one is filled "
        "within the hour. 0 means no limit",
    )
    max_moves_per_bundle: int = Field(
        2,
        ge=0,
        le=1000,
        description="Moves of one bundle within ping_pong_window_hours. Retries do not count. A third move "
        "does not repair a problem that two moves did not repair. 0 means no limit",
    )
    ping_pong_window_hours: float = Field(
        24,
        ge=0,
        le=24,
        description="Hours in which a bundle may not return straight to its previous broker. The default "
        "prevents that a daily wave moves bundles back and forth. 0 allows it",
    )
    stand_still_minutes: float = Field(
        60,
        ge=0,
        le=10_080,
        description="Minutes that lbd stands still after three rounds of moves in a row that brought no pair of "
        "brokers 3 points closer: the load is then not where the traffic is, and further moves only disturb clients. "
        "As long after a move whose clients are not back. 0 means never",
    )
    quiet_hours: tuple[QuietHours, ...] = Field(
        (),
        description="Windows in which lbd moves nothing, each {from: '22:00', to: '06:00', days: [sat, sun], "
        "zone: Europe/Berlin}. days are the days on which the window begins (default: every day),"
        " and zone is by default UTC. There are none by default, because brokers can be "
        "overloaded at night, too",
    )
    max_destination_score: float = Field(
        85,
        ge=1,
        le=100,
        **broker_conf(
            "loadBalancerBrokerOverloadedThresholdPercentage",
            "Highest score, in points, that is predicted for a destination after the move",
        ),
    )
    max_topics_per_broker: int = Field(
        50_000,
        ge=1,
        le=100_000_000,
        **broker_conf("loadBalancerBrokerMaxTopics", "Highest number of topics on a destination"),
    )
    unload_spacing_seconds: float = Field(
        1,
        ge=0,
        le=3600,
        description="Seconds from the end of an unload to the next one on the same source. If a broker closes"
        " one bundle right after the other, its clients stall for seconds",
    )
    max_unloads_at_once: int = Field(4, ge=1, le=64, description="Unloads in flight, each from a different source")
    avoid_slow_brokers: bool = Field(
        True,
        description="Whether nothing is moved to a broker that carries little and is slow. lbd run measures how long "
        "the health check of each broker takes, every half minute",
    )
    membership_settle_seconds: float = Field(
        120,
        ge=0,
        le=3600,
        description="Seconds without moves after a broker left, or joined within an hour of that: two CPU samples, "
        "and time for its bundles to find owners. Twice as long if brokers left twice within the hour, and so on "
        "up to five times, so that lbd waits until a rolling restart is over. After a broker joined, and none left "
        "within the hour: 30 at most",
    )

    _names = field_validator("excluded_namespaces", "include_namespaces", "move_costs")(_checked_names)

    @field_validator("move_costs", "topic_costs")
    @classmethod
    def _costs(cls, costs: Costs) -> Costs:
        wrong = [
            f"{name}: {cost}" for name, cost in costs.items() if isinstance(cost, float) and not 0 <= cost <= MOST_COST
        ]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: wanted 0 to 1,000,000, or never")
        return costs

    @model_validator(mode="after")
    def _canary_can_move(self) -> Self:
        """A canary that nothing may leave would look like a balancer that does nothing."""
        for name in self.canary.namespaces if self.canary is not None else ():
            if (why := self._never_moves(name)) is not None:
                raise ValueError(f"canary.namespaces: {name} never moves, because {why}; change one")
        return self

    def _never_moves(self, name: str) -> str | None:
        tenant, _, own = name.partition("/")
        if covers(self.excluded_namespaces, name):
            return "excluded_namespaces names it"
        some = own == "*" and any(namespace.startswith(f"{tenant}/") for namespace in self.include_namespaces)
        if self.include_namespaces and not (some or covers(self.include_namespaces, name)):
            return "include_namespaces does not name it"
        return "move_costs says never" if own != "*" and isinf(move_cost(self.move_costs, name)) else None

    @property
    def without_canary(self) -> Guardrails:
        """The guardrails for orders of people, and for the past: a canary limits what lbd does by itself now."""
        return self.model_copy(update={"canary": None})

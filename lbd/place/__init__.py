"""Placing: which broker a bundle should go to. Value in, value out: no clock, no random, no I/O.

A placement is asked for one bundle at a time, among candidates that are already known to be allowed
(``candidates.py``), and answers with what it will remember::

    place = build("least-long-term-message-rate")
    seen, memory = look(snapshot, averages, weights), PlaceMemory()
    placed = place(bundle, candidates, seen, memory)      # placed.broker, placed.reason
    memory = placed.memory                                # for the next bundle

Candidates come in an order that is the caller's; where brokers are equally good the answer does not depend on it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from lbd.place import avg_shedder, least_message_rate, least_usage, rendezvous, round_robin
from lbd.place.placed import Placed, PlaceMemory
from lbd.place.seen import Seen, look
from lbd.place.settings import (
    ByHashSettings,
    LeastLongTermMessageRateSettings,
    LeastResourceUsageExtensibleSettings,
    LeastResourceUsageSettings,
    PlacementSettings,
    RendezvousSettings,
    RoundRobinSettings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DEFAULT", "PLACEMENTS", "PlaceMemory", "Placed", "Placement", "Seen", "build", "look"]


class Placement(Protocol):
    """What is asked for one bundle."""

    def __call__(self, bundle: str, candidates: Sequence[str], seen: Seen, memory: PlaceMemory) -> Placed: ...


PLACEMENTS: dict[str, type[PlacementSettings]] = {
    "rendezvous": RendezvousSettings,
    "avg-shedder": ByHashSettings,
    "least-long-term-message-rate": LeastLongTermMessageRateSettings,
    "least-resource-usage-with-weight": LeastResourceUsageSettings,
    "least-resource-usage-with-weight-extensible": LeastResourceUsageExtensibleSettings,
    "round-robin": RoundRobinSettings,
}
"""Settings class of each placement, by the name that ``--strategy`` takes; the first one is lbd's own."""

DEFAULT = "rendezvous"

RULES: dict[type[PlacementSettings], Any] = {
    RendezvousSettings: rendezvous.choose,
    ByHashSettings: avg_shedder.choose,
    LeastLongTermMessageRateSettings: least_message_rate.choose,
    LeastResourceUsageSettings: least_usage.choose,
    LeastResourceUsageExtensibleSettings: least_usage.choose_extensible,
    RoundRobinSettings: round_robin.choose,
}
"""The rule that belongs to each settings class."""


def build(name: str, values: Mapping[str, Any] | None = None) -> Placement:
    """The placement of that name; KeyError for an unknown one, pydantic's ValidationError for wrong values."""
    kind = PLACEMENTS[name]
    return partial(RULES[kind], settings=kind.model_validate(dict(values or {})))

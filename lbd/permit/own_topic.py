"""The bundle that carries the topic of leadership stays where it is: moving it would cut lbd off from itself. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.reason import Reason
from lbd.split.topic_hash import holds, namespace_of, topic_hash

if TYPE_CHECKING:
    from collections.abc import Iterable


def carries(bundle: str, topic: str) -> bool:
    """Whether a bundle, by its full name, carries a topic; none carries the empty topic."""
    return bool(topic) and bundle.rpartition("/")[0] == namespace_of(topic) and holds(bundle, topic_hash(topic))


def kept_bundles(bundles: Iterable[str], topic: str) -> dict[str, Reason]:
    """Which of these bundles must not move because of the topic: one, or none that is known."""
    if not topic:
        return {}
    start = f"{namespace_of(topic)}/"
    return {name: Reason.LEADER_TOPIC for name in bundles if name.startswith(start) and carries(name, topic)}

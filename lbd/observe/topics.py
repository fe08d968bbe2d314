"""The topics of one bundle, and what its owner counts of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.model import bundle_namespace, bundle_range
from lbd.split.algorithms import Topic
from lbd.split.topic_hash import holds, topic_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.pulsar.admin import Admin, TopicStats


def topics_of(admin: Admin, bundle: str, owner: str) -> tuple[Topic, ...]:
    """All topics that fall into a bundle, those that are not loaded among them, by name.

    That is what a broker cuts by. Rates are up to a statistics interval old. Raises
    :class:`~lbd.errors.AdminError` where they cannot be had.
    """
    namespace = bundle_namespace(bundle)
    loaded = _loaded(admin, bundle, owner)
    names = {*admin.topics(namespace), *loaded}
    return tuple(_topic(name, loaded.get(name)) for name in sorted(names) if holds(bundle, topic_hash(name)))


def _loaded(admin: Admin, bundle: str, owner: str) -> Mapping[str, TopicStats]:
    by_domain = admin.topic_stats(owner).get(bundle_namespace(bundle), {}).get(bundle_range(bundle), {})
    return {name: stats for topics in by_domain.values() for name, stats in topics.items()}


def _topic(name: str, stats: TopicStats | None) -> Topic:
    if stats is None:
        return Topic(name, topic_hash(name))
    rates = (stats.msg_rate_in + stats.msg_rate_out, stats.msg_throughput_in + stats.msg_throughput_out)
    return Topic(name, topic_hash(name), *rates)

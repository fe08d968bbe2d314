"""Who of several lbds leads, as the broker of their topic says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.daemon.doctor.finding import Check
from lbd.errors import AdminError, LbdError
from lbd.pulsar.leader_topic import LeaderTopic

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.daemon.doctor.finding import Finding

LEADER = Check("leading-lbd", "of several lbds only the one that leads moves anything")


def check(settings: Settings) -> tuple[list[Finding], int]:
    """What there is to say, and the requests that it cost.

    Nothing where one lbd works alone, as only the state directory's lock keeps others away then.
    """
    if not settings.leader.enabled:
        return [], 0
    topic = LeaderTopic(settings.pulsar, settings.leader.topic)
    return [_found(topic)], topic.http.sent


def _found(topic: LeaderTopic) -> Finding:
    try:
        name = topic.leader()
    except AdminError as error:
        if error.status == 404:
            return LEADER.warning(f"{topic.topic} is not there yet", "start lbd run: the first one makes it")
        return LEADER.problem(str(error), "while its broker cannot be asked, no lbd leads and none moves anything")
    except LbdError as error:
        return LEADER.problem(str(error), "mend what keeps lbd from asking; nobody moves anything meanwhile")
    if name is None:
        return LEADER.warning(
            f"nobody writes {topic.topic}", "start lbd run with leader.enabled on one machine at least"
        )
    return LEADER.ok(f"{name} leads, by {topic.topic}")

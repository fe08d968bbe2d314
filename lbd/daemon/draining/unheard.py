"""What a drain does about what nobody tells: a broker silent about itself, bundles that nobody was seen to own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.act.ownership import Ownership
from lbd.act.unloader import judged
from lbd.daemon.splitting.looking import CLOCK
from lbd.errors import AdminError
from lbd.model import Skip
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.daemon.draining.job import Job
    from lbd.errors import LbdError
    from lbd.model import Outcome
    from lbd.pulsar.admin import Admin

LEFT_OFF_SECONDS = 60.0
"""How long a broker may keep what it owns or carries to itself: a long pause of its JVM, and no session's end."""

ASKED_EVERY_SECONDS = 5.0


def left_off(job: Job, error: LbdError, now: float) -> Skip | None:
    """Why the drain is left off; None while it waits. ``now`` is epoch seconds."""
    job.untold_since = since = job.untold_since or now
    left = since + LEFT_OFF_SECONDS - now
    if left > 0:
        job.waits(f"{error}; left off in {left:.0f} s if that stays so", now + min(ASKED_EVERY_SECONDS, left))
        return None
    stands = "the drain stands, and is gone on with once it answers, or ends as it would"
    return Skip(job.broker, Reason.REPORT_MISSING, f"{error}; {stands}")


def looked_for_again(doubtful: Iterable[Outcome], admin: Admin) -> list[Outcome]:
    """The same moves, by who owns their bundles now."""
    ownership = Ownership(admin, CLOCK)
    return [_seen_now(one, ownership) for one in doubtful]


def _seen_now(one: Outcome, ownership: Ownership) -> Outcome:
    try:
        owner = ownership.owner(one.unload.bundle)
    except AdminError as error:
        return replace(one, detail=f"{one.detail}; at the end: {error}")
    told = f"{one.detail}; at the end: {owner or 'nobody'} owns it"
    return replace(one, result=judged(one.unload, owner), owner=owner, detail=told)

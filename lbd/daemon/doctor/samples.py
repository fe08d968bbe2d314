"""Reports that stand still, as far as what lbd keeps can tell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lbd.daemon.doctor.finding import Check, named
from lbd.errors import UsageError
from lbd.model import RESOURCES
from lbd.permit.evidence import same
from lbd.record.state import StateDir
from lbd.record.status import running
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey
    from lbd.model import Brokers
    from lbd.observe.observer import Observation
    from lbd.record.state import Kept

STANDING = Check(
    "standing-reports", "a report that never changes may hide any load: its broker gives and takes nothing"
)
COLUMNS = tuple(RESOURCES.index(name) for name in ("cpu", "bandwidth_in", "bandwidth_out"))
SAMPLES_APART = 2
"""Sampling intervals between two looks, so that a broker that samples must have a new sample at the second one."""

LATER = "run lbd run --observe for 3 minutes, stop it, and run lbd doctor again after 3 more"


def check(seen: Survey, observation: Observation) -> Iterator[Finding]:
    """Compare this round with the last one that lbd kept: CPU and bandwidth equal to the last digit stand still.

    Two looks within one sampling interval (a minute) prove nothing. While lbd runs they never are further apart, and it
    is lbd itself that counts how long a report stands still.
    """
    directory = seen.settings.state_dir
    if not (directory.is_dir() and os.access(directory, os.R_OK | os.X_OK)):
        yield STANDING.unknown("no earlier round is known; one look cannot tell", LATER)
        return
    try:
        kept, pid = StateDir(directory).load(), running(directory)
    except UsageError as error:
        yield STANDING.problem(str(error), "mend or remove that file")
        return
    yield _compared(observation, kept, running_now=pid is not None)


def _compared(observation: Observation, kept: Kept, *, running_now: bool) -> Finding:
    brokers, apart = observation.snapshot.brokers, observation.snapshot.taken_at - kept.written_at
    still = [broker for at, broker in enumerate(brokers.ids) if _same(brokers, at, kept)]
    known = counted(sum(broker in kept.samples for broker in brokers.ids), "report")
    if not kept.samples:
        return STANDING.unknown("no earlier round is known; one look cannot tell", LATER)
    if not still:
        return STANDING.ok(f"{known} changed since lbd's last round")
    if apart >= SAMPLES_APART * observation.sample_interval_seconds + 10:
        told = f"CPU and bandwidth of {named(still)} are what they were {apart:.0f} s ago, to the last digit"
        return STANDING.warning(told, "restart that broker: its usage is not sampled any more")
    if running_now:
        return STANDING.ok("the running lbd counts how long each stands still, and warns of it in lbd status")
    return STANDING.unknown(f"lbd's last round is only {apart:.0f} s old", "run lbd doctor again in 3 minutes")


def _same(brokers: Brokers, at: int, kept: Kept) -> bool:
    sample = kept.samples.get(brokers.ids[at])
    return sample is not None and all(map(same, sample.usage, (float(brokers.usage[at, column]) for column in COLUMNS)))

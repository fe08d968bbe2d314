"""What lbd has learned of brokers, and what of their load is not that of bundles."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lbd.cycle.chosen import configured
from lbd.daemon.doctor.finding import Check, named
from lbd.daemon.learned import beside, broker_loads
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.config import Settings
    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey
    from lbd.load.told import BrokerLoad
    from lbd.model import Snapshot

MODEL = Check(
    "load-model", "what a destination comes to is predicted by what traffic costs it; else by its source's share"
)
BACKGROUND = Check("background", "load that no bundle makes cannot be moved away, and looks like a hot broker's")
UNLIKE = Check("unlike-brokers", "the same bundle is more points on a weaker machine")
GIVEN = Check("load-settings", "an entry of load.brokers that names nobody does nothing")


def check(seen: Survey, snapshot: Snapshot) -> Iterator[Finding]:
    """What the state directory tells of the brokers of this round."""
    settings = seen.settings
    yield from _nobody(settings, snapshot)
    directory = settings.state_dir
    if directory.is_dir() and not os.access(directory, os.R_OK | os.X_OK):
        yield MODEL.unknown(f"{directory} may not be read", "run lbd doctor as its user or root")
        return
    learning = beside(settings)
    learning.take(snapshot)
    found = broker_loads(snapshot, learning.known(snapshot), settings)
    yield _model(found)
    yield from _background(found)
    yield from _unlike(found, settings)


def _nobody(settings: Settings, snapshot: Snapshot) -> Iterator[Finding]:
    idle = [one.broker for one in settings.load.brokers if not any(map(one.means, snapshot.brokers.ids))]
    if idle:
        todo = "write host:port as lbd doctor shows it, or a regular expression for all of the host"
        yield GIVEN.warning(f"no broker is named by {named(idle)}", todo)


def _model(found: Sequence[BrokerLoad]) -> Finding:
    unknown, pooled = (sum(one.state == state for one in found) for state in ("unknown", "pooled"))
    told = f"known of {len(found) - unknown - pooled} of {counted(len(found), 'broker')}"
    told += f", taken from others for {pooled}" if pooled else ""
    return MODEL.ok(f"{told}; lbd run learns it while traffic changes" if unknown else told)


def _background(found: Sequence[BrokerLoad]) -> Iterator[Finding]:
    known = [one for one in found if one.background is not None]
    for one in known:
        if one.beside is not None:
            told = f"{one.neighbour}: {one.background:.0f} of its points of CPU are no traffic's"
            yield BACKGROUND.warning(told, "look there for what is not the broker's (top); no move can take it away")
    if len(known) > 1 and not any(one.beside is not None for one in known):
        yield BACKGROUND.ok(f"at most {max(one.background or 0 for one in known):.0f} points of CPU, alike on all")


def _unlike(found: Sequence[BrokerLoad], settings: Settings) -> Iterator[Finding]:
    for one in found:
        if one.unlike is not None:
            told = f"{one.broker}: the same traffic takes {one.unlike:.1f} times the CPU of the others"
            if configured(settings).wants_slopes:
                yield UNLIKE.ok(f"{told}; moves are sized by it")
            else:
                yield UNLIKE.warning(told, "nothing, if it is another kind of machine; least-moves sizes moves by it")

"""What the brokers' versions mean for lbd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.daemon.doctor import extensible
from lbd.daemon.doctor.finding import Check, named, whose
from lbd.pulsar.paths import keys_destinations_by_range, knows_destinations
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey

VERSIONS = Check("versions", "brokers of two versions place, report and redirect differently")
DESTINATIONS = Check("named-destinations", "brokers before 3.0.0 ignore the destination of an unload (#18663)")
AFFINITY = Check(
    "destination-key",
    "kept under a bundle's range alone, a destination may be taken by another namespace's equal range (#25518)",
)


def check(seen: Survey) -> Iterator[Finding]:
    """Versions of all active brokers."""
    if not seen.versions:
        yield VERSIONS.unknown("no broker told its version", "see that the brokers answer their admin ports")
        return
    yield _mixed(seen)
    old = _those(seen, lambda version: not knows_destinations(version))
    if old:
        told = f"{old}: lbd unloads there without one and has the destination take the bundle by a lookup"
        yield DESTINATIONS.warning(told, "upgrade to 3.0.3 or newer; until then some moves land elsewhere")
    else:
        yield DESTINATIONS.ok("known to all brokers")
    by_range = _those(seen, keys_destinations_by_range)
    if extensible.runs(seen):
        yield AFFINITY.ok("none is kept: brokers hand bundles over themselves")
    elif by_range:
        todo = "upgrade to 4.0.10, 4.2.1 or newer; lbd itself never has two moves of one range in flight"
        yield AFFINITY.warning(f"by range at {by_range}", todo)
    elif not old:
        yield AFFINITY.ok("by full bundle name")


def _mixed(seen: Survey) -> Finding:
    groups: dict[str, list[str]] = {}
    for broker, version in seen.versions.items():
        groups.setdefault(version, []).append(broker)
    if len(groups) == 1:
        return VERSIONS.ok(f"{next(iter(groups))} on {counted(len(seen.versions), 'broker')}")
    told = "; ".join(f"{version} on {named(brokers)}" for version, brokers in sorted(groups.items()))
    return VERSIONS.warning(told, "end the upgrade; lbd pause keeps lbd from moving meanwhile")


def _those(seen: Survey, wrong: Callable[[str], bool]) -> str:
    """Brokers of versions that are so, and those versions; empty where there are none."""
    found = {broker: version for broker, version in seen.versions.items() if wrong(version)}
    return f"{whose(found, seen.versions)} ({', '.join(sorted(set(found.values())))})" if found else ""

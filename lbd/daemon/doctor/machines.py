"""CPU, network cards and clocks, as far as they can be judged from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.daemon.doctor.finding import Check, named, whose
from lbd.model import RESOURCES
from lbd.permit.evidence import IMPOSSIBLE_NUMBER
from lbd.pulsar.paths import version_of
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey
    from lbd.model import Brokers
    from lbd.observe.observer import Observation

CPU, *_BANDWIDTH = (RESOURCES.index(name) for name in ("cpu", "bandwidth_in", "bandwidth_out"))
SKEW_SECONDS = 5.0
LOOKS_ALIKE = 0.005
"""CPU usages within half a percent of each other, over unlike traffic, are hardly those of different processes."""

NIC = Check("nic-speed", "bandwidth without a known limit counts as 0 %: a full network card stays unseen")
NIC_ALIKE = Check(
    "nic-speeds", "all Ethernet cards are added up, bridges and veth included; shares of wrong limits lie"
)
SOURCE = Check("cpu-source", "a broker may report the CPU of its whole host; brokers on one host look alike then")
CLOCKS = Check("clocks", "lbd tells a broker's age, and when to trust its samples, by the broker's own start time")


def check(seen: Survey, observation: Observation) -> Iterator[Finding]:
    """Resources of one round, and the clocks."""
    brokers = observation.snapshot.brokers
    yield _nic(seen, brokers)
    yield _cpu(brokers)
    yield _clocks(seen)


def _nic(seen: Survey, brokers: Brokers) -> Finding:
    weights = seen.settings.weights
    if not (weights.bandwidth_in or weights.bandwidth_out):
        return NIC.ok("not looked at: bandwidth has no weight")
    limits = brokers.limit[:, _BANDWIDTH].min(axis=1)
    unknown = [broker for broker, limit in zip(brokers.ids, limits.tolist(), strict=True) if not limit > 0]
    if unknown:
        todo = "set loadBalancerOverrideBrokerNicSpeedGbps (per card) in broker.conf and restart"
        more = "; from 4.2 on loadBalancerOverrideBrokerNics names the cards"
        return NIC.warning(f"unknown at {whose(unknown, brokers.ids)} (limit {limits.min():g} Kbit/s)", todo + more)
    told = f"{limits.min() / 1e6:g} Gbit/s" if limits.min() == limits.max() else _range(limits.min(), limits.max())
    if limits.max() >= 2 * limits.min():
        return NIC_ALIKE.warning(
            told, "if the cards are alike, set loadBalancerOverrideBrokerNicSpeedGbps; else nothing"
        )
    return NIC.ok(told)


def _range(lowest: float, highest: float) -> str:
    return f"from {lowest / 1e6:g} to {highest / 1e6:g} Gbit/s"


def _cpu(brokers: Brokers) -> Finding:
    """JDK container metrics came with 3.0 (#16832); before, cgroup v2 is not seen and the host's CPU is told."""
    old = [broker for broker, version in zip(brokers.ids, brokers.versions, strict=True) if _before_3(version)]
    told = ", ".join(f"{usage:.1f}" for usage in brokers.usage[:3, CPU].tolist())
    flag = "start brokers with --add-opens java.base/jdk.internal.platform=ALL-UNNAMED"
    if old:
        words = f"before 3.0 only cgroup v1 is seen, else the whole host is told: {named(old)} (CPU {told} points)"
        return SOURCE.warning(words, "one broker on each host, or upgrade")
    if _alike(brokers):
        return SOURCE.warning(f"CPU nearly equal ({told} points) over unlike traffic: is it their host's?", flag)
    return SOURCE.ok(f"usages differ ({told} points)" if len(brokers) > 1 else f"{told} points")


def _before_3(version: str) -> bool:
    return (0, 0, 0) < version_of(version) < (3, 0, 0)


def _alike(brokers: Brokers) -> bool:
    """Whether usages agree where traffic does not."""
    usage, rates = brokers.usage[:, CPU], brokers.rates[:, :2]
    sane = usage.min() > 1.0 and usage.max() <= IMPOSSIBLE_NUMBER and (np.abs(rates) <= IMPOSSIBLE_NUMBER).all()
    if len(brokers) < 2 or not sane:
        return False
    traffic = rates.sum(axis=1)
    close = usage.max() - usage.min() <= LOOKS_ALIKE * usage.max()
    return bool(close and traffic.max() > 2 * traffic.min())


def _clocks(seen: Survey) -> Finding:
    if not seen.clocks:
        return CLOCKS.unknown("no answer carried a Date header", "compare `date` on lbd's machine and on the brokers'")
    wrong = {
        f"{broker} ({clock.ahead_seconds:+.0f} s)"
        for broker, clock in seen.clocks.items()
        if abs(clock.ahead_seconds) - clock.unsure_seconds > SKEW_SECONDS
    }
    if wrong:
        told = f"not this machine's time at {named(wrong)}, by the Date of an answer"
        return CLOCKS.warning(told, "set the clocks by NTP, here and there")
    furthest = max(seen.clocks.values(), key=lambda clock: abs(clock.ahead_seconds))
    told = f"within {abs(furthest.ahead_seconds) + furthest.unsure_seconds:.0f} s of this machine's"
    return CLOCKS.ok(f"{told} ({counted(len(seen.clocks), 'broker')}, by the Date of an answer)")

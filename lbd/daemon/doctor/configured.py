"""What the brokers run with: their own balancing, and settings of theirs that work against lbd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.cycle.chosen import configured
from lbd.daemon.doctor import extensible
from lbd.daemon.doctor.finding import Check, whose
from lbd.pulsar.admin import MODULAR
from lbd.pulsar.paths import AUTO_SPLIT_ENABLED, loses_avg_shedder, manager_of, sheds, splits, version_of
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey

AVG_SHEDDER = "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"
SHEDS_WITH, PLACES_WITH = "loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy"
ONCE_PLACED_WITH = "loadBalancerPlacementStrategy"
EVENLY = "loadBalancerDistributeBundlesEvenlyEnabled"
UNLOADS_SPLIT = "loadBalancerAutoUnloadSplitBundlesEnabled"
SAMPLE_MINUTES, STATS_SECONDS = "loadBalancerHostUsageCheckIntervalMinutes", "statsUpdateFrequencyInSecs"
UNLOAD_TIMEOUT_MS = "namespaceBundleUnloadingTimeoutMs"

KNOWN_MANAGERS = ("ModularLoadManagerImpl", "ExtensibleLoadManagerImpl")

CONFIGURATION = Check("configuration", "most traps are settings of the brokers")
SHEDDING = Check("in-broker-shedding", "two balancers would undo each other's moves, so lbd moves nothing beside it")
MANAGER = Check(
    "load-manager", "lbd reads what the modular and the extensible load manager tell, one of them at a time"
)
BALANCER = Check(
    "load-balancer-enabled", "without it brokers share no load and place every bundle where it is looked up"
)
STRATEGY = Check(
    "avg-shedder", "AvgShedder in the brokers wants both strategy keys, and some releases check a wrong one"
)
PLACEMENT = Check("distribute-evenly", "what brokers place by themselves goes by number of bundles, whatever the load")
SPLITTING = Check(
    "auto-split", "a split replaces a bundle by two of other names; a move of the old one fails then (412)"
)
INTERVALS = Check("sample-intervals", "each hit wants a new CPU sample, and each choice of bundles new rates")
TIMEOUT = Check("unload-timeout", "an unload that takes longer than lbd waits looks lost, and must be asked for")


def check(seen: Survey) -> Iterator[Finding]:
    """Effective configuration of all brokers that told it."""
    missing = seen.observation.missing if seen.observation is not None else {}
    untold = [broker for broker in seen.active if broker not in seen.runtime and broker not in missing]
    if untold or not seen.runtime:
        told = f"that of {whose(untold, seen.active)} could not be read" if untold else "no broker told it"
        yield CONFIGURATION.unknown(told, "see rights and answers")
    if seen.runtime:
        yield _manager(seen)
        yield _shedding(seen)
        yield from _balancer(seen)
        if not extensible.runs(seen):
            yield _strategy(seen)
            yield _evenly(seen)
        yield from extensible.check(seen)
        yield _splitting(seen)
        yield from _intervals(seen)
        yield _timeout(seen)


def _with(seen: Survey, key: str, value: str) -> list[str]:
    return [broker for broker, runtime in seen.runtime.items() if runtime.get(key) == value]


def _manager(seen: Survey) -> Finding:
    managers = {broker: manager_of(runtime) for broker, runtime in seen.runtime.items()}
    others = {broker: manager for broker, manager in managers.items() if manager not in KNOWN_MANAGERS}
    if others:
        todo = f"set loadManagerClassName={MODULAR} in broker.conf and restart, or let that manager balance"
        return MANAGER.problem(f"{', '.join(sorted(set(others.values())))} at {whose(others, seen.runtime)}", todo)
    if len(set(managers.values())) > 1:
        few = [broker for broker, manager in managers.items() if manager != KNOWN_MANAGERS[0]]
        return MANAGER.warning(
            f"{KNOWN_MANAGERS[1]} at {whose(few, seen.runtime)}, the other one elsewhere", "end the change"
        )
    return MANAGER.ok(f"{next(iter(managers.values()))} is configured")


def _shedding(seen: Survey) -> Finding:
    on = [broker for broker, runtime in seen.runtime.items() if sheds(runtime)]
    if not on:
        return SHEDDING.ok(f"off on {counted(len(seen.runtime), 'broker')}")
    told = f"on at {whose(on, seen.runtime)}"
    if seen.settings.in_broker_shedding == "take-over":
        return SHEDDING.warning(told, "nothing, if lbd run is started: in_broker_shedding: take-over turns it off")
    command = "pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false"
    return SHEDDING.problem(told, f"{command}; or set in_broker_shedding: take-over")


def _balancer(seen: Survey) -> Iterator[Finding]:
    off = _with(seen, "loadBalancerEnabled", "false")
    if off:
        yield BALANCER.warning(
            f"false at {whose(off, seen.runtime)}", "set loadBalancerEnabled=true in broker.conf and restart"
        )


def _strategy(seen: Survey) -> Finding:
    lost, half, used = list[str](), list[str](), set[str]()
    for broker, runtime in seen.runtime.items():
        shed, placed = runtime.get(SHEDS_WITH, ""), runtime.get(PLACES_WITH, "")
        used |= {name.rpartition(".")[2] for name in (shed, placed) if name}
        if AVG_SHEDDER in {shed, placed}:
            wrong_key = runtime.get(ONCE_PLACED_WITH) != AVG_SHEDDER
            if loses_avg_shedder(seen.versions.get(broker, "")) and wrong_key:
                lost.append(broker)
            elif shed != placed:
                half.append(broker)
    if lost:
        todo = f"upgrade (fixed in 3.0.8 and 4.0.0, #23156), or set {ONCE_PLACED_WITH}={AVG_SHEDDER} too; then restart"
        return _replaced(seen, f"{whose(lost, seen.runtime)}: this version checks the wrong key", todo)
    if half:
        return _half(seen, half)
    names = ", ".join(sorted(used)) or "no strategy is told"
    return STRATEGY.ok("named by both keys" if "AvgShedder" in used else f"not used by the brokers ({names})")


def _half(seen: Survey, half: list[str]) -> Finding:
    told = f"{whose(half, seen.runtime)}: only one of {SHEDS_WITH} and {PLACES_WITH} names it"
    todo = "set both keys to it in broker.conf, or neither, and restart"
    if all(version_of(seen.versions.get(broker, "")) >= (5, 0, 0) for broker in half):
        return STRATEGY.warning(f"{told}; 5.0 then sheds without planned destinations", todo)
    return _replaced(seen, told, todo)


def _replaced(seen: Survey, told: str, todo: str) -> Finding:
    """Before 5.0 a manager that cannot start is replaced by SimpleLoadManagerImpl (#26031), which has no such reports.

    Where reports came, the brokers were started with other settings; their next start is what matters.
    """
    if seen.observation is None:
        return STRATEGY.problem(f"{told}; silently replaced by SimpleLoadManagerImpl", todo)
    return STRATEGY.warning(f"{told}; at its next start it is silently replaced by SimpleLoadManagerImpl", todo)


def _evenly(seen: Survey) -> Finding:
    if not any(EVENLY in runtime for runtime in seen.runtime.values()):
        return PLACEMENT.unknown(f"the brokers tell no {EVENLY} (it came with 2.11)", "nothing")
    on = _with(seen, EVENLY, "true")
    if not on:
        return PLACEMENT.ok("off: brokers place by load")
    told = f"on at {whose(on, seen.runtime)}: bundles of a restarted broker, or of a lost destination, land by count"
    return PLACEMENT.warning(told, f"set {EVENLY}=false (dynamic; 5.0's default); lbd's own destinations ignore it")


def _splitting(seen: Survey) -> Finding:
    on, own = [broker for broker, runtime in seen.runtime.items() if splits(runtime)], seen.settings.split.enabled
    if not on:
        return SPLITTING.ok(f"off: {'lbd splits by split.enabled' if own else 'hot bundles are split by hand'}")
    unloads = "and unload the halves" if _with(seen, UNLOADS_SPLIT, "true") else "and keep the halves"
    told = f"on at {whose(on, seen.runtime)}: brokers split hot bundles {unloads}"
    if own:
        command = f"pulsar-admin brokers update-dynamic-config --config {AUTO_SPLIT_ENABLED} --value false"
        return SPLITTING.warning(f"{told}, so lbd splits none although split.enabled", command)
    return SPLITTING.ok(f"{told}; lbd takes the halves as they come")


def _intervals(seen: Survey) -> Iterator[Finding]:
    sample, stats = _largest(seen.runtime, SAMPLE_MINUTES), _largest(seen.runtime, STATS_SECONDS)
    if sample is None or stats is None:
        key = SAMPLE_MINUTES if sample is None else STATS_SECONDS
        yield INTERVALS.unknown(f"the brokers tell no number as {key}", "see that broker.conf holds a number")
        return
    told = f"CPU every {max(sample, 1) * 60:.0f} s, rates every {stats:.0f} s"
    hits = configured(seen.settings).wanted_hits.low
    if sample > 1:
        todo = f"set {SAMPLE_MINUTES}=1 in broker.conf and restart (it is read at start only)"
        yield INTERVALS.warning(f"{told}: {hits} low hits take {hits * sample:.0f} min at least", todo)
    elif stats > 60:
        yield INTERVALS.warning(f"{told}: choices rest on old rates", f"set {STATS_SECONDS}=60 in broker.conf, restart")
    else:
        yield INTERVALS.ok(told)


def _timeout(seen: Survey) -> Finding:
    limit, waits = _largest(seen.runtime, UNLOAD_TIMEOUT_MS), seen.settings.pulsar.unload_timeout_seconds
    if limit is None:
        return TIMEOUT.unknown(f"the brokers tell no number as {UNLOAD_TIMEOUT_MS}", "nothing: the default is 60 s")
    told = f"a broker ends one within {limit / 1000:.0f} s, lbd waits {waits:.0f} s"
    if limit / 1000 + 10 > waits:
        return TIMEOUT.warning(told, f"set pulsar.unload_timeout_seconds to {limit / 1000 + 15:.0f} or more")
    return TIMEOUT.ok(told)


def _largest(runtimes: Mapping[str, Mapping[str, str]], key: str) -> float | None:
    """The largest value that any broker has; None where none tells a number."""
    found = [runtime[key] for runtime in runtimes.values() if key in runtime]
    try:
        return max((float(text) for text in found), default=None)
    except ValueError:
        return None

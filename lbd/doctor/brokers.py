"""Checks of brokers: versions, settings, machines, dynamic settings, policies, permissions, reports and the leader."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from lbd.doctor.findings import ANSWER, Check, broker_names, named, of_all
from lbd.doctor.survey import LIVE_CPU, OBSERVING, ROLES, SUPERUSER
from lbd.errors import UsageError
from lbd.load.scoring import scores
from lbd.model import IMPOSSIBLE_NUMBER, RESOURCES, bundle_namespace
from lbd.observe.reports import MOST_MINUTES
from lbd.permit.eligibility import broker_bundles, homeless, pools
from lbd.permit.evidence import FROZEN_SAMPLES, judge, same
from lbd.permit.slow import judged_round
from lbd.permit.topic_costs import dear_kinds, topic_costs
from lbd.pulsar.admin import MODULAR, unsupported_versions
from lbd.pulsar.broker_configuration import AUTO_SPLIT_ENABLED, is_extensible, load_manager_class, sheds, splits
from lbd.pulsar.paths import (
    NEWEST_KNOWN,
    fails_fast,
    keys_destinations_by_range,
    knows_destinations,
    loses_avg_shedder,
    newest_known,
    parse_version,
)
from lbd.reason import Reason
from lbd.store.state import StateDir
from lbd.store.status import read_status, running
from lbd.text import NAMED, counted, duration_text, first_clauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lbd.doctor.findings import Finding
    from lbd.doctor.survey import Survey
    from lbd.model import Brokers, Snapshot
    from lbd.observe.observer import Observation
    from lbd.store.journal import Past
    from lbd.store.state import TurnMemory


LARGEST = "loadBalancerMaxNumberOfBundlesInBundleLoadReport"
WITH_POLICIES = "loadBalancerSheddingBundlesWithPoliciesEnabled"
THRESHOLD = "loadBalancerReportUpdateThresholdPercentage"
MOST_DIGITS = 20
SET = "pulsar-admin brokers update-dynamic-config --config"

SOURCE = Check(
    "load-data", "brokers of the extensible manager answer no load report; they send load data on two topics"
)
OFTEN = Check("load-data-interval", "each sample counts once, and a broker whose load hardly changes sends no new one")
POLICY_READERS = Check(
    "policy-readers", "once __change_events has moved, an old broker may load no topic of its namespace (#25294)"
)
REPORTED = Check("told-bundles", "the traffic of a bundle that no broker reports is not known, and lbd never moves it")


def runs(survey: Survey) -> bool:
    """Whether any of the brokers runs the extensible load manager."""
    return any(map(is_extensible, survey.runtime.values()))


def check_extensible(survey: Survey) -> Iterator[Finding]:
    """Source of the load data, and the interval in which brokers send them."""
    if not runs(survey):
        return
    if survey.settings.pulsar.service_url is None:
        yield SOURCE.problem("pulsar.service_url is not set", "set it to pulsar://host:6650 (pulsar+ssl:// with TLS)")
    elif survey.observation is None:
        yield SOURCE.problem(
            "no load data came", "see observation; lbd's role must be a superuser's to read the topics"
        )
    else:
        heard = survey.observation.snapshot.brokers.ids
        message = f"heard of {counted(len(heard), 'broker')} at pulsar.service_url"
        yield SOURCE.ok_of_all(message, heard, survey.active, "the load data")
    yield _often(survey)


def _often(survey: Survey) -> Finding:
    minutes = {broker: runtime.get(MOST_MINUTES, "15") for broker, runtime in survey.runtime.items()}
    seldom = {broker: text for broker, text in minutes.items() if not text or text.lstrip("0") not in {"", "1"}}
    if not seldom:
        return OFTEN.ok("at least once a minute")
    longest = max(seldom.values(), key=lambda text: (len(text), text))[:MOST_DIGITS]
    within = next(iter(survey.runtime.values())).get(THRESHOLD, "10")
    message = (
        f"up to {longest} min apart at {broker_names(seldom, survey.runtime)} while the load stays within {within} %"
    )
    silent = f"a broker that is silent for {FROZEN_SAMPLES} samples takes no part"
    return OFTEN.warning(f"{message}: {silent}", f"{SET} {MOST_MINUTES} --value 1")


def of_a_round(survey: Survey, observation: Observation) -> Iterator[Finding]:
    """Number of reported bundles, and of those that should not move."""
    if observation.snapshot.partial:
        yield _report_finding(survey, observation.snapshot)
    yield from _policy_readers(survey, observation)


def _policy_readers(survey: Survey, observation: Observation) -> Iterator[Finding]:
    """Bundles of old brokers with topic policies; nothing where no reader of these hangs."""
    snapshot, topics = observation.snapshot, observation.system_topics
    if not topics.readers_hang or "change-events" not in topics.names:
        return
    todo = "upgrade to 4.0.12, 4.2.3 or newer"
    kinds = [cost for cost in dear_kinds(topics, survey.settings.topic_costs_in_force) if cost.kind == "change-events"]
    if not kinds or kinds[0].points is not None:
        yield POLICY_READERS.warning("turns may move it: guardrails.topic_costs, or profile: stock", todo)
    elif (never := topic_costs(snapshot, kinds)) is not None:
        number = f"{len(never.points)} of {counted(len(snapshot.bundles), 'bundle')}"
        yield POLICY_READERS.warning(f"turns never move {number}, which hold it (guardrails.topic_costs)", todo)


def _report_finding(survey: Survey, snapshot: Snapshot) -> Finding:
    rows = snapshot.rows
    own = broker_bundles(snapshot)[rows.bundle] != 0
    owned, reported = int(np.count_nonzero(rows.listed & ~own)), int(np.count_nonzero(rows.reported & ~own))
    most = sorted({runtime.get(LARGEST, "10") for runtime in survey.runtime.values()})
    words = (
        f"{reported} of {counted(owned, 'bundle')}, of each broker the {' or '.join(most)} largest that carry traffic"
    )
    limits = rows.count(rows.reported & ~own)
    full = [row for row, number in enumerate(limits.tolist()) if str(number) in most]
    if full:
        ids = [snapshot.brokers.ids[row] for row in full]
        return REPORTED.warning(
            f"{words}; {broker_names(ids, snapshot.brokers.ids)} may carry more", f"{SET} {LARGEST} --value 100"
        )
    if not all(runtime.get(WITH_POLICIES) == "true" for runtime in survey.runtime.values()):
        words += f"; none with an isolation policy or anti-affinity group ({WITH_POLICIES} is false)"
    return REPORTED.ok(words)


# --- versions

VERSIONS = Check("versions", "brokers of two versions place, report and redirect differently")
VERIFIED = Check("verified-versions", "lbd knows of a release what was run or read of it (docs/compatibility.md)")
DESTINATIONS = Check("named-destinations", "brokers before 3.0.0 ignore the destination of an unload (#18663)")
AFFINITY = Check(
    "destination-key",
    "kept under a bundle's range alone, a destination may be taken by another namespace's equal range (#25518)",
)


def check_versions(survey: Survey) -> Iterator[Finding]:
    """Versions of all active brokers."""
    if not survey.versions:
        yield VERSIONS.unknown("no broker answered with its version", "see that the brokers answer their admin ports")
        return
    read = {broker: version for broker, version in survey.versions.items() if any(parse_version(version))}
    if strange := survey.versions.keys() - read.keys():
        texts = ", ".join(sorted({survey.versions[broker] for broker in strange}))
        yield VERSIONS.unknown(
            f"{broker_names(strange, survey.versions)} answered {texts}, which is no version", ANSWER
        )
    else:
        yield _mixed(survey)
    if too_old := unsupported_versions(survey.versions):
        yield VERIFIED.problem(too_old, "upgrade to 3.0.3 or newer")
        return
    yield from of_all([_verified(survey)], read, survey.active, "the version")
    old = _those(survey, lambda version: not knows_destinations(version))
    if old:
        message = f"{old}: lbd unloads there without one and has the destination take the bundle by a lookup"
        yield DESTINATIONS.warning(message, "upgrade to 3.0.3 or newer; until then some moves land elsewhere")
    else:
        yield DESTINATIONS.ok_of_all("known to all brokers", read, survey.active, "the version")
    by_range = _those(survey, keys_destinations_by_range)
    if runs(survey):
        yield AFFINITY.ok("none is kept: brokers hand bundles over themselves")
    elif by_range:
        todo = "upgrade to 4.0.10, 4.2.1 or newer; lbd itself never has two moves of one range in flight"
        yield AFFINITY.warning(f"by range at {by_range}", todo)
    elif not old:
        yield AFFINITY.ok_of_all("by full bundle name", read, survey.active, "the version")


def _mixed(survey: Survey) -> Finding:
    groups = _grouped(survey.versions)
    if len(groups) == 1:
        message = f"{next(iter(groups))} on {counted(len(survey.versions), 'broker')}"
        return VERSIONS.ok_of_all(message, survey.versions, survey.active, "the version")
    versions = "; ".join(f"{version} on {named(brokers)}" for version, brokers in sorted(groups.items()))
    return VERSIONS.warning(versions, "end the upgrade; lbd pause keeps lbd from moving meanwhile")


def _verified(survey: Survey) -> Finding:
    newer = {broker: newest for broker, version in survey.versions.items() if (newest := newest_known(version))}
    if not newer:
        return VERIFIED.ok(f"none of {counted(len(survey.versions), 'broker')} is newer than what was run or read")
    versions = _those(survey, lambda version: newest_known(version) is not None)
    than = ", ".join(sorted(set(newer.values())))
    message = f"{versions}: newer than {than}, the last that was run or read"
    if all(parse_version(survey.versions[broker])[:2] in NEWEST_KNOWN for broker in newer):
        return VERIFIED.ok(f"{message}; only patches of the same line are unread")
    unread = "admin paths and parameters, redirects, fields of load reports, and where an unload lands are not verified"
    todo = "run lbd with mode: observe there first, then guardrails.canary; a newer lbd may know this version"
    return VERIFIED.warning(f"{message}; {unread}", todo)


def _those(survey: Survey, wrong: Callable[[str], bool]) -> str:
    """Brokers whose versions are wrong, and those versions; empty if there are none."""
    affected = {broker: version for broker, version in survey.versions.items() if wrong(version)}
    return (
        f"{broker_names(affected, survey.versions)} ({', '.join(sorted(set(affected.values())))})" if affected else ""
    )


def _grouped(values: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that have each value."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return names


# --- effective settings: the brokers' own balancing, and settings that work against lbd

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
    "load-manager", "lbd reads the load data of the modular or of the extensible load manager, one at a time"
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
INTERVALS = Check("sample-intervals", "each CPU sample counts once, and each choice of bundles wants new rates")
TIMEOUT = Check("unload-timeout", "an unload that takes longer than lbd waits looks lost, and must be asked for")


def check_configuration(survey: Survey) -> Iterator[Finding]:
    """Check the effective configuration of all brokers that returned it."""
    missing = survey.observation.missing if survey.observation is not None else {}
    unread = [broker for broker in survey.active if broker not in survey.runtime and broker not in missing]
    if unread or not survey.runtime:
        message = (
            f"that of {broker_names(unread, survey.active)} could not be read"
            if unread
            else "no broker answered with it"
        )
        yield CONFIGURATION.unknown(message, "see rights and answers")
    if survey.runtime:
        yield from of_all(_settings(survey), survey.runtime, survey.active, "the configuration")


def _settings(survey: Survey) -> Iterator[Finding]:
    yield _manager(survey)
    yield _shedding(survey)
    yield from _balancer(survey)
    if not runs(survey):
        yield _strategy(survey)
        yield _evenly(survey)
    yield from check_extensible(survey)
    yield _splitting(survey)
    yield from _intervals(survey)
    yield _timeout(survey)


def _with(survey: Survey, key: str, value: str) -> list[str]:
    return [broker for broker, runtime in survey.runtime.items() if runtime.get(key) == value]


def _manager(survey: Survey) -> Finding:
    managers = {broker: load_manager_class(runtime) for broker, runtime in survey.runtime.items()}
    others = {broker: manager for broker, manager in managers.items() if manager not in KNOWN_MANAGERS}
    if others:
        todo = f"set loadManagerClassName={MODULAR} in broker.conf and restart, or let that manager balance"
        return MANAGER.problem(
            f"{', '.join(sorted(set(others.values())))} at {broker_names(others, survey.runtime)}", todo
        )
    if len(set(managers.values())) > 1:
        few = [broker for broker, manager in managers.items() if manager != KNOWN_MANAGERS[0]]
        return MANAGER.warning(
            f"{KNOWN_MANAGERS[1]} at {broker_names(few, survey.runtime)}, the other one elsewhere", "end the change"
        )
    return MANAGER.ok(f"{next(iter(managers.values()))} is configured")


def _shedding(survey: Survey) -> Finding:
    on = [broker for broker, runtime in survey.runtime.items() if sheds(runtime)]
    if not on:
        return SHEDDING.ok(f"off on {counted(len(survey.runtime), 'broker')}")
    message = f"on at {broker_names(on, survey.runtime)}"
    if survey.settings.in_broker_shedding == "take-over":
        return SHEDDING.warning(message, "nothing, if lbd run is started: in_broker_shedding: take-over turns it off")
    command = "pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false"
    return SHEDDING.problem(message, f"{command}; or set in_broker_shedding: take-over")


def _balancer(survey: Survey) -> Iterator[Finding]:
    off = _with(survey, "loadBalancerEnabled", "false")
    if off:
        yield BALANCER.warning(
            f"false at {broker_names(off, survey.runtime)}", "set loadBalancerEnabled=true in broker.conf and restart"
        )


def _strategy(survey: Survey) -> Finding:
    lost, half, used = list[str](), list[str](), set[str]()
    for broker, runtime in survey.runtime.items():
        shed, placed = runtime.get(SHEDS_WITH, ""), runtime.get(PLACES_WITH, "")
        used |= {name.rpartition(".")[2] for name in (shed, placed) if name}
        if AVG_SHEDDER in {shed, placed}:
            wrong_key = runtime.get(ONCE_PLACED_WITH) != AVG_SHEDDER
            if loses_avg_shedder(survey.versions.get(broker, "")) and wrong_key:
                lost.append(broker)
            elif shed != placed:
                half.append(broker)
    if lost:
        todo = f"upgrade (fixed in 3.0.8 and 4.0.0, #23156), or set {ONCE_PLACED_WITH}={AVG_SHEDDER} too; then restart"
        return _replaced(survey, f"{broker_names(lost, survey.runtime)}: this version checks the wrong key", todo)
    if half:
        return _half(survey, half)
    if not used:
        return STRATEGY.unknown(f"no broker names a strategy by {SHEDS_WITH} or {PLACES_WITH}", ANSWER)
    names = ", ".join(sorted(used))
    return STRATEGY.ok("named by both keys" if "AvgShedder" in used else f"not used by the brokers ({names})")


def _half(survey: Survey, half: list[str]) -> Finding:
    message = f"{broker_names(half, survey.runtime)}: only one of {SHEDS_WITH} and {PLACES_WITH} names it"
    todo = "set both keys to it in broker.conf, or neither, and restart"
    if all(parse_version(survey.versions.get(broker, "")) >= (5, 0, 0) for broker in half):
        return STRATEGY.warning(f"{message}; 5.0 then sheds without planned destinations", todo)
    if all(fails_fast(survey.versions.get(broker, "")) for broker in half):
        return STRATEGY.warning(f"{message}; before 5.0 such a broker does not start (#26031)", todo)
    return _replaced(survey, message, todo)


def _replaced(survey: Survey, message: str, todo: str) -> Finding:
    """Brokers whose manager would be replaced at the next start: before 4.0.12 and 4.2.3 one that cannot start is
    replaced by SimpleLoadManagerImpl (#26031), which has no such reports.

    Where reports came, the brokers were started with other settings.
    """
    if survey.observation is None:
        return STRATEGY.problem(f"{message}; silently replaced by SimpleLoadManagerImpl", todo)
    return STRATEGY.warning(f"{message}; at its next start it is silently replaced by SimpleLoadManagerImpl", todo)


def _evenly(survey: Survey) -> Finding:
    if not any(EVENLY in runtime for runtime in survey.runtime.values()):
        return PLACEMENT.unknown(f"the brokers have no setting {EVENLY} (it came with 2.11)", "nothing")
    on, answered = (
        _with(survey, EVENLY, "true"),
        [broker for broker, runtime in survey.runtime.items() if EVENLY in runtime],
    )
    if not on:
        return PLACEMENT.ok_of_all("off: brokers place by load", answered, survey.runtime, EVENLY)
    brokers = broker_names(on, survey.runtime)
    message = f"on at {brokers}: bundles of a restarted broker, or of a lost destination, land by count"
    return PLACEMENT.warning(message, f"set {EVENLY}=false (dynamic; 5.0's default); lbd's own destinations ignore it")


def _splitting(survey: Survey) -> Finding:
    on, own = [broker for broker, runtime in survey.runtime.items() if splits(runtime)], survey.settings.split.enabled
    if not on:
        return SPLITTING.ok(f"off: {'lbd splits by split.enabled' if own else 'hot bundles are split by hand'}")
    unloads = "and unload the halves" if _with(survey, UNLOADS_SPLIT, "true") else "and keep the halves"
    message = f"on at {broker_names(on, survey.runtime)}: brokers split hot bundles {unloads}"
    if own:
        command = f"pulsar-admin brokers update-dynamic-config --config {AUTO_SPLIT_ENABLED} --value false"
        return SPLITTING.warning(f"{message}, so lbd splits none although split.enabled", command)
    return SPLITTING.ok(f"{message}; lbd takes the halves as they come")


def _intervals(survey: Survey) -> Iterator[Finding]:
    sample, stats = _largest(survey.runtime, SAMPLE_MINUTES), _largest(survey.runtime, STATS_SECONDS)
    if sample is None or stats is None:
        key = SAMPLE_MINUTES if sample is None else STATS_SECONDS
        yield INTERVALS.unknown(_no_number(survey.runtime, key), "see that broker.conf holds a number")
        return
    message = f"CPU every {duration_text(max(sample, 1) * 60)}, rates every {duration_text(stats)}"
    samples = survey.settings.strategy_settings.wanted_hits.low
    if sample > 1:
        todo = f"set {SAMPLE_MINUTES}=1 in broker.conf and restart (it is read at start only)"
        least = duration_text(samples * sample * 60)
        yield INTERVALS.warning(f"{message}: {samples} samples above the low threshold take {least} at least", todo)
    elif stats > 60:
        yield INTERVALS.warning(
            f"{message}: choices rest on old rates", f"set {STATS_SECONDS}=60 in broker.conf, restart"
        )
    else:
        yield INTERVALS.ok(message)


def _timeout(survey: Survey) -> Finding:
    limit, waits = _largest(survey.runtime, UNLOAD_TIMEOUT_MS), survey.settings.pulsar.unload_timeout_seconds
    if limit is None:
        return TIMEOUT.unknown(_no_number(survey.runtime, UNLOAD_TIMEOUT_MS), "nothing: the default is 60 s")
    message = f"a broker ends one within {duration_text(limit / 1000)}, lbd waits {duration_text(waits)}"
    if limit / 1000 + 10 > waits:
        return TIMEOUT.warning(message, f"set pulsar.unload_timeout_seconds to {limit / 1000 + 15:.0f} or more")
    return TIMEOUT.ok(message)


def _largest(runtimes: Mapping[str, Mapping[str, str]], key: str) -> float | None:
    """The largest value of any broker; None unless each returns a number."""
    numbers = [_number(runtime.get(key, "")) for runtime in runtimes.values()]
    return max((number for number in numbers if number is not None), default=None) if None not in numbers else None


def _no_number(runtimes: Mapping[str, Mapping[str, str]], key: str) -> str:
    without = [broker for broker, runtime in runtimes.items() if _number(runtime.get(key, "")) is None]
    return f"no number as {key} at {broker_names(without, runtimes)}"


# --- machines: CPU, network cards and clocks, as far as they can be judged from outside

CPU, *_BANDWIDTH = (RESOURCES.index(name) for name in ("cpu", "bandwidth_in", "bandwidth_out"))
SKEW_SECONDS = 5.0
LOOKS_ALIKE = 0.005
"""CPU usages within half a percent of each other, over unlike traffic, are hardly those of different processes."""

NIC = Check("nic-speed", "bandwidth without a known limit counts as 0 %: a full network card stays unseen")
NIC_ALIKE = Check(
    "nic-speeds", "all Ethernet cards are added up, bridges and veth included; shares of wrong limits lie"
)
CLOCK_SOURCE = Check("cpu-source", "a broker may report the CPU of its whole host; brokers on one host look alike then")
CLOCKS = Check("clocks", "lbd tells a broker's age, and when to trust its samples, by the broker's own start time")


def check_machines(survey: Survey, observation: Observation) -> Iterator[Finding]:
    """Check the resources of one round, and the clocks."""
    brokers = observation.snapshot.brokers
    weights = survey.settings.weights
    if weights.bandwidth_in or weights.bandwidth_out:
        yield _nic(brokers)
    yield _cpu(brokers)
    yield _clocks(survey)


def _nic(brokers: Brokers) -> Finding:
    limits = brokers.limit[:, _BANDWIDTH].min(axis=1)
    unknown = [broker for broker, limit in zip(brokers.ids, limits.tolist(), strict=True) if not limit > 0]
    if unknown:
        todo = "set loadBalancerOverrideBrokerNicSpeedGbps (per card) in broker.conf and restart"
        more = "; from 4.2 on loadBalancerOverrideBrokerNics names the cards"
        return NIC.warning(
            f"unknown at {broker_names(unknown, brokers.ids)} (limit {limits.min():g} Kbit/s)", todo + more
        )
    lowest, highest = limits.min() / 1e6, limits.max() / 1e6
    speeds = f"{lowest:g} Gbit/s" if lowest == highest else f"from {lowest:g} to {highest:g} Gbit/s"
    if highest >= 2 * lowest:
        return NIC_ALIKE.warning(
            speeds, "if the cards are alike, set loadBalancerOverrideBrokerNicSpeedGbps; else nothing"
        )
    return NIC.ok(speeds)


def _cpu(brokers: Brokers) -> Finding:
    """Check the source of CPU: container metrics came with 3.0 (#16832); before, cgroup v2 is ignored."""
    versions = zip(brokers.ids, map(parse_version, brokers.versions), strict=True)
    old = [broker for broker, version in versions if (0, 0, 0) < version < (3, 0, 0)]
    usages = ", ".join(f"{usage:.1f}" for usage in brokers.usage[:3, CPU].tolist())
    flag = "start brokers with --add-opens java.base/jdk.internal.platform=ALL-UNNAMED"
    if old:
        words = f"before 3.0 brokers report the whole host unless it has cgroup v1: {named(old)} (CPU {usages} points)"
        return CLOCK_SOURCE.warning(words, "one broker on each host, or upgrade")
    if _alike(brokers):
        return CLOCK_SOURCE.warning(
            f"CPU nearly equal ({usages} points) over unlike traffic: is it their host's?", flag
        )
    return CLOCK_SOURCE.ok(f"usages differ ({usages} points)" if len(brokers) > 1 else f"{usages} points")


def _alike(brokers: Brokers) -> bool:
    """Whether usages agree where traffic does not."""
    usage, rates = brokers.usage[:, CPU], brokers.rates[:, :2]
    sane = usage.min() > 1.0 and usage.max() <= IMPOSSIBLE_NUMBER and (np.abs(rates) <= IMPOSSIBLE_NUMBER).all()
    if len(brokers) < 2 or not sane:
        return False
    traffic = rates.sum(axis=1)
    close = usage.max() - usage.min() <= LOOKS_ALIKE * usage.max()
    return bool(close and traffic.max() > 2 * traffic.min())


def _clocks(survey: Survey) -> Finding:
    if not survey.clocks:
        return CLOCKS.unknown("no answer carried a Date header", "compare `date` on lbd's machine and on the brokers'")
    wrong = {
        f"{broker} ({clock.ahead_seconds:+.0f} s)"
        for broker, clock in survey.clocks.items()
        if abs(clock.ahead_seconds) - clock.unsure_seconds > SKEW_SECONDS
    }
    if wrong:
        message = f"not this machine's time at {named(wrong)}, by the Date of an answer"
        return CLOCKS.warning(message, "set the clocks by NTP, here and there")
    furthest = max(survey.clocks.values(), key=lambda clock: abs(clock.ahead_seconds))
    message = f"within {abs(furthest.ahead_seconds) + furthest.unsure_seconds:.0f} s of this machine's"
    message += f" ({counted(len(survey.clocks), 'broker')}, by the Date of an answer)"
    return CLOCKS.ok_of_all(message, survey.clocks, survey.active, "the clock")


# --- overrides: stored dynamic settings that brokers do not apply

OURS = ("loadBalanc", "minUnload", "maxUnload", "loadManager")
"""Prefixes of the keys that are compared and shown. Others are not about balancing, and some of them are secrets."""

READ_AT_START = ("loadBalancerLoadSheddingStrategy", "loadBalancerHostUsageCheckIntervalMinutes")
"""Keys that configuration/runtime shows at once, but brokers use from the next start on (ModularLoadManagerImpl)."""

ALIKE = Check("unequal-brokers", "brokers that balance by different settings are moved to and from for no reason")
OVERRIDES = Check("dynamic-values", "brokers answer 200 to a value that they cannot read, store it, and run without it")


def check_overrides(survey: Survey) -> Iterator[Finding]:
    """Compare each override of balancing with the configuration of each broker, and brokers with each other."""
    yield from _unequal(survey)
    if survey.dynamic is None:
        yield OVERRIDES.unknown("configuration/values could not be read", "see rights")
        return
    stored = {key: value for key, value in survey.dynamic.items() if key.startswith(OURS)}
    late = sorted(set(READ_AT_START) & stored.keys())
    wrong = [mismatch for key, value in sorted(stored.items()) if (mismatch := _not_taken(survey, key, value))]
    todo = (
        "pulsar-admin brokers update-dynamic-config --config KEY --value VALUE, or delete-dynamic-config --config KEY"
    )
    for message in wrong:
        yield OVERRIDES.warning(message, todo)
    if late:
        message = f"{', '.join(late)} stored: brokers that ran before use it from their next start on"
        yield OVERRIDES.warning(message, "restart the brokers, or take the override away")
    if stored and not survey.runtime:
        yield OVERRIDES.unknown(
            f"{counted(len(stored), 'override')} of balancing, and no broker's values", "see rights"
        )
    elif not stored:
        yield OVERRIDES.ok("none")
    elif not wrong and not late:
        taken = f"{counted(len(stored), 'override')} of balancing, taken by {counted(len(survey.runtime), 'broker')}"
        yield OVERRIDES.ok_of_all(taken, survey.runtime, survey.active, "the configuration")


def _not_taken(survey: Survey, key: str, value: str) -> str:
    others = {
        broker: runtime.get(key, "no such setting")
        for broker, runtime in survey.runtime.items()
        if not _same(value, runtime.get(key))
    }
    runs = ", ".join(sorted(set(others.values())))
    return f"{key}={value} is stored, {runs} runs at {broker_names(others, survey.runtime)}" if others else ""


def _same(stored: str, runs: str | None) -> bool:
    """Whether a broker applies a stored value, which Java may print in another form (lists, fractions, booleans)."""
    if runs is None:
        return False
    first, second = (text.strip().strip("[]").replace(" ", "").lower() for text in (stored, runs))
    return first == second or _number(first) == _number(second) is not None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _unequal(survey: Survey) -> Iterator[Finding]:
    keys = {key for runtime in survey.runtime.values() for key in runtime if key.startswith(OURS)}
    for key in sorted(keys - (survey.dynamic or {}).keys()):
        brokers_by_value = _grouped({broker: own[key] for broker, own in survey.runtime.items() if key in own})
        if len(brokers_by_value) > 1:
            message = "; ".join(
                f"{value or 'nothing'} at {named(brokers)}" for value, brokers in sorted(brokers_by_value.items())
            )
            yield ALIKE.warning(
                f"{key}: {message}", "give all brokers the same broker.conf, unless their machines differ"
            )


# --- policies: isolation, and noted destinations that are forbidden by now

POLICIES = Check("isolation-policies", "a forced destination bypasses them, so lbd must know them to move anything")
PROPERTIES = Check("namespace-properties", "an application team may keep its bundles still by them")
CORRECT = "pulsar-admin namespaces set-properties corrects it (docs/guardrails.md); until then its bundles stay"
NOTES = Check("leader-notes", "Pulsar follows a destination that its leader still holds once, without any check")


def check_policies(survey: Survey) -> Iterator[Finding]:
    """Check that the isolation policies are readable, and leave each namespace an active broker."""
    if not survey.isolation.is_known:
        todo = (
            "give lbd a superuser's token; see that the pattern is one that lbd can run (docs/decisions/0006-pools.md)"
        )
        yield POLICIES.problem(survey.isolation.problem, todo)
    else:
        nowhere = _homeless(survey)
        todo = (
            "correct the patterns (pulsar-admin ns-isolation-policy set) or start such a broker; until then brokers "
            "answer 503 for these topics, and lbd moves none of them"
        )
        for message in nowhere:
            yield POLICIES.problem(message, todo)
        if not nowhere and (idle := _without_namespace(survey)):
            what = f"{named(idle)} covers no namespace with loaded bundles"
            yield POLICIES.warning(what, "see the spelling of its namespaces (pulsar-admin ns-isolation-policy list)")
        elif not nowhere:
            number = len(survey.isolation.policies)
            yield POLICIES.ok(f"{number} known, each with an active broker" if number else "none")


def _without_namespace(survey: Survey) -> list[str]:
    """Policies that cover no namespace of the round."""
    if survey.observation is None:
        return []
    namespaces = survey.observation.snapshot.namespaces.names
    return [policy.name for policy in survey.isolation.policies if not policy.covers(namespaces).any()]


def _homeless(survey: Survey) -> list[str]:
    """Policies, and namespaces of the round, without an active broker by isolation."""
    empty = survey.isolation.empty_policies(survey.active)
    if survey.observation is None:
        return list(empty.values())
    snapshot = survey.observation.snapshot
    own = broker_bundles(snapshot)
    without = homeless(pools(survey.isolation, snapshot, survey.active, own), snapshot, own)
    others = {name: why for name, why in without.items() if why not in empty.values()}
    return [*empty.values(), *(f"{named(names)}: {why}" for why, names in _grouped(others).items())]


def check_properties(survey: Survey) -> Iterator[Finding]:
    """Check that lbd understands the properties that application teams set on their namespaces."""
    if survey.consents is None:
        return
    wrong = {name: consent.problem for name, consent in survey.consents.items() if consent.problem}
    for name in sorted(wrong)[:NAMED]:
        yield PROPERTIES.warning(f"{name}: {wrong[name]}", CORRECT)
    if len(wrong) > NAMED:
        yield PROPERTIES.warning(f"{len(wrong) - NAMED} more namespaces have one that is not understood", CORRECT)
    if unread := [name for name, consent in sorted(survey.consents.items()) if consent.unread]:
        todo = "give lbd a superuser's token: until then lbd moves bundles as if there were no properties"
        yield PROPERTIES.warning(f"those of {named(unread)} cannot be read: {survey.consents[unread[0]].unread}", todo)
    if not survey.consents:
        yield PROPERTIES.unknown("no namespace was read", "run lbd doctor again once the brokers give load reports")
    elif not (wrong or unread):
        balances = Counter(consent.balance for consent in survey.consents.values())
        quiet = sum(bool(consent.quiet_hours) for consent in survey.consents.values())
        read = counted(len(survey.consents), "namespace")
        bound = f"{balances['off']} off, {balances['low']} low, {quiet} with quiet hours"
        binding = balances["off"] or balances["low"] or quiet
        yield PROPERTIES.ok(f"{read} read: {bound if binding else 'none has a property that binds lbd'}")


def notes(survey: Survey, observation: Observation, past: Past | None) -> Iterator[Finding]:
    """Noted destinations that have left the cluster or are forbidden by now."""
    if past is not None and past.notes and observation.leader is None:
        yield NOTES.unknown(f"{counted(len(past.notes), 'destination')} may be left, and no broker leads", "see leader")
        return
    harmful = False
    for note in past.notes.values() if past is not None else ():
        if observation.leader is None or note.leader not in {None, observation.leader.broker}:
            continue
        for broker in note.brokers:
            if wrong := _forbidden(note.bundle, broker, survey, observation):
                harmful = True
                yield NOTES.warning(
                    f"{note.bundle}: the leader may still send its next owner to {broker}, which {wrong}",
                    f"lbd unload {note.bundle} --to an allowed broker --apply replaces it; a new leader forgets it",
                )
    if past is not None and not harmful:
        yield NOTES.ok(
            f"{counted(len(past.notes), 'destination')} may be left, none does harm" if past.notes else "none"
        )


def _forbidden(bundle: str, broker: str, survey: Survey, observation: Observation) -> str:
    namespace = bundle_namespace(bundle)
    if broker not in observation.active:
        return "has left the cluster"
    allowed = broker in survey.isolation.brokers(namespace, observation.active)
    return "" if allowed else f"isolation policies forbid to {namespace}, or could not be read"


# --- permissions: requests that lbd may not make, or that failed

RIGHTS = Check(
    "rights", "what lbd may not read it must take for forbidden, and without unload rights it can do nothing"
)
ROUND = Check("observation", "without a round of load reports lbd knows nothing and moves nothing")
ANSWERS = Check("answers", "what is not answered was not checked")


TURN_TO = "mend what it names, or give other brokers' web addresses as pulsar.admin_urls; nothing else was checked"


def check_rights(survey: Survey) -> Iterator[Finding]:
    """Refused calls with the right that each needs, and other calls without a usable response."""
    if survey.refused:
        roles = {call: ROLES[call] for call in survey.refused}
        refusals = "; ".join(f"{', '.join(calls)} want a {role}" for role, calls in _grouped(roles).items())
        oauth2 = survey.settings.pulsar.oauth2
        todo = "give lbd a superuser's token (pulsar.token_file), password (pulsar.basic) or certificate (pulsar.tls)"
        if oauth2 is not None:
            who = f"the client of {oauth2.private_key_file} at {oauth2.issuer_url}"
            todo = f"make {who} a superuser of the brokers, and compare pulsar.oauth2.audience with what they want"
        yield RIGHTS.problem(f"refused with 401 or 403: {refusals}", todo)
    elif survey.observation is not None:
        yield _allowed(survey, survey.observation)
    if survey.observation is None:
        todo = "mend that first: leader, reports, machines and traffic were not checked"
        yield ROUND.problem(str(survey.failed[OBSERVING]), todo if survey.answered else TURN_TO)
    missing = survey.observation.missing if survey.observation is not None else {}
    reported = {OBSERVING, *survey.refused, *(f"version of {broker}" for broker in missing)}
    for call, error in survey.failed.items():
        if call not in reported:
            yield ANSWERS.warning(f"{call}: {error}", "see that the broker answers, and run lbd doctor again")


def _allowed(survey: Survey, observation: Observation) -> Finding:
    unanswered = {
        *survey.failed,
        *(f"load-report of {broker}" for broker in observation.missing),
        *(f"configuration/runtime of {broker}" for broker in survey.active if broker not in survey.runtime),
        *(
            f"version of {broker}"
            for broker in survey.active
            if not any(parse_version(survey.versions.get(broker, "")))
        ),
    }
    if unanswered:
        return RIGHTS.unknown(f"{named(unanswered)} got no answer that can be used; no other read is refused", ANSWER)
    return RIGHTS.ok(f"every read is allowed, also those that want a {SUPERUSER}, as an unload does")


# --- stale reports, as far as lbd's state shows

STANDING = Check(
    "standing-reports", "a report that never changes may hide any load: its broker gives and takes nothing"
)
COLUMNS = tuple(RESOURCES.index(name) for name in ("cpu", "bandwidth_in", "bandwidth_out"))
SAMPLES_APART = 2
"""Sampling intervals between two looks, in which a sampling broker has a new sample."""

LATER = "run lbd run --observe for 3 minutes, stop it, and run lbd doctor again after 3 more"


def check_samples(survey: Survey, observation: Observation) -> Iterator[Finding]:
    """Compare this round with the last stored one: a report with the same CPU and bandwidth stands still.

    Two rounds within one sampling interval (a minute) prove nothing. While lbd runs they are never further apart, so
    lbd itself measures the time that a report stands still.
    """
    directory = survey.settings.state_dir
    if not (directory.is_dir() and os.access(directory, os.R_OK | os.X_OK)):
        yield STANDING.unknown("no earlier round is known; one look cannot tell", LATER)
        return
    try:
        memory = StateDir(directory).load()
        turns = running(directory) is not None and not read_status(directory).late(survey.taken_at)
    except UsageError as error:
        yield STANDING.problem(str(error), "mend or remove that file")
        return
    yield _compared(observation, memory, running_now=turns)


def _compared(observation: Observation, memory: TurnMemory, *, running_now: bool) -> Finding:
    brokers, apart = observation.snapshot.brokers, observation.snapshot.taken_at - memory.written_at
    still = [broker for row, broker in enumerate(brokers.ids) if _unchanged(brokers, row, memory)]
    new = [broker for broker in brokers.ids if broker not in memory.samples]
    if len(new) == len(brokers.ids):
        return STANDING.unknown("no earlier round is known; one look cannot tell", LATER)
    if not still and new:
        return STANDING.unknown(f"no earlier report of {named(new)} is known, all others changed", LATER)
    if not still:
        return STANDING.ok(f"{counted(len(brokers.ids), 'report')} changed since lbd's last round")
    if apart >= SAMPLES_APART * observation.sample_interval_seconds + 10:
        message = f"CPU and bandwidth of {named(still)} are those of {duration_text(apart)} ago, to the last digit"
        return STANDING.warning(message, "restart that broker: its usage is not sampled any more")
    if running_now:
        return STANDING.ok("the running lbd counts how long each stands still, and warns of it in lbd status")
    return STANDING.unknown(f"lbd's last round is only {duration_text(apart)} old", "run lbd doctor again in 3 minutes")


def _unchanged(brokers: Brokers, row: int, memory: TurnMemory) -> bool:
    sample = memory.samples.get(brokers.ids[row])
    return sample is not None and all(
        map(same, sample.usage, (float(brokers.usage[row, column]) for column in COLUMNS))
    )


# --- slow brokers, as the running lbd has measured them

SLOW = Check("slow-brokers", "a slow broker loses traffic, so it looks idle; clients that are moved to it wait")


def check_health_checks(survey: Survey, observation: Observation) -> Iterator[Finding]:
    """Brokers that lbd avoids because of slow health checks, or too many of them to avoid any."""
    if not survey.settings.guardrails.avoid_slow_brokers:
        return
    try:
        records = StateDir(survey.settings.state_dir).load().health
    except UsageError as error:
        yield SLOW.unknown(str(error), "run lbd doctor as a user who may read that file, or mend it")
        return
    health = judged_round(
        records, {}, observation.snapshot, scores(observation.snapshot.brokers, survey.settings.weights)
    )
    looking = [f"{broker}: {health.text(broker)}" for broker in sorted(health.slow)]
    message = first_clauses(looking)
    if not health.typical_seconds:
        yield SLOW.unknown("fewer than five health checks of each broker are known; one look cannot tell", LATER)
    elif not health.slow:
        most = max(health.typical_seconds.values())
        message = f"health checks of {counted(len(health.typical_seconds), 'broker')} take {most:.2g} s at most"
        yield SLOW.ok_of_all(message, health.typical_seconds, survey.active, "the health checks")
    elif health.avoided:
        todo = "look at the garbage collection, network and disk of that broker; lbd drain moves its bundles off"
        yield SLOW.warning(f"nothing is moved to {message}", todo)
    else:
        todo = "look at what brokers share: bookies, metadata store, network"
        yield SLOW.warning(f"more than a third of the brokers look slow, so none is avoided: {message}", todo)


# --- present CPU

LIVE = Check("live-cpu", "a load report shows CPU a minute late: without it a plan goes on minutes later")


def check_live_cpu(survey: Survey) -> Iterator[Finding]:
    """Check that each broker returns the CPU time of its process."""
    if not survey.settings.asks_live_cpu:
        return
    if not survey.live_cpu_seconds:
        todo = "grant the role superuser, or set load.live_cpu: false; until then load reports are used"
        yield LIVE.warning(str(survey.failed.get(LIVE_CPU, "no broker could be asked")), todo)
        return
    longest = max(survey.live_cpu_seconds.values())
    message = (
        f"{counted(len(survey.live_cpu_seconds), 'broker')} report the CPU of their process, within {longest:.1f} s"
    )
    yield LIVE.ok_of_all(message, survey.live_cpu_seconds, survey.active, "the CPU")


# --- leader and reports, as in a turn

LEADER = Check("leader", "only a leader remembers a destination, so without one lbd moves nothing")
REPORTS = Check("reports", "a broker without a usable report is neither relieved nor given anything")
SIZE = Check("cluster-size", "balancing wants two brokers at least")

DOUBTS = {
    Reason.FIRST_SAMPLE: "started lately, or CPU not sampled yet",
    Reason.IMPOSSIBLE_NUMBER: "a usage, limit or rate is NaN, negative or absurd",
    Reason.UNKNOWN_RESOURCES: "no resource with a weight has a known limit",
}


def check_cluster(survey: Survey, observation: Observation) -> Iterator[Finding]:
    """Check the leader, reports and number of brokers of one round."""
    yield _leader(observation)
    yield _reports(survey, observation)
    if len(observation.active) < 2:
        message = f"{counted(len(observation.active), 'active broker')}: {named(observation.active)}"
        yield SIZE.warning(message, "nothing, if that is all there is")


def _leader(observation: Observation) -> Finding:
    if observation.leader is None:
        message = "no broker leads, or the one that is named does not answer"
        then = f"restart {observation.silent[0]} if it leads" if observation.silent else "look at the metadata store"
        return LEADER.problem(message, f"wait a metadata session time-out (30 s); then {then}")
    return LEADER.ok(f"{observation.leader.broker or observation.leader.base} leads")


def _todo(observation: Observation) -> str:
    if observation.silent:
        first = observation.silent[0]
        return f"keep a thread dump of {first} (jstack) for who mends it, then restart it: such a broker stays listed"
    return "after a start, wait 3 minutes; else see that broker's log"


def _reports(survey: Survey, observation: Observation) -> Finding:
    """Check the number of usable reports: lbd acts on half of the brokers or more, and on two or more."""
    evidence = judge({}, observation.snapshot, survey.settings.weights, observation.sample_interval_seconds)
    coded = zip(observation.snapshot.brokers.ids, map(Reason.of, evidence.paired.tolist()), strict=True)
    doubtful = {broker: DOUBTS.get(reason, reason.label) for broker, reason in coded if reason.code}
    doubts = _grouped({**observation.missing, **doubtful})
    usable, minimum = int(np.count_nonzero(evidence.paired == 0)), max(2, (len(observation.active) + 1) // 2)
    message = f"{usable} of {len(observation.active)} usable"
    if not doubts:
        return REPORTS.ok(message)
    words = [f"{broker_names(brokers, observation.active)}: {why}" for why, brokers in doubts.items()]
    message = f"{message}; {first_clauses(words)}"
    todo = _todo(observation)
    if usable < minimum:
        return REPORTS.problem(f"{message}; lbd wants {minimum}", todo)
    return REPORTS.warning(message, todo)

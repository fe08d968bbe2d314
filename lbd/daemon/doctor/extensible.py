"""What is different under the extensible load manager: where load data come from, and what they tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.daemon.doctor.finding import Check, whose
from lbd.observe.reports import MOST_MINUTES
from lbd.permit.eligibility import broker_bundles
from lbd.permit.evidence import FROZEN_SAMPLES
from lbd.pulsar.paths import is_extensible
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey
    from lbd.model import Snapshot
    from lbd.observe.observer import Observation

LARGEST = "loadBalancerMaxNumberOfBundlesInBundleLoadReport"
WITH_POLICIES = "loadBalancerSheddingBundlesWithPoliciesEnabled"
THRESHOLD = "loadBalancerReportUpdateThresholdPercentage"
MOST_DIGITS = 20
SET = "pulsar-admin brokers update-dynamic-config --config"

SOURCE = Check(
    "load-data", "brokers of the extensible manager answer no load report; they tell their load on two topics"
)
OFTEN = Check("load-data-interval", "each hit wants a new sample, and a broker whose load hardly changes tells none")
TOLD = Check("told-bundles", "what a bundle carries that no broker tells of is not known, and it is never moved")


def runs(seen: Survey) -> bool:
    """Whether any of the brokers does."""
    return any(map(is_extensible, seen.runtime.values()))


def check(seen: Survey) -> Iterator[Finding]:
    """Where load data come from, and how often."""
    if not runs(seen):
        return
    if seen.settings.pulsar.service_url is None:
        yield SOURCE.problem("pulsar.service_url is not set", "set it to pulsar://host:6650 (pulsar+ssl:// with TLS)")
    elif seen.observation is None:
        yield SOURCE.problem(
            "nothing was heard", "see observation; lbd's role must be a superuser's to read the topics"
        )
    else:
        heard = counted(len(seen.observation.snapshot.brokers), "broker")
        yield SOURCE.ok(f"heard of {heard} at pulsar.service_url")
    yield _often(seen)


def _often(seen: Survey) -> Finding:
    minutes = {broker: runtime.get(MOST_MINUTES, "15") for broker, runtime in seen.runtime.items()}
    seldom = {broker: text for broker, text in minutes.items() if not text or text.lstrip("0") not in {"", "1"}}
    if not seldom:
        return OFTEN.ok("at least once a minute")
    longest = max(seldom.values(), key=lambda text: (len(text), text))[:MOST_DIGITS]
    within = next(iter(seen.runtime.values())).get(THRESHOLD, "10")
    told = f"up to {longest} min apart at {whose(seldom, seen.runtime)} while the load stays within {within} %"
    silent = f"a broker that is silent for {FROZEN_SAMPLES} samples takes no part"
    return OFTEN.warning(f"{told}: {silent}", f"{SET} {MOST_MINUTES} --value 1")


def of_a_round(seen: Survey, observation: Observation) -> Iterator[Finding]:
    """How many bundles are told of."""
    if observation.snapshot.partial:
        yield _told(seen, observation.snapshot)


def _told(seen: Survey, snapshot: Snapshot) -> Finding:
    rows = snapshot.rows
    own = broker_bundles(snapshot)[rows.bundle] != 0
    owned, told = int(np.count_nonzero(rows.listed & ~own)), int(np.count_nonzero(rows.reported & ~own))
    most = sorted({runtime.get(LARGEST, "10") for runtime in seen.runtime.values()})
    words = f"{told} of {counted(owned, 'bundle')}, of each broker the {' or '.join(most)} largest that carry traffic"
    limits = rows.count(rows.reported & ~own)
    full = [at for at, number in enumerate(limits.tolist()) if str(number) in most]
    if full:
        ids = [snapshot.brokers.ids[at] for at in full]
        return TOLD.warning(
            f"{words}; {whose(ids, snapshot.brokers.ids)} may carry more", f"{SET} {LARGEST} --value 100"
        )
    if not all(runtime.get(WITH_POLICIES) == "true" for runtime in seen.runtime.values()):
        words += f"; none with an isolation policy or anti-affinity group ({WITH_POLICIES} is false)"
    return TOLD.ok(words)

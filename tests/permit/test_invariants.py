"""Random clusters, histories and answers of a strategy: what is let through never breaks a limit, whatever is asked.

A further rule is one more function in ``RULES``: it is given the case and what was let through of its plan.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from lbd.load.estimate import points
from lbd.load.scoring import Weights, scores
from lbd.model import FloatArray, Snapshot, Unload, bundle_namespace
from lbd.permit.budget import Sent
from lbd.permit.limits import permit
from lbd.permit.policies import Groups, Policies, parse_isolation
from lbd.permit.rules import barred, current_holds
from lbd.permit.settings import Guardrails
from lbd.reason import Reason
from tests import builders
from tests.builders import TAKEN_AT, bundle, ledger_of, permission, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lbd.observe.parse import LoadReport

EACH = 6
NAMESPACES = ("t/n", "t/m", "u/n")
NAMES = [bundle(number, NAMESPACES[number % 3]) for number in range(5 * EACH)]
FREE = Groups(frozenset(NAMESPACES))


@dataclass(frozen=True, eq=False)
class Case:
    """A cluster, what happened to it, what it may be done to, and what a strategy answers."""

    seen: Snapshot
    sent: list[Sent]
    changed_at: dict[str, float]
    guardrails: Guardrails
    plan: list[Unload]
    policies_given: dict[str, Any] = field(default_factory=dict)

    @property
    def policies(self) -> Policies:
        """Those of the cluster; every broker is active."""
        return Policies(parse_isolation(self.policies_given), FREE, self.seen.brokers.ids)

    @property
    def scores(self) -> FloatArray:
        return scores(self.seen.brokers, Weights())

    @property
    def attempted_at(self) -> dict[str, float]:
        """As the journal has it."""
        return {one.bundle: one.at for one in sorted(self.sent, key=lambda one: one.at)}

    def since(self, minutes: float) -> list[Sent]:
        """What was sent within the last minutes."""
        return [one for one in self.sent if one.at > TAKEN_AT - minutes * 60]


def through(case: Case) -> list[Unload]:
    """What a turn lets through of the plan, as ``cycle`` puts the parts together."""
    facts = {"attempted_at": case.attempted_at, "changed_at": case.changed_at, "sent": case.sent}
    judged = builders.case(case.seen, case.guardrails, policies=case.policies, **facts)
    holds = [reason for reason, _ in current_holds(judged)]
    allowed = permission(case.seen, hold=Reason.QUIET_HOURS if Reason.QUIET_HOURS in holds else None)
    allowed.barred[:] = barred(judged)
    found = (case.seen, case.scores, case.policies, case.guardrails, case.plan)
    return list(permit(case.plan, ledger_of(*found, sent=case.sent, permission=allowed)).unloads)


def within(case: Case, limit: int | None, minutes: float, keys: Callable[[Unload | Sent], str], let: list[Unload]):
    """Of each key for which something is let through, no more than the limit within the window."""
    before, now = Counter(map(keys, case.since(minutes))), Counter(map(keys, let))
    assert not limit or all(before[key] + number <= limit for key, number in now.items())


def caps(case: Case, let: list[Unload]) -> None:
    """An hour, a day, each source and destination; the journal counts with what is planned."""
    rails = case.guardrails
    within(case, rails.max_unloads_per_hour, 60, lambda _: "", let)
    within(case, rails.max_unloads_per_day, 24 * 60, lambda _: "", let)
    within(case, rails.max_unloads_per_broker_per_hour, 60, lambda one: one.source, let)
    within(case, rails.max_unloads_per_broker_per_hour, 60, lambda one: one.destination or "", let)


def traffic(case: Case, let: list[Unload]) -> None:
    """A share of the cluster's within an hour; the first bundle of the hour may be larger."""
    rates, hour = case.seen.brokers.rates * case.guardrails.max_traffic_per_hour, [*case.since(60), *let]
    if let and len(hour) > 1:
        assert sum(one.msg_rate for one in hour) <= rates[:, :2].sum() + 1e-6
        assert sum(one.throughput for one in hour) <= rates[:, 2:].sum() + 1e-6


def namespaces(case: Case, let: list[Unload]) -> None:
    """Of included ones alone, never of an excluded one, and under a canary of its own, at its pace."""
    rails = case.guardrails
    for one in let:
        own = {_namespace(one), f"{_namespace(one).partition('/')[0]}/*"}
        assert not own & set(rails.excluded_namespaces)
        assert not rails.include_namespaces or own & set(rails.include_namespaces)
        assert rails.canary is None or own & set(rails.canary.namespaces)
    if rails.canary is not None:
        within(case, rails.canary.max_moves_per_hour, 60, lambda _: "", let)


def turn(case: Case, let: list[Unload]) -> None:
    """Unloads and traffic of a turn; the first bundle may exceed the traffic."""
    rails, rates = case.guardrails, case.seen.brokers.rates
    assert len(let) <= (rails.max_unloads_per_turn or 10)
    assert sum(one.msg_rate for one in let[1:]) <= rails.max_traffic_per_turn * rates[:, :2].sum() + 1e-6
    assert sum(one.throughput for one in let[1:]) <= rails.max_traffic_per_turn * rates[:, 2:].sum() + 1e-6


def rest(case: Case, let: list[Unload]) -> None:
    """No bundle within its cool-down, whoever moved it, and none twice in a turn."""
    since = TAKEN_AT - case.guardrails.cool_down_minutes * 60
    for one in let:
        assert case.attempted_at.get(one.bundle, float("-inf")) < since
        assert case.changed_at.get(one.bundle, float("-inf")) < since
    assert len({one.bundle for one in let}) == len(let)


def to_and_fro(case: Case, let: list[Unload]) -> None:
    """Not more often than allowed, and not back to where the last move within the window began."""
    moves = [one for one in case.since(case.guardrails.ping_pong_window_hours * 60) if one.attempt == 1]
    number = Counter(one.bundle for one in moves)
    last = {one.bundle: one.source for one in sorted(moves, key=lambda one: one.at)}
    for one in let:
        assert last.get(one.bundle) != one.destination
        assert not case.guardrails.max_moves_per_bundle or number[one.bundle] < case.guardrails.max_moves_per_bundle


def quiet(case: Case, let: list[Unload]) -> None:
    """Nothing in quiet hours; these cases have theirs in UTC."""
    minute = TAKEN_AT % 86_400 / 60
    for window in case.guardrails.quiet_hours:
        over = window.ends < window.begins
        if (over and not window.begins > minute >= window.ends) or (not over and window.begins <= minute < window.ends):
            assert let == []


def load(case: Case, let: list[Unload]) -> None:
    """No destination is predicted above the limit or its source, nor above its topics, with all moves before."""
    position, found = case.seen.brokers.index(), case.scores
    predicted, topics = found.copy(), case.seen.brokers.topics.copy()
    for one in let:
        source, destination = position[one.source], position[one.destination or ""]
        predicted[destination] += points(one, case.seen.brokers, found, position)
        topics[destination] += _topics(case.seen, one.bundle)
        assert predicted[destination] <= case.guardrails.max_destination_score
        assert predicted[destination] < found[source]
        assert topics[destination] <= case.guardrails.max_topics_per_broker


def _topics(seen: Snapshot, name: str) -> int:
    return int(seen.rows.counts[np.flatnonzero(seen.rows.bundle == seen.bundles.index(name))[0], 0])


def policies(case: Case, let: list[Unload]) -> None:
    """Every destination is one that all policies of the namespace allow, or that none reserves."""
    for one in let:
        host = (one.destination or "").rpartition(":")[0]
        own = [given for given in case.policies_given.values() if re.fullmatch(given["namespaces"][0], _namespace(one))]
        if own:
            assert all(_allows(given, host, case.seen.brokers.ids) for given in own)
        else:
            assert not any(re.fullmatch(given["primary"][0], host) for given in case.policies_given.values())


def _namespace(one: Unload) -> str:
    return bundle_namespace(one.bundle)


def _allows(given: dict[str, Any], host: str, active: Iterable[str]) -> bool:
    """Pulsar's rule, written down once more: a primary, or a secondary where primaries are too few."""
    hosts = [broker.rpartition(":")[0] for broker in active]
    primaries = sum(bool(re.fullmatch(given["primary"][0], one)) for one in hosts)
    limit = int(given["auto_failover_policy"]["parameters"]["min_limit"])
    if re.fullmatch(given["primary"][0], host):
        return True
    return primaries < limit and bool(re.fullmatch(given["secondary"][0], host))


RULES: list[Callable[[Case, list[Unload]], None]] = [
    caps,
    traffic,
    namespaces,
    turn,
    rest,
    to_and_fro,
    quiet,
    load,
    policies,
]

LIMITS = {
    "max_unloads_per_hour": 12,
    "max_unloads_per_day": 20,
    "max_unloads_per_broker_per_hour": 6,
    "max_unloads_per_turn": 8,
    "max_moves_per_bundle": 3,
    "max_topics_per_broker": 60,
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A hot broker and others, a few bundles each; some limits are tight, the others are switched off or as usual.

    History and plan name any bundle, mostly from its owner to another broker, and at times brokers that are not there;
    some of the plan would go straight back.
    """
    random = Random(draw(st.integers(0, 2**32)))
    loads = [random.randint(60, 110), *(random.randint(5, 90) for _ in range(random.randint(1, 4)))]
    owner = {name: f"b{at // EACH}:80" for at, name in enumerate(NAMES[: len(loads) * EACH])}
    reports = {f"b{at}:80": _report(random, load, at) for at, load in enumerate(loads)}
    moves, history = draw(st.integers(0, 20)), draw(st.integers(0, 12))
    changed = random.sample(list(owner), random.choice([0, 0, 3]))
    sent = sorted((_sent(random, *_ends(random, owner, len(loads))) for _ in range(history)), key=lambda one: one.at)
    back = [_planned(random, one.bundle, owner[one.bundle], one.source) for one in sent if random.random() < 0.5]
    return Case(
        seen=snapshot(reports),
        sent=sent,
        changed_at={name: TAKEN_AT - random.uniform(0, 7200) for name in changed},
        guardrails=Guardrails.model_validate(_rails(random)),
        policies_given={f"p{at}": _policy(random) for at in range(random.choice([0, 0, 1, 2]))},
        plan=back + [_planned(random, *_ends(random, owner, len(loads))) for _ in range(moves)],
    )


def _policy(random: Random) -> dict[str, Any]:
    """Some brokers for some namespaces, others where too few of those are there."""
    return {
        "namespaces": [random.choice(["t/n", "t/.*", ".*/n", "x/y"])],
        "primary": [random.choice(["b[01]", "b1", "b[2-4]", "b0|b3", "gone"])],
        "secondary": [random.choice(["b2", "b.", "gone"])],
        "auto_failover_policy": {"parameters": {"min_limit": str(random.randint(0, 3)), "usage_threshold": "100"}},
    }


def _report(random: Random, load: int, at: int) -> LoadReport:
    rate, topics = random.randint(1, 60), random.randint(1, 6)
    return report(load, {name: stats(rate, topics=topics) for name in NAMES[at * EACH : (at + 1) * EACH]})


def _ends(random: Random, owner: dict[str, str], brokers: int) -> tuple[str, str, str | None]:
    name = random.choice(list(owner)[:EACH] if random.random() < 0.5 else list(owner))
    ids = [f"b{at}:80" for at in range(brokers)]
    source = owner[name] if random.random() < 0.7 else random.choice([*ids, "gone:80"])
    return name, source, random.choice([*ids, *ids, None, "gone:80"])


def _sent(random: Random, name: str, source: str, destination: str | None) -> Sent:
    ago = random.choice([random.uniform(0, 130), random.uniform(0, 1500)])
    return Sent(TAKEN_AT - ago * 60, name, source, destination, random.choice([1, 1, 1, 2]))


def _planned(random: Random, name: str, source: str, destination: str | None) -> Unload:
    rate = random.uniform(0, 60)
    return Unload(name, source, destination, rate, rate * 100)


def _names(random: Random) -> dict[str, object]:
    """Namespaces that stay, or alone move; a canary of those that can."""
    some = ["t/n", "t/m", "u/n", "t/*", "u/*"]
    canary = {"namespaces": random.sample(some, 2), "max_moves_per_hour": random.randint(1, 5)}
    rails: list[dict[str, object]] = [
        {"excluded_namespaces": random.sample(some, 1)},
        {"include_namespaces": random.sample(some, 2)},
        {"canary": canary},
        {"canary": {**canary, "namespaces": ["t/*"]}, "excluded_namespaces": ["t/m"]},
    ]
    return random.choice([{}, {}, *rails])


def _rails(random: Random) -> dict[str, object]:
    tight = {name: random.randint(1, most) for name, most in LIMITS.items() if random.random() < 0.3}
    off = {name: 0 for name in LIMITS if "hour" in name or "day" in name}
    begin, end = random.sample(range(24), 2)
    quiet = [{"from": f"{begin:02d}:00", "to": f"{end:02d}:00"}] if random.random() < 0.2 else []
    return {
        **off,
        "max_traffic_per_turn": random.choice([0.1, 0.5, 1.0]),
        "ping_pong_window_hours": random.uniform(0, 24),
        "cool_down_minutes": random.uniform(1, 60),
        "max_destination_score": random.uniform(40, 90),
        "quiet_hours": quiet,
        **_names(random),
        **tight,
    }


QUICKLY = settings(max_examples=2000, phases=(Phase.generate,), deadline=None, database=None)
"""One example is enough; it need not be a small one."""


@pytest.mark.security("random clusters, policies and strategies: no limit is exceeded, no policy broken")
@settings(max_examples=200, deadline=None)
@given(cases())
def test_no_limit_is_ever_broken(case: Case):
    """Caps, cool-downs, to and fro, quiet hours, predicted load and topics, whatever a strategy answers."""
    let = through(case)
    for rule in RULES:
        rule(case, let)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_each_rule_would_notice(rule: Callable[[Case, list[Unload]], None]):
    """There are plans that break it, if all of them were let through: the rules are not true of everything."""
    assert find(cases(), lambda case: not _holds(rule, case, case.plan), settings=QUICKLY)


def _holds(rule: Callable[[Case, list[Unload]], None], case: Case, let: Iterable[Unload]) -> bool:
    known = set(case.seen.brokers.ids)
    real = [one for one in let if {one.source, one.destination} <= known]
    try:
        rule(case, real)
    except AssertionError:
        return False
    return True


def test_something_is_let_through():
    """Three unloads at least, beside a history: the limits do not hold only because nothing moves."""
    assert find(cases(), lambda case: len(case.sent) > 2 and len(through(case)) > 2, settings=QUICKLY)

"""Asking the strategy until its plan is within what policies and history allow."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.strategies import build
from lbd.load.scoring import Weights
from lbd.model import Hits, Memory, bundle_namespace
from lbd.permit.budget import Sent
from lbd.permit.evidence import judge
from lbd.permit.facts import Facts
from lbd.permit.policies import Groups, Isolation, Policies
from lbd.permit.rule import Case
from lbd.permit.settings import Guardrails
from lbd.turn.plan import decide
from lbd.turn.turn import read_policies
from tests.builders import TAKEN_AT, bundle, first_averages, permission, report, snapshot, stats

if TYPE_CHECKING:
    from lbd.model import Decision, Snapshot
    from lbd.turn.parts import Parts


LARGE = [bundle(number, "t/g") for number in range(60)]
OTHERS = [bundle(60 + number, "t/o") for number in range(80)]
HOUR = 3600.0


def hot() -> Snapshot:
    """Sixty large bundles of one namespace and eighty smaller ones of another on a; b has a third namespace."""
    return snapshot(
        {
            "a:80": report(80, {**dict.fromkeys(LARGE, stats(300)), **dict.fromkeys(OTHERS, stats(150))}),
            "b:80": report(60, {bundle(140 + number, "t/h"): stats(300) for number in range(90)}),
        }
    )


def decided(seen: Snapshot, isolation: Isolation | None = None, groups: Any = None, sent: tuple[Sent, ...] = ()):
    """The decision with hit counts of one, and how often the strategy was asked for it."""
    rule = build(AvgShedderSettings.model_validate({"hit_count_low": 1, "hit_count_high": 1}), Weights())
    asked: list[Decision] = []

    def strategy(*known: Any) -> Decision:
        asked.append(rule(*known))
        return asked[-1]

    reader = SimpleNamespace(groups=groups or (lambda names, _: Groups(frozenset(names))))
    parts = SimpleNamespace(policies=reader)
    policies = Policies(isolation or Isolation(), active=seen.brokers.ids)
    memory, evidence = Memory({"a:80": Hits(3, 1)}), judge({}, seen, Weights())
    facts = Facts(seen, first_averages(seen), evidence, policies, memory=memory, sent=sent)
    found, _ = decide(
        strategy, Case(facts, Guardrails()), permission(seen), partial(read_policies, cast("Parts", parts), seen)
    )
    return found, len(asked)


def grouped(names: tuple[str, ...], _: frozenset[str]) -> Groups:
    """The large bundles are of a group that has a namespace on b, too."""
    own = {name: "rack" for name in names if name in ("t/g", "t/h")}
    return Groups(frozenset(names) - own.keys(), own, {"rack": frozenset({"t/g", "t/h"})})


@pytest.mark.parametrize(
    ("groups", "sent"),
    [
        (grouped, ()),
        (None, tuple(Sent(TAKEN_AT - 7 * HOUR, name, "b:80", "a:80") for name in LARGE)),
    ],
    ids=["their group keeps them apart", "they came from there"],
)
def test_many_that_may_not_go_there_do_not_hide_the_others(groups: Any, sent: tuple[Sent, ...]):
    """However many are in the way, the strategy is asked twice, and others are moved in this very turn."""
    found, asked = decided(hot(), groups=groups, sent=sent)

    assert {bundle_namespace(move.bundle) for move in found.unloads} == {"t/o"}
    assert asked == 2


def test_unknown_policies_leave_counters_as_they_were():
    """The pools are not known: pairs across them would count for nothing that may move."""
    found, _ = decided(hot(), Isolation(is_known=False))

    assert dict(found.memory.hits) == {"a:80": Hits(3, 1)}

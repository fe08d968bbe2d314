"""Who may be moved at all."""

from __future__ import annotations

import pytest

from lbd.observe.parse import MODULAR_REPORT, TOP_BUNDLES_REPORT
from lbd.permit.policies import Isolation, Policies, parse_isolation
from lbd.permit.rules import barred, exempt_reason
from lbd.permit.settings import Canary, Guardrails
from lbd.reason import Reason
from tests.builders import TAKEN_AT, bundle, case, report, snapshot, stats


def reason_of(
    name: str, isolation: Isolation | None = None, moved_seconds_ago: float | None = None, **guardrails: object
) -> str:
    """Why a bundle may not move; empty when it may."""
    seen = snapshot({"a:80": report(50, {name: stats(10)})})
    attempted = {} if moved_seconds_ago is None else {name: TAKEN_AT - moved_seconds_ago}
    policies = Policies(isolation or Isolation(), active=("10.0.0.1:80", "10.0.0.2:80"))
    known = case(seen, Guardrails.model_validate(guardrails), attempted_at=attempted, policies=policies)
    code = int(barred(known)[0])
    return Reason.of(code).label if code else ""


A = bundle(1)
FULL = "0x00000000_0xffffffff"
POLICY = {"p": {"namespaces": ["t/iso.*"], "primary": ["10\\.0\\.0\\.1"], "secondary": []}}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"t/n/{FULL}", ""),
        (f"pulsar/system/{FULL}", "system-namespace"),
        (f"pulsar/functions/{FULL}", ""),
        (f"pulsar/127.0.0.1:8080/{FULL}", "broker-bundle"),
        (f"pulsar/c/127.0.0.1:8080/{FULL}", "broker-bundle"),
        (f"sla-monitor/c/broker-0.example:8080/{FULL}", "broker-bundle"),
        (f"sla-monitor/broker-0.example:8443/{FULL}", "broker-bundle"),
    ],
)
def test_bundles_of_the_brokers_themselves(name: str, reason: str):
    """Heartbeat and SLA bundles belong to a broker, the system namespace stays; others of the tenant move."""
    assert reason == reason_of(name)


def test_the_system_namespace_moves_when_it_is_told_to():
    """Where it does make load."""
    assert "" == reason_of(f"pulsar/system/{FULL}", move_system_namespace=True)


@pytest.mark.parametrize(
    ("costs", "reason"),
    [
        ({"t/n": "never"}, "excluded-namespace"),
        ({"t/*": "never"}, "excluded-namespace"),
        ({"t/*": "never", "t/n": 2}, ""),
        ({"t/n": 1000}, ""),
        ({"u/*": "never"}, ""),
    ],
)
def test_a_cost_of_never(costs: dict[str, object], reason: str):
    """The namespace's own cost goes before its tenant's; any number is a cost that may be paid."""
    assert reason == reason_of(bundle(1), move_costs=costs)


@pytest.mark.parametrize(("seconds", "reason"), [(10, "cool-down"), (1800, "cool-down"), (1801, "")])
def test_a_bundle_rests_after_an_attempt(seconds: float, reason: str):
    """Half an hour by default, the last second included."""
    assert reason == reason_of(bundle(1), moved_seconds_ago=seconds)


@pytest.mark.parametrize(
    ("excluded", "reason"), [("t/n", "excluded-namespace"), ("t/*", "excluded-namespace"), ("t/other", ""), ("u/*", "")]
)
def test_excluded_namespaces(excluded: str, reason: str):
    """One namespace, or all of a tenant."""
    assert reason == reason_of(bundle(1), excluded_namespaces=(excluded,))


@pytest.mark.parametrize(
    ("included", "more", "reason"),
    [
        (["t/n"], {}, ""),
        (["t/*"], {}, ""),
        (["u/*", "t/n"], {}, ""),
        (["t/other"], {}, "not-included"),
        (["u/*"], {}, "not-included"),
        ([], {}, ""),
        (["t/n"], {"excluded_namespaces": ["t/n"]}, "excluded-namespace"),
        (["t/*"], {"excluded_namespaces": ["t/n"]}, "excluded-namespace"),
        (["t/n"], {"excluded_namespaces": ["t/*"]}, "excluded-namespace"),
        (["t/n"], {"move_costs": {"t/n": "never"}}, "excluded-namespace"),
    ],
)
def test_included_namespaces(included: list[str], more: dict[str, object], reason: str):
    """An empty list includes all; of a namespace that is also excluded nothing moves. People's orders are held, too."""
    rails = {"include_namespaces": included, **more}
    assert reason == reason_of(bundle(1), **rails)
    exempt = exempt_reason(bundle(1), Guardrails.model_validate(rails), "")
    assert reason == (exempt.label if exempt is not None else "")


@pytest.mark.parametrize(
    ("canary", "reason"), [(["t/n"], ""), (["t/*"], ""), (["u/m", "t/n"], ""), (["t/m"], "canary"), (["u/*"], "canary")]
)
def test_a_canary(canary: list[str], reason: str):
    """Bars what nothing else bars, and holds no order of a person."""
    rails, seen = Guardrails(canary=Canary(namespaces=tuple(canary))), snapshot({"a:80": report(50, {A: stats(10)})})
    found, resting = barred(case(seen, rails)), barred(case(seen, rails, attempted_at={A: TAKEN_AT}))
    assert (reason, "cool-down") == tuple(Reason.of(code).label if code else "" for code in (*found, *resting))
    assert exempt_reason(A, rails, "") is None


@pytest.mark.parametrize(("namespace", "reason"), [("t/iso-a", ""), ("t/free", ""), ("x/t/iso", "name-with-cluster")])
def test_names_of_the_first_version_stay(namespace: str, reason: str):
    """Those of other namespaces say where a bundle may go, not that it stays."""
    assert reason == reason_of(bundle(1, namespace), parse_isolation(POLICY))


def test_unreadable_policies_bind_everything():
    """What is not known is not moved."""
    assert "policy-unknown" == reason_of(bundle(1), Isolation(is_known=False))
    for pattern in ("(", "a{99999999999}", "(" * 5000 + ")" * 5000):
        assert not parse_isolation({"p": {"namespaces": [pattern], "primary": []}}).is_known
    assert not parse_isolation({"p": {}}).is_known


@pytest.mark.parametrize("rate", [float("nan"), -1.0, float("inf")])
def test_a_number_that_no_bundle_can_have(rate: float):
    """Such a bundle stays."""
    seen = snapshot({"a:80": report(50, {bundle(1): stats(rate), bundle(2): stats(1)})})
    codes = barred(case(seen))

    assert [Reason.IMPOSSIBLE_NUMBER.code, 0] == codes.tolist()


def test_a_bundle_on_two_reports_stays():
    """A move is not over yet; its numbers count twice."""
    seen = snapshot(
        {"a:80": report(50, {bundle(1): stats(1)}), "b:80": report(50, {bundle(1): stats(1), bundle(2): stats(1)})}
    )

    assert [Reason.REPORTED_TWICE.code, 0] == barred(case(seen)).tolist()


@pytest.mark.parametrize(
    ("kind", "reason"), [(TOP_BUNDLES_REPORT, "no-statistics"), (MODULAR_REPORT, "")], ids=["extensible", "modular"]
)
def test_a_bundle_that_is_not_told_of(kind: str, reason: str):
    """Where brokers tell of their largest bundles only, nobody knows what the others carry."""
    told, untold = bundle(1), bundle(2)
    found = report(50, {told: stats(10)}, bundles=[told, untold], load_report_type=kind)
    seen = snapshot({"a:80": found})
    codes = dict(zip(seen.bundles, barred(case(seen)).tolist(), strict=True))
    assert codes[told] == 0
    assert codes[untold] == (Reason.NO_STATISTICS.code if reason else 0)

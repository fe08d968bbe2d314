"""Dynamic settings that are stored, and that brokers do not run with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.daemon.doctor.finding import Check, named, whose
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey

OURS = ("loadBalanc", "minUnload", "maxUnload", "loadManager")
"""Beginnings of the keys that are compared and shown. Others are not balancing, and some of them are secrets."""

READ_AT_START = ("loadBalancerLoadSheddingStrategy", "loadBalancerHostUsageCheckIntervalMinutes")
"""Stored at once, shown by configuration/runtime at once, and used from the next start on (ModularLoadManagerImpl)."""

ALIKE = Check("unequal-brokers", "brokers that balance by different settings are moved to and from for no reason")
OVERRIDES = Check("dynamic-values", "brokers answer 200 to a value that they cannot read, store it, and run without it")


def check(seen: Survey) -> Iterator[Finding]:
    """Each override of balancing against what each broker runs with, and brokers against each other."""
    yield from _unequal(seen)
    if seen.dynamic is None:
        yield OVERRIDES.unknown("configuration/values could not be read", "see rights")
        return
    stored = {key: value for key, value in seen.dynamic.items() if key.startswith(OURS)}
    late = sorted(set(READ_AT_START) & stored.keys())
    wrong = [found for key, value in sorted(stored.items()) if (found := _not_taken(seen, key, value))]
    todo = (
        "pulsar-admin brokers update-dynamic-config --config KEY --value VALUE, or delete-dynamic-config --config KEY"
    )
    for told in wrong:
        yield OVERRIDES.warning(told, todo)
    if late:
        told = f"{', '.join(late)} stored: brokers that ran before use it from their next start on"
        yield OVERRIDES.warning(told, "restart the brokers, or take the override away")
    if not wrong and not late:
        yield OVERRIDES.ok(f"{counted(len(stored), 'override')} of balancing, taken by all" if stored else "none")


def _not_taken(seen: Survey, key: str, value: str) -> str:
    others = {
        broker: runtime.get(key, "no such setting")
        for broker, runtime in seen.runtime.items()
        if not _same(value, runtime.get(key))
    }
    runs = ", ".join(sorted(set(others.values())))
    return f"{key}={value} is stored, {runs} runs at {whose(others, seen.runtime)}" if others else ""


def _same(stored: str, runs: str | None) -> bool:
    """Java prints a list in brackets, a number with its fraction, and reads a boolean in any case."""
    if runs is None:
        return False
    first, second = (text.strip().strip("[]").replace(" ", "").lower() for text in (stored, runs))
    return first == second or _number(first) == _number(second) is not None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _unequal(seen: Survey) -> Iterator[Finding]:
    values: dict[str, dict[str, list[str]]] = {}
    for broker, runtime in seen.runtime.items():
        for key, value in runtime.items():
            if key.startswith(OURS):
                values.setdefault(key, {}).setdefault(value, []).append(broker)
    for key, found in sorted(values.items()):
        if len(found) > 1 and key not in (seen.dynamic or {}):
            told = "; ".join(f"{value or 'nothing'} at {named(brokers)}" for value, brokers in sorted(found.items()))
            yield ALIKE.warning(f"{key}: {told}", "give all brokers the same broker.conf, unless their machines differ")

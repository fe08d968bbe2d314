"""Isolation policies, and destinations that a leader may still hold and that they forbid by now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.daemon.doctor.finding import Check
from lbd.model import bundle_namespace
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey
    from lbd.observe.observer import Observation
    from lbd.record.journal import Past

POLICIES = Check("isolation-policies", "a forced destination bypasses them, so lbd must know them to move anything")
NOTES = Check("leader-notes", "Pulsar follows a destination that its leader still holds once, without any check")


def check(seen: Survey) -> Iterator[Finding]:
    """Whether the policies are known."""
    if not seen.isolation.known:
        yield POLICIES.problem("cannot be read", "give lbd a superuser's token; see that every policy's regex is right")
    else:
        number = len(seen.isolation.policies)
        yield POLICIES.ok(f"{number} known" if number else "none")


def notes(seen: Survey, observation: Observation, past: Past | None) -> Iterator[Finding]:
    """Destinations that the present leader may still hold, and that have left or are forbidden by now."""
    harmful = False
    for note in past.notes.values() if past is not None else ():
        if observation.leader is None or note.leader not in {None, observation.leader.broker}:
            continue
        for broker in note.brokers:
            if wrong := _forbidden(note.bundle, broker, seen, observation):
                harmful = True
                yield NOTES.warning(
                    f"{note.bundle}: the leader may still send its next owner to {broker}, which {wrong}",
                    f"lbd unload {note.bundle} --to an allowed broker replaces it; a new leader forgets it",
                )
    if past is not None and not harmful:
        yield NOTES.ok(
            f"{counted(len(past.notes), 'destination')} may be left, none does harm" if past.notes else "none"
        )


def _forbidden(bundle: str, broker: str, seen: Survey, observation: Observation) -> str:
    namespace = bundle_namespace(bundle)
    if broker not in observation.active:
        return "has left the cluster"
    allowed = broker in seen.isolation.brokers(namespace, observation.active)
    return "" if allowed else f"isolation policies forbid to {namespace}, or could not be read"

"""What is wrong, or worth knowing, about a cluster and the lbd beside it: ``lbd doctor``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lbd.act import shedding_note
from lbd.daemon.parts import isolation, observing
from lbd.daemon.taking_over import NOTE
from lbd.daemon.telling import utc
from lbd.errors import UsageError
from lbd.model import bundle_namespace
from lbd.record.journal import KEEP_SECONDS, LIVE_NAME, Past, read
from lbd.record.status import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.observe.observer import Observation
    from lbd.permit.policies import Isolation
    from lbd.record.journal import Note


@dataclass(frozen=True)
class Finding:
    """What was seen, why it matters, and what to do about it. ``wrong``: lbd cannot do its work."""

    level: Literal["wrong", "warning", "note"]
    about: str
    seen: str
    why: str
    todo: str


def examine(settings: Settings) -> Iterator[Finding]:
    """Ask the cluster and look into the state directory; changes nothing.

    Raises :class:`~lbd.errors.ObserveError` when the cluster cannot be asked.
    """
    with observing(settings) as observer:
        observation, policies = observer.observe(), isolation(observer.admin)
    yield from _cluster(observation, policies)
    yield from _taken_over(settings)
    if settings.state_dir.is_dir():
        past = read(settings.state_dir / LIVE_NAME, time.time(), KEEP_SECONDS)
        yield from _journal(settings, past)
        yield from _notes(past, observation, policies)


def _cluster(seen: Observation, policies: Isolation) -> Iterator[Finding]:
    if seen.shedding_on:
        yield Finding(
            "wrong",
            "in-broker shedding",
            f"on at {', '.join(seen.shedding_on)}",
            "two balancers would undo each other's moves, so lbd moves nothing",
            "set loadBalancerSheddingEnabled=false (dynamic), or in_broker_shedding: take-over",
        )
    if seen.leader is None:
        yield Finding(
            "wrong",
            "leader",
            "no broker leads, or the one that is named does not answer",
            "only a leader remembers a destination, so lbd moves nothing",
            "wait a metadata session time-out (30 s); then look at the metadata store",
        )
    for broker, why in seen.missing.items():
        told = "it is neither relieved nor given anything"
        yield Finding("warning", f"report of {broker}", why, told, "see that the broker answers its admin port")
    if not policies.known:
        told = "a forced destination bypasses them, so lbd moves nothing"
        yield Finding("wrong", "isolation policies", "cannot be read", told, "give lbd a superuser's token")


def _taken_over(settings: Settings) -> Iterator[Finding]:
    try:
        note = shedding_note.load(settings.state_dir / NOTE)
    except UsageError as error:
        yield Finding("wrong", "take-over", str(error), "lbd does not guess what was there before", "see there")
        return
    if note is None:
        return
    seen = f"shedding off since {utc(note.at)} by lbd, last seen off {utc(note.seen_at) if note.seen_at else 'never'}"
    if note.phase == "taken":
        yield Finding("note", "take-over", seen, "no broker balances by itself", "lbd release gives it back")
    else:
        told = f"{seen}; a {note.phase.replace('taking', 'take-over').replace('releasing', 'release')} was not finished"
        yield Finding("warning", "take-over", told, "some brokers may shed", "run lbd, or lbd release")


def _journal(settings: Settings, past: Past) -> Iterator[Finding]:
    path = settings.state_dir / LIVE_NAME
    if past.torn_lines:
        told = "cool-downs in them are lost"
        yield Finding("warning", "journal", f"{path}: {past.torn_lines} lines cannot be read", told, "check the disk")
    if past.open and running(settings.state_dir) is None:
        bundles = ", ".join(unload.bundle for _, unload in past.open)
        told = "lbd ended in the middle of these moves"
        yield Finding("warning", "journal", f"no outcome yet: {bundles}", told, "the next lbd run asks who owns them")


def _notes(past: Past, seen: Observation, policies: Isolation) -> Iterator[Finding]:
    """Destinations that the present leader may still hold, and that have left or are forbidden by now."""
    for note in past.notes.values():
        wrong = _forbidden(note, seen, policies)
        if wrong and seen.leader is not None and note.leader in {None, seen.leader.broker}:
            yield Finding(
                "warning",
                f"note on {note.bundle}",
                f"the leader may still send its next owner to {note.broker}, which {wrong}",
                "Pulsar follows such a note once, without any check",
                f"lbd unload {note.bundle} --to an allowed broker replaces it; a new leader forgets it",
            )


def _forbidden(note: Note, seen: Observation, policies: Isolation) -> str:
    namespace = bundle_namespace(note.bundle)
    if note.broker not in seen.active:
        return "has left the cluster"
    if policies.covers(namespace):
        return f"an isolation policy may forbid to {namespace}"
    return "is primary of an isolation policy for others" if policies.reserves(note.broker) else ""

"""What ``--api URL`` answers instead of this machine's state directory: the same values, so that they print alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from lbd.api.client import Client
from lbd.api.shapes import Placement
from lbd.daemon.answering import Report
from lbd.daemon.targets import target
from lbd.errors import ObserveError, UsageError
from lbd.model import Skip
from lbd.place.answers import Answer
from lbd.place.candidates import Candidates
from lbd.place.placed import Placed, PlaceMemory
from lbd.reason import Reason
from lbd.record.control import Pause
from lbd.record.drains import DrainTold
from lbd.record.explain.answers import BrokerAnswer, BundleAnswer, TurnAnswer
from lbd.record.status import Status, standby_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.config import Settings
    from lbd.record.drains import Drain, Work

Explained: TypeAlias = TurnAnswer | BrokerAnswer | BundleAnswer

_REASONS = {reason.label: reason for reason in Reason}


def client(url: str, settings: Settings) -> Client:
    """What asks that lbd."""
    return Client(url, settings.api.token_file)


def status(asked: Client) -> tuple[Status, Pause | None, float, list[tuple[Drain, Work | None]]]:
    """The status, the pause in force, the time of that lbd's clock, and the drains in force."""
    told = asked.get("status")
    found = read(told, Status)
    drains = [(one.drain, one.work) for one in read(told.get("drains"), list[DrainTold])]
    return found, read(told.get("paused"), Pause | None), found.at + read(told.get("age_seconds"), float), drains


def stands_by(asked: Client) -> str | None:
    """Who leads, where that lbd does not; None also where it has ended no turn yet and cannot tell."""
    try:
        return standby_words(status(asked)[0])
    except ObserveError:
        return None


def pause(asked: Client, wanted: Pause) -> tuple[Pause, Pause | None, int]:
    """Pause that lbd; the pause as it has it, the one that was replaced, and its process id."""
    lasts = wanted.until - wanted.since if wanted.until is not None else None
    told = asked.post("pause", body={"owner": wanted.by, "reason": wanted.reason, "for_seconds": lasts})
    return read(told.get("paused"), Pause), read(told.get("replaced"), Pause | None), read(told.get("running"), int)


def resume(asked: Client, owner: str) -> tuple[Pause | None, int]:
    """End its pause; the one that was in force, and its process id."""
    told = asked.post("resume", body={"owner": owner})
    return read(told.get("ended"), Pause | None), read(told.get("running"), int)


def explained(asked: Client, what: str | None, last: int, since_seconds: float) -> Explained:
    """The answer about a broker, bundle, topic or turn."""
    path = ("explain", what) if what is not None else ("explain",)
    told = asked.get(*path, rows="true", last=last, since_seconds=since_seconds)
    kind = BundleAnswer if "bundle" in told else BrokerAnswer if "broker" in told else TurnAnswer
    found: Explained = read(told, kind)
    return found


def placed(asked: Client, words: Sequence[str], strategy: str) -> Report:
    """Answers for bundles and topics, from what that lbd saw in its last turn."""
    found = [(word, _placement(asked, word, strategy)) for word in words]
    topics = {one.bundle: _topics(one.bundle, found) for _, one in found}
    answers = {one.bundle: _answer(one) for _, one in found}
    oldest = max((one for _, one in found), key=lambda one: one.age_seconds)
    cluster, every = status(asked)[0].cluster, tuple(answers[bundle] for bundle in sorted(answers))
    sampled = oldest.sample_interval_seconds
    return Report(cluster, strategy, oldest.taken_at, oldest.age_seconds, sampled, every, topics)


def _topics(bundle: str, found: Sequence[tuple[str, Placement]]) -> tuple[str, ...]:
    return tuple(word for word, one in found if one.bundle == bundle and "://" in word)


def _placement(asked: Client, word: str, strategy: str) -> Placement:
    kind = target(word).kind
    if kind == "namespace":
        raise UsageError(f"{word!r} is a namespace; --api answers for bundles and topics")
    if kind == "topic":
        told = asked.get("placement", topic=word, strategy=strategy)
    else:
        told = asked.get("placement", *word.split("/"), strategy=strategy)
    found: Placement = read(told, Placement)
    return found


def _answer(one: Placement) -> Answer:
    known = ((skip, _REASONS.get(skip.reason, Reason.NOT_CHECKED)) for skip in one.left_out)
    left_out = tuple(Skip(skip.what, reason, skip.detail) for skip, reason in known)
    chosen = Placed(one.answer, one.reason, PlaceMemory(), one.choices)
    return Answer(one.bundle, one.owner, chosen, Candidates(one.candidates, left_out))


def read(told: object, kind: Any) -> Any:  # noqa: ANN401 - the kind that was asked for
    """An answer as what it is. Raises :class:`ObserveError` for one that is something else."""
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError as error:
        raise ObserveError(f"the answer of that lbd cannot be read: {error}; is it another version?") from error

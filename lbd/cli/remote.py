"""The same values from an lbd's API as from the local state directory: for ``--api URL``, and for drains and fills."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from lbd.api.shapes import DrainPlan, DrainsResponse, PlacementResponse, Released, SnapshotResponse, Started
from lbd.cli.request import read, remote_topic_bundles, send_command
from lbd.errors import ObserveError, RefusedError, UsageError
from lbd.model import Skip
from lbd.operations.place import Report, target
from lbd.place.picker import PlacementAdvice, PlacementCandidates
from lbd.place.placements import PlaceMemory, PlacementChoice
from lbd.reason import Reason
from lbd.store.control import DrainRequest, FillRequest, Pause, RequestResult
from lbd.store.drains import DrainStatus
from lbd.store.explain import BrokerAnswer, BundleAnswer, NamespaceAnswer, TurnAnswer
from lbd.store.status import Status, standby_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lbd.api.client import Client
    from lbd.store.drains import Drain, Work


MOST_BUNDLES = 10_000

Explained: TypeAlias = TurnAnswer | BrokerAnswer | BundleAnswer | NamespaceAnswer

_REASONS = {reason.label: reason for reason in Reason}


def status(api: Client) -> tuple[Status, Pause | None, float, list[tuple[Drain, Work | None]]]:
    """The status, the pause in force, the time of the remote clock, and the drains in force."""
    response = api.get("status")
    last = read(response, Status)
    drains = [(drain.drain, drain.work) for drain in read(response.get("drains"), list[DrainStatus])]
    return last, read(response.get("paused"), Pause | None), last.at + read(response.get("age_seconds"), float), drains


def remote_leader(api: Client) -> str | None:
    """The leader if it is another lbd; None also if the remote lbd has completed no turn yet."""
    try:
        return standby_text(status(api)[0])
    except ObserveError:
        return None


def ended_by_resume(api: Client) -> list[str]:
    """The holds that a resume ends, as of the last turn of the remote lbd; none where it has completed no turn."""
    try:
        return status(api)[0].ended_by_resume
    except ObserveError:
        return []


def pause(api: Client, order: Pause) -> tuple[Pause, Pause | None, int]:
    """Pause the remote lbd; return its pause, the one that was replaced, and its process id."""
    lasts = order.until - order.since if order.until is not None else None
    response = api.post("pause", body={"owner": order.by, "reason": order.reason, "for_seconds": lasts})
    replaced = read(response.get("replaced"), Pause | None)
    return read(response.get("paused"), Pause), replaced, read(response.get("running"), int)


def resume(api: Client, owner: str, reason: str) -> tuple[Pause | None, int]:
    """End the remote pause; return the one that was in force, and the process id."""
    response = api.post("resume", body={"owner": owner, "reason": reason})
    return read(response.get("ended"), Pause | None), read(response.get("running"), int)


def explained(api: Client, what: str | None, last: int, since_seconds: float) -> Explained:
    """The answer about a broker, bundle, topic or turn."""
    path = ("explain", what) if what is not None else ("explain",)
    response = api.get(*path, rows="true", last=last, since_seconds=since_seconds)
    kinds = {"bundle": BundleAnswer, "broker": BrokerAnswer, "namespace": NamespaceAnswer}
    kind = next((kind for name, kind in kinds.items() if name in response), TurnAnswer)
    answer: Explained = read(response, kind)
    return answer


def placed(api: Client, words: Sequence[str], strategy: str) -> Report:
    """Placements for bundles and topics, from the last turn of the remote lbd."""
    each = [name for word in words for name in _looked_up(api, word)]
    placements = [(name, _placement(api, name, strategy)) for name in each]
    topics = {response.bundle: _topics(response.bundle, placements) for _, response in placements}
    answers = {response.bundle: _answer(response) for _, response in placements}
    oldest = max((response for _, response in placements), key=lambda response: response.age_seconds)
    cluster, every = status(api)[0].cluster, tuple(answers[bundle] for bundle in sorted(answers))
    sampled = oldest.sample_interval_seconds
    return Report(cluster, strategy, oldest.taken_at, oldest.age_seconds, sampled, every, topics)


def _looked_up(api: Client, word: str) -> list[str]:
    """A topic as the cluster has it: its partitions or segments, where it has any."""
    return [part.topic for part in remote_topic_bundles(api, word)] if "://" in word else [word]


def _topics(bundle: str, placements: Sequence[tuple[str, PlacementResponse]]) -> tuple[str, ...]:
    return tuple(word for word, response in placements if response.bundle == bundle and "://" in word)


def _placement(api: Client, word: str, strategy: str) -> PlacementResponse:
    kind = target(word).kind
    if kind == "namespace":
        raise UsageError(f"{word!r} is a namespace; --api answers for bundles and topics")
    if kind == "topic":
        response = api.get("placement", topic=word, strategy=strategy)
    else:
        response = api.get("placement", *word.split("/"), strategy=strategy)
    return read(response, PlacementResponse)


def _answer(response: PlacementResponse) -> PlacementAdvice:
    skips = ((skip, _REASONS.get(skip.reason, Reason.NOT_CHECKED)) for skip in response.left_out)
    left_out = tuple(Skip(skip.what, reason, skip.detail) for skip, reason in skips)
    chosen = PlacementChoice(response.answer, response.reason, PlaceMemory(), response.choices)
    return PlacementAdvice(response.bundle, response.owner, chosen, PlacementCandidates(response.candidates, left_out))


def bundles(api: Client, **query: str) -> dict[str, str]:
    """The broker of each of the bundles with most traffic, by name, as of the last round; ``query`` narrows them."""
    rows = read(api.get("snapshot", last=MOST_BUNDLES, **query), SnapshotResponse).bundles
    return {row.bundle: row.broker for row in sorted(rows, key=lambda row: row.bundle)}


# --- drain and fill

POLL_SECONDS = 1.0


def remote_drain_plan(api: Client, kind: str, broker: str) -> DrainPlan:
    """The plan of a drain or a fill (``kind``) of a broker."""
    return read(api.get(kind, broker), DrainPlan)


def drained(api: Client) -> dict[str, Drain]:
    """The remote drains in force, by broker."""
    return {drain.drain.broker: drain.drain for drain in _remote_drains(api).drains}


def release(api: Client, broker: str, owner: str, reason: str) -> Released:
    """End the drain or the fill of a broker and return it."""
    body = {"broker": broker, "owner": owner, "reason": reason}
    return read(api.post("release", body=body), Released)


def begin(api: Client, request: DrainRequest | FillRequest) -> Started | RequestResult:
    """Start the drain or fill; the result if it was not started."""
    response = send_command(api, request)
    if response.get("exit_code"):
        return read(response, RequestResult)
    return read(response, Started)


def watched(
    api: Client, request: DrainRequest | FillRequest, started: Started, progress: Callable[[Work], None]
) -> Work:
    """The final progress.

    Raises :class:`ObserveError` if that lbd no longer responds, and :class:`RefusedError` where the drain has ended.
    """
    while True:
        work = _work(_remote_drains(api), request, started)
        if work is not None:
            progress(work)
            if work.ended_at is not None:
                return work
        time.sleep(POLL_SECONDS)


def _remote_drains(api: Client) -> DrainsResponse:
    return read(api.get("drains"), DrainsResponse)


def _work(drains: DrainsResponse, request: DrainRequest | FillRequest, started: Started) -> Work | None:
    """The progress of this order; None while there is only that of an earlier one."""
    if isinstance(request, FillRequest):
        return drains.fill if drains.fill is not None and drains.fill.request == started.id else None
    status = next((status for status in drains.drains if status.drain.broker == request.broker), None)
    if status is None:
        raise RefusedError(f"the drain of {request.broker} is over: it was released, or its broker was started again")
    return status.work if status.work is not None and status.work.ordered_at == status.drain.ordered_at else None

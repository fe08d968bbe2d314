"""What a drain or a fill would do, only shown: neither the cluster nor the state directory is changed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.api.shapes import DrainPlan, Held, Predicted, WouldMove
from lbd.daemon.draining.beginning import cannot_spare, first_pass
from lbd.daemon.draining.job import Pacing, estimate
from lbd.daemon.draining.planning import Look, look_to_drain, look_to_fill
from lbd.daemon.dry import live_parts, taking_over
from lbd.daemon.parts import observing
from lbd.errors import RefusedError
from lbd.record.drains import Drains, Left

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.observe.observer import Observer
    from lbd.record.drains import Drain


@dataclass(frozen=True, eq=False)
class Shown:
    """A look, how long its moves would take, and why the cluster could not do without the broker (empty: it could).

    ``drain`` is the one in force, ``at_once`` how many moves would be in flight.
    """

    look: Look
    eta_seconds: float
    at_once: int
    cannot_spare: str = ""
    drain: Drain | None = None


@contextmanager
def _looking(settings: Settings, daemons: Observer | None) -> Iterator[Observer]:
    """An observer of its own, or the daemon's where that listens: another one would wait a minute to hear as much."""
    if daemons is not None and daemons.listens:
        yield daemons
    else:
        with observing(settings, silences=None if daemons is None else daemons.admin.http.silences) as observer:
            yield observer


def show_drain(settings: Settings, broker: str, daemons: Observer | None = None) -> Shown:
    """Whether a broker can be spared, and where its bundles would go. Raises :class:`~lbd.errors.LbdError`."""
    drain = Drains(settings.state_dir).in_force(time.time()).get(broker) if settings.state_dir.is_dir() else None
    with _looking(settings, daemons) as observer:
        why = taking_over(settings, observer.admin).get(broker)
        if why is not None:
            raise RefusedError(f"{broker}: what it owns is not known: {why}; ask again once it has landed")
        asked = first_pass(broker, drain, time.time(), settings, None)
        look = look_to_drain(live_parts(settings, observer), observer.admin, asked)
    return _shown(settings, look, settings.drain.max_unloads_at_once, cannot_spare(broker, look), drain)


def show_fill(settings: Settings, broker: str, daemons: Observer | None = None) -> Shown:
    """What a broker would be given. Raises :class:`~lbd.errors.LbdError`."""
    with _looking(settings, daemons) as observer:
        look = look_to_fill(live_parts(settings, observer), observer.admin, broker)
    sources = len({unload.source for unload in look.plan.unloads})
    return _shown(settings, look, min(settings.drain.max_unloads_at_once, max(sources, 1)))


def _shown(settings: Settings, look: Look, at_once: int, refusal: str = "", drain: Drain | None = None) -> Shown:
    pacing = Pacing(at_once, settings.drain.unload_spacing_seconds, look.by_name)
    return Shown(look, estimate([one.bundle for one in look.plan.unloads], pacing), at_once, refusal, drain)


def plan_of(found: Shown) -> DrainPlan:
    """The same as it is told, here and over the API."""
    look = found.look
    return DrainPlan(
        taken_at=look.observation.snapshot.taken_at,
        brokers=[Predicted(one, round(score, 3), round(look.after[one], 3)) for one, score in look.before.items()],
        unloads=[
            WouldMove(one.bundle, one.source, one.destination, round(one.msg_rate, 3), round(one.throughput, 3))
            for one in look.plan.unloads
        ],
        stay=[Left(one.what, one.reason.label, one.detail) for one in look.plan.stay],
        left_to_pulsar=[one.what for one in look.alone],
        hold=None if look.hold is None else Held(look.hold[0].label, look.hold[1]),
        cannot_spare=found.cannot_spare or None,
        eta_seconds=round(found.eta_seconds, 1),
        at_once=found.at_once,
        drain=found.drain,
    )

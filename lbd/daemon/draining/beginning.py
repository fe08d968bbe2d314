"""Whether a drain, or a fill, that a person asks for may begin, and what is written down of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.daemon.draining.job import Pacing, estimate
from lbd.daemon.draining.planning import Look, Pass, look_to_drain, look_to_fill
from lbd.errors import RefusedError
from lbd.record.control import Answer
from lbd.record.drains import Drain
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.act.unloader import Unloader
    from lbd.config import Settings
    from lbd.cycle import Parts
    from lbd.pulsar.admin import Admin
    from lbd.record.control import DrainRequest, FillRequest


@dataclass(frozen=True)
class Tools:
    """What a drain works with, as it is now: settings may be read again while it lasts."""

    settings: Settings
    parts: Parts
    admin: Admin
    unloader: Unloader

    def paced(self, look: Look) -> Pacing:
        """How fast it may go on this cluster."""
        limits = self.settings.drain
        return Pacing(limits.max_unloads_at_once, limits.unload_spacing_seconds, look.by_name)


def first_pass(broker: str, before: Drain | None, now: float, settings: Settings, override: str | None) -> Pass:
    """What the first look at a broker goes by; a drain that is in force goes on, with what it carried then."""
    known = before is not None and before.since > 0
    return Pass(
        broker,
        now,
        before.since if before is not None and known else now,
        settings.drain.again_minutes * 60,
        override=override is not None,
        carried=before.carried if before is not None and known else None,
    )


def drain_of(request: DrainRequest, before: Drain | None, now: float, tools: Tools) -> tuple[Drain, Answer]:
    """The order to be written, and the answer. Raises :class:`LbdError` for what is refused."""
    asked = first_pass(request.broker, before, now, tools.settings, request.override)
    look = look_to_drain(tools.parts, tools.admin, asked)
    if look.hold is not None:
        raise RefusedError(look.hold[0].told(look.hold[1]))
    refusal = cannot_spare(request.broker, look)
    if refusal and request.override is None and before is None:
        raise RefusedError(f"{refusal}; --override REASON moves the rest")
    seconds = tools.settings.drain.expires_hours * 3600 if request.seconds is None else request.seconds
    drain = Drain(
        request.broker,
        asked.since,
        now + seconds,
        request.by,
        request.reason or (before.reason if before is not None else ""),
        request.override,
        look.started_at,
        look.carried,
    )
    bundles = [unload.bundle for unload in look.plan.unloads]
    eta = estimate(bundles, tools.paced(look))
    verb = "has begun" if asked.since == now else "goes on"
    return drain, Answer(
        0, f"The drain of {request.broker} {verb}: {counted(len(bundles), 'bundle')}, about {eta:.0f} s."
    )


def cannot_spare(broker: str, look: Look) -> str:
    """Why the others cannot do without a broker; empty where they can."""
    beyond = look.plan.beyond_capacity
    if not look.before:
        return f"the cluster cannot do without {broker}: there is no other broker that is not drained"
    if not beyond:
        return ""
    number = counted(len(beyond), "bundle")
    told = f"no other broker can bear {number}; the first: {beyond[0].what}: {beyond[0].detail}"
    return f"the cluster cannot do without {broker}: {told}"


def fill_of(request: FillRequest, tools: Tools) -> tuple[Look, Answer]:
    """What is to move, and the answer. Raises :class:`LbdError` for what is refused."""
    look = look_to_fill(tools.parts, tools.admin, request.broker, override=request.override is not None)
    if look.hold is not None:
        raise RefusedError(look.hold[0].told(look.hold[1]))
    number = counted(len(look.plan.unloads), "bundle")
    return look, Answer(0, f"The filling of {request.broker} has begun: {number}.")

"""What people ask of lbd by hand, and what they are answered, as it stands in the control files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from lbd.files import decoded
from lbd.model import Result
from lbd.split.algorithms import Algorithm

if TYPE_CHECKING:
    from pathlib import Path

REFUSED, FAILED = 4, 5
"""Exit codes of answers, as the command line defines them."""


class UnloadRequest(msgspec.Struct, frozen=True):
    """One unload asked for by a person. ``override`` is why limits may be passed, None when they may not.

    Without a ``destination`` lbd's picker names one.
    """

    id: str
    bundle: str
    destination: str | None
    override: str | None
    by: str
    at: float
    expires_at: float


class SplitRequest(msgspec.Struct, frozen=True):
    """One split asked for by a person, at the positions that were shown; ``override`` as in an unload's."""

    id: str
    bundle: str
    owner: str
    algorithm: Algorithm
    positions: tuple[int, ...]
    override: str | None
    by: str
    at: float
    expires_at: float
    kind: Literal["split"] = "split"


class PlaceRequest(msgspec.Struct, frozen=True):
    """Bundles, topics and namespaces (``targets``) whose unowned bundles are to be placed as ``strategy`` answers."""

    id: str
    targets: list[str]
    strategy: str
    by: str
    at: float
    expires_at: float
    kind: Literal["place"] = "place"


class DrainRequest(msgspec.Struct, frozen=True):
    """A ``broker`` that is to own nothing, for ``seconds`` (None: as long as the settings say).

    It is answered when the drain has begun; how far it has come is told beside it (``record/drains.py``).
    """

    id: str
    broker: str
    seconds: float | None
    reason: str
    override: str | None
    by: str
    at: float
    expires_at: float
    kind: Literal["drain"] = "drain"


class FillRequest(msgspec.Struct, frozen=True):
    """A ``broker`` that is to get a slice of each hot one's bundles; answered when that has begun, as a drain is."""

    id: str
    broker: str
    override: str | None
    by: str
    at: float
    expires_at: float
    kind: Literal["fill"] = "fill"


Request: TypeAlias = UnloadRequest | SplitRequest | PlaceRequest | DrainRequest | FillRequest


class _Kind(msgspec.Struct):
    kind: str = "unload"


_KINDS: dict[str, type[Request]] = {
    "split": SplitRequest,
    "place": PlaceRequest,
    "drain": DrainRequest,
    "fill": FillRequest,
}


def decoded_request(path: Path) -> Request | None:
    """A request of whatever kind; one that names no kind is an unload. Raises :class:`UsageError` for junk."""
    kind = decoded(path, _Kind)
    return None if kind is None else decoded(path, _KINDS.get(kind.kind, UnloadRequest))


class PlacedBundle(msgspec.Struct, frozen=True):
    """What became of one bundle of a :class:`PlaceRequest`.

    ``result`` is None where nothing was asked for, as ``detail`` says; ``reason`` is why it was to go there. ``owner``
    is who owns it now, ``answer`` where it was to go (None: no broker may have it).
    """

    bundle: str
    answer: str | None
    result: Result | None
    owner: str | None
    detail: str = ""
    reason: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What became of a request, and one sentence for the person.

    ``exit_code``: 0 landed, 4 refused, 5 failed or landed elsewhere, below 4 why it could not even be judged.

    ``result`` is None when nothing was sent or nothing is known, and of a split; ``owner`` is who owns the bundle now,
    or all parts of it. ``parts`` are what a bundle was split into, unset elsewhere;
    ``placed`` is what became of each bundle of a :class:`PlaceRequest`.
    """

    exit_code: int
    sentence: str
    result: Result | None = None
    owner: str | None = None
    id: str = ""
    parts: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    placed: list[PlacedBundle] | msgspec.UnsetType = msgspec.UNSET

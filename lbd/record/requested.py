"""What people ask of lbd by hand, and what they are answered, as it stands in the control files."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lbd.model import Result

REFUSED, FAILED = 4, 5
"""Exit codes of answers, as the command line defines them."""


class UnloadRequest(msgspec.Struct, frozen=True, tag="unload", tag_field="kind"):
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


class PlaceRequest(msgspec.Struct, frozen=True, tag="place", tag_field="kind"):
    """Bundles, topics and namespaces (``targets``) whose unowned bundles are to be placed as ``strategy`` answers."""

    id: str
    targets: list[str]
    strategy: str
    by: str
    at: float
    expires_at: float


Request: TypeAlias = UnloadRequest | PlaceRequest


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

    ``result`` is None when nothing was sent or nothing is known; ``owner`` is who owns the bundle now. ``placed`` is
    what became of each bundle of a :class:`PlaceRequest`.
    """

    exit_code: int
    sentence: str
    result: Result | None = None
    owner: str | None = None
    id: str = ""
    placed: list[PlacedBundle] = []

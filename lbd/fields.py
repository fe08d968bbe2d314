"""One record made from others by the names of their fields: code that only passes a field on does not name it."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def derived(kind: type[Kind], *sources: Any, **others: object) -> Kind:  # noqa: ANN401 - dataclasses and structs
    """Build a ``kind`` from the fields that ``sources`` share with it (dataclasses or structs); the first source wins.

    ``others`` are fields with another value. Fields missing from all sources keep their default; else TypeError.
    """
    return kind(**{**shared(kind, *sources), **others})


def shared(kind: type, *sources: Any) -> dict[str, Any]:  # noqa: ANN401 - dataclasses and structs
    """Fields that ``sources`` share with ``kind``, by name."""
    return {name: getattr(source, name) for source in reversed(sources) for name in _common(kind, source.__class__)}


@cache
def _common(kind: type, source: type) -> tuple[str, ...]:
    return tuple(name for name in _names(kind) if name in _names(source))


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Fields of a dataclass or struct."""
    names: tuple[str, ...] | None = getattr(kind, "__struct_fields__", None)
    return names if names is not None else tuple(field.name for field in fields(kind))

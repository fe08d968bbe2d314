"""Kept turns and moves as a program reads them."""

from __future__ import annotations

from typing import Any

import msgspec


def named(value: object) -> Any:  # noqa: ANN401 - JSON
    """The same with every field under its name: on disk many stand in arrays, to save room."""
    if isinstance(value, msgspec.Struct):
        return {name: named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: named(each) for name, each in value.items()}
    return [named(each) for each in value] if isinstance(value, (list, tuple)) else value

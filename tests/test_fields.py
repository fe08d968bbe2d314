"""Records made from others by the names of their fields."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from lbd.fields import derived, shared


@dataclass(frozen=True)
class Deed:
    """A dataclass."""

    name: str
    owner: str | None
    seconds: float = 1.0


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A struct with some of its fields."""

    at: float
    name: str
    owner: str | None
    detail: str = ""


def test_shared_fields_go_through_and_others_are_given():
    """A default stays where nobody has the field."""
    assert derived(Line, Deed("a", None), at=2.0) == Line(2.0, "a", None)
    assert shared(Deed, Line(2.0, "a", "b")) == {"name": "a", "owner": "b"}


def test_the_first_source_and_what_is_given_come_first():
    """So a record with a field of the same name can be put right."""
    first, second = Deed("a", "x"), Line(2.0, "b", "y", "z")
    assert derived(Line, first, second) == Line(2.0, "a", "x", "z")
    assert derived(Line, first, second, name="c").name == "c"


def test_what_nobody_has_is_an_error():
    """A field without a default must come from somewhere."""
    with pytest.raises(TypeError, match="at"):
        derived(Line, Deed("a", None))

"""The note of a broker setting that lbd overrides for a time, and the owner of an override. Pure.

``act/override.py`` overrides and restores by it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from lbd.files import At

ON, OFF = "true", "false"


class OverrideNote(msgspec.Struct, frozen=True, kw_only=True):
    """An override of lbd: ``taking`` until the setting is off on all brokers, then ``taken``, at last ``releasing``.

    ``before`` is the override that lbd owes the operator, None for none, and ``ran`` what each broker ran with then.
    """

    phase: Literal["taking", "taken", "releasing"]
    before: str | None
    ran: dict[str, str]

    @property
    def override_to_restore(self) -> str | None:
        """The override to set on release; if there was none before, a value is set before it is deleted.

        Pulsar 2.11 keeps the last value when an override is deleted, until a restart (measured; 3.3.6 to 5.0.0-M1
        return to broker.conf within 100 ms), so a broker must be made to run its own value first.
        """
        return ON if self.before is None and ON in self.ran.values() else self.before

    def lbds(self, present: str | None) -> bool:
        """Whether lbd itself set the present override, in this phase; a kill may have come at any point.

        ``false`` always counts as lbd's, because an operator's ``false`` looks the same.
        """
        return present == OFF or (self.phase == "releasing" and present in {self.override_to_restore, self.before})

    def owes(self, present: str | None) -> bool:
        """Whether ``before`` still is the operator's wish, given the present override.

        It is while the present override is lbd's own or equals ``before``. Any other value, or none any more, is the
        operator's newest wish and stays.
        """
        return present == self.before or self.lbds(present)

    def awaits(self, present: str | None) -> bool:
        """Whether the last request of this phase is not yet visible in the present override."""
        return self.phase != "taken" and (present == OFF) != (self.phase == "taking")


class TakeOverNote(OverrideNote, frozen=True, kw_only=True):
    """The note on in-broker shedding that is off.

    ``at`` is when lbd turned shedding off, ``seen_at`` when it was last confirmed off on all brokers, ``asked_at`` when
    the phase began; all in epoch seconds.
    """

    cluster: str
    at: At
    asked_at: At
    seen_at: At = 0.0


def override_text(key: str, override: str | None) -> str:
    """A setting with an override, in words."""
    return f"{key} " + ("has no override" if override is None else f"is overridden with {override}")

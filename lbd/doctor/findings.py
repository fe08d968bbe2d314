"""A finding: one line of the checklist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lbd.text import first_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

ANSWER = "see answers, and that each broker answers its admin port"

NOT_CHECKED = "not checked: "

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """An observation, the reason why it matters, and the remedy; ``todo`` is empty where none is needed.

    ``problem``: lbd moves nothing, or cannot be trusted, while it lasts. ``warning``: it works, but could work better;
    or the check could not be made. ``check`` is a word that stays the same from release to release.
    """

    level: Level
    check: str
    seen: str
    why: str
    todo: str


@dataclass(frozen=True)
class Check:
    """One subject of a check: its word, and why it matters."""

    name: str
    why: str

    def ok(self, observed: str) -> Finding:
        """The check was made and passed; one that was not made, or could not be read, is ``unknown``."""
        return Finding("ok", self.name, observed, self.why, "")

    def ok_of_all(self, observed: str, answered: Collection[str], everybody: Collection[str], of: str) -> Finding:
        """The check passed on each broker, see :func:`of_all`."""
        return next(of_all([self.ok(observed)], answered, everybody, of))

    def warning(self, observed: str, todo: str) -> Finding:
        """The subject works, but could be better."""
        return Finding("warning", self.name, observed, self.why, todo)

    def problem(self, observed: str, todo: str) -> Finding:
        """While this lasts, lbd cannot do its work."""
        return Finding("problem", self.name, observed, self.why, todo)

    def unknown(self, because: str, todo: str) -> Finding:
        """The check could not be made; that is always reported."""
        return Finding("warning", self.name, f"{NOT_CHECKED}{because}", self.why, todo)


def of_all(
    findings: Iterable[Finding], answered: Collection[str], everybody: Collection[str], of: str
) -> Iterator[Finding]:
    """The findings, with none ok while any of ``everybody`` has not given ``of``, by which they are judged."""
    silent = [broker for broker in everybody if broker not in answered]
    because = f"{of} of {broker_names(silent, everybody) if everybody else 'any broker'}"
    for finding in findings:
        if finding.level == "ok" and (silent or not everybody):
            text = f"{NOT_CHECKED}{because}; of the others: {finding.seen}"
            yield replace(finding, level="warning", seen=text, todo=ANSWER)
        else:
            yield finding


def named(things: Collection[str]) -> str:
    """The first few, in order, and the number of others."""
    return first_names(sorted(things))


def broker_names(brokers: Collection[str], everybody: Collection[str]) -> str:
    """``all 3 brokers``, or the names of those that are meant."""
    if len(brokers) < max(len(everybody), 2):
        return named(brokers)
    return f"all {len(everybody)} brokers" if len(everybody) > 2 else "both brokers"

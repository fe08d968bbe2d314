"""Checks of the history that is learned from: what each found, how much of it, and how much is too much. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from statistics import median
from typing import TYPE_CHECKING

from lbd.errors import ObserveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


UNREADABLE_FILE, UNREADABLE_PAGE, OTHER_COLUMNS = "unreadable-file", "unreadable-page", "other-columns"

WRONG_SHARE = 0.1
"""Of files or samples that are wrong. What is wrong is left out; with more than a tenth of it the rest is doubtful."""

MISSING_SHARE = 0.5
"""Of time that nobody saw, or of samples that a live turn did not trust: what is left is the smaller part."""

UNREPORTED_SHARE = 0.9
"""Of the traffic. Brokers of the extensible manager report their ten largest bundles by default.
A live lbd knows no more than a replay; with more than this there is hardly anything that a replay can move."""

NOTICED_SHARE = 0.1
"""Rates are stored in steps of a twentieth: below a tenth, traffic may be missing by rounding."""


@dataclass(frozen=True)
class ReadCounts:
    """What was read of samples and rounds, and what of it was found to be what; times in seconds.

    ``samples_missing`` have no number, ``samples_negative`` one below zero, ``samples_not_finite`` one that is NaN or
    infinite; all are left out. ``samples_doubted`` are those kept that the live turn did not trust. ``rounds_kept`` are
    there once, without ``rounds_overtaken``, whose time came a second time; ``rounds_apart`` share no broker with the
    round before. ``seconds_silent`` belong to ``gaps`` within a day, ``seconds_seen`` to the rest.
    """

    samples_read: int
    samples_missing: int
    samples_negative: int
    samples_not_finite: int
    samples_kept: int
    samples_doubted: int
    rounds_read: int
    rounds_kept: int
    rounds_overtaken: int
    rounds_apart: int
    gaps: int
    seconds_seen: float
    seconds_silent: float

    @classmethod
    def total(cls, of: Collection[ReadCounts]) -> ReadCounts:
        """The counts of several stretches of time as those of one."""
        return cls(**{field.name: sum(getattr(one, field.name) for one in of) for field in fields(cls)})


@dataclass(frozen=True)
class FileRows:
    """A file of a table: its ``rows`` by its footer, None without one that can be read; how many of them can be read;
    and of these how many have a value, by column.
    """

    table: str
    name: str
    rows: int | None
    readable: int
    values: Mapping[str, int]


def damage(files: Sequence[FileRows]) -> dict[str, str]:
    """The files to leave out, by name, each with the check that it fails.

    A column without any value is another schema's, if it has values in more than half of the table's readable files.
    Raises :class:`UsageError` where no file of a table is left.
    """
    found: dict[str, str] = {}
    for name in dict.fromkeys(one.table for one in files):
        own = [one for one in files if one.table == name]
        whole = [one for one in own if one.rows is not None and one.readable == one.rows]
        usual = {key for one in whole for key in one.values if median(file.values[key] > 0 for file in whole) > 0}
        for one in own:
            if one.rows is None:
                found[one.name] = UNREADABLE_FILE
            elif one.readable < one.rows:
                found[one.name] = UNREADABLE_PAGE
            elif one.rows and any(not one.values[key] for key in usual):
                found[one.name] = OTHER_COLUMNS
        if all(one.name in found for one in own):
            raise UsageError(f"{name}: none of {len(own)} files can be read, the first is {own[0].name}")
    return found


@dataclass(frozen=True)
class QualityCheck:
    """What a check found: how often, and as a fraction of ``whole``.

    With a share above ``limit`` nothing is learned; None: whatever the share is.
    """

    name: str
    count: int
    share: float
    whole: str
    limit: float | None
    meaning: str

    @property
    def text(self) -> str:
        """``negative-number 12 (0.4 % of the samples)``."""
        return f"{self.name} {self.count:,} ({100 * self.share:.1f} % of the {self.whole})"

    @property
    def limit_text(self) -> str:
        """``at most 10 %``."""
        return "no limit" if self.limit is None else f"at most {100 * self.limit:.0f} %"


def file_checks(files: int, damage: Iterable[str]) -> tuple[QualityCheck, ...]:
    """Checks of the files: how many there are, and for each that is left out what it is found to be."""
    kinds = list(damage)
    return (
        _check(UNREADABLE_FILE, kinds.count(UNREADABLE_FILE), files, "files", None,
               "no Parquet, or only part of it; left out"),
        _check(UNREADABLE_PAGE, kinds.count(UNREADABLE_PAGE), files, "files", None,
               "a page is not as it was written, or has another type; the file is left out"),
        _check(OTHER_COLUMNS, kinds.count(OTHER_COLUMNS), files, "files", None,
               "a column has no value that has some in most other files; the file is left out"),
    )  # fmt: skip


def row_checks(read: ReadCounts) -> tuple[QualityCheck, ...]:
    """Checks of rounds and samples."""
    repeated = read.rounds_read - read.rounds_kept - read.rounds_overtaken
    silent = _share(read.seconds_silent, read.seconds_seen + read.seconds_silent)
    return (
        _check("repeated-round", repeated, read.rounds_read, "rounds", None,
               "there already, as after a second import; counts once"),
        _check("other-cluster", read.rounds_apart, read.rounds_read, "rounds", WRONG_SHARE,
               "no broker of the round before is there any more, as where two clusters share a folder"),
        _check("clock-set-back", read.rounds_overtaken, read.rounds_read, "rounds", WRONG_SHARE,
               "later turns have earlier times; the earlier turns are left out"),
        _check("missing-number", read.samples_missing, read.samples_read, "samples", WRONG_SHARE,
               "the broker reported no usage; left out"),
        _check("negative-number", read.samples_negative, read.samples_read, "samples", WRONG_SHARE,
               "a usage below zero; left out"),
        _check("not-a-number", read.samples_not_finite, read.samples_read, "samples", WRONG_SHARE,
               "a usage that is NaN or infinite; left out"),
        _check("untrusted-sample", read.samples_doubted, read.samples_kept, "samples used", MISSING_SHARE,
               "the live turn did not trust it, and a replay does not either"),
        QualityCheck("silence", read.gaps, silent, "time", MISSING_SHARE,
                     "more than three minutes without a round, within a day; counts as no time"),
    )  # fmt: skip


def _check(name: str, count: int, among: int, whole: str, limit: float | None, meaning: str) -> QualityCheck:
    """A check whose share is its count among so many."""
    return QualityCheck(name, count, _share(count, among), whole, limit, meaning)


def day_check(lost: int, days: int) -> QualityCheck:
    """The check of the days that lack much, of so many from the first to the last."""
    return _check("lost-day", lost, days, "days", MISSING_SHARE,
                  "lacks over 5% of its rounds, samples or bundles' traffic, or is missing; left out")  # fmt: skip


def traffic_check(rounds: int, carried: float, reported: float) -> QualityCheck:
    """The check of bundles that brokers do not report.

    ``rounds`` are those in which such bundles had more than :data:`NOTICED_SHARE` of the traffic. ``carried`` is the
    traffic of all brokers, ``reported`` that of all bundles in history: bytes/s, added up over all rounds.
    """
    share = _share(max(carried - reported, 0.0), carried)
    meaning = f"bundles without a report had over {NOTICED_SHARE:.0%} of a round's traffic; no replay moves them"
    return QualityCheck("unreported-bundle", rounds, share, "traffic", UNREPORTED_SHARE, meaning)


def refuse_bad(history: str, checks: Iterable[QualityCheck]) -> None:
    """Raises :class:`ObserveError` if a check found more than its limit: bad data are not learned from."""
    bad = [f"{one.text}, {one.limit_text}" for one in checks if one.limit is not None and one.share > one.limit]
    if bad:
        raise ObserveError(f"{history}: too much of the history is bad, nothing is learned from it: {'; '.join(bad)}")


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

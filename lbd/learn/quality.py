"""Checks of the history that is learned from: what each found, how much of it, and how much is too much. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from statistics import median
from typing import TYPE_CHECKING

from lbd.errors import ObserveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


UNREADABLE_FILE, UNREADABLE_PAGE, OTHER_COLUMNS = "unreadable-file", "unreadable-page", "other-columns"

GONE = {"t", "bundle"}
"""The columns of a row of a bundle that nobody reports any more; a file may have only such rows."""

WRONG_SHARE = 0.1
"""Largest share of rounds or samples that may be wrong. These are left out; above a tenth the rest is doubtful."""

MISSING_SHARE = 0.5
"""Largest share of silent time, of untrusted samples or of lost days: above it the rest is the smaller part."""

UNREPORTED_SHARE = 0.9
"""Largest share of the traffic that bundles without a report may have. Brokers of the extensible manager report their
ten largest by default. A live lbd knows no more than a replay; above this a replay can move hardly anything."""

NOTICED_SHARE = 0.1
"""Rates are stored in steps of a twentieth: below a tenth, traffic may be missing by rounding."""


@dataclass(frozen=True)
class ReadCounts:
    """Samples and rounds that were read, and how many of them each check found; times in seconds.

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
    def total(cls, stretches: Collection[ReadCounts]) -> ReadCounts:
        """The counts of several stretches of time, added up."""
        return cls(**{field.name: sum(getattr(counts, field.name) for counts in stretches) for field in fields(cls)})


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
    faults: dict[str, str] = {}
    for name in dict.fromkeys(file.table for file in files):
        own = [file for file in files if file.table == name]
        whole = [file.values for file in own if file.rows is not None and file.readable == file.rows]
        usual = {key for values in whole for key in values if median(other[key] > 0 for other in whole) > 0}
        for file in own:
            if file.rows is None:
                faults[file.name] = UNREADABLE_FILE
            elif file.readable < file.rows:
                faults[file.name] = UNREADABLE_PAGE
            elif file.rows and {key for key in usual if file.values[key]} not in (usual, GONE):
                faults[file.name] = OTHER_COLUMNS
        if all(file.name in faults for file in own):
            raise UsageError(f"{name}: none of {len(own)} files can be read, the first is {own[0].name}")
    return faults


@dataclass(frozen=True)
class QualityCheck:
    """Result of a check: the ``count`` of its faults, and their ``share``, a fraction of ``whole``.

    With a share above ``limit`` nothing is learned; None is no limit.
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
    """Checks of ``files`` files; ``damage`` has the check that failed for each file that is left out."""
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
               "later turns have earlier times, also where two lbds share a folder; the lower turns are left out"),
        _check("missing-number", read.samples_missing, read.samples_read, "samples", WRONG_SHARE,
               "the broker reported no usage; left out"),
        _check("negative-number", read.samples_negative, read.samples_read, "samples", WRONG_SHARE,
               "a usage below zero; left out"),
        _check("not-a-number", read.samples_not_finite, read.samples_read, "samples", WRONG_SHARE,
               "a usage that is NaN or infinite; left out"),
        _check("untrusted-sample", read.samples_doubted, read.samples_kept, "samples used", MISSING_SHARE,
               "the live turn did not trust it, and a replay does not either"),
        QualityCheck("silence", read.gaps, silent, "time", MISSING_SHARE,
                     "over three minutes without a round, as with a longer interval_seconds; counts as no time"),
    )  # fmt: skip


def _check(name: str, count: int, among: int, whole: str, limit: float | None, meaning: str) -> QualityCheck:
    """A check whose share is ``count`` divided by ``among``."""
    return QualityCheck(name, count, _share(count, among), whole, limit, meaning)


def day_check(lost: int, days: int) -> QualityCheck:
    """The check of the ``lost`` days, which lack much, among all ``days`` from the first to the last."""
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
    bad = [check for check in checks if check.limit is not None and check.share > check.limit]
    if bad:
        shares = "; ".join(f"{check.text}, {check.limit_text}" for check in bad)
        raise ObserveError(f"{history}: too much of the history is bad, nothing is learned from it: {shares}")


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

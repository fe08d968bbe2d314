"""What ``lbd simulate`` writes: a page of charts, and a recording."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lbd.cli.options import new_directory, recording_header
from lbd.errors import UsageError
from lbd.record import recording
from lbd.simulate.recorded import estimated_bytes, load_reports
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lbd.config import Settings
    from lbd.simulate.finished import Finished
    from lbd.simulate.run import Turned
    from lbd.simulate.scenario import Scenario


def new_page(directory: Path | None) -> Callable[[Sequence[Finished]], None]:
    """What writes the page into a directory that is made at once, so that a long run does not end in vain.

    Raises :class:`UsageError` where it cannot be made, or has something in it.
    """
    if directory is None:
        return lambda _: None
    new_directory(directory, "--report")
    return lambda runs: _write_page(directory / "index.html", runs)


def _write_page(path: Path, runs: Sequence[Finished]) -> None:
    from lbd.simulate.report import page  # noqa: PLC0415 - loads plotly, which nothing else needs

    write_page(path, page(runs))


def write_page(path: Path, text: str) -> None:
    """The page of a report, and a word on where it is."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--report: {path}: cannot be written: {error.strerror}") from error
    click.echo(f"report: {path}", err=True)


@contextmanager
def recorder(
    path: Path | None, name: str, scenario: Scenario, settings: Settings, seed: int
) -> Iterator[Callable[[Turned], None]]:
    """What keeps the reports that each turn saw. How long the file will be is said before the second one."""
    if path is None:
        yield lambda _: None
        return
    rounds = int(scenario.hours * 3600 // settings.interval_seconds) + 1
    source = f"lbd simulate {name} --seed {seed}"
    header = recording_header(path, settings, settings.interval_seconds, source)
    with recording.create(path, header) as writer:

        def keep(turned: Turned) -> None:
            assert turned.record.observation is not None
            seen = turned.record.observation.snapshot
            if turned.seconds == 0:
                packed = path.suffix == ".gz"
                size = _amount(estimated_bytes(seen, rounds, packed=packed))
                less = " or less" if packed else ""
                click.echo(f"recording {counted(rounds, 'round')} in {path}: about {size}{less}", err=True)
            writer.round(seen.taken_at, load_reports(seen))

        yield keep


def _amount(size: int) -> str:
    factor, unit = (1e9, "GB") if size >= 1e9 else (1e6, "MB")
    return f"{size / factor:,.1f} {unit}" if size >= 1e5 else f"{size / 1e3:,.0f} kB"

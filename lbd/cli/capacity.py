"""``lbd capacity``: how many brokers the peak of the last day needs, and what one less and one more would do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
from rich.text import Text

from lbd.cli.drain import drain_sentence
from lbd.cli.options import remote_options
from lbd.cli.render import BAR_WIDTH, amount, bar, json_out, plain, table
from lbd.cli.request import lbd_client
from lbd.cli.request import read as read_response
from lbd.cli.status_text import console, fitted, room
from lbd.errors import LbdError, ObserveError
from lbd.load.capacity import CapacityReport
from lbd.text import counted, zoned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.api.client import Client
    from lbd.cli.options import Read
    from lbd.load.capacity import PeakReport


@click.command("capacity")
@remote_options
def capacity(read: Read, form: str, api_url: str | None) -> None:
    """Show how many brokers the peak of the last day needs, so that all stay below capacity.max_score points.

    The table shows each broker's score, and the highest score of the others at that peak if it were away. Of the broker
    that is the easiest to give up, the plan of its drain follows. It changes nothing. Exit code 3 if no lbd runs, or if
    its last turn saw no load.

    \b
    Example: lbd capacity --format json
    """
    settings = read().settings
    client = lbd_client(settings, api_url)
    if client is None:
        raise ObserveError(f"{settings.state_dir}: no lbd runs there, and the load of a day is known to none; run one")
    report: CapacityReport = read_response(client.get("capacity"), CapacityReport)
    if form == "json":
        json_out(report)
        return
    show(report)
    if report.easiest is not None:
        click.echo(fitted(plain(_drain_text(client, report.easiest)), room()))


NUMBER_COLUMNS = 30
"""Columns that both scores take beside the name of a broker."""


def show(report: CapacityReport) -> None:
    """Print the answer, then the brokers, the scores with one less and one more, the peaks, and what is not known."""
    answer, *others = lines(report)
    click.echo(fitted(plain(answer), room()))
    if report.brokers:
        rows = table("broker", ">score now", ">peak without it")
        numbers = max(len(broker.id) for broker in report.brokers) + NUMBER_COLUMNS
        wide = numbers + BAR_WIDTH <= room()
        if wide:
            rows.add_column()
        for broker in sorted(report.brokers, key=lambda broker: (not broker.can_go, broker.without, broker.id)):
            style = "green" if broker.can_go else "red" if broker.without > report.max_score else "yellow"
            scores = amount(broker.score, digits=1), amount(broker.without, digits=1)
            rows.add_row(Text(plain(broker.id)), *scores, *((bar(broker.without, style),) if wide else ()))
        console().print(rows)
    for line in others:
        click.echo(fitted(plain(line), room()))


def lines(report: CapacityReport) -> Iterator[str]:
    """The sentences of the answer."""
    yield f"{report.summary}."
    if report.score is not None:
        less = f"{report.one_less:.1f} with {report.active - 1}, " if report.one_less is not None else ""
        now, more = counted(report.active, "broker"), report.active + 1
        then = f"{report.score:.1f} with {now}, {report.one_more:.1f} with {more}"
        yield f"The highest score at that peak: {less}{then}."
    if report.week is not None and report.day is not None and report.week.needed > report.day.needed:
        yield f"The peak of the last week: {_peak_text(report.week)}."
    yield from (f"Note: {note}." for note in report.notes)


def _peak_text(peak: PeakReport) -> str:
    least = "at least " if peak.at_least else ""
    return f"{peak.resource.replace('_', ' ')} needed {least}{peak.needed:.1f} brokers at {zoned(peak.at)}"


def _drain_text(client: Client, broker: str) -> str:
    """Whether the others have room for its bundles now, by the plan of its drain."""
    from lbd.cli import remote  # noqa: PLC0415 - usage errors need no NumPy

    easiest = f"The easiest to give up is {broker} (lbd drain {broker})"
    try:
        return f"{easiest}. {drain_sentence(remote.remote_drain_plan(client, 'drain', broker), broker, time.time())}"
    except LbdError as error:
        return f"{easiest}; its drain cannot be planned now: {error}."

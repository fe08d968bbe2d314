"""``lbd release``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lbd.cli.options import settings_options
from lbd.daemon import taking_over

if TYPE_CHECKING:
    from lbd.cli.options import Read


@click.command("release")
@settings_options
def release(read: Read) -> None:
    """Give the brokers' own shedding back, exactly as it was before lbd took it over.

    For in_broker_shedding: take-over; stop lbd first. What was there is noted in take-over.json in the state directory.
    An override that somebody else has changed meanwhile is left as it is.

    \b
    Example: lbd release --config /etc/lbd/lbd.yaml
    """
    click.echo(taking_over.release(read().settings))

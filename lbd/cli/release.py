"""``lbd release``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lbd.cli.options import settings_options
from lbd.daemon import take_over

if TYPE_CHECKING:
    from lbd.cli.options import Read


@click.command("release")
@settings_options
def release(read: Read) -> None:
    """Restore the brokers' own shedding exactly as it was before lbd took it over.

    For in_broker_shedding: take-over. Stop lbd first. The previous values are in the state directory.
    An override that somebody else has changed since stays as it is.

    \b
    Example: lbd release --config /etc/lbd/lbd.yaml
    """
    click.echo(take_over.release(read().settings))

"""``lbd --version``."""

from __future__ import annotations

from importlib import resources

import click

from lbd import __version__

COMMIT = "commit.txt"
"""Beside the package's own files; written when a wheel is built (hatch_build.py)."""


def told() -> str:
    """Version and, of an installed lbd, the commit it was built from."""
    file = resources.files("lbd").joinpath(COMMIT)
    built = f"commit {file.read_text(encoding='ascii').strip()}" if file.is_file() else "from a checkout"
    return f"lbd {__version__} ({built})"


def tell(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    """Print it and end."""
    if wanted and not ctx.resilient_parsing:
        click.echo(told())
        ctx.exit()

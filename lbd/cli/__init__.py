"""The command line: no logic, one short module for each family of commands, loaded only when it is called."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import click

from lbd.cli import version
from lbd.errors import LbdError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMANDS = {
    "run": "lbd.cli.turns",
    "dry-run": "lbd.cli.turns",
    "doctor": "lbd.cli.doctor",
    "status": "lbd.cli.operate",
    "explain": "lbd.cli.explain",
    "pause": "lbd.cli.operate",
    "resume": "lbd.cli.operate",
    "release": "lbd.cli.release",
    "unload": "lbd.cli.unload",
    "place": "lbd.cli.place",
    "split": "lbd.cli.split",
    "drain": "lbd.cli.drain",
    "fill": "lbd.cli.drain",
    "history": "lbd.cli.moves",
    "record": "lbd.cli.recordings",
    "replay": "lbd.cli.recordings",
    "simulate": "lbd.cli.simulate",
    "demo": "lbd.cli.demo",
    "compare": "lbd.cli.compare",
    "calibrate": "lbd.cli.calibrate",
    "config": "lbd.cli.configuration",
}
"""Module of each command; importing all of them would make ``lbd --help`` wait for NumPy."""

SHORT_HELP = {
    "run": "Balance the cluster: observe, decide, unload, verify.",
    "dry-run": "Print the unloads that one turn would make; change nothing.",
    "doctor": "Check the cluster and what lbd keeps of it; change nothing.",
    "status": "Tell whether lbd runs, what it last saw and did, and who paused it.",
    "explain": "Tell why a broker, a bundle or a turn moved something, or why not.",
    "pause": "Keep lbd from moving anything, for a time or until lbd resume.",
    "resume": "End a pause.",
    "release": "Give the brokers' own shedding back as it was before lbd took it over.",
    "unload": "Move a bundle, or a namespace's one by one, at once, and prove that each landed.",
    "place": "Tell where bundles should go, and why; place those that nobody owns.",
    "split": "Print where a bundle would be cut and what lies on each side; cut it there.",
    "drain": "Tell whether a broker can be spared; move everything off it, and keep it empty.",
    "fill": "Tell what would bring a broker up to the mean; move it there.",
    "history": "List moves and how each was proven to have ended.",
    "record": "Keep rounds of load reports in a file.",
    "replay": "Run a strategy over recordings.",
    "simulate": "Run lbd on a simulated cluster, and score what it did.",
    "demo": "Watch lbd balance a simulated cluster, for a minute.",
    "compare": "Run strategies over scenarios or recordings, and put their scorecards side by side.",
    "calibrate": "Learn better thresholds from history, with Spark.",
    "config": "Check, show or take over settings.",
}


INTERRUPTED = 130
UNREAD = 141
"""As shells tell of a command that Ctrl-C has ended, and of one whose output nobody reads on."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def _while_it_is_read() -> Iterator[None]:
    """Where the reader of what is printed has gone, as head has, end at once: no bug, and nothing to be told. A disk
    without room for it is no bug either, and is told in a line.

    What is still in the buffer is written here; at exit the interpreter would complain. rich ends with 1 by itself.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # closed before the command began
                sys.stdout.flush()
    except (OSError, SystemExit) as error:
        if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
            code = UNREAD
        elif isinstance(error, OSError) and error.errno in FULL:  # of files that lbd writes it is told as UsageError
            with suppress(OSError):  # stderr may be the same file
                click.echo(f"Error: stdout: cannot be written: {error.strerror}", err=True)
            code = UsageError.exit_code
        else:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code)


class Commands(click.Group):
    """A group that imports a command's module when it is called, and ends errors of lbd with their exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What stands before the command; ``--help`` and ``--version`` print here."""
        with _while_it_is_read():
            return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order in which one meets them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name])
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(SHORT_HELP.items()))

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run the command; an error of lbd is one line on stderr and its own exit code. Only a bug shows its trace."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")  # bars on a terminal that knows none, names that are no text
        try:
            with _while_it_is_read():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except LbdError as error:
            if error.exit_code == LbdError.exit_code and error.__cause__ is not None:
                traceback.print_exception(error.__cause__)
            for line in str(error).splitlines():
                click.echo(f"Error: {line}", err=True)
            ctx.exit(error.exit_code)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", "config_file", metavar="FILE", help="Settings; default /etc/lbd/lbd.yaml where it exists.")
@click.option("--admin-url", "admin_urls", multiple=True, metavar="URL", help="Web address of a broker; repeatable.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=version.tell, help="Version and commit."
)
def main(config_file: str | None, admin_urls: tuple[str, ...]) -> None:
    """An external load balancer for Apache Pulsar.

    It polls each broker's load report, decides which bundles should move where, unloads each to a named broker, and
    proves that it landed there.

    \b
    Exit codes: 0 done, 1 bug, 2 usage or configuration, 3 the cluster cannot be observed,
    4 refused to act, 5 an unload failed or landed elsewhere.
    """
    del config_file, admin_urls  # what a command reads its settings from finds them here

"""The command line: version, the list of commands and their exit codes.

Each family of commands is a module of its own, imported only when one of its commands is called.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import resources
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import click

from lbd import __version__
from lbd.errors import LbdError, UsageError
from lbd.foreign import printable
from lbd.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator


COMMIT = "commit.txt"
"""File in the package; written when a wheel is built (hatch_build.py)."""


def version_text() -> str:
    """The version and, for an installed lbd, the commit that it was built from."""
    file = resources.files("lbd").joinpath(COMMIT)
    built = f"commit {file.read_text(encoding='ascii').strip()}" if file.is_file() else "from a checkout"
    return f"lbd {__version__} ({built})"


def print_version(ctx: click.Context, _param: click.Parameter, requested: bool) -> None:
    """Print the version and exit."""
    if requested and not ctx.resilient_parsing:
        click.echo(version_text())
        ctx.exit()


COMMANDS = {
    "run": ("run", "Balance the cluster: observe, decide, unload, verify."),
    "dry-run": ("run", "Print the unloads that a turn would make. Changes nothing."),
    "plan": ("plan", "Show the plan that waits for approval, or what a turn would move now."),
    "apply": ("plan", "Make exactly the moves of a plan that was shown."),
    "doctor": ("doctor", "Check the cluster, lbd's settings and its state. Changes nothing."),
    "status": ("status", "Show whether lbd runs, its last turn, moves in flight, and a pause."),
    "explain": ("explain", "Explain why a broker, a bundle or a turn moved something, or why not."),
    "pause": ("status", "Stop all moves for a time, or until lbd resume."),
    "resume": ("status", "End a pause, and the holds not-served and changed-hands."),
    "release": ("release", "Restore the brokers' own shedding after a take-over."),
    "unload": ("unload", "Show where a bundle would go; unload it, or a namespace's, and verify each."),
    "place": ("place", "Show where bundles should go, and why; place unowned ones."),
    "split": ("split", "Show where a bundle would be cut; cut it there."),
    "drain": ("drain", "Show whether a broker can be drained; drain it and keep it empty."),
    "fill": ("drain", "Show which bundles would bring a broker up to the mean; move them."),
    "rollout": ("rollout", "Restart brokers one after the other, each drained before."),
    "capacity": ("capacity", "Show how many brokers the peak of the last day needs."),
    "history": ("history", "List moves and their verified outcomes."),
    "record": ("recordings", "Record load reports to a file."),
    "replay": ("recordings", "Run a strategy over recordings."),
    "simulate": ("simulate", "Run lbd on a simulated cluster and score the result."),
    "demo": ("demo", "Watch lbd balance a simulated cluster for a minute."),
    "compare": ("compare", "Compare strategies side by side on a scenario or a recording."),
    "calibrate": ("calibrate", "Learn better thresholds from history with Spark."),
    "config": ("configuration", "Check, show or compare settings, or derive them from a broker."),
}
"""Module and short help of each command; importing all modules would make ``lbd --help`` wait for NumPy."""

INTERRUPTED = 130
UNREAD = 141
"""Exit codes after Ctrl-C and after stdout was closed early, as shells report SIGINT and SIGPIPE."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def _while_it_is_read() -> Iterator[None]:
    """Exit with 141 if stdout is closed early, for example by ``head``; with 2 and one line if its disk is full.

    The buffer is flushed here, because the interpreter would complain at exit. rich exits with 1 by itself.
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
        elif isinstance(error, OSError) and error.errno in FULL:  # files that lbd writes raise UsageError
            with suppress(OSError):  # stderr may be the same file
                click.echo(f"Error: stdout: cannot be written: {error.strerror}", err=True)
            code = UsageError.exit_code
        else:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code)


class Commands(click.Group):
    """A group that imports a command's module when it is called, and turns errors of lbd into exit codes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what precedes the command; ``--help`` and ``--version`` print here."""
        with _while_it_is_read():
            return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """An unknown command is answered with the nearest one."""
        if args[0] not in COMMANDS and (near := get_close_matches(args[0], COMMANDS, n=1)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of first use."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None if it is unknown."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"lbd.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run the command. An error of lbd is one line on stderr and an exit code; only a bug prints a traceback."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")  # terminals without bar characters, names that are not text
        try:
            with _while_it_is_read():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except LbdError as error:
            if error.exit_code == LbdError.exit_code and error.__cause__ is not None:
                click.echo(redacted("".join(traceback.format_exception(error.__cause__))), err=True, nl=False)
            for line in str(error).splitlines():
                click.echo(f"Error: {printable(line)}", err=True)
            ctx.exit(error.exit_code)


EXIT_CODES = """\b
Exit codes:
    0  done
    1  bug
    2  usage or configuration
    3  the cluster cannot be observed, no lbd runs (status, pause), or too much of the history is bad (calibrate)
    4  refused to act: the brokers shed, a pause, a move that was not sent
    5  an unload failed or landed elsewhere
    6  dry-run --detailed-exitcode only: unloads are planned
  130  after Ctrl-C, unless Ctrl-C is the normal way to stop the command
  141  stdout was closed early, for example by head
"""
"""Epilog of ``lbd --help``; docs/commands.md has the same table."""


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.option(
    "--config", "config_file", metavar="FILE", help="Settings file.  [default: /etc/lbd/lbd.yaml if it exists]"
)
@click.option(
    "--admin-url", "admin_urls", multiple=True, metavar="URL", help="Web service URL of a broker; repeatable."
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the version and commit, and exit.",
)
def main(config_file: str | None, admin_urls: tuple[str, ...]) -> None:
    """An external load balancer for Apache Pulsar.

    It polls each broker's load report, decides which bundles should move where, unloads each to a named broker,
    and verifies that it landed there.
    """
    del config_file, admin_urls  # commands look them up in the context (cli/options.py)

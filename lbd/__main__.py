"""Entry point of ``lbd`` and ``python -m lbd``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Ctrl-C while it loads, which takes some tenths of a second, ends it without a trace."""
    try:
        from lbd.cli import main as command  # noqa: PLC0415 - what may be interrupted

        command()
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()

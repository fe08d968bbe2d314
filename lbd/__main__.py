"""``python -m lbd``."""

from lbd.cli import main

main()

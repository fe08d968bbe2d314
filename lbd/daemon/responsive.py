"""What keeps an answer of the API from waiting for the threads of a turn: all of them take turns on one interpreter.

A turn of 65,000 bundles keeps some threads busy for a third of a second. Measured by ``python -m tests.bench.load``.
"""

from __future__ import annotations

import gc
import sys

SLICE_SECONDS = 0.001
"""How long a thread runs while others wait, Python's own is 0.005. An answer waits for one or two of them whenever it
has read or sent anything, which is four times until it is sent; with half as long they wait longer, not shorter."""

TURNS_UNTIL_SETTLED = 2
"""By then what is loaded late is loaded: the API's libraries, and those that write history."""

MADE_UNTIL_COLLECTED = 100_000
"""Objects, some tens of megabytes; Python's own is 700. Each collection goes through all names of the round that it
meets, and every thread stands still for up to 9 ms: a few hundred times a turn some object tips the scale."""


def share_fairly() -> None:
    """Have threads give way five times as often; a turn takes no longer by it."""
    sys.setswitchinterval(SLICE_SECONDS)


def settle(turns: int) -> None:
    """Once, after so many turns: what there is now stays, and garbage collections need not look at it again.

    One that does stops every thread for 0.1 s. From then on they are seldom, too.
    """
    if turns == TURNS_UNTIL_SETTLED:
        gc.collect()
        gc.freeze()
        gc.set_threshold(MADE_UNTIL_COLLECTED)

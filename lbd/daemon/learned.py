"""What traffic costs each broker, as a live lbd learns it, keeps it over restarts, and tells it to who looks beside."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lbd.cycle.learning import Learning
from lbd.errors import LbdError
from lbd.load.capacity import capacities
from lbd.load.linear import CPU
from lbd.load.told import BrokerLoad, loads
from lbd.record.load_kept import load_samples, save_samples

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.model import Slopes, Snapshot

KEPT_EVERY_SECONDS = 300.0
"""Five samples of a broker at most are lost with a kill; at a stop none."""


class Learned:
    """Learns from every turn, whatever the strategy: destinations are judged by it, too. ``now`` is epoch seconds."""

    def __init__(self, settings: Settings, now: float) -> None:
        self._state_dir = settings.state_dir
        self._learning = Learning(settings.load, load_samples(settings.state_dir, now))
        self._written_at, self._taken_at = now, 0.0
        self.trouble = ""

    def __call__(self, snapshot: Snapshot) -> Slopes | None:
        """What is known with one more round. Samples that cannot be written are told of and kept in memory."""
        found = self._learning(snapshot)
        self._taken_at = snapshot.taken_at
        if not 0 <= snapshot.taken_at - self._written_at < KEPT_EVERY_SECONDS:
            self._write()
        return found

    def known(self, snapshot: Snapshot) -> Slopes | None:
        """The same without learning from it: for a look beside the turns."""
        return self._learning.known(snapshot)

    def take(self, settings: Settings) -> None:
        """Go on with other settings; what was learned stays."""
        self._learning.told(settings.load)

    def close(self) -> None:
        """Write what is not on disk yet."""
        if self._taken_at > self._written_at:
            self._write()

    def _write(self) -> None:
        self._written_at = self._taken_at
        try:
            save_samples(self._state_dir, self._learning.samples())
        except LbdError as error:
            self.trouble = f"what was learned of brokers is not kept: {error}"
        else:
            self.trouble = ""


def beside(settings: Settings) -> Learning:
    """What an lbd on this state directory has learned, for who only looks; nothing where it cannot be read.

    Of a broker that was restarted since, or has other limits, nothing is known.
    """
    return Learning(settings.load, load_samples(settings.state_dir, time.time()))


def broker_loads(snapshot: Snapshot, known: Slopes | None, settings: Settings) -> list[BrokerLoad]:
    """What is known of each broker of a round, with the capacity that settings or limits of CPU give it."""
    brokers = snapshot.brokers
    limits = dict(zip(brokers.ids, brokers.limit[:, CPU].tolist(), strict=True))
    return loads(brokers.ids, known, capacities(limits, settings.load))

"""Plans of splits that are only shown: nothing is changed, neither in the cluster nor in the state directory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lbd.cycle.splitting import Chosen, Round, all_usable, choose
from lbd.daemon.dry import remembered
from lbd.daemon.parts import observing
from lbd.daemon.splitting.looking import Brokers, look
from lbd.errors import RefusedError
from lbd.observe import averages as running
from lbd.pulsar.admin import Admin
from lbd.record.journal.splits import within_hour

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.config import Settings
    from lbd.split.algorithms import Algorithm
    from lbd.split.plan import Plan


def plan_one(settings: Settings, bundle: str, algorithm: Algorithm, positions: Sequence[int] = ()) -> Plan:
    """Where one bundle would be cut. Raises as :func:`~lbd.daemon.splitting.looking.look` does."""
    admin = Admin(settings.pulsar)
    admin.active_brokers()
    return look(admin, bundle, algorithm, settings.split, positions)


def plan_due(settings: Settings) -> Chosen:
    """What the leader's rule would split, ``split.enabled`` or not.

    Long-term averages, cool-downs and the budget are those of a daemon whose state directory can be read; else this
    round's rates count. Raises :class:`RefusedError` while the brokers split by themselves.
    """
    with observing(settings) as observer:
        seen = observer.observe()
        if seen.splitting_on:
            raise RefusedError(
                f"{seen.splitting_on[0]} has loadBalancerAutoBundleSplitEnabled=true: the brokers split by themselves; "
                "lbd split BUNDLE splits a single one"
            )
        _, averages, past = remembered(settings)
        averages = running.update(averages, seen.snapshot)
        hour = within_hour(past.splits, time.time())
        asked = Round(seen.snapshot, averages, all_usable(seen.snapshot), past.split_or_attempted_at, hour)
        return choose(Brokers(observer.admin), settings, asked)

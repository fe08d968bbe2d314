"""Brokers that are being drained: they are compared with nobody, and nothing goes to them. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Collection

    from lbd.model import Snapshot
    from lbd.permit.evidence import Evidence


def marked(evidence: Evidence, snapshot: Snapshot, drained: Collection[str]) -> Evidence:
    """The evidence with drained brokers left out of pairs, averages and destinations, whatever they report.

    Their samples go on being looked at, so that they take part again as soon as a drain is over.
    """
    if not drained:
        return evidence
    out = np.array([broker in drained for broker in snapshot.brokers.ids], dtype=np.bool_)
    return replace(evidence, paired=np.where(out, np.int8(Reason.DRAINED.code), evidence.paired).astype(np.int8))

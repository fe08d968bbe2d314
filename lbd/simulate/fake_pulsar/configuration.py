"""What the brokers of a fake cluster run with, and the overrides that all of them take."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lbd.pulsar.paths import version_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = Path(__file__).parent / "runtime-4.0.8.json"
"""The balancing part of ``configuration/runtime`` of a 4.0.8, with the brokers' own shedding, splitting and even
distribution turned off: nothing here does them."""

NOT_DYNAMIC = frozenset({"loadBalancerEnabled", "loadManagerClassName"})


@cache
def _defaults() -> dict[str, str]:
    return msgspec.json.decode(_FILE.read_bytes(), type=dict[str, str])


class Configuration:
    """broker.conf, the same for all, and the overrides. ``changes`` are what this cluster's broker.conf says else."""

    def __init__(self, cluster: str, version: str, changes: Mapping[str, str]) -> None:
        self.cluster = cluster
        self._file = {**_defaults(), "clusterName": cluster, **changes}
        self._stuck: dict[str, str] = {}
        self._keeps_deleted = version_of(version) < (3, 0, 0)
        self.overrides: dict[str, str] = {}

    def running(self, broker: str) -> dict[str, str]:
        """What a broker runs with; a value that it cannot read changes nothing."""
        host, _, port = broker.rpartition(":")
        own = {"advertisedAddress": host, "webServicePort": f"Optional[{port}]"}
        taken = {key: read for key, value in self.overrides.items() if (read := self._read(key, value)) is not None}
        return {**self._file, **own, **self._stuck, **taken}

    def dynamic(self, key: str) -> bool:
        """Whether it can be overridden while brokers run."""
        return key.startswith("loadBalance") and key in self._file and key not in NOT_DYNAMIC

    def delete(self, key: str) -> None:
        """Take an override away; brokers before 3.0 run on with it."""
        value = self.overrides.pop(key, None)
        read = None if value is None else self._read(key, value)
        if read is not None and self._keeps_deleted:
            self._stuck[key] = read

    def _read(self, key: str, value: str) -> str | None:
        """As Java reads it: of a boolean everything but true is false; what is no number is none."""
        if self._file[key] in {"true", "false"}:
            return str(value.strip().lower() == "true").lower()
        if not _is_number(self._file[key]) or _is_number(value):
            return value
        return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

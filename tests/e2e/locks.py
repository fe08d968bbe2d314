"""Who owns which bundle, by ZooKeeper, in which a broker of the modular manager holds a lock for each of its bundles.

The brokers themselves are not asked: one that is asked for all it owns (``ownedNamespaces``) while it takes a bundle
over can hang for good (docs/decisions/0018-landings-are-proven.md). Brokers of the extensible manager hold no locks.
"""

from __future__ import annotations

import re
import socket

from tests.e2e import settings

TIMEOUT_SECONDS = 2.0

_LOCK = re.compile(r"^\s*/namespace/(.+/0x\w+)$", re.MULTILINE)
_BROKER = re.compile(r"^\s*/loadbalance/brokers/(\S+)$", re.MULTILINE)


def held(timeout_seconds: float = TIMEOUT_SECONDS) -> dict[str, str]:
    """The broker that holds the lock of each bundle now; raises OSError where ZooKeeper does not answer."""
    with socket.create_connection(("127.0.0.1", settings.ZOOKEEPER_PORT), timeout_seconds) as connection:
        connection.sendall(b"dump")
        return holders(b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode())


def holders(dump: str) -> dict[str, str]:
    """The same of ZooKeeper's list of sessions and what each of them keeps."""
    found: dict[str, str] = {}
    for session in dump.split("\n0x"):
        for broker in _BROKER.findall(session):
            found |= dict.fromkeys(_LOCK.findall(session), broker)
    return found

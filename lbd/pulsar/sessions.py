"""Connections to brokers, kept open between requests: no proxy, no netrc, and only a GET is sent a second time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, ReadTimeoutError
from urllib3.util import Retry

if TYPE_CHECKING:
    from lbd.pulsar.settings import PulsarSettings


class Sessions:
    """One for each thread that asks; it goes with its thread."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._local = threading.local()
        self._open: WeakSet[requests.Session] = WeakSet()
        self._lock = threading.Lock()

    def own(self) -> requests.Session:
        """The one of the thread that asks."""
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = _new(self._settings)
            with self._lock:
                self._open.add(session)
        return session

    def close(self) -> None:
        """End the idle connections of all threads; one in use ends with its answer, and who asks on has new ones."""
        with self._lock:
            found = list(self._open)
        for session in found:
            session.close()


class _Retry(Retry):
    """Sends a GET again when its connection broke; one that timed out has had its time."""

    def increment(self, *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401 - urllib3's signature
        error = kwargs.get("error")
        if isinstance(error, ReadTimeoutError | ConnectTimeoutError):
            raise error
        return super().increment(*args, **kwargs)


def _new(settings: PulsarSettings) -> requests.Session:
    """Credentials come from the settings alone; only GETs are sent again."""
    session = requests.Session()
    session.trust_env = False
    retry = _Retry(total=2, status=0, redirect=False, other=0, backoff_factor=0.1, allowed_methods={"GET"})
    adapter = HTTPAdapter(max_retries=retry, pool_connections=settings.concurrency, pool_maxsize=2)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    tls = settings.tls
    session.verify = str(tls.ca_file) if tls.ca_file else True
    if tls.cert_file and tls.key_file:
        session.cert = (str(tls.cert_file), str(tls.key_file))
    return session

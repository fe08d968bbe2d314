"""What went wrong with a request, in one line of ours; nothing of the request's headers is in it."""

from __future__ import annotations

from urllib.parse import urlsplit

import requests
from urllib3.exceptions import ProtocolError

from lbd.errors import AdminError, LbdError


def translated(method: str, url: str, error: Exception) -> AdminError:
    """An error of requests, urllib3 or the TLS files as one of ours."""
    unreached = _unreached(url, error)
    words = unreached or _went_wrong(url, error)
    return AdminError(f"{method} {told(url)}: {words}", sent=unreached is None)


def timed_out(error: LbdError) -> bool:
    """Whether a request failed because nobody took it, or answered it, in time."""
    return error.__cause__ is not None and _late(error.__cause__)


def _late(error: BaseException) -> bool:
    return isinstance(error, requests.exceptions.Timeout) or "Read timed out" in str(error)


def _unreached(url: str, error: Exception) -> str | None:
    """Why the broker has not even heard of the request; None when it may have."""
    text = str(error)
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "no connection in time; is the address right and the broker up?"
    if "Connection refused" in text:
        return "connection refused; is the address right and the broker up?"
    if "Name or service not known" in text or "Failed to resolve" in text:
        return f"unknown host {urlsplit(url).hostname!r}"
    return None


def _went_wrong(url: str, error: Exception) -> str:
    text = str(error)
    why = " ".join(_innermost(error).split())[:160]
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return "TLS failed: no TLS is spoken there, whatever pulsar.tls.ca_file is; is this the port for http?"
    if isinstance(error, requests.exceptions.SSLError) and ("has expired" in why or "not yet valid" in why):
        return f"TLS failed: {why}; renew it at whoever answers there, or set the clock of this machine right"
    if isinstance(error, requests.exceptions.SSLError):
        return f"TLS failed: {why}; check pulsar.tls.ca_file and the certificate's names"
    if _late(error):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ConnectionError) and url.startswith("http:"):
        return f"no HTTP answer: {why}; is this the port for https?"
    return f"the answer broke off: {why}" if isinstance(error, ProtocolError) else why


def _innermost(error: BaseException) -> str:
    """The text of what began it: requests wraps urllib3's errors, which wrap the system's."""
    causes = [getattr(error, "reason", None), *error.args]
    cause = next((one for one in causes if isinstance(one, BaseException)), None)
    return str(error) if cause is None else _innermost(cause)


def told(url: str) -> str:
    """A URL on one line, without its query."""
    return "".join(char if char.isprintable() else "?" for char in url.partition("?")[0])

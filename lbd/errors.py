"""The errors that lbd raises, one class per reaction of a caller.

::

    LbdError                       one line: what failed, on which thing, the value seen, what would be right
    ├── UsageError         exit 2  the command line or the configuration is wrong
    ├── ObserveError       exit 3  the cluster cannot be observed, or its history is too bad to learn from
    │   ├── AdminError             one admin request failed; carries the status and the address
    │   └── UnheardError           brokers publish their load, and lbd has only started to listen
    ├── RefusedError       exit 4  lbd could act and must not
    │   └── NotLeaderError         another lbd leads, and takes the orders; carries its name and the address of its API
    └── ThreadError                the system has no thread left; the work can be tried again

A failed unload is no error of lbd: it is an :class:`lbd.model.Outcome`, from which exit code 5 is made.
"""

from __future__ import annotations

from lbd.foreign import printable
from lbd.redaction import redacted


class LbdError(Exception):
    """Base of all errors that a person reads in one line; as text it shows no secret (:mod:`lbd.redaction`)."""

    exit_code = 1

    def __str__(self) -> str:
        return redacted(super().__str__())


class UsageError(LbdError):
    """The command line, the configuration or an input file is wrong."""

    exit_code = 2


class ThreadError(LbdError):
    """The system has no thread left for some work; nothing of it was done."""


class ObserveError(LbdError):
    """The cluster, or too much of it, cannot be observed; or too much of its record is bad.

    The message contains text from brokers, and is printable (:mod:`lbd.foreign`).
    """

    exit_code = 3

    def __str__(self) -> str:
        return printable(super().__str__())


class AdminError(ObserveError):
    """One request to a broker's admin API had no usable response.

    ``status`` is the HTTP status, or None without a usable response: the broker may have acted all the same, unless
    ``sent`` is False, for a request that never reached it.
    """

    def __init__(self, message: str, *, status: int | None = None, sent: bool = True) -> None:
        super().__init__(message)
        self.status = status
        self.sent = sent


class UnheardError(ObserveError):
    """No load was received yet from brokers that publish it by themselves, and none of them is late."""


class RefusedError(LbdError):
    """lbd could act, and a rule says that it must not."""

    exit_code = 4


class UnpublishedError(RefusedError):
    """A change of the orders that could not be published to the other lbds now; it may be made again."""


class NotLeaderError(RefusedError):
    """An order that only the leader accepts; ``leader`` is its name, None where it is unknown.

    ``leader_url`` is the address of its API; None where that is unknown.
    """

    def __init__(self, message: str, leader: str | None, leader_url: str | None = None) -> None:
        super().__init__(message)
        self.leader, self.leader_url = leader, leader_url


def unread(error: OSError | UnicodeDecodeError) -> str:
    """Reason why a text file could not be read, without its content, which may hold a secret."""
    return "it is no text" if isinstance(error, UnicodeDecodeError) else error.strerror or type(error).__name__


def as_lbd_error(error: Exception) -> LbdError:
    """An exception in one line: lbd's own as it is; an unexpected one as a bug, with its trace."""
    if isinstance(error, LbdError):
        return error
    bug = LbdError(f"bug in lbd, please report it: {type(error).__name__}: {printable(' '.join(str(error).split()))}")
    bug.__cause__ = error
    return bug

"""Parser of a broker.conf, or of the environment from which Pulsar's images write one, with a broker's own rules.

The format is that of ``java.util.Properties``, in ISO-8859-1. Values are read as by Pulsar's ``FieldParser``: blanks
around them do not count, a blank value is no value, only ``true`` in any case is true, numbers are Java's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from javaproperties import InvalidUEscapeError, loads

from lbd.errors import UsageError
from lbd.pulsar.broker_configuration import DEFAULTS, PLACES_WITH, SHEDS_WITH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX = "PULSAR_PREFIX_"
"""Marks a setting in the environment of Pulsar's images (``apply-config-from-env.py``)."""

IDENTIFYING = frozenset({"clusterName", "zookeeperServers", "metadataStoreUrl"})
"""Keys without which no broker starts. No other product's file has one of these or a key of load balancing."""

_BLANK = "".join(map(chr, range(0x21)))
"""Characters that Java's ``String.trim`` removes."""

_DECIMAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_WHOLE = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class BrokerConf:
    """Settings of a broker.conf: ``values`` as ``configuration/runtime`` would give them, defaults included.

    ``left_out`` are the settings with which a broker does not start or which it ignores, a sentence each; ``notes``
    warn of values with a surprising meaning. Strategies of shedding and placement that are not set have no value: their
    defaults change in 5.0.
    """

    values: Mapping[str, str]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def read_broker_conf(content: bytes) -> BrokerConf:
    """Parse a broker.conf. Raises :class:`UsageError` if the content is no properties file of a Pulsar broker."""
    try:
        properties = loads(content)
    except InvalidUEscapeError as error:
        raise UsageError(f"{error}; wanted four hexadecimal digits after it; a broker does not start with it") from None
    prefixed = {key.removeprefix(PREFIX): text for key, text in properties.items() if key.startswith(PREFIX)}
    texts = {**properties, **prefixed}
    balancing = [key for key in DEFAULTS if key in texts]
    if not balancing and not prefixed and IDENTIFYING.isdisjoint(texts):
        raise UsageError(
            f"no setting of a Pulsar broker in it; wanted a broker.conf (lines of KEY=VALUE) or {PREFIX}KEY=VALUE"
        )
    values = {key: _canonical(default) for key, default in DEFAULTS.items() if key not in {SHEDS_WITH, PLACES_WITH}}
    left_out: list[str] = []
    notes = [] if balancing else ["no setting of load balancing is in the file: all values are Pulsar's defaults"]
    for key in balancing:
        text = texts[key].strip(_BLANK)
        try:
            values[key] = _effective(text, DEFAULTS[key])
        except ValueError as error:
            left_out.append(f"{key}={text}: {error}")
        notes.extend(_unexpected(key, text))
    return BrokerConf(values, tuple(left_out), tuple(notes))


def _canonical(value: bool | float | str | tuple[str, ...]) -> str:
    """The value as Java prints it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), str(value))


def _effective(text: str, default: bool | float | str | tuple[str, ...]) -> str:
    """The broker's own value of a text, as Java prints it. Raises ValueError where a broker would refuse it."""
    if isinstance(default, tuple):
        return _canonical(tuple(part.strip(_BLANK) for part in text.split(",") if part.strip(_BLANK)))
    if not text:
        raise ValueError(f"blank; brokers keep their default, {_canonical(default)}")
    if isinstance(default, bool):
        return _canonical(text.lower() == "true")
    if isinstance(default, str):
        return text
    return _canonical(_whole(text) if isinstance(default, int) else _decimal(text))


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise ValueError("wanted a whole number; a broker does not start with it")
    return int(text)


def _decimal(text: str) -> float:
    if hexadecimal := _HEXADECIMAL.fullmatch(text):
        return float.fromhex(hexadecimal[1])
    if not _DECIMAL.fullmatch(text):
        raise ValueError("wanted a number; a broker does not start with it")
    return float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD"))


def _unexpected(key: str, text: str) -> Iterator[str]:
    if isinstance(DEFAULTS[key], bool) and text and text.lower() not in {"true", "false"}:
        yield f"{key}={text} is false for a broker: only true is true"

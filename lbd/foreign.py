"""Text from outside (brokers, topics, clients of the API) becomes printable on entry. Pure.

Parsers of responses call this module, and so do texts of errors. Logs, sd_notify, terminals, the API, metrics and
notifications get nothing else, and need no care of their own. A character that could end a line, control a terminal or
change the direction of text becomes :data:`MARK`. A name with a mark differs from the broker's: it is shown, and no
request is sent for it (:mod:`lbd.pulsar.paths`).
"""

from __future__ import annotations

import re
import unicodedata

MARK = "\ufffd"
"""Replaces each character that is not printable."""

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters (ESC, NUL, bidirectional ones), surrogates, separators of lines and paragraphs."""

_SUSPECT = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\x20-\x7e\t\n\r]"
)
_HARMLESS = {'\\"', "\\\\", "\\/"}


def is_printable(text: str) -> bool:
    """Whether the text is one line without control characters, and without marks in their place."""
    return MARK not in text and printable(text) == text


def printable(text: str) -> str:
    """The text with a mark for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(MARK if unicodedata.category(char) in _UNPRINTABLE else char for char in text)


def printable_json(content: bytes) -> bytes:
    """A JSON document whose strings, keys too, are printable: the same object where they are.

    It works on the text, so that numbers stay as sent. Content that is not UTF-8 is returned as it is.
    """
    if content.isascii() and b"\\" not in content and b"\x7f" not in content:
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    cleaned = _SUSPECT.sub(_printable_match, text)
    return content if cleaned == text else cleaned.encode()


def _printable_match(match: re.Match[str]) -> str:
    written = match[0]
    if written in _HARMLESS:
        return written
    if len(written) == 1:
        return printable(written)
    if written[1] != "u":
        return MARK
    units = bytes.fromhex(written.replace("\\u", ""))
    char = units.decode("utf-16-be", errors="surrogatepass")
    return written if printable(char) == char else MARK

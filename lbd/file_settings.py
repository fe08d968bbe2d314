"""Types of settings that name a file or directory, and values that are refused as a path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

_JWT = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")
_SCHEME = re.compile(r"(token|bearer|basic|data|env)[: ]", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[^/]*[a-z])(?=[^/]*[A-Z])(?=[^/]*\d)[A-Za-z0-9+=]{24,}")
_NO_PATH = (
    "this is not a path to a file (value not shown: it may be a secret); wanted the file with it, as /PATH or ./NAME"
)


def _path(value: object) -> object:
    """Refuse an empty path, which would be the working directory. Nothing is expanded."""
    if not isinstance(value, str | Path):
        return value
    text = str(value)
    if not text.strip() or "\0" in text:
        raise ValueError("wanted a path, neither empty nor with a NUL")
    if text.startswith("~"):
        raise ValueError("~ is not expanded here; wanted the whole path, as /home/NAME/...")
    return value


def _secret(value: object) -> object:
    """Refuse a secret in place of the path of its file: it would be shown wherever the path is."""
    if isinstance(value, str | Path) and _looks_like_a_secret(str(value)):
        raise ValueError(_NO_PATH)
    return value


def _looks_like_a_secret(text: str) -> bool:
    if not text.isprintable() or _JWT.search(text) or _SCHEME.match(text):
        return True
    try:
        is_there = Path(text).exists()
    except OSError:  # too long for a name
        return True
    if is_there or not text.strip():
        return False
    if not text.startswith(("/", "./", "../", "~")):
        return True
    return any(_RANDOM.fullmatch(part) for part in text.split("/"))


FilePath = Annotated[Path, BeforeValidator(_path)]
"""A file or directory that is no secret."""

SecretPath = Annotated[Path, BeforeValidator(_path), BeforeValidator(_secret)]
"""A file whose content is a secret. A value that cannot be a path is refused without being shown."""

"""Puts the commit into what is built, for ``lbd --version``; an editable install has none."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILE = "lbd/commit.txt"


class CommitHook(BuildHookInterface[Any]):
    """SOURCE_COMMIT, else git's; a wheel that is built from an sdist takes the file that came in it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to a wheel or sdist of a checkout; where no commit is known there is none."""
        if version == "editable" or (Path(self.root) / FILE).is_file():
            return
        commit = os.environ.get("SOURCE_COMMIT", "").strip() or _commit(self.root)
        if commit:
            self._folder = tempfile.TemporaryDirectory()
            path = Path(self._folder.name) / "commit.txt"
            path.write_text(f"{commit}\n", encoding="ascii")
            build_data["force_include"][str(path)] = FILE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written for it."""
        del version, build_data, artifact_path
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _commit(root: str) -> str:
    """Twelve digits, with a word where files were changed since; nothing outside a checkout."""
    if not (Path(root) / ".git").exists():
        return ""
    command = ["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - no shell
    except (OSError, subprocess.CalledProcessError):
        return ""

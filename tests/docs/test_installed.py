"""With only README and docs/operating.md: from a checkout to the demo, and to units that systemd would start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.docs import tables
from tests.docs.snippets import ROOT, snippets

if TYPE_CHECKING:
    from pathlib import Path

HERE = re.compile(r"(?<=\s)/(?=(etc|opt|usr)/)")
OFFLINE = """#!/bin/sh
[ "$1" = daemon-reload ] && exit
exec {real} --root="{root}" $(echo "$*" | sed 's/ --now//')
"""
"""systemd's own program on a tree of files: all that it does but starting what is enabled."""


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A folder of programs that do below ``root`` what they would do to the machine."""
    folder, root = tmp_path / "bin", tmp_path / "root"
    folder.mkdir()
    programs = {"sudo": '#!/bin/sh\nexec "$@"\n'}
    for name in ("systemctl", "systemd-sysusers"):
        real = shutil.which(name)
        if real is None:
            pytest.skip(f"no {name}")
        programs[name] = OFFLINE.format(real=real, root=root)
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in ("etc/systemd/system", "usr/lib/sysusers.d", "usr/local/bin", "opt"):
        (root / name).mkdir(parents=True)
    return folder


@pytest.mark.e2e
def test_from_nothing_to_a_service(shell: Path, tmp_path: Path):
    """Each line of both pages that installs something, in a copy of the checkout and in new virtual environments."""
    root, checkout = tmp_path / "root", tmp_path / "lbd"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".*", "tests", "__pycache__"))
    shutil.copy(ROOT / "examples" / "lbd.yaml", checkout)
    clean = {name: value for name, value in os.environ.items() if not re.match("LBD_|PYTHON|VIRTUAL_ENV", name)}
    environ = {**clean, "PATH": f"{shell}:{os.environ['PATH']}", "SOURCE_COMMIT": "0123456789ab"}

    def run(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, cwd=checkout, env=environ, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    pages = (ROOT / "README.md", ROOT / "docs" / "operating.md")
    blocks = [one for page in pages for one in snippets(page) if one.kind == "shell"]
    lines = [line for block in blocks for _, line in block.commands]
    said = [
        run(HERE.sub(f"{root}/", f"{line} --seconds 2" if line.endswith(" demo") else line)) for line in mine(lines)
    ]

    assert "What next:" in said[0]
    assert run(f"{root}/usr/local/bin/lbd --version") == "lbd 0.1.0 (commit 0123456789ab)\n"
    run(f"{root}/usr/local/bin/lbd config check --config {root}/etc/lbd/lbd.yaml")
    assert "lbd:" in (root / "etc" / "passwd").read_text()
    assert run("systemctl is-enabled lbd.service lbd-calibrate.timer").split() == ["enabled", "enabled"]


def mine(lines: list[str]) -> list[str]:
    """Those that the table says are run here, in the pages' order."""
    here = [begin for begin, test in tables.ELSEWHERE.items() if test == tables.INSTALLED]
    found = [line for line in lines if line.startswith(tuple(here))]
    assert len(found) >= len(here)
    return found

"""What tests of chart and workflows run: Helm, actionlint, and for those marked soak a Kubernetes API server.

Helm and actionlint are in the virtual environment (tests/tools.txt). ``python -m tests.helm.parts`` builds etcd and the
API server from their Go modules; what is there already costs nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.e2e.artifacts import Missing, cache_root

DEFINITIONS = Path(__file__).parents[1] / "data" / "prometheus-operator"
"""The custom resource definitions of the kinds that the chart renders, from release v0.85.0 of Prometheus' operator."""

KUBERNETES = "v1.37.0"
BUILD_SECONDS = 3600
"""The API server takes a quarter of an hour on two cores of its own."""


def command(name: str) -> Path:
    """``helm`` or ``actionlint`` of the virtual environment. Raises :class:`Missing` where it is not there."""
    found = Path(sys.prefix) / "bin" / name
    if not found.exists():
        raise Missing(f"no {name} in {sys.prefix}; tests/setup installs it from tests/tools.txt")
    return found


@cache
def control_plane() -> Path:
    """The folder with the commands ``server``, which is etcd, and ``kube-apiserver``.

    Raises :class:`Missing` where they are neither there nor can be built.
    """
    folder = cache_root() / f"kubernetes-{KUBERNETES}"
    if not folder.exists():
        source = Path(json.loads(_go("mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}"))["Dir"])
        own = (source / "go.mod").read_text(encoding="utf-8")
        staged = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", own, flags=re.MULTILINE)
        (go,) = re.findall(r"^go .*$", own, flags=re.MULTILINE)
        module = ["module control-plane", go, f"require k8s.io/kubernetes {KUBERNETES}"]
        module += [f"replace {name} => {name} v0{KUBERNETES.removeprefix('v1')}" for name in staged]
        with tempfile.TemporaryDirectory(dir=cache_root()) as fresh:
            at = Path(fresh)
            (at / "go.mod").write_text("\n".join(module), encoding="utf-8")
            shutil.copyfile(source / "go.sum", at / "go.sum")
            version = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
            commands = ("go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kube-apiserver")
            flags = ("-mod=mod", "-buildvcs=false", f"-ldflags=-s -w {version}", "-o", "bin/")
            _go("build", *flags, *commands, folder=at)
            (at / "bin").replace(folder)
    return folder


def _go(*words: str, folder: Path | None = None, **environ: str) -> str:
    if shutil.which("go") is None:
        raise Missing("no go command found; the API server is built from its Go modules (Go 1.25 or newer)")
    with tempfile.TemporaryDirectory() as outside:
        done = subprocess.run(
            ["go", *words],
            capture_output=True,
            text=True,
            cwd=folder or outside,
            env=os.environ | environ,
            timeout=BUILD_SECONDS,
            check=False,
        )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Missing(f"go {words[0]} {words[-1]}: {' '.join(last)}")
    return done.stdout


def main() -> int:
    """Build etcd and the API server, or say what is missing."""
    try:
        print(f"etcd and the API server of Kubernetes {KUBERNETES} in {control_plane()}")
    except (Missing, subprocess.TimeoutExpired) as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

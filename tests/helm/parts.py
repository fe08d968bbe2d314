"""What tests need of Go modules: Helm, for the chart, the operator's schemas, and actionlint, for the workflows.

``python -m tests.helm.parts`` fetches them; what is there already costs nothing. ``python -m tests.helm.parts
control-plane`` builds etcd and the API server, too, which only tests marked soak need.
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

HELM = "v3.22.0"
ACTIONLINT = "v1.7.12"
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
KUBERNETES = "v1.37.0"
"""The release whose modules Helm is built with: ``v0.37.0`` of each."""
BUILD_SECONDS = 3600  # Helm takes two minutes on two cores of its own, the API server a quarter of an hour

LINKED = " ".join(f"-X helm.sh/helm/v3/pkg/chartutil.k8sVersion{part}" for part in ("Major=1", "Minor=30"))
"""The Kubernetes that helm takes for its own where it asks none; releases are built with theirs."""


@cache
def helm() -> Path:
    """The helm command. Raises :class:`Missing` where it is neither there nor can be built."""
    return _command("helm", HELM, "helm.sh/helm/v3/cmd/helm", f"-ldflags={LINKED}")


@cache
def actionlint() -> Path:
    """The actionlint command. Raises :class:`Missing` where it is neither there nor can be built."""
    return _command("actionlint", ACTIONLINT, "github.com/rhysd/actionlint/cmd/actionlint")


@cache
def definitions() -> Path:
    """The folder with the custom resource definitions of Prometheus' operator."""
    found = json.loads(_go("mod", "download", "-json", OPERATOR))
    return Path(found["Dir"]) / "example" / "prometheus-operator-crd"


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


def _command(name: str, version: str, module: str, *flags: str) -> Path:
    folder = cache_root() / f"{name}-{version}"
    command = folder / name
    if not command.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
            _go("install", *flags, f"{module}@{version}", GOBIN=fresh)
            folder.mkdir(exist_ok=True)
            (Path(fresh) / name).replace(command)
    return command


def _go(*words: str, folder: Path | None = None, **environ: str) -> str:
    if shutil.which("go") is None:
        raise Missing("no go command found; Helm and actionlint are built from their Go modules (Go 1.25 or newer)")
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
    """Fetch all, and say what is missing."""
    try:
        print(f"helm {HELM} in {helm()}")
        print(f"actionlint {ACTIONLINT} in {actionlint()}")
        print(f"custom resource definitions in {definitions()}")
        if "control-plane" in sys.argv[1:]:
            print(f"etcd and the API server of Kubernetes {KUBERNETES} in {control_plane()}")
    except (Missing, subprocess.TimeoutExpired) as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

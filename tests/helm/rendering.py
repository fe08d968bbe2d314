"""What helm makes of the chart."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from lbd.config import load
from tests.helm.readme import CHART

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.config import Loaded

KUBERNETES = ("1.27", "1.30", "1.33", "1.36")
SETUPS = sorted((CHART / "ci").glob("*.yaml"))
Manifest = dict[str, Any]


class Rejected(Exception):  # noqa: N818 - helm's word for it
    """Helm's complaint, without its hints."""


@dataclass(frozen=True)
class Chart:
    """A chart, lbd's unless another one is named, under one helm."""

    helm: Path
    folder: Path = CHART

    def template(self, *words: str, version: str = KUBERNETES[1], release: str = "lbd") -> list[Manifest]:
        """All manifests, hooks included. Raises :class:`Rejected`."""
        text = self.run("template", release, str(self.folder), "--kube-version", f"{version}.0", *words)
        return [found for found in yaml.safe_load_all(text) if found]

    def of(self, setup: Path, **options: str) -> list[Manifest]:
        """The manifests of a file of values."""
        return self.template("-f", str(setup), **options)

    def with_values(self, values: dict[str, Any]) -> list[Manifest]:
        """The manifests of these values."""
        words = [f"{name}={json.dumps(value)}" for name, value in values.items()]
        return self.template(*(word for one in words for word in ("--set-json", one)))

    def run(self, *words: str) -> str:
        """Any command of helm's."""
        done = subprocess.run([self.helm, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Rejected(done.stderr or done.stdout)
        return done.stdout


def one(manifests: list[Manifest], kind: str, end: str = "") -> Manifest:
    """The only manifest of its kind whose name ends so."""
    (found,) = (each for each in manifests if each["kind"] == kind and each["metadata"]["name"].endswith(end))
    return found


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Name and pod template of everything that runs."""
    for manifest in manifests:
        spec = manifest.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield manifest["metadata"]["name"], spec["template"]


def settings(manifests: list[Manifest], pod: Manifest, folder: Path) -> Loaded:
    """lbd's settings as lbd reads them in this pod: of the ConfigMap it mounts, and of its environment.

    Raises :class:`lbd.errors.UsageError` for what lbd would refuse.
    """
    (mounted,) = (volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if volume["name"] == "config")
    (text,) = (each["data"]["lbd.yaml"] for each in manifests if _named(each, "ConfigMap", mounted))
    path = folder / "lbd.yaml"
    path.write_text(text)
    container = pod["spec"]["containers"][0]
    own = {each["name"]: each["value"] for each in container.get("env", []) if each["name"][:4] == "LBD_"}
    return load(path, {name: value.replace("$(POD_NAME)", "lbd-0") for name, value in own.items()})


def _named(manifest: Manifest, kind: str, name: str) -> bool:
    return manifest["kind"] == kind and manifest["metadata"]["name"] == name

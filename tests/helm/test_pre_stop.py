"""The preStop hook in both charts: lbd's has the script, and the Apache one gets it by values and a post-renderer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest

from tests import parts
from tests.helm.files import EXAMPLES
from tests.helm.rendering import KUBERNETES, Chart, Rejected, one

if TYPE_CHECKING:
    from tests.helm.rendering import Manifest

APACHE = EXAMPLES / "kubernetes" / "apache-chart"
ENABLED = {"preStop.enabled": True, "api.tokenSecretName": "lbd-api", "api.tokenKey": "token"}
BROKERS = {"podSelector": {"matchLabels": {"app": "pulsar", "component": "broker"}}}

CHART = "{apiVersion: v2, name: pulsar, version: 4.7.0}"
VALUES = "{broker: {gracePeriod: 30, extraEnvs: [], extraVolumes: [], extraVolumeMounts: []}}"
TEMPLATE = """
{{- range $component := list "broker" "proxy" }}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $.Release.Name }}-{{ $component }}
  labels: {app: pulsar, release: {{ $.Release.Name }}, component: {{ $component }}}
spec:
  serviceName: {{ $.Release.Name }}-{{ $component }}-headless
  selector: {matchLabels: {component: {{ $component }}}}
  template:
    metadata: {labels: {component: {{ $component }}}}
    spec:
      terminationGracePeriodSeconds: {{ $.Values.broker.gracePeriod }}
      containers:
        - name: {{ $.Release.Name }}-{{ $component }}
          image: apachepulsar/pulsar-all:4.0.12
          env: {{ toJson $.Values.broker.extraEnvs }}
          volumeMounts: {{ toJson $.Values.broker.extraVolumeMounts }}
      volumes: {{ toJson $.Values.broker.extraVolumes }}
{{- end }}
"""
"""What the hook needs of the Apache chart, 4.6.0 to 4.7.0: the labels and names of its pods, and these values."""


@pytest.fixture
def apache(chart: Chart, tmp_path: Path) -> list[Manifest]:
    """Its brokers and proxies, rendered as docs/rollout.md says."""
    if shutil.which("kubectl") is None:
        parts.do_without("helm", "no kubectl command found; it has kustomize")
    (tmp_path / "pulsar" / "templates").mkdir(parents=True)
    for name, text in {"Chart.yaml": CHART, "values.yaml": VALUES, "templates/all.yaml": TEMPLATE}.items():
        (tmp_path / "pulsar" / name).write_text(text)
    words = ("-f", str(APACHE / "values.yaml"), "--post-renderer", str(APACHE / "post-render.sh"))
    return Chart(chart.helm, tmp_path / "pulsar").template(*words, release="pulsar")


def container(manifest: Manifest) -> dict[str, Any]:
    """The only one of its pods."""
    (found,) = manifest["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_brokers_have_the_hook_and_nothing_else_has(apache: list[Manifest]):
    """Kubernetes takes it; the grace is long enough for the hook and for the broker's own shutdown."""
    broker, proxy = one(apache, "StatefulSet", "-broker"), one(apache, "StatefulSet", "-proxy")
    for version in KUBERNETES:
        kubernetes_validate.validate(broker, version, strict=True)
    environ = {each["name"]: each["value"] for each in container(broker)["env"]}

    assert container(broker)["lifecycle"] == {"preStop": {"exec": {"command": ["sh", "/lbd/pre-stop.sh"]}}}
    assert "lifecycle" not in container(proxy)
    grace = broker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= int(environ["LBD_PRE_STOP_SECONDS"]) + 60 + 30


def test_the_names_in_both_charts_meet(chart: Chart, apache: list[Manifest]):
    """The script, the token and the address that brokers look for are those that lbd's chart makes."""
    made = chart.with_values(ENABLED)
    script, service = one(made, "ConfigMap", "-pre-stop"), one(made, "Service", "lbd")
    broker = one(apache, "StatefulSet", "-broker")
    pod, own = broker["spec"]["template"]["spec"], container(broker)
    environ = {each["name"]: each["value"] for each in own["env"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["mountPath"]: volumes[each["name"]] for each in own["volumeMounts"]}

    name = Path(own["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert mounts[str(name.parent)]["configMap"] == {"name": script["metadata"]["name"], "optional": True}
    assert script["data"] == {name.name: (EXAMPLES / "kubernetes" / name.name).read_text()}
    secret, token = mounts[str(Path(environ["LBD_TOKEN_FILE"]).parent)]["secret"], Path(environ["LBD_TOKEN_FILE"])
    assert (secret["secretName"], token.name) == (ENABLED["api.tokenSecretName"], ENABLED["api.tokenKey"])
    (port,) = service["spec"]["ports"]
    assert environ["LBD_URL"] == f"http://{service['metadata']['name']}:{port['port']}"


def test_the_script_is_made_only_where_it_is_asked_for(chart: Chart):
    """It is of no use where no broker can reach the API."""
    assert [each for each in chart.template() if each["metadata"]["name"].endswith("-pre-stop")] == []
    with pytest.raises(Rejected, match=r"preStop\.enabled needs api\.tokenSecretName"):
        chart.with_values({"preStop.enabled": True})
    closed = ENABLED | {"networkPolicy.enabled": True}
    with pytest.raises(Rejected, match=r"needs the brokers in networkPolicy\.ingressFrom"):
        chart.with_values(closed)
    policy = one(chart.with_values(closed | {"networkPolicy.ingressFrom": [BROKERS]}), "NetworkPolicy")
    assert policy["spec"]["ingress"][0]["from"] == [BROKERS]

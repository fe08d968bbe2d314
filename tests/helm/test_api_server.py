"""The chart on a real API server: what it validates, stores, allows and forgets."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests import parts
from tests.daemon.test_service import eventually
from tests.e2e.artifacts import Missing
from tests.helm.api_server import running
from tests.helm.files import EXAMPLES
from tests.helm.parts import DEFINITIONS, control_plane
from tests.helm.readme import CHART
from tests.helm.rendering import SETUPS, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.helm.api_server import ApiServer
    from tests.helm.rendering import Chart, Manifest

pytestmark = pytest.mark.soak

MINIMAL = CHART / "ci" / "values-minimal.yaml"
ENABLED = ("--set", "rollout.enabled=true,api.tokenSecretName=lbd-api,preStop.enabled=true")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One that knows the kinds of Prometheus' operator."""
    try:
        control_plane()
    except (Missing, subprocess.TimeoutExpired) as missing:
        parts.do_without("helm", str(missing))
    with running(tmp_path_factory.mktemp("api-server")) as found:
        for kind in ("podmonitors", "prometheusrules", "servicemonitors"):
            definition = yaml.safe_load((DEFINITIONS / f"monitoring.coreos.com_{kind}.yaml").read_text())
            found.made("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        eventually(lambda: found.request("GET", "/apis/monitoring.coreos.com/v1").ok)
        yield found


NUMBERS = count(1)


@pytest.fixture
def namespace(server: ApiServer) -> str:
    """A fresh one."""
    name = f"lbd-{next(NUMBERS)}"
    server.made("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.mark.parametrize("setup", SETUPS, ids=lambda path: path.stem)
def test_every_manifest_is_strictly_valid(server: ApiServer, chart: Chart, namespace: str, setup: Path):
    """The server itself says so: no field that it does not know, no value that it refuses."""
    for manifest in chart.of(setup):
        if "helm.sh/hook" not in manifest["metadata"].get("annotations", {}):
            server.made(_path(server, manifest, namespace), manifest, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize("setup", SETUPS, ids=lambda path: path.stem)
def test_what_is_uninstalled_leaves_nothing(server: ApiServer, namespace: str, setup: Path):
    """Installed, upgraded with the same values, and uninstalled: all of it comes, stays, and goes."""
    server.helm("install", "lbd", str(CHART), "-n", namespace, "-f", str(setup))
    installed = _own(server, namespace)
    assert len(installed) > 3
    server.helm("upgrade", "lbd", str(CHART), "-n", namespace, "-f", str(setup))
    assert _own(server, namespace) == installed
    server.helm("uninstall", "lbd", "-n", namespace, "--no-hooks")  # nobody would run the Job that gives shedding back
    assert server.objects(namespace) == set()


def test_an_upgrade_changes_what_its_values_say(server: ApiServer, namespace: str):
    """From the least to the Job of rollouts and the preStop hook, and back; the daemon's settings follow."""
    words = ("lbd", str(CHART), "-n", namespace, "-f", str(MINIMAL))
    server.helm("install", *words)
    least = _own(server, namespace)
    server.helm("upgrade", *words, *ENABLED, "--set", "config.mode=approve")
    more = _own(server, namespace)
    kinds = {"CronJob", "Role", "RoleBinding", "ServiceAccount", "ConfigMap"}
    assert kinds <= {name.partition("/")[0] for name in more - least}
    assert least <= more
    maps = server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps").json()["items"]
    assert "mode: approve" in "".join(text for each in maps for text in each["data"].values())
    server.helm("upgrade", *words)
    assert _own(server, namespace) == least


def test_a_value_that_the_server_refuses_leaves_the_release_as_it_was(server: ApiServer, namespace: str):
    """The chart cannot know that a label is too long; the objects of the release before stay."""
    words = ("lbd", str(CHART), "-n", namespace, "-f", str(MINIMAL))
    server.helm("install", *words)
    before = _own(server, namespace)
    with pytest.raises(Rejected, match="63 "):
        server.helm("upgrade", *words, "--set", f"podLabels.team={'x' * 64}")
    assert _own(server, namespace) == before


def test_only_the_script_of_the_rollout_has_rights(server: ApiServer, namespace: str):
    """By the server's own authorizer: get and delete of pods in its namespace, and nothing at all for lbd."""
    server.helm("install", "lbd", str(CHART), "-n", namespace, "-f", str(MINIMAL), *ENABLED)
    allowed = {
        verb: server.may(namespace, "lbd-rollout", verb, "pods")
        for verb in ("get", "delete", "list", "watch", "create", "patch", "deletecollection")
    }
    assert [verb for verb, may in allowed.items() if may] == ["get", "delete"]
    assert not server.may(namespace, "lbd-rollout", "get", "secrets")
    (rule,) = server.rights(namespace, "lbd-rollout")
    assert (rule["verbs"], rule["resources"]) == (["get", "delete"], ["pods"])
    assert server.rights(namespace, "lbd") == []


def test_the_script_restarts_a_pod(server: ApiServer, namespace: str, tmp_path: Path):
    """With the token of its account. The test is StatefulSet controller and kubelet: it ends the pod, makes another."""
    server.helm("install", "lbd", str(CHART), "-n", namespace, "-f", str(MINIMAL), *ENABLED)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = _broker(server, namespace)
    first = server.made(pods, pod)["metadata"]["uid"]
    account = _account(server, namespace, "lbd-rollout", tmp_path)
    ended = threading.Event()

    def controller() -> None:
        while not ended.wait(0.2):
            found = server.request("GET", f"{pods}/pulsar-broker-0").json()
            if "deletionTimestamp" in found.get("metadata", {}):
                server.request("DELETE", f"{pods}/pulsar-broker-0", {"gracePeriodSeconds": 0})
                server.made(pods, pod)

    thread = threading.Thread(target=controller)
    thread.start()
    try:
        done = _restart(server, account, f"pulsar-broker-0.pulsar-broker.{namespace}.svc.cluster.local")
    finally:
        ended.set()
        thread.join()
    assert (done.returncode, done.stdout) == (0, "pod pulsar-broker-0 was deleted, and made again\n"), done.stderr
    assert server.request("GET", f"{pods}/pulsar-broker-0").json()["metadata"]["uid"] != first


def test_another_account_is_refused_in_one_line(server: ApiServer, namespace: str, tmp_path: Path):
    """That of the daemon: the pod stays."""
    server.helm("install", "lbd", str(CHART), "-n", namespace, "-f", str(MINIMAL), *ENABLED)
    server.made(f"/api/v1/namespaces/{namespace}/pods", _broker(server, namespace))
    account = _account(server, namespace, "lbd", tmp_path)
    done = _restart(server, account, f"pulsar-broker-0.pulsar-broker.{namespace}.svc.cluster.local")
    assert done.returncode == 1
    assert done.stderr.startswith('the API server refuses: pods "pulsar-broker-0" is forbidden')
    assert done.stderr.count("\n") == 1
    assert server.request("GET", f"/api/v1/namespaces/{namespace}/pods/pulsar-broker-0").ok


def _own(server: ApiServer, namespace: str) -> set[str]:
    """Without Helm's own records of releases."""
    return {name for name in server.objects(namespace) if not name.startswith("Secret/sh.helm.release")}


def _path(server: ApiServer, manifest: Manifest, namespace: str) -> str:
    """Where objects of this kind are made."""
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    resources = server.request("GET", root).json()["resources"]
    (name,) = (each["name"] for each in resources if each["kind"] == manifest["kind"] and "/" not in each["name"])
    return f"{root}/namespaces/{namespace}/{name}"


def _broker(server: ApiServer, namespace: str) -> dict[str, Any]:
    """A pod of a StatefulSet that a kubelet runs: a pod without a node would end at once when it is deleted."""
    template = {
        "metadata": {"labels": {"app": "broker"}},
        "spec": {"containers": [{"name": "broker", "image": "registry.example/pulsar"}]},
    }
    owner = server.made(
        f"/apis/apps/v1/namespaces/{namespace}/statefulsets",
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "pulsar-broker"},
            "spec": {
                "serviceName": "pulsar-broker",
                "selector": {"matchLabels": {"app": "broker"}},
                "template": template,
                "updateStrategy": {"type": "OnDelete"},
            },
        },
    )
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "pulsar-broker", "controller": True}
    spec = template["spec"] | {"nodeName": "node", "hostname": "pulsar-broker-0", "subdomain": "pulsar-broker"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "pulsar-broker-0",
            "labels": {"app": "broker"},
            "ownerReferences": [reference | {"uid": owner["metadata"]["uid"]}],
        },
        "spec": spec,
    }


def _account(server: ApiServer, namespace: str, name: str, folder: Path) -> Path:
    """The folder that a pod of this service account has."""
    (folder / "token").write_text(server.token(namespace, name))
    (folder / "namespace").write_text(namespace)
    (folder / "ca.crt").write_bytes(server.certificate.read_bytes())
    return folder


def _restart(server: ApiServer, account: Path, host: str) -> subprocess.CompletedProcess[str]:
    where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
    return subprocess.run(
        [sys.executable, EXAMPLES / "kubernetes" / "restart_pod.py", host],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | where | {"SERVICE_ACCOUNT_FOLDER": str(account)},
    )

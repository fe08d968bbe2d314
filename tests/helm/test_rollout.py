"""A rolling restart under OnDelete: the chart's Job may do little, and its script deletes the right pod, once."""

from __future__ import annotations

import importlib.util
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
import responses

from tests.cli.conftest import lbd
from tests.helm.files import EXAMPLES
from tests.helm.rendering import one, pods

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from tests.helm.rendering import Chart

ENABLED = {"rollout.enabled": True, "api.tokenSecretName": "lbd-api"}
HOST = "pulsar-broker-0.pulsar-broker-headless.pulsar.svc.cluster.local"
OTHER = "pulsar-broker-0.pulsar-broker-headless.other.svc"
POD = "https://10.0.0.1:443/api/v1/namespaces/pulsar/pods/pulsar-broker-0"
DENIED = {"kind": "Status", "message": 'pods "pulsar-broker-0" is forbidden'}
STOPS = {"deletionTimestamp": "2026-11-26T09:00:00Z"}


def test_only_the_script_has_rights(chart: Chart):
    """Two verbs on pods for the Job's own account; the daemon's account has none, and no pod but the Job's a token."""
    made = chart.with_values(ENABLED)
    role, binding, job = one(made, "Role"), one(made, "RoleBinding"), one(made, "CronJob")
    (subject,) = binding["subjects"]

    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "delete"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert subject["name"] == dict(pods(made))["lbd-rollout"]["spec"]["serviceAccountName"] == "lbd-rollout"
    assert dict(pods(made))["lbd"]["spec"]["serviceAccountName"] == "lbd"
    assert job["spec"]["suspend"] is True
    kinds = {each["kind"] for each in chart.template()}
    assert kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "CronJob"} == set()


def test_its_command_is_one_that_lbd_and_the_script_take(chart: Chart, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The arguments are parsed, the API is that of the Service, and the script is mounted where it is looked for."""
    made = chart.with_values(ENABLED | {"api.tlsSecretName": "tls"})
    (container,) = dict(pods(made))["lbd-rollout"]["spec"]["containers"]
    service, environ = one(made, "Service", "lbd"), {each["name"]: each["value"] for each in container["env"]}
    (port,) = service["spec"]["ports"]
    url = f"https://{service['metadata']['name']}:{port['port']}"
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("LBD_API__TOKEN_FILE", str(tmp_path / "token"))
    done = lbd(*container["args"][:2], "--api=http://127.0.0.1:9", container["args"][3])

    assert container["args"][2] == f"--api={url}"
    assert (done.exit_code, "no lbd answers there" in done.output) == (3, True), done.output
    _, script, argument = shlex.split(container["args"][3].partition("=")[2])
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert (script, argument) == (f"{mounts['script']}/restart_pod.py", "{host}")
    assert one(made, "ConfigMap", "-rollout")["data"].keys() == {"restart_pod.py"}
    assert environ == {
        "LBD_API__TOKEN_FILE": f"{mounts['api-token']}/token",
        "REQUESTS_CA_BUNDLE": f"{mounts['api-tls']}/ca.crt",
    }


def test_the_job_reaches_an_api_that_is_closed_otherwise(chart: Chart):
    """Its pods are among those that the network policy lets in."""
    made = chart.with_values(ENABLED | {"networkPolicy.enabled": True})
    (rule,) = one(made, "NetworkPolicy")["spec"]["ingress"]
    (peer,) = rule["from"]

    labels = dict(pods(made))["lbd-rollout"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "rollout"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The one in the chart, which waits for nothing."""
    spec = importlib.util.spec_from_file_location("restart_pod", EXAMPLES / "kubernetes" / "restart_pod.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return module


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """What Kubernetes mounts for a service account."""
    for name, text in {"token": "secret-token\n", "namespace": "pulsar", "ca.crt": ""}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def pod(uid: str = "old", owner: str = "StatefulSet", **metadata: Any) -> dict[str, Any]:
    """A broker's pod, as the API server shows it."""
    known = {"name": "pulsar-broker-0", "namespace": "pulsar", "uid": uid, "ownerReferences": [{"kind": owner}]}
    return {
        "metadata": known | metadata,
        "spec": {"hostname": "pulsar-broker-0", "subdomain": "pulsar-broker-headless"},
    }


GET, DELETE = "GET", "DELETE"
OLD, STOPPING, NEW = (GET, 200, pod()), (GET, 200, pod(**STOPS)), (GET, 200, pod("new"))
LOST = responses.ConnectionError("no route")


@pytest.mark.parametrize(
    "answers",
    [
        [OLD, (DELETE, 200, {}), STOPPING, (GET, 404, {}), NEW],
        [STOPPING, NEW],
        [OLD, (DELETE, 404, {}), NEW],
        [OLD, (DELETE, 409, {"message": "the UID is new"}), NEW],
        [(GET, 503, {}), OLD, (DELETE, 500, {}), OLD, (DELETE, 200, {}), NEW],
        [(GET, 0, LOST), OLD, (DELETE, 200, {}), (GET, 0, LOST), NEW],
    ],
    ids=["deleted", "stops already", "gone meanwhile", "made meanwhile", "server errors", "lost connections"],
)  # fmt: skip
def test_a_pod_is_deleted_until_there_is_another(
    script: ModuleType, account: Path, answers: list[tuple[str, int, Any]], capsys: pytest.CaptureFixture[str]
):
    """Whatever else happens; a pod that stops is not deleted again, and never its successor."""
    with responses.RequestsMock(registry=responses.registries.OrderedRegistry) as server:
        for method, status, body in answers:
            match = [responses.matchers.header_matcher({"Authorization": "Bearer secret-token"})]
            if method == DELETE:
                match.append(responses.matchers.json_params_matcher({"preconditions": {"uid": "old"}}))
            named = {"body": body} if isinstance(body, Exception) else {"json": body, "status": status}
            server.add(method, POD, match=match, **named)
        script.main(HOST, account)
    assert capsys.readouterr().out == "pod pulsar-broker-0 was deleted, and made again\n"


@pytest.mark.parametrize(
    ("host", "answers", "complaint"),
    [
        (HOST, [(404, {})], f"no pod pulsar-broker-0 in the namespace pulsar; {HOST} must begin with the pod's name"),
        (HOST, [(403, DENIED)], 'the API server refuses: pods "pulsar-broker-0" is forbidden'),
        (
            OTHER,
            [(200, pod())],
            f"pod pulsar-broker-0 is {HOST.removesuffix('.svc.cluster.local')}, and not {OTHER}; it is not deleted",
        ),
        (
            HOST,
            [(200, pod(owner="Node"))],
            "pod pulsar-broker-0 belongs to no StatefulSet that would make it again; it is not deleted",
        ),
    ],
    ids=["unknown", "forbidden", "of another namespace", "made by hand"],
)
def test_nothing_else_is_deleted(
    script: ModuleType, account: Path, host: str, answers: list[tuple[int, Any]], complaint: str
):
    """One line says why, and the command of the rollout fails."""
    with responses.RequestsMock() as server:
        for status, body in answers:
            server.add("GET", POD, status=status, json=body)
        with pytest.raises(SystemExit, match=f"^{re.escape(complaint)}$"):
            script.main(host, account)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"json": pod(**STOPS)}, "its pod still stops"),
        ({"status": 503, "json": {"message": "etcd has no leader"}}, "the API server answers 503: etcd has no leader"),
        ({"body": LOST}, "the API server gives no usable answer: ConnectionError"),
    ],
    ids=["stops", "no server", "no network"],
)
def test_it_does_not_wait_for_ever(script: ModuleType, account: Path, answer: dict[str, Any], why: str):
    """lbd stops the rollout with what the script has said last."""
    with responses.RequestsMock() as server:
        server.add("GET", POD, **answer)
        with pytest.raises(SystemExit, match=rf"^pod pulsar-broker-0 was not made again within 0 s: {why}$"):
            script.main(HOST, account, wait_seconds=0.05)

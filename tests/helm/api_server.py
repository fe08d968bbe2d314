"""A real Kubernetes API server on etcd, without controllers and kubelets: what it stores, nobody carries out."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import requests
import yaml

from tests.helm.parts import command, control_plane
from tests.helm.rendering import Chart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 120.0
ADMIN = "admin-of-the-test"
"""The token of somebody who may do everything."""

OF_EVERYBODY = {"authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io"}
"""Every service account may ask who it is and what it may do, and read trust bundles."""

WITHOUT_CONTROLLERS = "ServiceAccount,StorageObjectInUseProtection"
"""These admission plugins wait for controllers: for the service account of each namespace, and until a volume that is
deleted is in use no more.
"""


@dataclass(frozen=True)
class ApiServer:
    """A running one. Paths are those of its API."""

    folder: Path
    port: int

    @property
    def certificate(self) -> Path:
        """What it signs its answers with; it signed it itself."""
        return self.folder / "certificates" / "apiserver.crt"

    def request(
        self, method: str, path: str, body: Any = None, *, token: str = ADMIN, **params: str
    ) -> requests.Response:
        """One answer, whatever its status."""
        return requests.request(
            method,
            f"https://127.0.0.1:{self.port}{path}",
            json=body,
            params=params,
            headers={"Authorization": f"Bearer {token}"},
            verify=str(self.certificate),
            timeout=30,
        )

    def made(self, path: str, body: Any, **params: str) -> dict[str, Any]:
        """What it stored, or would have stored with ``dryRun``."""
        answer = self.request("POST", path, body, **params)
        assert answer.ok, answer.text
        return dict(answer.json())

    def objects(self, namespace: str) -> set[str]:
        """``kind/name`` of everything in a namespace that somebody put there."""
        found = set[str]()
        for version in ("/api/v1", *self._group_versions()):
            resources = self.request("GET", version).json()["resources"]
            for resource in resources:
                if resource["namespaced"] and "list" in resource["verbs"] and resource["name"] != "events":
                    path = f"{version}/namespaces/{namespace}/{resource['name']}"
                    items = self.request("GET", path).json().get("items", ())
                    found |= {f"{resource['kind']}/{item['metadata']['name']}" for item in items}
        return found

    def token(self, namespace: str, account: str) -> str:
        """One of a service account, as the pod of a kubelet would have it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self.made(path, body)["status"]["token"])

    def may(self, namespace: str, account: str, verb: str, resource: str) -> bool:
        """Whether a service account may do that in a namespace."""
        user = f"system:serviceaccount:{namespace}:{account}"
        return self._is_allowed(user, {"namespace": namespace, "verb": verb, "resource": resource})

    def rights(self, namespace: str, account: str) -> list[dict[str, Any]]:
        """The rules by which this service account may do more than every other."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        }
        token = self.token(namespace, account)
        answer = self.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body, token=token)
        assert answer.ok, answer.text
        rules: list[dict[str, Any]] = answer.json()["status"]["resourceRules"]
        return [rule for rule in rules if not set(rule["apiGroups"]) <= OF_EVERYBODY]

    def helm(self, *words: str) -> str:
        """A command of helm's against this server. Raises :class:`~tests.helm.rendering.Rejected`."""
        return Chart(command("helm")).run(*words, "--kubeconfig", str(self.folder / "kubeconfig"))

    def _group_versions(self) -> Iterator[str]:
        for group in self.request("GET", "/apis").json()["groups"]:
            yield f"/apis/{group['preferredVersion']['groupVersion']}"

    def _is_allowed(self, user: str, attributes: dict[str, str]) -> bool:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        return bool(self.made("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])


@contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """A fresh one, whose files are in this folder. Raises :class:`~tests.e2e.artifacts.Missing`."""
    commands, key = control_plane(), folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f"{ADMIN},admin,admin,system:masters\n")
    with held_port() as api, held_port() as clients, held_port() as members, ExitStack() as started:
        server = ApiServer(folder, api)
        etcd, peers = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{members}"
        started.callback(shutil.rmtree, folder / "etcd", ignore_errors=True)
        processes = [
            started.enter_context(_started(folder, commands / "server", (
                f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--socket-reuse-port",
                f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}",
            ))),
            started.enter_context(_started(folder, commands / "kube-apiserver", (
                f"--etcd-servers={etcd}", f"--secure-port={api}", "--permit-port-sharing", "--bind-address=127.0.0.1",
                f"--cert-dir={folder / 'certificates'}", "--authorization-mode=RBAC",
                f"--token-auth-file={folder / 'tokens.csv'}", "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-signing-key-file={key}", f"--service-account-key-file={key}",
                "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
                f"--disable-admission-plugins={WITHOUT_CONTROLLERS}",
            ))),
        ]  # fmt: skip
        _wait_until_ready(server, processes)
        (folder / "kubeconfig").write_text(_kubeconfig(server))
        yield server


@contextmanager
def _started(folder: Path, command: Path, flags: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{command.name}.log").open("wb") as log:
        process = subprocess.Popen([command, *flags], stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(server: ApiServer, started: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and not any(process.poll() for process in started):
        try:
            if server.certificate.exists() and server.request("GET", "/readyz").ok:
                return
        except requests.ConnectionError:
            pass
        time.sleep(0.5)
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(server.folder.glob("*.log")))
    raise AssertionError(f"the API server did not become ready:\n{logs}")


def _kubeconfig(server: ApiServer) -> str:
    address = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.certificate)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": address}],
            "users": [{"name": "admin", "user": {"token": ADMIN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
    )


@contextmanager
def held_port() -> Iterator[int]:
    """A port of loopback that nobody else gets meanwhile; who shares ports (SO_REUSEPORT) may listen there."""
    with socket.socket() as holding:
        holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holding.bind(("127.0.0.1", 0))
        yield holding.getsockname()[1]

"""Restart a broker under ``updateStrategy: OnDelete``: delete its pod, and wait until its StatefulSet has made another.

    lbd rollout --all --exec "python restart_pod.py {host}"

Runs in a pod of the brokers' namespace whose service account may get and delete pods: ``rollout.enabled`` of lbd's
chart makes one (docs/rollout.md of lbd). Needs Python and requests, which lbd's image has. The host begins with the
names of the pod and its Service, as pulsar-broker-0.pulsar-broker-headless.pulsar.svc.cluster.local does.

Exit code 0: there is another pod, whose broker starts. 1: one line on stderr says why there is none.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import requests

ACCOUNT = Path(os.environ.get("SERVICE_ACCOUNT_FOLDER", "/var/run/secrets/kubernetes.io/serviceaccount"))
WAIT_SECONDS = 600.0  # a pod that stops may take its grace period, and lbd rollout waits for 15 minutes
POLL_SECONDS = 2.0


class PassingError(Exception):
    """Something that may be over in a moment: the next try decides."""


def main(host: str, account: Path = ACCOUNT, wait_seconds: float = WAIT_SECONDS) -> None:
    """Restart it. Ends the process with one line if that cannot be done."""
    name, old, problem = host.partition(".")[0], "", ""
    deadline = time.monotonic() + wait_seconds
    while time.monotonic() < deadline:
        try:
            pod = request("GET", name, account)
            if pod is None and not old:
                sys.exit(f"no pod {name} in the namespace {namespace(account)}; {host} must begin with the pod's name")
            if pod is not None and not old:
                check(pod, host)
                old = pod["metadata"]["uid"]
            if pod is not None and pod["metadata"]["uid"] != old:
                print(f"pod {name} was deleted, and made again")
                return
            if pod is not None and "deletionTimestamp" not in pod["metadata"]:
                request("DELETE", name, account, {"preconditions": {"uid": old}})
            problem = "its pod still stops" if pod is not None else "its StatefulSet has not made another pod"
        except PassingError as error:
            problem = str(error)
        time.sleep(POLL_SECONDS)
    sys.exit(f"pod {name} was not made again within {wait_seconds:.0f} s: {problem}")


def check(pod: dict[str, Any], host: str) -> None:
    """Whether this is the pod of that host, and comes again. Ends the process if not."""
    metadata, spec = pod["metadata"], pod["spec"]
    own = ".".join((spec.get("hostname", metadata["name"]), spec.get("subdomain", ""), metadata["namespace"]))
    if not f"{own}.".startswith(f"{host}.") and not f"{host}.".startswith(f"{own}."):
        sys.exit(f"pod {metadata['name']} is {own}, and not {host}; it is not deleted")
    if not any(owner["kind"] == "StatefulSet" for owner in metadata.get("ownerReferences", [])):
        sys.exit(f"pod {metadata['name']} belongs to no StatefulSet that would make it again; it is not deleted")


def request(method: str, name: str, account: Path, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The pod, None where there is none. Raises :class:`PassingError`; ends the process if it is not allowed."""
    server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    path = f"/api/v1/namespaces/{namespace(account)}/pods/{name}"
    with requests.Session() as session:
        session.trust_env = False  # no proxy, and no .netrc
        session.headers["Authorization"] = f"Bearer {(account / 'token').read_text().strip()}"  # is renewed each hour
        try:
            response = session.request(method, server + path, json=body, verify=str(account / "ca.crt"), timeout=10)
            document = response.json()
        except requests.RequestException as error:
            raise PassingError(f"the API server gives no usable answer: {type(error).__name__}") from error
    if response.status_code == 404:
        return None
    if response.status_code in (401, 403):
        sys.exit(f"the API server refuses: {document.get('message', response.reason)}")
    if not response.ok:
        raise PassingError(f"the API server answers {response.status_code}: {document.get('message', '')}")
    return dict(document)


def namespace(account: Path) -> str:
    """That of this pod."""
    return (account / "namespace").read_text().strip()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1]:
        sys.exit('usage: restart_pod.py HOST, as lbd rollout --exec "python restart_pod.py {host}" does')
    main(sys.argv[1])

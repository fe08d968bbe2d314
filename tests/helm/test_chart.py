"""The chart: what it makes is valid, what it must not make it refuses, and lbd takes the settings that it mounts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from lbd.store.calibration import CALIBRATION_FOLDER
from tests.helm import files, readme
from tests.helm.parts import DEFINITIONS
from tests.helm.readme import CHART
from tests.helm.rendering import KUBERNETES, SETUPS, Rejected, one, pods, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helm.rendering import Chart, Manifest

OPERATOR = "monitoring.coreos.com/v1"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
LED = {"leader": {"enabled": True}, "pulsar": {"service_url": "pulsar://pulsar-broker:6650"}}
FULL = CHART / "ci" / "values-full.yaml"

setups = pytest.mark.parametrize("setup", SETUPS, ids=lambda path: path.stem)


def test_helm_has_nothing_to_say_of_it(chart: Chart):
    """Not even a warning, with any of the values in ci/."""
    for words in ((), *(("-f", str(setup)) for setup in SETUPS)):
        assert "0 chart(s) failed" in chart.run("lint", "--strict", str(CHART), *words)


@setups
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_all_of_it(chart: Chart, setup: Path, version: str):
    """Every manifest, by the schemas of each version; unknown fields are faults."""
    found = [each for each in chart.of(setup, version=version) if each["apiVersion"] != OPERATOR]

    assert {each["kind"] for each in found} >= {"StatefulSet", "Service", "ConfigMap", "ServiceAccount"}
    for manifest in found:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_operator_takes_its_resources(chart: Chart):
    """By its own definitions, which are made as strict as the API server is when one asks it."""
    found = [each for setup in SETUPS for each in chart.of(setup) if each["apiVersion"] == OPERATOR]

    assert {each["kind"] for each in found} == {"PodMonitor", "PrometheusRule", "ServiceMonitor"}
    for manifest in found:
        path = DEFINITIONS / f"monitoring.coreos.com_{manifest['kind'].lower()}s.yaml"
        (version,) = yaml.safe_load(path.read_text())["spec"]["versions"]
        jsonschema.validate(manifest, strict(version["schema"]["openAPIV3Schema"]))


def test_a_service_is_scraped_as_pods_are(chart: Chart):
    """The operator's two kinds have the same fields, but for the name of their endpoints."""

    def spec(value: str, kind: str) -> Manifest:
        values = {f"{value}.enabled": True, "api.tokenSecretName": "api", "api.tlsSecretName": "tls"}
        return dict(one(chart.with_values(values), kind)["spec"])

    by_pods, by_service = spec("podMonitor", "PodMonitor"), spec("serviceMonitor", "ServiceMonitor")
    assert by_service.pop("endpoints") == by_pods.pop("podMetricsEndpoints")
    assert by_service == by_pods


def strict(schema: Any) -> Any:
    """The schema with fields that it does not name forbidden; metadata, which it leaves open, stays so."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: strict(value) for key, value in schema.items()}
    if isinstance(inner.get("pattern"), str):
        inner["pattern"] = inner["pattern"].replace("^(?i)", "(?i)^")  # Go lets flags stand anywhere
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        inner["additionalProperties"] = False
    return inner


@setups
def test_lbd_takes_the_settings(chart: Chart, setup: Path, tmp_path: Path):
    """lbd's own parser, on the mounted file and the environment of each pod; the state directory is on the volume."""
    found = chart.of(setup)

    for name, pod in with_state(found):
        wanted = {"mode": "observe"} | yaml.safe_load(setup.read_text())["config"]
        loaded = settings(found, pod, tmp_path)
        state = str(loaded.settings.state_dir)
        assert state in {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}, name
        defaults = {name: VALUES["config"][name] | wanted.pop(name, {}) for name in ("pulsar", "history")}
        assert yaml.safe_load((tmp_path / "lbd.yaml").read_text()) == wanted | defaults


def test_each_replica_gives_an_address_by_which_it_alone_is_reached(chart: Chart):
    """It stands in the refusals of the others; without an API for other pods there is none."""
    api = {"api.tokenSecretName": "api", "api.tlsSecretName": "tls"}
    made, alone = chart.with_values({**api, "replicaCount": 2, "config": LED}), chart.template()
    (container,) = dict(pods(made))["lbd"]["spec"]["containers"]
    environ = {each["name"]: each for each in container["env"]}
    pods_of = one(made, "Service", "-pods")

    assert environ["LBD_LEADER__API_URL"]["value"] == "https://$(POD_NAME).lbd-pods.default.svc:8085"
    assert environ["POD_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert one(made, "StatefulSet")["spec"]["serviceName"] == pods_of["metadata"]["name"] == "lbd-pods"
    assert (pods_of["spec"]["clusterIP"], pods_of["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert pods_of["spec"]["selector"] == one(made, "Service", "lbd")["spec"]["selector"]
    assert [each["metadata"]["name"] for each in alone if each["kind"] == "Service"] == ["lbd-pods"]
    assert "env" not in dict(pods(alone))["lbd"]["spec"]["containers"][0]


@setups
def test_every_pod_may_do_little(chart: Chart, setup: Path):
    """No root, nothing to write to but its volumes, no capability, bounded memory; a rollout's alone has a token."""
    found = chart.of(setup)
    stateful = dict(with_state(found))
    for name, pod in pods(found):
        container = pod["spec"]["containers"][0]
        assert pod["spec"]["automountServiceAccountToken"] is (name not in stateful), name
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert container["securityContext"] == VALUES["securityContext"], name
        assert container["resources"]["limits"]["memory"], name
        writable = {each["name"] for each in container["volumeMounts"] if not each.get("readOnly")}
        assert writable - {"more"} == ({"state", "tmp"} if name in stateful else set()), name


def with_state(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """All pods but that of a rollout, which has no settings and no volume."""
    return ((name, pod) for name, pod in pods(manifests) if not name.endswith("-rollout"))


@setups
def test_every_mount_has_its_volume(chart: Chart, setup: Path):
    """And every volume is mounted; those of claims are the StatefulSet's own."""
    found = chart.of(setup)
    claims = {each["metadata"]["name"] for each in one(found, "StatefulSet")["spec"].get("volumeClaimTemplates", [])}
    for name, pod in pods(found):
        of_set = claims if name == one(found, "StatefulSet")["metadata"]["name"] else set()
        volumes = {each["name"] for each in pod["spec"]["volumes"]} | of_set
        assert {each["name"] for each in pod["spec"]["containers"][0]["volumeMounts"]} == volumes, name


@pytest.mark.parametrize(
    ("config", "restarts"),
    [
        ({"interval_seconds": 30}, False),
        ({"guardrails": {"canary": {"namespaces": ["shop/orders"]}}}, False),
        ({"mode": "approve"}, True),
        ({"api": {"enabled": False}}, False),
        (LED, True),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_only_settings_that_no_reload_takes_restart_the_pod(chart: Chart, config: dict[str, Any], restarts: bool):
    """By the checksum in its annotations; lbd follows the ConfigMap for all others."""

    def annotations(values: dict[str, Any]) -> Any:
        return dict(pods(chart.with_values(values)))["lbd"]["metadata"]["annotations"]

    assert (annotations({}) != annotations({"config": config})) is restarts


def test_it_moves_nothing_until_it_is_told_to(chart: Chart, tmp_path: Path):
    """Observing is the default, and config.mode the one switch."""

    def mode(name: str, values: dict[str, Any]) -> str:
        found = chart.with_values(values)
        pod = dict(pods(found))["lbd"]
        assert pod["spec"]["containers"][0]["args"] == ["run", "--reload-on-change"]
        folder = tmp_path / name
        folder.mkdir()
        return settings(found, pod, folder).settings.mode

    assert mode("default", {}) == "observe"
    assert mode("auto", {"config.mode": "auto"}) == "auto"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"replicaCount": 2}, "replicaCount: 2 needs config.leader.enabled: true"),
        ({"config": {"leader": {"enabled": True}}}, "config.leader.enabled needs config.pulsar.service_url"),
        ({"replicaCount": "one"}, "replicaCount: Invalid type. Expected: integer, given: string"),
        ({"observe": False}, "Additional property observe is not allowed"),
        ({"image": {"digest": "sha256:1"}}, "image.digest: Does not match pattern"),
        ({"serviceMonitor": {"enabled": True}}, "serviceMonitor.enabled needs api.tokenSecretName"),
        ({"ingress": {"enabled": True}}, "ingress.enabled needs api.tokenSecretName"),
        ({"ingress": {"enabled": True}, "api": {"tokenSecretName": "api"}}, "ingress.enabled needs ingress.host"),
        (
            {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}, "api": {"tokenSecretName": "api"}},
            "would scrape each pod twice",
        ),
        (
            {"persistence": {"existingClaim": "mine"}, "replicaCount": 2, "config": LED},
            "each replica needs a volume of its own",
        ),
        (
            {"config": {"history": {"max_bytes": 10 << 30}}},
            "config.history.max_bytes: 10737418240 leaves no room in a volume of 1Gi",
        ),
        (
            {"config": {"history": {"max_bytes": 1 << 30}}, "persistence": {"enabled": False}},
            "leaves no room in a volume of 1Gi",
        ),
        ({"token": {"secret": "x"}}, "token: Additional property secret is not allowed"),
        ({"terminationGracePeriodSeconds": 60}, "terminationGracePeriodSeconds: Must be greater than or equal to 90"),
        ({"config": {"pulsar": {"admin_urls": []}}}, "config.pulsar.admin_urls: Array must have at least 1 items"),
        (
            {"config": {"in_broker_shedding": "takeover"}},
            'in_broker_shedding must be one of the following: "refuse", "take-over"',
        ),
        ({"config": {"state_dir": "/data"}}, "config.state_dir: /data is not on the volume"),
        ({"config": {"api": {"listen": "0.0.0.0:8085"}}}, "config.api.listen: 0.0.0.0:8085 is open to others"),
        ({"podMonitor": {"enabled": True}}, "podMonitor.enabled needs api.tokenSecretName"),
        ({"rollout": {"enabled": True}}, "rollout.enabled needs api.tokenSecretName"),
        (
            {"config": {"in_broker_shedding": "take-over"}, "persistence": {"enabled": False}},
            "take-over needs persistence.enabled: true",
        ),
        ({"calibrate": {"enabled": True}, "persistence": {"enabled": False}}, "calibrate.enabled needs persistence"),
        (
            {"calibrate": {"enabled": True}, "persistence": {"accessModes": ["ReadWriteOncePod"]}},
            "no second pod may read history",
        ),
        (
            {"calibrate": {"enabled": True}, "config": {"history": {"enabled": False}}},
            "calibrate.enabled needs history",
        ),
        (
            {"token": {"secretName": "token"}, "config": {"pulsar": {"token_file": "/more/token"}}},
            "token.secretName and config.pulsar.token_file name two tokens",
        ),
        ({"oauth2": {"secretName": "client"}}, "oauth2.secretName needs config.pulsar.oauth2.issuer_url"),
        ({"oauth2": {"secretName": "client"}, "token": {"secretName": "token"}}, "name two identities; give one"),
        (
            {
                "oauth2": {"secretName": "client"},
                "config": {"pulsar": {"oauth2": {"issuer_url": "https://issuer.example"}}},
                "networkPolicy": {"enabled": True},
            },
            "the issuer could not be reached",
        ),
        (
            {"notify": {"secretName": "hook"}, "config": {"notify": {"url_file": "/more/hook"}}},
            "notify.secretName and config.notify.url_file name two addresses",
        ),
        (
            {"notify": {"secretName": "hook"}, "networkPolicy": {"enabled": True}},
            "needs networkPolicy.extraEgress, as [{ports: [{port: 443}]}]",
        ),
    ],
)
def test_what_would_lose_something_is_refused(chart: Chart, values: dict[str, Any], complaint: str):
    """With one line that names the value and what would be right."""
    with pytest.raises(Rejected) as rejected:
        chart.with_values(values)
    assert complaint in str(rejected.value)


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ({}, "1Gi"),
        ({"persistence": {"size": "12Gi"}, "config": {"history": {"max_bytes": 10 << 30}}}, "12Gi"),
        ({"persistence": {"size": "100G"}, "config": {"history": {"max_bytes": 10 << 30}}}, "100G"),
        ({"config": {"history": {"enabled": False, "max_bytes": 10 << 30}}}, "1Gi"),
    ],
    ids=["the default", "more history", "a size that is not compared", "no history"],
)
def test_the_volume_has_room_for_history_and_journal(chart: Chart, values: dict[str, Any], size: str):
    """One gibibyte, unless somebody keeps more history."""
    (claim,) = one(chart.with_values(values), "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == size


def test_calibration_reaches_the_history(chart: Chart):
    """The claim of replica 0, read-only but for its proposals, on the node of the pod that has it."""
    found = chart.with_values({"calibrate.enabled": True, "replicaCount": 2, "config": LED})
    pod = dict(pods(found))["lbd-calibrate"]["spec"]

    assert {"name": "state", "persistentVolumeClaim": {"claimName": "state-lbd-0"}} in pod["volumes"]
    assert [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "state"] == [
        {"name": "state", "mountPath": "/var/lib/lbd", "readOnly": True},
        {"name": "state", "mountPath": "/calibration", "subPath": CALIBRATION_FOLDER},
    ]
    assert pod["containers"][0]["args"][0].endswith(" --out /calibration/$(date -u +%Y%m%dT%H%M%SZ)")
    (together,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = together["labelSelector"]["matchLabels"]
    daemon = one(found, "StatefulSet")["spec"]
    assert labels == daemon["selector"]["matchLabels"] | {"statefulset.kubernetes.io/pod-name": "lbd-0"}
    assert daemon["template"]["metadata"]["labels"].items() >= daemon["selector"]["matchLabels"].items()


@pytest.mark.parametrize(
    "values",
    [
        {"oauth2.secretName": "client", "config.pulsar.oauth2": {"issuer_url": "https://issuer.example"}},
        {"api.tokenSecretName": "api", "config.api": {"listen": "0.0.0.0:8085"}},
        {"api.tokenSecretName": "api", "config.api": {"listen": "[::]:8085"}},
    ],
    ids=["a client of OAuth2", "an address of its own", "an address of IPv6"],
)
def test_every_pod_takes_settings_that_a_secret_completes(chart: Chart, values: dict[str, Any], tmp_path: Path):
    """The file alone would be refused: calibration has the paths of the secrets too, and none of the secrets."""
    found = chart.with_values({**values, "calibrate.enabled": True})

    for name, pod in with_state(found):
        loaded = settings(found, pod, tmp_path).settings
        assert loaded.pulsar.oauth2 is not None or not loaded.api.loopback, name
    volumes = dict(pods(found))["lbd-calibrate"]["spec"]["volumes"]
    assert not any("secret" in each for each in volumes)


def test_a_shared_volume_is_reached_from_anywhere(chart: Chart):
    """With ReadWriteMany no node is asked for."""
    found = chart.with_values({"calibrate.enabled": True, "persistence.accessModes": ["ReadWriteMany"]})
    assert "affinity" not in dict(pods(found))["lbd-calibrate"]["spec"]


def test_shedding_is_given_back_when_the_release_goes(chart: Chart):
    """After the pods are gone, on each volume, with settings that go last."""
    found = chart.of(CHART / "ci" / "values-leader.yaml")
    jobs = [each for each in found if each["kind"] == "Job"]

    assert [each["metadata"]["name"] for each in jobs] == ["lbd-release-0", "lbd-release-1"]
    claims = [each["spec"]["template"]["spec"]["volumes"][-1]["persistentVolumeClaim"]["claimName"] for each in jobs]
    assert claims == ["state-lbd-0", "state-lbd-1"]
    for manifest in (*jobs, one(found, "ConfigMap", "-release")):
        assert manifest["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"
    assert one(found, "StatefulSet")["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
    assert [each for each in chart.template() if each["kind"] == "Job"] == []


def test_beside_the_apache_chart(chart: Chart, tmp_path: Path):
    """Its names are found: brokers, the superuser's token, the authority, the labels of its pods."""
    found = chart.of(CHART / "ci" / "values-apache-pulsar-chart.yaml")
    pod = dict(pods(found))["lbd"]
    reached = settings(found, pod, tmp_path).settings.pulsar
    secrets = {each["secret"]["secretName"]: each["secret"] for each in pod["spec"]["volumes"] if "secret" in each}

    assert reached.admin_urls == ("https://pulsar-broker:8443",)
    assert str(reached.token_file) == "/var/run/secrets/lbd/token/token"
    assert str(reached.tls.ca_file) == "/var/run/secrets/lbd/ca/ca.crt"
    assert secrets["pulsar-token-admin"]["items"] == [{"key": "TOKEN", "path": "token"}]
    assert secrets["pulsar-ca-tls"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    to = one(found, "NetworkPolicy")["spec"]["egress"][1]
    assert to["to"] == [{"podSelector": {"matchLabels": {"app": "pulsar", "component": "broker"}}}]


def test_the_credentials_of_an_oauth2_client(chart: Chart, tmp_path: Path):
    """The file comes from a Secret, the rest from the settings."""
    oauth2 = {"issuer_url": "https://issuer.example/realm", "audience": "urn:pulsar"}
    found = chart.with_values({"oauth2": {"secretName": "client"}, "config": {"pulsar": {"oauth2": oauth2}}})
    pod = dict(pods(found))["lbd"]
    reached = settings(found, pod, tmp_path).settings.pulsar.oauth2
    secrets = {each["secret"]["secretName"]: each["secret"] for each in pod["spec"]["volumes"] if "secret" in each}

    assert reached is not None
    assert (reached.issuer_url, reached.audience) == ("https://issuer.example/realm", "urn:pulsar")
    assert str(reached.private_key_file) == "/var/run/secrets/lbd/oauth2/oauth2.json"
    assert secrets["client"]["items"] == [{"key": "oauth2.json", "path": "oauth2.json"}]


def test_the_webhook_is_known_and_can_be_reached(chart: Chart, tmp_path: Path):
    """Its address is a file of a Secret, as tokens are."""
    found = chart.of(FULL)
    pod = dict(pods(found))["balancer"]
    secrets = {each["secret"]["secretName"]: each["secret"] for each in pod["spec"]["volumes"] if "secret" in each}

    assert str(settings(found, pod, tmp_path).settings.notify.url_file) == "/var/run/secrets/lbd/notify/url"
    assert secrets["lbd-webhook"]["items"] == [{"key": "address", "path": "url"}]
    assert one(found, "NetworkPolicy")["spec"]["egress"][-1] == {"ports": [{"port": 443, "protocol": "TCP"}]}


def test_probes_ask_the_api_where_it_can_be_reached(chart: Chart):
    """By http or https; else the command asks."""

    def probe(values: dict[str, Any], name: str = "readinessProbe") -> Manifest:
        container = dict(pods(chart.with_values(values)))["lbd"]["spec"]["containers"][0]
        return dict(container[name])

    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert probe({}, name)["exec"]["command"][-3:] == ["status", "--config", "/dev/null"]
    chosen = probe({"livenessProbe": {"periodSeconds": 300}, "api.tokenSecretName": "api"}, "livenessProbe")
    assert (chosen["periodSeconds"], chosen["timeoutSeconds"], chosen["httpGet"]["path"]) == (300, 20, "/healthz")
    assert probe({"api.tokenSecretName": "api"})["httpGet"] == {"path": "/readyz", "port": "api", "scheme": "HTTP"}
    secure = {"api.tokenSecretName": "api", "api.tlsSecretName": "tls"}
    assert probe(secure)["httpGet"]["scheme"] == "HTTPS"


@pytest.mark.parametrize(
    "values",
    [{}, {"oauth2.secretName": "client", "config.pulsar.oauth2": {"issuer_url": "https://issuer.example"}}],
    ids=["the default", "with a variable that is half of a section"],
)
def test_a_broken_configmap_restarts_no_daemon(chart: Chart, values: dict[str, Any], tmp_path: Path):
    """It goes on with the settings that it has; so a probe that is a command must not end with those of the file."""
    (tmp_path / "lbd.yaml").write_text("interval_second: 5\n")
    container = dict(pods(chart.with_values(values)))["lbd"]["spec"]["containers"][0]
    environ = {each["name"]: each["value"] for each in container.get("env", [])}

    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        words = container[name]["exec"]["command"]
        at = next(index for index, word in enumerate(words) if word.endswith("lbd"))
        command = [*words[:at], sys.executable, "-m", "lbd", *words[at + 1 :]]
        mounted = {**os.environ, **environ, "LBD_CONFIG": str(tmp_path / "lbd.yaml")}
        done = subprocess.run(command, env=mounted, cwd=CHART.parents[1], capture_output=True, text=True, check=False)
        assert done.returncode in {0, 3}, (name, done.stderr)  # whether a daemon runs, by its state directory


def test_named_tokens_come_from_the_same_secret(chart: Chart):
    """Each file has its variable, and Prometheus gets a token of its own."""
    values = {"api.tokenSecretName": "api", "api.tokensKey": "tokens", "podMonitor.enabled": True}
    manifests = chart.with_values(values | {"podMonitor.tokenKey": "prometheus"})
    (spec,) = [pod["spec"] for name, pod in pods(manifests) if name == "lbd"]
    told = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert told["LBD_API__TOKENS_FILE"] == "/var/run/secrets/lbd/api-token/tokens"
    (volume,) = [one["secret"] for one in spec["volumes"] if one.get("secret", {}).get("secretName") == "api"]
    assert volume["items"] == [{"key": "token", "path": "token"}, {"key": "tokens", "path": "tokens"}]
    (monitor,) = [one for one in manifests if one["kind"] == "PodMonitor"]
    sent = monitor["spec"]["podMetricsEndpoints"][0]["authorization"]["credentials"]
    assert sent == {"name": "api", "key": "prometheus"}


def test_an_existing_claim_is_used_by_all(chart: Chart):
    """The daemon and the calibration; no volume is made then."""
    found = chart.with_values({"persistence.existingClaim": "mine", "calibrate.enabled": True})
    assert "volumeClaimTemplates" not in one(found, "StatefulSet")["spec"]
    for name in ("lbd", "lbd-calibrate"):
        assert {"name": "state", "persistentVolumeClaim": {"claimName": "mine"}} in dict(pods(found))[name]["spec"][
            "volumes"
        ]


def test_a_digest_counts_instead_of_a_tag(chart: Chart):
    """Of both images."""
    digest = f"sha256:{'a' * 64}"
    found = chart.with_values({"image.digest": digest, "calibrate.image.digest": digest, "calibrate.enabled": True})
    images = {pod["spec"]["containers"][0]["image"] for _, pod in pods(found)}
    assert images == {f"lbd-learn@{digest}", f"lbd@{digest}"}


CANARY = "config.guardrails.canary.namespaces={shop/orders}"
TO_CANARY, TO_ALL = f"--set config.mode=auto --set '{CANARY}'", "--set config.guardrails.canary=null"


@pytest.mark.parametrize(
    ("chosen", "does", "steps", "without"),
    [
        ([], "only observing, and moves nothing",
         ["--set config.mode=approve", TO_CANARY, TO_ALL], ["lbd pause"]),
        (["config.mode=approve"], "proposing plans", ["lbd pause", TO_CANARY, TO_ALL], []),
        (["config.mode=auto", CANARY], "balancing, within its canary", ["lbd pause", TO_ALL], [TO_CANARY]),
        (["config.mode=auto"], "balancing. ", ["lbd pause"], [TO_CANARY, TO_ALL]),
    ],
    ids=["as it comes", "approve", "canary", "auto"],
)  # fmt: skip
def test_the_notes_say_what_comes_next(
    chart: Chart, tmp_path: Path, chosen: list[str], does: str, steps: list[str], without: list[str]
):
    """Commands with the names that were given; rendered as a manifest, as helm prints notes only beside a cluster."""
    copy = Path(shutil.copytree(CHART, tmp_path / "lbd"))
    (copy / "templates" / "shown.yaml").write_text(
        'notes: {{ include (print $.Template.BasePath "/NOTES.txt") . | quote }}'
    )
    words = (
        "--show-only",
        "templates/shown.yaml",
        "-n",
        "pulsar",
        *(word for one in chosen for word in ("--set", one)),
    )
    notes = yaml.safe_load(chart.run("template", "mine", str(copy), *words))["notes"]

    assert "kubectl -n pulsar exec mine-lbd-0 -- lbd doctor" in notes
    assert does in notes
    assert [step for step in steps if step not in notes] == []
    assert [step for step in without if step in notes] == []


def test_the_chart_has_the_alerts_and_dashboards_of_the_examples():
    """As ``python -m tests.helm.files`` copies them."""
    assert sorted(files.there()) == sorted(files.wanted())
    assert files.there() == files.wanted()


def test_every_alert_is_in_the_runbook(chart: Chart):
    """What it means, and what to type; and the name that alerts look for is the one that is scraped."""
    found = chart.of(FULL)
    rules = [rule for group in one(found, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    text = (CHART.parents[1] / "docs" / "runbook.md").read_text()

    assert [rule["alert"] for rule in rules if f"| `{rule['alert']}` |" not in text] == []
    (endpoint,) = one(found, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "lbd"}]
    assert endpoint["honorLabels"] is True


def test_the_dashboard_is_handed_over_whole(chart: Chart):
    """Each as JSON under its own name, where Grafana's sidecar looks for it."""
    made = one(chart.of(FULL), "ConfigMap", "-dashboard")

    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    dashboards = {name: json.loads(text) for name, text in made["data"].items()}
    assert dashboards == {name: json.loads(text) for name, text in files.wanted().items() if name.endswith(".json")}
    assert dashboards


def test_the_readme_has_the_values():
    """As ``python -m tests.helm.readme`` writes them."""
    assert readme.README.read_text() == readme.current()


def test_every_value_is_told_of():
    """By a comment of its own or one above it."""
    told = set(readme.documented())
    assert [
        name for name in _leaves(VALUES) if not any(name == one or name.startswith(f"{one}.") for one in told)
    ] == []


def test_the_schema_knows_every_value_and_no_other():
    """It forbids what it does not name, everywhere but where Kubernetes or lbd decides."""
    jsonschema.validate(VALUES, SCHEMA)
    assert list(_loose(SCHEMA)) == []
    assert set(SCHEMA["properties"]) == {*VALUES, "global"}


def _leaves(values: dict[str, Any], above: str = "") -> list[str]:
    found: list[str] = []
    for name, value in values.items():
        path = f"{above}{name}"
        found.extend(_leaves(value, f"{path}.") if isinstance(value, dict) and value else [path])
    return found


def _loose(schema: dict[str, Any], above: str = "") -> list[str]:
    if above == ".config" or "properties" not in schema:
        return []
    loose = [] if schema.get("additionalProperties") is False else [above]
    return loose + [one for name, inner in schema["properties"].items() for one in _loose(inner, f"{above}.{name}")]

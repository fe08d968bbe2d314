"""How snippets are run: what stands for a reader's own names, what other tests run, and what cannot run in a test."""

from __future__ import annotations

RECORDING = "examples/hot-broker.jsonl.gz"
"""For the reader's own."""

PLACEHOLDERS = (
    (r"\.venv/bin/lbd\b", "lbd"),
    (r"\blbd unload (shop/orders|NAMESPACE)(?![\w/])", "lbd unload simulated/few"),
    (r"\bshop/orders/0x00000000_0x40000000\b", "simulated/large/0x00000000_0x40000000"),
    (r"\bshop/orders/0x00000000_0x08000000\b", "simulated/picked/0x00000000_0x80000000"),
    (r"\bBUNDLE\b", "simulated/large/0x40000000_0x80000000"),
    (r"\bshop/orders/invoices\b", "simulated/orders/topic-114773755206"),
    (r"\bshop/", "simulated/"),
    (r"\bbroker-(\d)(\.example)?:8080\b", r"127.0.0.\1:{port}"),
    (r"\bBROKER\b", "127.0.0.3:{port}"),
    (r"\bREASON\b", '"the disk is full"'),
    (r"\bhelm install ", "helm template "),
    (r"\blbd history export --since 1d\b", "lbd history export --history {history} --since 3650d"),
    (r"--hours 24\b", "--hours 2"),
    (r"--hours 168\b", "--hours 6"),
    (r"--candidates 24\b", "--candidates 3"),
    (r"(?<=\s)/(etc|opt|usr)/", r"{root}/\1/"),
)
"""Of the reader's cluster, and the simulated one's for it; patterns in this order."""

CODES = {
    "lbd doctor": (0, 4),
    "lbd drain BROKER": (0, 4),
    "lbd split BUNDLE": (0, 4),
}
"""Commands whose exit code tells of the cluster, and not of the command; all others must end with 0."""

BALANCE = "tests/e2e/test_balance.py"
CHART = "tests/helm/test_chart.py"
PRE_STOP = "tests/helm/test_pre_stop.py"
BOOTED = "tests/systemd/test_booted.py"
INSTALLED = "tests/docs/test_installed.py::test_from_nothing_to_a_service"

ELSEWHERE = {
    "python3 -m venv .venv && .venv/bin/pip install": INSTALLED,
    "sudo python3 -m venv /opt/lbd": INSTALLED,
    "sudo install -D -m 644 ": INSTALLED,
    "sudo install -m 644 systemd/lbd-calibrate": INSTALLED,
    "sudo systemctl ": INSTALLED,
    "sudo apt-get ": f"{BOOTED}::test_calibration_runs_by_its_timer",
    "systemctl status": f"{BOOTED}::test_it_runs_and_anybody_sees_what_it_does",
    "systemctl restart": f"{BOOTED}::test_the_token_is_for_the_service_alone",
    "journalctl ": f"{BOOTED}::test_a_reload_takes_new_settings",
    "python -m pytest -m soak tests/systemd": f"{BOOTED}::test_a_stop_ends_in_time",
    "python -m pytest -m soak tests/helm": "tests/helm/test_api_server.py::test_the_script_restarts_a_pod",
    "lbd run --new-journal": "tests/daemon/test_state_lost.py::test_no_start_without_it",
    "lbd calibrate --out": "tests/learn/test_command.py::test_the_command",
    "lbd calibrate --history": "tests/learn/test_command.py::test_the_command",
    "lbd config check --config calibration/proposal.yaml": "tests/learn/test_command.py::test_the_command",
    "lbd calibrate --master": "tests/learn/test_master.py::test_a_standalone_cluster",
    "python -m tests.settings_page": "tests/test_docs.py::test_the_page_and_the_file_of_all_settings_are_current",
    "python -m tests.guardrails_page": "tests/permit/test_rules.py::test_the_page_of_guardrails_has_the_rules",
    "python -m tests.security_page": "tests/test_docs.py::test_the_page_of_security_tests_is_current",
    "python -m tests.docs.tour": "tests/docs/test_tour.py::test_every_screen_is_what_is_printed_today",
    "python -m tests.helm.readme": f"{CHART}::test_the_readme_has_the_values",
    "python -m tests.helm.files": f"{CHART}::test_the_chart_has_the_alerts_and_dashboards_of_the_examples",
    "helm upgrade pulsar apache/pulsar ": f"{PRE_STOP}::test_brokers_have_the_hook_and_nothing_else_has",
    "helm upgrade lbd helm/lbd -n pulsar --reuse-values --set api.tokenSecretName=lbd-api --set rollout": (
        "tests/helm/test_rollout.py::test_its_command_is_one_that_lbd_and_the_script_take"
    ),
    "helm upgrade lbd helm/lbd ": f"{PRE_STOP}::test_the_names_in_both_charts_meet",
    "python -m tests.e2e.cluster": "tests/e2e/test_cluster.py::test_every_broker_is_listed_and_one_leads",
    "lbd simulate tests/data/hot-broker.yaml ": (
        "tests/test_docs.py::test_the_recording_of_the_examples_is_of_a_cluster_of_real_size"
    ),
    "lbd rollout ": "tests/cli/test_rollout.py::test_a_command_restarts_each_broker",
    "lbd fill ": "tests/cli/test_drain.py::test_a_fill",
    "lbd apply ": "tests/api/test_planning.py::test_a_person_sees_and_applies_it",
    "lbd dry-run --admin-url http://127.0.0.1:18080": f"{BALANCE}::test_a_young_cluster_is_looked_at_and_left_alone",
}
"""Commands that take brokers, Spark or a new virtual environment, and the test that has these."""

OUTLINED = {
    "docs/compare.md": ["lbd compare examples/moves.jsonl.gz --strategy avg-shedder --format json"],
    "docs/doctor.md": ["lbd doctor --format json"],
    "docs/simulate.md": [
        "lbd simulate steady --hours 1 --format json",
        "lbd simulate steady --hours 1 --seeds 2 --format json",
    ],
}
"""What prints the JSON that a document outlines, in its order."""

CANNOT = {
    "git clone … ": "there is no address to clone from yet; test_installed begins with a copy of the checkout",
    "pip install '.[learn]'": "half a gigabyte; tests/run installs the same as a part of .[test]",
    "tests/run": "it is what runs this test",
    "tests/setup": "it has set up what runs this test",
    "tests/soak": "most of a day",
    "pulsar-admin namespaces ": "Pulsar's own command; tests/test_guardrails.py has what lbd makes of them",
    "kubectl -n pulsar create secret ": "no Kubernetes here",
    "kubectl -n pulsar create job ": "the same",
    "kubectl -n pulsar logs ": "the same",
    "kubectl -n pulsar exec lbd-0 -- lbd rollout ": "no rollout is under way",
    "git tag ": "it releases; tests/package/test_release.py has what a tag must be",
    "helm install lbd oci:": "nothing is released yet; tests/package/test_release.py has the workflow",
    "cosign ": "nothing is released yet; tests/package/test_release.py has the workflow",
    "gh ": "the same",
    "sha256sum ": "the same",
    "docker ": "no Docker; tests/package takes the image's steps in a bare virtual environment",
    "python -m tests.api.picture": "the picture differs by the fonts of a machine; tests/api has the page in a browser",
    "python3 -m venv lbd-env": "for YARN, which is not here",
    "lbd-env/bin/venv-pack": "the same",
    "PYSPARK_DRIVER_PYTHON=": "the same",
}
"""What no test runs, and why. It is read by bash all the same, and its lbd has these options."""

SHOWN = {
    "lbd demo: the real lbd": "tests/demo/test_picture.py::test_the_readme_shows_this_picture",
    "strategy              first round": "tests/test_docs.py::test_every_example_works",
    "EvenCountSettings: even_count.decide,": "tests/test_contributing.py::test_it_has_a_section",
    "observe ─► permit": "tests/docs/test_snippets.py::test_the_loop_names_packages",
    " daemon/service.py          the process": "tests/docs/test_snippets.py::test_the_path_of_a_turn_names_files",
    "history/v1/<table>": "tests/docs/test_snippets.py::test_history_lies_where_it_is_said_to_lie",
    "$ ": "tests/docs/test_tour.py::test_every_screen_is_what_is_printed_today",
    "lbd.yaml        the settings": "tests/docs/test_snippets.py::test_the_files_of_the_flow_are_there",
}
"""What is printed or pictured, by its beginning, and the test that compares it."""

WORKS, METRICS = "tests/test_docs.py::test_every_example_works", "tests/api/test_metrics.py"
FLOW, PODS = "test_settings_in_a_repository_are_checked", "test_executors_are_pods_that_kubernetes_takes"

EXAMPLES = {
    "*.yaml": WORKS,
    "*.jsonl.gz": WORKS,
    "*.py": WORKS,
    "gitops/README.md": "tests/docs/test_snippets.py::test_the_files_of_the_flow_are_there",
    "gitops/check.sh": f"tests/test_docs.py::{FLOW}",
    "gitops/lbd.yaml": f"tests/test_docs.py::{FLOW}",
    "gitops/workflow.yml": "tests/docs/test_snippets.py::test_every_step_of_a_workflow_is_read_by_bash",
    "grafana/lbd.json": "tests/api/test_grafana.py::test_every_query_finds_what_the_hour_had",
    "kubernetes/apache-chart/*": f"{PRE_STOP}::test_brokers_have_the_hook_and_nothing_else_has",
    "kubernetes/pre-stop.sh": "tests/api/test_pre_stop.py::test_what_passes_by_itself_is_waited_for",
    "kubernetes/restart_pod.py": "tests/helm/test_rollout.py::test_a_pod_is_deleted_until_there_is_another",
    "kubernetes/*.yaml": f"{METRICS}::test_autoscalers_ask_for_the_metric_that_there_is",
    "prometheus/*.yml": f"{METRICS}::test_each_alert_fires_when_it_should",
    "spark-k8s/job.py": f"tests/learn/test_kubernetes.py::{PODS}",
    "spark-k8s/submit.sh": f"tests/learn/test_kubernetes.py::{PODS}",
}
"""The test that loads or runs each file of examples/; a pattern is of one folder."""

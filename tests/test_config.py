"""Settings: where each value comes from, and every problem at once with what would be right."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.config import Settings, environment, load
from lbd.errors import UsageError

Section = dict[str, Any]


def file_of(folder: Path, content: str) -> Path:
    """A configuration file."""
    path = folder / "lbd.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def problems(path: Path | None = None, environ: dict[str, str] | None = None) -> list[str]:
    """Every problem that loading tells."""
    with pytest.raises(UsageError) as caught:
        load(path, environ or {})
    return str(caught.value).splitlines()


class TestPrecedence:
    def test_defaults(self) -> None:
        """Nothing set: nothing has an origin."""
        found = load(None, {})
        assert found.settings == Settings()
        assert found.origins == {}

    def test_file_then_environment_then_options(self, tmp_path: Path) -> None:
        """The later source wins, key by key, and is named as the origin."""
        path = file_of(tmp_path, "avg_shedder: {low_threshold: 1, high_threshold: 2, hit_count_low: 3}\nprofile: stock")
        environ = {"LBD_AVG_SHEDDER__HIGH_THRESHOLD": "20", "LBD_AVG_SHEDDER__HIT_COUNT_LOW": "30", "PATH": "/bin"}
        found = load(path, environ, {"avg_shedder": {"hit_count_low": 300}})
        chosen = found.settings.avg_shedder
        assert (chosen.low_threshold, chosen.high_threshold, chosen.hit_count_low) == (1, 20, 300)
        assert found.origins == {
            "avg_shedder.low_threshold": str(path),
            "avg_shedder.high_threshold": "environment LBD_AVG_SHEDDER__HIGH_THRESHOLD",
            "avg_shedder.hit_count_low": "command line",
            "profile": str(path),
        }

    def test_the_files_that_say_something(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever they are called."""
        monkeypatch.chdir(tmp_path)
        for name in ("environment.yaml", "command line.yaml"):
            Path(name).write_text("profile: stock")
            found = load(Path(name), {"LBD_INTERVAL_SECONDS": "5"}, {"pulsar": {"admin_urls": ["http://b1:8080"]}})
            assert found.files == {name}

    def test_a_section_replaced_from_the_environment(self, tmp_path: Path) -> None:
        """An object as JSON sets its keys, the others stay as the file has them."""
        path = file_of(tmp_path, "weights: {cpu: 2, memory: 3}")
        found = load(path, {"LBD_WEIGHTS": '{"cpu": 5}'})
        assert (found.settings.weights.cpu, found.settings.weights.memory) == (5.0, 3.0)
        assert found.origins["weights.cpu"] == "environment LBD_WEIGHTS"

    @pytest.mark.parametrize(
        ("name", "text", "path", "expected"),
        [
            ("LBD_PULSAR__ADMIN_URLS", '["http://b1:80", "http://b2:80"]', "pulsar.admin_urls", None),
            ("LBD_GUARDRAILS__EXCLUDED_NAMESPACES", '["t/n", "u/*"]', "guardrails.excluded_namespaces", ("t/n", "u/*")),
            ("LBD_INTERVAL_SECONDS", "7.5", "interval_seconds", 7.5),
            ("LBD_PULSAR__CLUSTER", "null", "pulsar.cluster", None),
            ("LBD_PULSAR__CLUSTER", "east", "pulsar.cluster", "east"),
            ("LBD_PULSAR__TLS__CA_FILE", "/a/ca.pem", "pulsar.tls.ca_file", Path("/a/ca.pem")),
            ("LBD_STATE_DIR", "state", "state_dir", Path("state")),
            ("LBD_GUARDRAILS__MAX_UNLOADS_PER_TURN", "4", "guardrails.max_unloads_per_turn", 4),
        ],
    )
    def test_environment(self, name: str, text: str, path: str, expected: object) -> None:
        """Two underscores nest; lists and objects are JSON; the rest is taken as text."""
        found: object = load(None, {name: text}).settings
        for part in path.split("."):
            found = getattr(found, part)
        assert found == (("http://b1:80", "http://b2:80") if name.endswith("ADMIN_URLS") else expected)

    def test_lbd_config_is_no_setting(self) -> None:
        """It names the file, and is an option of the command line."""
        assert load(None, {"LBD_CONFIG": "/x"}).settings == Settings()

    def test_only_our_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of the process's environment, what starts with LBD_."""
        for name in [name for name in os.environ if name.startswith("LBD_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("LBD_PROFILE", "stock")
        monkeypatch.setenv("XLBD_PROFILE", "live")
        assert environment() == {"LBD_PROFILE": "stock"}

    @pytest.mark.parametrize("content", ["", "# nothing\n", "{}", "---\n"])
    def test_an_empty_file(self, content: str, tmp_path: Path) -> None:
        """All defaults."""
        assert load(file_of(tmp_path, content), {}).settings == Settings()


class TestProblems:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("intervall_seconds: 5", "intervall_seconds: no such setting; did you mean interval_seconds?"),
            ("avg_shedder: {low_treshold: 5}", "low_treshold: no such setting; did you mean low_threshold?"),
            ("pulsar: {tls: {cafile: x}}", "pulsar.tls.cafile: no such setting; did you mean ca_file?"),
            ("load: {brokers: [{broker: b, capacity: 1, slop: 1}]}", "slop: no such setting; did you mean slope?"),
            (
                "load: {brokers: [{broker: ' ', capacity: 1}]}",
                "load.brokers.0.broker: ' ': wanted host:port of a broker",
            ),
            ("guardrails: {excluded_namespaces: t/n}", "excluded_namespaces: 't/n': wanted a list, as ["),
            ("guardrails: {max_unloads_per_turn: 1.5}", "max_unloads_per_turn: 1.5: wanted a whole number"),
            ("api: {enabled: perhaps}", "api.enabled: 'perhaps': wanted true or false"),
            ("xyzzy: 1", "xyzzy: no such setting"),
            ("profile: bold", "profile: 'bold': wanted 'live' or 'stock'"),
            ("interval_seconds: 0", "interval_seconds: 0: wanted more than 0"),
            ("interval_seconds: .nan", "interval_seconds: nan: wanted a finite number"),
            ("avg_shedder: 5", "avg_shedder: 5: wanted keys and values"),
            ("avg_shedder: {high_threshold: -1}", "avg_shedder.high_threshold: -1: wanted 0 or more"),
            ("avg_shedder: {low_threshold: .inf}", "avg_shedder.low_threshold: inf: wanted a finite number"),
            (
                "least_moves: {low_threshold: 25}",
                "least_moves: high_threshold 20 is below low_threshold 25; wanted at least as much",
            ),
            ("weights: {cpu: -1}", "weights.cpu: -1: wanted 0 or more"),
            ("guardrails: {excluded_namespaces: [t]}", "'t': wanted tenant/namespace or tenant/*"),
            ("pulsar: {admin_urls: []}", "pulsar.admin_urls: wanted 1 or more, not 0"),
            ("pulsar: {admin_urls: [b1:8080]}", "'b1:8080' is no web address of a broker; wanted http://host:port"),
            ("pulsar: {admin_urls: ['http://b1:8080/admin']}", "is no web address of a broker"),
            ("pulsar: {admin_urls: ['pulsar://b1:6650']}", "is no web address of a broker"),
            ("pulsar: {admin_urls: ['http://[oops']}", "admin_urls"),
            ("pulsar: {admin_urls: ['http://b1:port']}", "admin_urls"),
            ("pulsar: {admin_urls: ['http://b1:80', 'https://b2:443']}", "mix http and https"),
            ("pulsar: {token_file: a, basic: {username: u, password_file: p}}", "exclude each other"),
            ("pulsar: {tls: {cert_file: a}}", "cert_file and key_file belong together"),
            ("pulsar: {unload_timeout_seconds: 30}", "unload_timeout_seconds: wanted 70 or more"),
        ],
    )
    def test_in_the_file(self, content: str, expected: str, tmp_path: Path) -> None:
        """One line: where, key, value, and what would be right."""
        path = file_of(tmp_path, content)
        (told,) = problems(path)
        assert told.startswith(f"{path}: ")
        assert expected in told

    @pytest.mark.parametrize(
        ("name", "text", "expected"),
        [
            ("LBD_INTERVAL", "5", "no such setting; did you mean LBD_INTERVAL_SECONDS?"),
            ("LBD_XYZZY", "5", "no such setting"),
            ("LBD_", "5", "no such setting"),
            ("LBD_INTERVAL_SECONDS", "soon", "interval_seconds: 'soon': wanted a number"),
            (
                "LBD_AVG_SHEDDER__LOW_TRESHOLD",
                "5",
                "avg_shedder.low_treshold: no such setting; did you mean low_threshold?",
            ),
            ("LBD_PULSAR__ADMIN_URLS", "[http://b1:80", "not JSON"),
            ("LBD_WEIGHTS", "{", "not JSON"),
            ("LBD_PROFILE__X", "1", "profile"),
        ],
    )
    def test_in_the_environment(self, name: str, text: str, expected: str) -> None:
        """The variable is named."""
        (told,) = problems(None, {name: text})
        assert told.startswith(f"environment {name}: ")
        assert expected in told

    def test_all_at_once(self, tmp_path: Path) -> None:
        """File and environment, unknown keys and wrong values: one run tells them all."""
        path = file_of(tmp_path, "profile: bold\nintervall: 1\nweights: {cpu: x}\npulsar: {tls: {key_file: a}}")
        told = problems(path, {"LBD_XYZZY": "1", "LBD_WEIGHTS__MEMORY": "much", "LBD_STATE_DIR": "{"})
        keys = [
            "profile",
            "intervall",
            "weights.cpu",
            "pulsar.tls",
            "LBD_XYZZY",
            "LBD_WEIGHTS__MEMORY",
            "LBD_STATE_DIR",
        ]
        assert len(told) == len(keys)
        assert all(any(key in line for line in told) for key in keys)

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"a: [1", "not YAML"),
            (b"a: 1\n b: 2", "not YAML"),
            (b"\tx", "not YAML"),
            (b"- 1\n- 2", "the file is a list, wanted keys and values"),
            (
                b"avg_shedder: {low_threshold: 20}\nstrategy: avg-shedder\navg_shedder: {high_threshold: 50}",
                "not YAML: line 3, column 1: this key is there twice",
            ),
            (b"words", "the file is a str, wanted keys and values"),
            (b"\xff\xfe\xff", "cannot be read"),
            (b"a: \x00", "not YAML"),
            (b"? [1, 2]\n: x", "YAML|no such setting"),
            (b"a: &x [*x]", "no such setting"),
            (b"pulsar: &x {tls: *x}", "contains itself"),
            (b"[" * 400, "nested too deeply|not YAML"),
            (b"!!python/object:os.system {}", "not YAML"),
        ],
    )
    def test_a_file_that_is_no_configuration(self, content: bytes, expected: str, tmp_path: Path) -> None:
        """One line that names the file."""
        path = tmp_path / "lbd.yaml"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=expected) as caught:
            load(path, {})
        assert str(path) in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1

    def test_what_belongs_together(self, tmp_path: Path) -> None:
        """Is no key's own problem: none is named before it."""
        told = problems(file_of(tmp_path, "leader: {enabled: true}"))
        assert told == [
            "configuration: leader.enabled needs pulsar.service_url: pulsar://host:port, or pulsar+ssl://host:port"
        ]

    def test_an_empty_key(self, tmp_path: Path) -> None:
        """Is shown as one, and where it stands."""
        path = file_of(tmp_path, "'': 1")
        assert problems(path) == [f"{path}: '': no such setting"]

    def test_keys_that_are_merged_may_be_set_anew(self, tmp_path: Path) -> None:
        """YAML's ``<<`` brings what the others stand beside: that is not twice."""
        content = "weights: &w {cpu: 2, memory: 1}\navg_shedder: {<<: {low_threshold: 20}, low_threshold: 10}"
        assert load(file_of(tmp_path, content), {}).settings.avg_shedder.low_threshold == 10

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        """A file that was named must exist; its path is told."""
        with pytest.raises(UsageError, match="No such file") as caught:
            load(tmp_path / "absent.yaml", {})
        assert str(tmp_path / "absent.yaml") in str(caught.value)

    @pytest.mark.parametrize("where", ["b1:8080", "b1:port", "[oops", "b1:8080/x", ""])
    def test_a_password_in_an_address_is_not_repeated(self, where: str, tmp_path: Path) -> None:
        """It is refused, and not printed to whoever looks on, whatever else is wrong with the address."""
        path = file_of(tmp_path, f"pulsar: {{admin_urls: ['http://me:hunter2@{where}']}}")
        (told,) = problems(path)
        assert "secrets belong into token_file or basic" in told
        assert "hunter2" not in told

    def test_a_password_in_the_wrong_place_is_not_repeated(self, tmp_path: Path) -> None:
        """A secret given where a file name belongs is an unknown key, told without its value."""
        path = file_of(tmp_path, "pulsar: {token: hunter2, basic: {username: me, password: hunter2}}")
        assert not any("hunter2" in line for line in problems(path))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
NAMES = st.sampled_from([*Settings.model_fields, "tls", "basic", "admin_urls", "cpu", "low_threshold"]) | st.text(
    max_size=4
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | SCALARS, inner, max_size=3),
    max_leaves=8,
)


YAML = ["interval_seconds", "pulsar", "weights", "log", "cpu", ": ", "\n", "\n  ", "- ", "[", "]", "{", "}", ", ", "? "]
YAML += [
    "!!int ",
    "!!float ",
    "!!bool ",
    "!!timestamp ",
    "!!binary ",
    "!!set ",
    "!!omap ",
    "!!str ",
    "!!python/name:os ",
]
YAML += ["2024-99-99", "2024-01-01T25:61:61", "0x_", "0b_", "1:2", "190:20:30", "-0x_", "1e400", ".nan", "-.inf", "~"]
YAML += [
    "&x ",
    "*x",
    "<<",
    "|",
    ">",
    '"',
    "'",
    "\\0",
    "\\ud800",
    "%YAML 1.2\n",
    "---",
    "...",
    "#",
    "\t",
    "\x85",
    "\u2028",
]
SETTINGS = st.sampled_from(
    [
        *(f"LBD_{name}".upper() for name in Settings.model_fields),
        *(f"LBD_PULSAR__{name}".upper() for name in ("admin_urls", "tls", "read_timeout_seconds")),
        *(f"LBD_WEIGHTS__{name}".upper() for name in ("cpu", "memory", "")),
    ]
)


def as_text(value: object) -> str:
    """As JSON, as far as it can be."""
    try:
        return json.dumps(value, default=str)
    except TypeError:
        return str(value)


class TestJunk:
    @given(values=st.dictionaries(NAMES, JUNK, max_size=4))
    def test_any_values(self, values: Section) -> None:
        """Whatever stands in a file: settings, or problems in words, and nothing else."""
        try:
            found = load(None, {}, values)
        except UsageError as error:
            assert str(error)  # noqa: PT017 - either end is right, and this one must say something
        else:
            assert isinstance(found.settings, Settings)

    @given(st.dictionaries(st.text("ABC_{[", min_size=1, max_size=6).map("LBD_{}".format), st.text(max_size=6)))
    def test_any_environment(self, environ: dict[str, str]) -> None:
        """Variables that nobody knows are told, each in a line of its own."""
        if environ:
            assert len(problems(None, environ)) == len(environ)

    @given(st.lists(st.sampled_from(YAML) | st.text(max_size=3), max_size=12).map("".join))
    def test_any_document(self, content: str) -> None:
        """Whatever PyYAML makes of it, numbers, dates and tags that are none included."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lbd.yaml"
            path.write_text(content, encoding="utf-8")
            try:
                load(path, {})
            except UsageError as error:
                assert all(line.startswith(f"{path}: ") for line in str(error).splitlines())  # noqa: PT017 - see above

    @given(st.binary(max_size=40))
    def test_any_bytes(self, content: bytes) -> None:
        """Text or not."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lbd.yaml"
            path.write_bytes(content)
            try:
                load(path, {})
            except UsageError as error:
                assert str(error).startswith(f"{path}: ")  # noqa: PT017 - see above

    @given(st.dictionaries(SETTINGS, JUNK.map(as_text) | st.text(max_size=6), min_size=1, max_size=3))
    def test_any_value_in_the_environment(self, environ: dict[str, str]) -> None:
        """Known names with whatever is in them: settings that can be worked with, or a line that names the variable."""
        try:
            found = load(None, environ)
        except UsageError as error:
            assert all(line.startswith("environment LBD_") for line in str(error).splitlines())  # noqa: PT017 - see above
        else:
            assert 0 < found.settings.interval_seconds <= 86_400
            assert 0 < found.settings.pulsar.read_timeout_seconds <= 3600

    @pytest.mark.parametrize("text", ["[" * 50_000, '{"a":' * 50_000, "[" * 900 + "]" * 900])
    def test_brackets_in_the_environment(self, text: str) -> None:
        """One line, however deep."""
        (told,) = problems(None, {"LBD_PULSAR": text})
        assert told.startswith("environment LBD_PULSAR: ")

    def test_a_name_of_many_parts(self) -> None:
        """No setting is as deep as that."""
        (told,) = problems(None, {"LBD_WEIGHTS" + "__A" * 30_000: "1"})
        assert told.startswith("environment LBD_WEIGHTS__A")

    @pytest.mark.parametrize(
        "value", ["2024-99-99", "0x_", "!!int x", "!!float x", "!!bool x", "!!timestamp x", "!!int", "9" * 5000]
    )
    def test_a_value_that_looks_like_another(self, value: str, tmp_path: Path) -> None:
        """Told by its place and what would be right, and not repeated: it may be a secret."""
        (told,) = problems(file_of(tmp_path, f"profile: live\nlog: {value}"))
        assert told.endswith("not YAML: line 2, column 6: no such number, date or tag; a text is put into quotes")

    def test_a_secret_in_a_broken_line_is_not_repeated(self, tmp_path: Path) -> None:
        """The line and column are told, not what stands there."""
        (told,) = problems(file_of(tmp_path, "pulsar:\n  basic: {username: me, password: hunter2\n"))
        assert "line 3, column 1" in told
        assert "hunter2" not in told


class TestSecrets:
    @pytest.mark.parametrize(
        "environ",
        [
            {"LBD_PULSAR__ADMIN_URLS": "http://user:hunter2@b:8080"},
            {"LBD_PULSAR__ADMIN_URLS": '["http://user:hunter2@b:8080"]'},
            {"LBD_PULSAR__ADMIN_URLS": '["http://user:hunter2@b:8080"'},
            {"LBD_PULSAR__BASIC": "admin:hunter2"},
            {"LBD_PULSAR__BASIC": '{"username": "admin", "password": "hunter2"}'},
            {"LBD_PULSAR__BASIC": '{"username": "admin", "password": "hunter2"'},
            {"LBD_PULSAR": "hunter2"},
            {"LBD_PULSAR__TOKEN": "hunter2"},
        ],
        ids=["url", "urls", "half a list", "pair", "password", "half an object", "section", "unknown key"],
    )
    def test_a_secret_in_the_environment_is_not_repeated(self, environ: dict[str, str]) -> None:
        """The variable is named, and what is wrong; its value stays out of logs."""
        told = problems(None, environ)
        assert any(name in line for name in environ for line in told)
        assert not any("hunter2" in line for line in told)

    @pytest.mark.parametrize("content", ["pulsar: {basic: 'admin:hunter2'}", "pulsar: 'admin:hunter2'"])
    def test_a_secret_in_the_file_is_not_repeated(self, content: str, tmp_path: Path) -> None:
        """Neither is one that stands in the file where a section is wanted."""
        assert not any("hunter2" in line for line in problems(file_of(tmp_path, content)))


class TestOtherPeoplesVariables:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("LBD_REQUIRE_E2E", "1"),
            ("LBD_E2E_VERSIONS", "4.0.8,3.0.7"),
            ("LBD_PORT", "tcp://10.0.0.7:8085"),
            ("LBD_SERVICE_HOST", "10.0.0.7"),
            ("LBD_SERVICE_PORT", "8085"),
            ("LBD_SERVICE_PORT_METRICS", "8085"),
            ("LBD_PORT_8085_TCP", "tcp://10.0.0.7:8085"),
            ("LBD_PORT_8085_TCP_ADDR", "10.0.0.7"),
            ("LBD_PORT_8085_TCP_PORT", "8085"),
            ("LBD_PORT_8085_TCP_PROTO", "tcp"),
        ],
    )
    def test_they_are_passed_over(self, name: str, text: str) -> None:
        """Kubernetes gives each pod these for a service called lbd, and the test suite has its own."""
        found = load(None, {name: text})
        assert found.settings == Settings()
        assert found.origins == {}


def test_a_default_path_that_cannot_be_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody asked for that file: it is told in one line, or done without, and never with a stack trace."""
    unreadable = tmp_path / ("x" * 300) / "lbd.yaml"
    monkeypatch.setattr("lbd.config.DEFAULT_PATH", unreadable)
    try:
        assert load(None, {}).settings == Settings()
    except UsageError as error:
        assert str(unreadable) in str(error)  # noqa: PT017 - either end is right


def test_the_default_path_below_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is as good as absent."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr("lbd.config.DEFAULT_PATH", tmp_path / "file" / "lbd.yaml")
    assert load(None, {}).settings == Settings()

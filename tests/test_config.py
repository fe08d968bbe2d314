"""Settings: where each value comes from, and every problem at once with what would be right."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from lbd.cli import main
from lbd.config import CONSTANTS, ApiSettings, Settings, environment, load
from lbd.decide.strategies import STRATEGIES
from lbd.errors import UsageError
from lbd.pulsar.settings import LeaderSettings
from lbd.simulate.scenario import Scenario, settled
from lbd.simulate.scenario import load as load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

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
            ("LBD_GUARDRAILS__CANARY__NAMESPACES", '["t/n"]', "guardrails.canary.namespaces", ("t/n",)),
            ("LBD_GUARDRAILS__CANARY", "null", "guardrails.canary", None),
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


LAUGHS = "\n".join(
    ["l0: &l0 x", *(f"l{at}: &l{at} [{', '.join([f'*l{at - 1}'] * 9)}]" for at in range(1, 30)), "weights: *l29"]
).encode()
"""Each level nine times the one below: 4e27 values in a kilobyte."""

MERGED_LAUGHS = "\n".join(
    ["l0: &l0 {a: 1}", *(f"l{at}: &l{at} {{<<: [{', '.join([f'*l{at - 1}'] * 9)}]}}" for at in range(1, 30))]
).encode()


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
            ("interval_seconds: 0", "interval_seconds: 0: wanted 0.05 or more"),
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
            ("guardrails: {include_namespaces: [t/]}", "'t/': wanted tenant/namespace or tenant/*"),
            ("guardrails: {canary: {namespaces: [t]}}", "canary.namespaces: ['t']: 't': wanted tenant/namespace or"),
            ("guardrails: {canary: {namespaces: []}}", "canary.namespaces: []: wanted 1 or more, not 0"),
            (
                "guardrails: {canary: {namespaces: [t/n], max_moves_per_hour: 0}}",
                "canary.max_moves_per_hour: 0: wanted 1 or more",
            ),
            (
                "guardrails: {canary: {namespaces: [u/*, t/n]}, excluded_namespaces: [t/*]}",
                "guardrails: canary.namespaces: t/n never moves, because excluded_namespaces names it; change one",
            ),
            (
                "guardrails: {canary: {namespaces: [t/*]}, excluded_namespaces: [t/*]}",
                "t/* never moves, because excluded_namespaces names it",
            ),
            (
                "guardrails: {canary: {namespaces: [t/n, t/m]}, include_namespaces: [u/*, t/n]}",
                "t/m never moves, because include_namespaces does not name it",
            ),
            (
                "guardrails: {canary: {namespaces: [t/n]}, move_costs: {t/*: never}}",
                "t/n never moves, because move_costs says never",
            ),
            ("pulsar: {admin_urls: []}", "pulsar.admin_urls: wanted 1 or more, not 0"),
            ("pulsar: {admin_urls: [b1:8080]}", "'b1:8080' is no web address of a broker; wanted http://host:port"),
            ("pulsar: {admin_urls: ['http://b1:8080/admin']}", "is no web address of a broker"),
            ("pulsar: {admin_urls: ['pulsar://b1:6650']}", "is no web address of a broker"),
            ("pulsar: {admin_urls: ['http://[oops']}", "admin_urls"),
            ("pulsar: {admin_urls: ['http://b1:port']}", "admin_urls"),
            ("pulsar: {admin_urls: ['http://b1:80', 'https://b2:443']}", "mix http and https"),
            ("pulsar: {token_file: /a, basic: {username: u, password_file: /p}}", "exclude each other"),
            (
                "pulsar: {token_file: /a, oauth2: {issuer_url: 'https://i.example', private_key_file: /k}}",
                "token_file and oauth2 exclude each other",
            ),
            ("pulsar: {oauth2: {issuer_url: 'http://i.example', private_key_file: /k}}", "wanted https, or http on a"),
            ("pulsar: {tls: {cert_file: a}}", "cert_file and key_file belong together"),
            ("pulsar: {basic: {username: 'u:v', password_file: /p}}", "pulsar.basic.username: wanted text as"),
            ("pulsar: {cluster: '..'}", "pulsar.cluster: wanted the name of a Pulsar cluster"),
            ("pulsar: {cluster: a/b}", "pulsar.cluster: wanted text as"),
            ("pulsar: {service_url: 'http://b1:8080'}", "pulsar.service_url: wanted pulsar://host:port"),
            ("pulsar: {service_url: 'pulsar://b1:port'}", "pulsar.service_url: wanted pulsar://host:port"),
            ("pulsar: {service_url: 'pulsar://b1:6650/x'}", "pulsar.service_url: wanted pulsar://host:port"),
            ("state_dir: ''", "state_dir: '': wanted a path, neither empty nor with a NUL"),
            ("state_dir: ~", "state_dir: None: wanted the path of a file"),
            ("state_dir: ~/lbd", "state_dir: '~/lbd': ~ is not expanded here; wanted the whole path"),
            ('state_dir: "a\\0b"', "wanted a path, neither empty nor with a NUL"),
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
        "content",
        [
            "guardrails: {canary: {namespaces: [t/*]}, excluded_namespaces: [t/n]}",
            "guardrails: {canary: {namespaces: [t/*]}, include_namespaces: [t/n]}",
            "guardrails: {canary: {namespaces: [t/n]}, include_namespaces: [t/*]}",
            "guardrails: {canary: {namespaces: [t/n, t/*]}, move_costs: {t/*: never, t/n: 2}}",
        ],
    )
    def test_a_canary_of_which_something_can_move(self, content: str, tmp_path: Path) -> None:
        """Some namespace of a tenant is enough."""
        assert load(file_of(tmp_path, content), {}).settings.guardrails.canary is not None

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

    @pytest.mark.parametrize("listen", ["[::1]:8085", "[fd00::7]:8085"])
    def test_an_address_of_ipv6_in_the_environment(self, listen: str) -> None:
        """It begins as a list of JSON does, and is none."""
        environ = {"LBD_API__LISTEN": listen, "LBD_API__TOKEN_FILE": "/etc/lbd/token"}
        assert load(None, environ).settings.api.listen == listen

    @pytest.mark.parametrize(
        "content",
        ["notify: {}", "notify: [{}]", "api: {}", "api: {{tls: {}}}"],
    )
    def test_a_secret_in_place_of_its_section_is_not_shown(self, content: str, tmp_path: Path) -> None:
        """Whoever knows the address of a webhook can post there, and errors go to terminals and logs."""
        secret = "https://hooks.example/services/T0/B0/a-long-secret"
        (told,) = problems(file_of(tmp_path, content.format(secret)))
        assert told.endswith(": wanted keys and values")
        assert "hooks.example" not in told

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
            (b"a: &x [*x]", "contains itself"),
            (b"pulsar: &x {tls: *x}", "contains itself"),
            (b"[" * 400, "not YAML: line 1, column 51: nested too deeply, more than 50 levels"),
            (LAUGHS, "not YAML: aliases make it more than 100,000 values"),
            (MERGED_LAUGHS, "not YAML: aliases make it more than 100,000 values"),
            (b"#" * (512 * 1024 + 1), "longer than 512 KiB"),
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

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("90", 90.0),
            ("1e2", 100.0),
            ("1.5e1", 15.0),
            ("1_000", 1000.0),
            ("010", 10.0),
            ("+5", 5.0),
            ("1:30", "interval_seconds: '1:30': wanted a number"),
            ("1:30.5", "interval_seconds: '1:30.5': wanted a number"),
            ("0o17", "interval_seconds: '0o17': wanted a number"),
        ],
    )
    def test_numbers_are_what_people_read(self, text: str, expected: float | str, tmp_path: Path) -> None:
        """Not of base 60 or 8, as old YAML takes them: a minute and a half is no number of seconds."""
        path = file_of(tmp_path, f"interval_seconds: {text}")
        if isinstance(expected, str):
            assert problems(path) == [f"{path}: {expected}"]
        else:
            assert load(path, {}).settings.interval_seconds == expected

    def test_a_time_of_day_needs_no_quotes(self, tmp_path: Path) -> None:
        """22:00 is one."""
        path = file_of(tmp_path, "guardrails: {quiet_hours: [{from: 22:00, to: 06:00}]}")
        (window,) = load(path, {}).settings.guardrails.quiet_hours
        assert (window.begins, window.ends) == (22 * 60, 6 * 60)

    def test_an_alias_is_its_anchor(self, tmp_path: Path) -> None:
        """In reasonable numbers."""
        path = file_of(tmp_path, "weights: {cpu: &x 2, memory: *x}")
        assert load(path, {}).settings.weights.memory == 2.0

    def test_a_file_without_end(self) -> None:
        """Reading ends at the limit."""
        (told,) = problems(Path("/dev/zero"))
        assert told.startswith("/dev/zero: longer than 512 KiB")

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
        assert "secrets belong into token_file, basic or oauth2" in told
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


def numbers(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, type[BaseModel], str, FieldInfo]]:
    """Every number among the settings below a class, those of its sections and of the entries of its lists included."""
    for name, field in model.model_fields.items():
        inner = [one for one in leaves(field.annotation) if isinstance(one, type)]
        if any(issubclass(one, (int, float)) and one is not bool for one in inner):
            yield f"{above}{name}", model, field.alias or name, field
        for one in inner:
            if issubclass(one, BaseModel):
                yield from numbers(one, f"{above}{name}.")


def leaves(annotation: object) -> Iterator[object]:
    """The types that an annotation is made of, those of its limits left out."""
    inner = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    if get_origin(annotation) is Literal:
        return
    if not inner:
        yield annotation
    for one in inner:
        yield from leaves(one)


NUMBERS = [
    *numbers(Settings),
    *(each for name, kind in STRATEGIES.items() for each in numbers(kind, f"{name}: ")),
    *numbers(Scenario, "scenario: "),
]
CHECKED_OTHERWISE = {
    "guardrails.move_costs": "a table of them, each from 0 to a million",
    "guardrails.topic_costs": "the same",
    "scenario: first_ratio": "two of them, from 1 on",
    "guardrails.quiet_hours.begins": "a time of day",
    "guardrails.quiet_hours.ends": "a time of day",
}
"""Numbers whose limits are no field's, and what they are."""


class TestNumbers:
    def test_every_number_is_looked_at(self) -> None:
        """Those of sections in sections, of entries of lists, and of scenarios among them."""
        names = {name for name, *_ in NUMBERS}
        assert {"interval_seconds", "load.brokers.slope", "transfer-shedder: broker_load_target_std"} <= names
        assert {"scenario: brokers.bursts.points", *CHECKED_OTHERWISE} <= names

    @pytest.mark.parametrize(
        ("model", "key", "field"),
        [each[1:] for each in NUMBERS if each[0] not in CHECKED_OTHERWISE],
        ids=[each[0] for each in NUMBERS if each[0] not in CHECKED_OTHERWISE],
    )
    def test_no_number_is_without_limits(self, model: type[BaseModel], key: str, field: FieldInfo) -> None:
        """Below the least, above the most, and what is no number are refused; what may come near 0 has a least."""
        limits = {
            kind: getattr(one, kind)
            for one in field.metadata
            for kind in ("ge", "gt", "le", "lt")
            if hasattr(one, kind)
        }
        least, most = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
        assert least is not None
        assert most is not None
        assert limits.get("gt") != 0
        assert most <= 1e15
        for value in (least - 1, most + 1, -1e308, 1e308, float("inf"), float("nan")):
            with pytest.raises(ValidationError) as caught:
                model.model_validate({key: value})
            assert (key,) in {one["loc"][:1] for one in caught.value.errors()}

    @pytest.mark.parametrize(("key", "of"), [("move_costs", "t/n"), ("topic_costs", "change-events")])
    @pytest.mark.parametrize("cost", [-1, 1e308, ".inf", ".nan", "sometimes"])
    def test_costs_of_moves(self, key: str, of: str, cost: object, tmp_path: Path) -> None:
        """They have limits, too."""
        (told, *_) = problems(file_of(tmp_path, f"guardrails: {{{key}: {{{of}: {cost}}}}}"))
        assert f"guardrails.{key}" in told

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (
                "guardrails: {max_destination_score: 1e308}",
                "guardrails.max_destination_score: 1e+308: wanted 100 or less",
            ),
            ("interval_seconds: 1e-300", "interval_seconds: 1e-300: wanted 0.05 or more"),
            ("avg_shedder: {max_unload_percentage: 2}", "avg_shedder.max_unload_percentage: 2: wanted 1 or less"),
            ("least_moves: {hit_count_high: 0}", "least_moves.hit_count_high: 0: wanted 1 or more"),
            (
                "avg_shedder: {hit_count_low: 0}",
                "avg_shedder.hit_count_low 0: every turn would move; wanted 1 or more, or profile: stock",
            ),
            (
                "avg_shedder: {hit_count_high: 0}",
                "avg_shedder.hit_count_high 0: every turn would move; wanted 1 or more",
            ),
            (
                "avg_shedder: {low_threshold: 50}",
                "avg_shedder.high_threshold 40 is below low_threshold 50; wanted at least as much, or profile: stock",
            ),
            (
                "weights: {cpu: 0, bandwidth_in: 0, bandwidth_out: 0, memory: 1}",
                "weights: every broker would score 0 points; wanted cpu, direct_memory, bandwidth_in or",
            ),
        ],
    )
    def test_what_makes_no_sense(self, content: str, expected: str, tmp_path: Path) -> None:
        """Each was once accepted."""
        (told,) = problems(file_of(tmp_path, content))
        assert expected in told

    def test_what_pulsar_takes_is_taken_with_its_profile(self, tmp_path: Path) -> None:
        """``profile: stock`` decides as Pulsar does, with whatever it may be given."""
        content = "profile: stock\navg_shedder: {hit_count_low: 0, hit_count_high: 0, low_threshold: 50}"
        assert load(file_of(tmp_path, content), {}).settings.avg_shedder.hit_count_low == 0


class TestSecrets:
    @pytest.mark.parametrize(
        "environ",
        [
            {"LBD_PULSAR__ADMIN_URLS": "http://user:hunter2@b:8080"},
            {"LBD_PULSAR__ADMIN_URLS": '["http://user:hunter2@b:8080"]'},
            {"LBD_PULSAR__ADMIN_URLS": '["http://user:hunter2@b:8080"'},
            {"LBD_PULSAR__SERVICE_URL": "pulsar://user:hunter2@b:6650"},
            {"LBD_PULSAR__BASIC": "admin:hunter2"},
            {"LBD_PULSAR__BASIC": '{"username": "admin", "password": "hunter2"}'},
            {"LBD_PULSAR__BASIC": '{"username": "admin", "password": "hunter2"'},
            {"LBD_PULSAR": "hunter2"},
            {"LBD_PULSAR__TOKEN": "hunter2"},
        ],
        ids=[
            "url",
            "urls",
            "half a list",
            "service URL",
            "pair",
            "password",
            "half an object",
            "section",
            "unknown key",
        ],
    )
    def test_a_secret_in_the_environment_is_not_repeated(self, environ: dict[str, str]) -> None:
        """The variable is named, and what is wrong; its value stays out of logs."""
        told = problems(None, environ)
        assert any(name in line for name in environ for line in told)
        assert not any("hunter2" in line for line in told)

    @pytest.mark.parametrize(
        "key",
        [
            "pulsar.token_file",
            "pulsar.tls.key_file",
            "api.token_file",
            "api.tokens_file",
            "api.tls.key_file",
            "notify.url_file",
        ],
    )
    @pytest.mark.parametrize(
        "secret",
        [
            "https://hooks.slack.com/services/T0000/B0000/4xAmPl3",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
            "/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
            "hunter2",
            "0123456789abcdef0123456789abcdef",
            "AbC/dEf012+xyz==",
            "/9j4AAQSkZJRgABAQEAYABgAAD2Mu0",
            "token:hunter2",
            "a" * 5000,
            "-----BEGIN KEY-----\nMII\n-----END KEY-----",
        ],
        ids=[
            "web address",
            "JWT",
            "JWT after a slash",
            "word",
            "hex",
            "base64",
            "base64 with a slash",
            "Pulsar's own",
            "long",
            "PEM",
        ],
    )
    def test_a_secret_where_its_path_belongs(self, key: str, secret: str) -> None:
        """It is refused, and not shown."""
        given = {f"LBD_{key.replace('.', '__').upper()}": secret}
        told = [line for line in problems(None, given) if key in line]
        assert len(told) == 1
        assert "this is not a path to a file (value not shown: it may be a secret)" in told[0]
        assert secret[:7] not in told[0].replace("LBD_", "").replace("token_file", "")

    @pytest.mark.parametrize(
        "path",
        [
            "/etc/lbd/token",
            "./token",
            "../secrets/pulsar-superuser-2026.jwt",
            "/var/run/secrets/lbd/token/token",
            "/run/credentials/lbd.service/token",
            "/var/lib/docker/volumes/3f8a1c0d9e8b7a6f5e4d3c2b1a0f9e8d/_data/token",
        ],
    )
    def test_paths_of_secrets_that_are_not_there_yet(self, path: str) -> None:
        """Whoever mounts them may do so later."""
        assert load(None, {"LBD_PULSAR__TOKEN_FILE": path}).settings.pulsar.token_file == Path(path)

    def test_a_file_in_the_working_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name alone is its path, where there is such a file."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "token").touch()
        assert load(None, {"LBD_PULSAR__TOKEN_FILE": "token"}).settings.pulsar.token_file == Path("token")

    @pytest.mark.parametrize("content", ["pulsar: {basic: 'admin:hunter2'}", "pulsar: 'admin:hunter2'"])
    def test_a_secret_in_the_file_is_not_repeated(self, content: str, tmp_path: Path) -> None:
        """Neither is one that stands in the file where a section is wanted."""
        assert not any("hunter2" in line for line in problems(file_of(tmp_path, content)))


class TestConstants:
    """Former settings: lbd goes on with the constant, and says so."""

    @pytest.mark.parametrize("key", list(CONSTANTS))
    def test_a_file_of_before(self, key: str, tmp_path: Path) -> None:
        """One warning that names the value in force; everything else in the file counts."""
        values: Any = 7
        for part in reversed(key.split(".")):
            values = {part: values}
        path = file_of(tmp_path, yaml.safe_dump({**values, "interval_seconds": 5}))
        loaded = load(path, {})

        assert loaded.settings.model_dump() == {**Settings().model_dump(), "interval_seconds": 5}
        assert dict(loaded.origins) == {"interval_seconds": str(path)}
        (told,) = loaded.warnings
        assert told.startswith(f"{path}: {key}: no setting any more, always ")
        assert told.endswith("; 7 has no effect, remove it")

    def test_in_the_environment(self) -> None:
        """The variable is named."""
        name, key = "LBD_TRANSFER_SHEDDER__TRANSFER_ENABLED", "transfer_shedder.transfer_enabled"
        loaded = load(None, {name: "no"})
        assert loaded.settings == Settings()
        (told,) = loaded.warnings
        assert told == f"environment {name}: {key}: no setting any more, always true; 'no' has no effect, remove it"

    def test_what_a_person_gives_now_is_an_error(self) -> None:
        """A scenario or a command that would try a value must not seem to have done so."""
        with pytest.raises(UsageError, match=r"^--set: pulsar.concurrency: no setting any more, always 16$"):
            settled(load_scenario("steady"), Settings(), {"pulsar.concurrency": 4})

    def test_config_check_warns(self, tmp_path: Path) -> None:
        """The configuration is valid."""
        path = file_of(tmp_path, "pulsar: {concurrency: 4}")
        done = CliRunner().invoke(main, ["--config", str(path), "config", "check"])
        assert (done.exit_code, done.stderr.splitlines()[0]) == (
            0,
            f"warning: {path}: pulsar.concurrency: no setting any more, always 16; 4 has no effect, remove it",
        )


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


@pytest.mark.parametrize(
    ("api", "url"),
    [
        ({"listen": "127.0.0.1:8085"}, ""),
        ({"listen": "[::1]:8085"}, ""),
        ({"enabled": False, "listen": "10.0.0.7:8085"}, ""),
        ({"listen": "0.0.0.0:0"}, ""),
        ({"listen": "0.0.0.0:8085"}, "http://lbd-1:8085"),
        ({"listen": "[::]:8085"}, "http://lbd-1:8085"),
        ({"listen": "10.0.0.7:8086"}, "http://10.0.0.7:8086"),
        ({"listen": "[fd00::7]:8085"}, "http://[fd00::7]:8085"),
    ],
)
def test_the_address_of_the_api_for_other_machines(api: dict[str, Any], url: str, tmp_path: Path) -> None:
    """None where only this machine reaches it, or nobody knows the port."""
    (tmp_path / "token").write_text("a-token-of-the-tests")
    assert ApiSettings.model_validate({"token_file": tmp_path / "token", **api}).outer_url("lbd-1") == url


@pytest.mark.parametrize(
    ("url", "takes"),
    [
        ("http://lbd-1.lbd-pods.pulsar.svc:8085", True),
        ("https://10.0.0.7", True),
        ("http://[fd00::7]:8085", True),
        ("lbd-1:8085", False),
        ("http://ann:secret@lbd-1:8085", False),
        ("http://lbd-1:8085/x", False),
        ("http://lbd-1:8085 or so", False),
    ],
)
def test_the_address_that_the_leader_gives(url: str, takes: bool) -> None:
    """Scheme, host and port: it is printed for people, who repeat it."""
    with nullcontext() if takes else pytest.raises(ValidationError):
        LeaderSettings(enabled=True, api_url=url)

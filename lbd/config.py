"""Settings from a YAML file, ``LBD_*`` environment variables and options, and the origin of each value.

All problems are reported at once: place, key, value, and what is expected.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, create_model, field_validator, model_validator

from lbd.decide.drain import DrainSettings
from lbd.decide.shedder import StrategySettings
from lbd.decide.strategies import RULES, STRATEGIES
from lbd.documents import complaint, ends, flat, read_yaml, text_of, yaml_problem
from lbd.errors import UsageError
from lbd.file_settings import FilePath, SecretPath
from lbd.load.capacity import CapacitySettings
from lbd.load.scoring import Weights
from lbd.load.settings import LoadSettings
from lbd.notify.settings import NotifySettings
from lbd.permit.progress import MOST_ROUNDS
from lbd.permit.settings import Guardrails
from lbd.place.placements import PLACEMENTS
from lbd.pulsar.settings import LeaderSettings, PulsarSettings
from lbd.section import Section
from lbd.split.triggers import SplitSettings
from lbd.spread import SpreadSettings
from lbd.store.calibration import CalibrateSettings
from lbd.store.history_round import HistorySettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic_core import ErrorDetails

    from lbd.decide.avg_shedder import AvgShedderSettings
    from lbd.permit.topic_costs import TopicKind


class ServerTlsSettings(Section):
    """Files for https."""

    cert_file: FilePath | None = Field(
        None, description="PEM file with the API's certificate and its intermediate certificates"
    )
    key_file: SecretPath | None = Field(None, description="PEM file with the private key of that certificate")

    @model_validator(mode="after")
    def _both_or_none(self) -> ServerTlsSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both or none")
        return self


class ApiSettings(Section):
    """Where the API listens, and who may use it."""

    enabled: bool = Field(True, description="With false, lbd run opens no port")
    listen: str = Field(
        "127.0.0.1:8085",
        description="IP address and port. With port 0 the system picks a free port, and lbd status shows it",
    )
    token_file: SecretPath | None = Field(
        None,
        description="File with a token that may do everything. Every change needs a token. If listen is no loopback "
        "address, reading needs one, too. lbd reads the file again when it changes. Without this file and tokens_file "
        "the API can be read on loopback only and refuses every change",
    )
    tokens_file: SecretPath | None = Field(
        None,
        description="File with named tokens, one a line: NAME ROLE TOKEN. The role is read, operate, or administer, "
        "which may also pass limits (override). The name stands in log, journal and history as who asked",
    )
    tls: ServerTlsSettings = ServerTlsSettings()

    @field_validator("listen")
    @classmethod
    def _an_address(cls, listen: str) -> str:
        host, port = split_listen(listen)
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError("wanted an IP address and a port, as 127.0.0.1:8085 or [::1]:8085") from None
        if not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise ValueError("wanted a port from 0 to 65535 after the address")
        return listen

    @model_validator(mode="after")
    def _closed_to_strangers(self) -> ApiSettings:
        if self.enabled and not self.loopback and self.token_file is None and self.tokens_file is None:
            words = "give token_file or tokens_file, or listen on 127.0.0.1"
            raise ValueError(f"listen {self.listen} is open to others: {words}")
        return self

    @property
    def host(self) -> str:
        """The address, without brackets."""
        return split_listen(self.listen)[0]

    @property
    def port(self) -> int:
        """0: any that is free."""
        return int(split_listen(self.listen)[1])

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def secure(self) -> bool:
        """Whether it speaks https."""
        return self.tls.cert_file is not None

    def url(self, port: int | None = None) -> str:
        """Its web address on this machine."""
        host: Any = ipaddress.ip_address(self.host)
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(host), str(host))  # noqa: S104 - what any stands for
        return self._url(reached, self.port if port is None else port)

    def outer_url(self, machine: str) -> str:
        """Its web address for other machines, by the name of this ``machine``; empty where they cannot reach it."""
        if not self.enabled or self.loopback or not self.port:
            return ""
        host = ipaddress.ip_address(self.host)
        return self._url(machine if host.is_unspecified else str(host), self.port)

    def _url(self, host: str, port: int) -> str:
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.secure else 'http'}://{shown}:{port}"


def split_listen(listen: str) -> tuple[str, str]:
    """Address and port as they are written."""
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


# --- loading

DEFAULT_PATH = Path("/etc/lbd/lbd.yaml")
PREFIX = "LBD_"
OF_SECRETS = frozenset({"notify", "api", "api.tls"})
"""Sections in whose place somebody may write the secret itself, such as the address of the webhook."""
ENVIRONMENT, OPTIONS = "environment", "command line"
NOT_SETTINGS = re.compile(r"LBD_(CONFIG|REQUIRE_E2E|E2E_.*|PORT(_.*)?|SERVICE_(HOST|PORT)(_.*)?)")
"""Variables with our prefix that are no settings: an option, the tests' own, and what Kubernetes sets for a service."""

IPV6_AND_PORT = re.compile(r"\[[0-9A-Fa-f:.]+\]:[0-9]+")
"""A text that begins as a list of JSON does: ``api.listen`` may be ``[::]:8085``."""


class LogSettings(Section):
    """Format and level of the log."""

    format: Literal["auto", "text", "json"] = Field(
        "auto", description="auto writes text on a terminal and json elsewhere"
    )
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The lowest level that is logged")


def strategy_section(strategy: str) -> str:
    """The name of the section with a strategy's settings."""
    return strategy.replace("-", "_")


class _Common(Section):
    pulsar: PulsarSettings = PulsarSettings()
    interval_seconds: float = Field(
        15,
        ge=0.05,
        le=86_400,
        description="Seconds between turns. Brokers sample CPU once a minute, so lbd sees a new sample at "
        "most this long after it is published",
    )
    profile: Literal["live", "stock"] = Field(
        "live", description="stock decides exactly as Pulsar does. The guardrails apply in both"
    )
    mode: Literal["auto", "approve", "observe"] = Field(
        "auto",
        description="What lbd does with the plan of a turn. auto: it moves the bundles. approve: it proposes the plan "
        "and waits for lbd apply. It does not split by itself then, and still executes commands. observe: it reports "
        "once per imbalance what would move, and changes nothing, as with lbd run --observe",
    )
    approvers: int = Field(
        1,
        ge=1,
        le=2,
        description="With mode: approve, how many people must apply a plan before it is carried out. With 2 the second "
        "name must be another one, and both must be proven: a token of api.tokens_file, or a user on lbd's own machine",
    )
    strategy: str = Field("avg-shedder", description=f"The rule that decides what moves: {', '.join(STRATEGIES)}")
    placement: str | None = Field(
        None,
        description="The rule that names destinations if the strategy names none (avg-shedder names them, and so does "
        f"transfer-shedder): {', '.join(PLACEMENTS)}. The default belongs to the strategy. "
        "In broker.conf loadBalancerLoadPlacementStrategy",
    )

    @field_validator("strategy")
    @classmethod
    def _known_strategy(cls, name: str) -> str:
        return _check_known(name, STRATEGIES)

    @field_validator("placement")
    @classmethod
    def _known_placement(cls, name: str | None) -> str | None:
        return None if name is None else _check_known(name, PLACEMENTS)


if TYPE_CHECKING:

    class _Strategies(_Common):
        """A section for each strategy of the registry that has one; code asks for those of the default by name."""

        avg_shedder: AvgShedderSettings = AvgShedderSettings()

else:
    _Strategies = create_model(
        "_Strategies",
        __base__=_Common,
        **{strategy_section(rule.name): (rule, rule()) for rule in RULES if rule.is_section},
    )


class Settings(_Strategies):
    """All settings of lbd: those of all strategies, and what is the same for each."""

    weights: Weights = Weights()
    load: LoadSettings = LoadSettings()
    in_broker_shedding: Literal["refuse", "take-over"] = Field(
        "refuse",
        description="What to do while the brokers' own shedder is on. refuse: lbd moves nothing and reports "
        "it. take-over: lbd turns the shedder off on all brokers and records its previous value "
        "for lbd release",
    )
    restore_on_stop: bool = Field(
        False, description="With take-over, a plain stop gives the brokers' own shedding back, as lbd release does"
    )
    guardrails: Guardrails = Guardrails()
    spread: SpreadSettings = SpreadSettings()
    split: SplitSettings = SplitSettings()
    drain: DrainSettings = DrainSettings()
    capacity: CapacitySettings = CapacitySettings()
    history: HistorySettings = HistorySettings()
    calibrate: CalibrateSettings = CalibrateSettings()
    state_dir: FilePath = Field(
        Path("/var/lib/lbd"),
        description="Directory of the journal, counted samples and averages. One lbd at a time may use it",
    )
    api: ApiSettings = ApiSettings()
    leader: LeaderSettings = LeaderSettings()
    notify: NotifySettings = NotifySettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.leader.enabled and self.pulsar.service_url is None:
            raise ValueError("leader.enabled needs pulsar.service_url: pulsar://host:port, or pulsar+ssl://host:port")
        return self

    @model_validator(mode="after")
    def _on_evidence(self) -> Self:
        """Pulsar takes these values, and then moves bundles for nothing."""
        chosen, wrong = self.avg_shedder, []
        for name, hits in (("hit_count_low", chosen.hit_count_low), ("hit_count_high", chosen.hit_count_high)):
            if hits < 1:
                wrong.append(f"avg_shedder.{name} {hits}: every turn would move; wanted 1 or more")
        if chosen.high_threshold < chosen.low_threshold:
            wrong.append(
                f"avg_shedder.high_threshold {chosen.high_threshold:g} is below low_threshold "
                f"{chosen.low_threshold:g}; wanted at least as much"
            )
        if wrong and self.profile == "live" and self.strategy == chosen.name:
            raise ValueError(f"{'; '.join(wrong)}, or profile: stock")
        return self

    @property
    def strategy_settings(self) -> StrategySettings:
        """The section of the strategy in force, or the fixed numbers of one without."""
        section = getattr(self, strategy_section(self.strategy), None)
        return section if isinstance(section, StrategySettings) else STRATEGIES[self.strategy]()

    @property
    def asks_live_cpu(self) -> bool:
        """Whether brokers are asked for their CPU of now: Pulsar's own rule knows load reports only."""
        return self.load.live_cpu and self.profile == "live"

    @property
    def spread_in_force(self) -> SpreadSettings:
        """Settings of what belongs apart; the defaults, thus nothing, for Pulsar's own rule."""
        return self.spread if self.profile == "live" else SpreadSettings()

    @property
    def topic_costs_in_force(self) -> Mapping[TopicKind, float | str] | None:
        """Cost that each kind of Pulsar's own topics adds to a move; None for Pulsar's own rule, which has no costs."""
        return self.guardrails.topic_costs if self.profile == "live" else None

    @field_validator("weights")
    @classmethod
    def _scored(cls, weights: Weights) -> Weights:
        if not (weights.cpu or weights.direct_memory or weights.bandwidth_in or weights.bandwidth_out):
            weighted = "cpu, direct_memory, bandwidth_in or bandwidth_out"
            raise ValueError(f"every broker would score 0 points; wanted {weighted} above 0")
        return weights


def _check_known(name: str, names: Iterable[str]) -> str:
    if name not in names:
        near = _nearest(name, list(names))
        raise ValueError(f"{near and f'did you mean {near}? '}wanted one of {', '.join(names)}")
    return name


@dataclass(frozen=True)
class Loaded:
    """Settings, and for each dotted key that is not a default, where it was set.

    ``warnings`` name former settings that were given, a sentence each; ``problems`` settings that were left out.
    """

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def files(self) -> frozenset[str]:
        """Paths of the files that set something."""
        none = f"{ENVIRONMENT} {PREFIX}"
        return frozenset(path for path in self.origins.values() if path != OPTIONS and not path.startswith(none))


CONSTANTS: Mapping[str, object] = {
    "guardrails.stand_still_after_rounds": MOST_ROUNDS,
    "pulsar.concurrency": PulsarSettings.concurrency,
    "pulsar.connect_timeout_seconds": PulsarSettings.connect_timeout_seconds,
    **{
        f"{strategy_section(rule.name)}.{name}": value
        for rule in RULES
        if not rule.is_section
        for name, value in rule().model_dump().items()
    },
}
"""Former settings, and the constant that each is now. In a file or the environment they are a warning: a daemon that
does not start after an upgrade is worse than one number of it. Elsewhere they are an error."""


def load(
    path: Path | None, environ: Mapping[str, str], options: Mapping[str, Any] | None = None, *, to_look: bool = False
) -> Loaded:
    """Defaults, then the file, then the environment, then options. Raises :class:`UsageError` with every problem.

    ``to_look``: wrong settings are left out, and a file that cannot be read, for a look at an lbd that runs with the
    settings that it has.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    warnings: list[str] = []
    for origin, source in _sources(path, environ, options or {}, problems):
        for key, value in flat(source):
            if key in CONSTANTS:
                warnings.append(" ".join(f"{origin}: {_constant(key)}; {value!r} has no effect, remove it".split()))
                continue
            _put(values, key.split("."), value)
            origins = {old: where for old, where in origins.items() if not old.startswith(f"{key}.")}
            origins[key] = origin
    settings = None
    while settings is None:
        try:
            settings = Settings.model_validate(values)
        except ValidationError as error:
            problems.extend(problem(item, origins) for item in error.errors())
            wrong = {_given(values, item["loc"]) for item in error.errors()}
            if not to_look or () in wrong:
                break
            for keys in wrong:
                _leave_out(values, keys)
    shown = tuple(" ".join(problem.split()) for problem in problems)
    if settings is None or (shown and not to_look):
        raise UsageError("\n".join(shown))
    return Loaded(settings, origins, tuple(warnings), shown)


def _sources(
    path: Path | None, environ: Mapping[str, str], options: Mapping[str, Any], problems: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    chosen = path or (DEFAULT_PATH if os.access(DEFAULT_PATH, os.F_OK) else None)
    if chosen is not None:
        try:
            content = _file(chosen)
        except UsageError as error:
            problems.append(str(error))
        else:
            yield str(chosen), content
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and not NOT_SETTINGS.fullmatch(name):
            source = _variable(name, text, problems)
            if source is not None:
                yield f"{ENVIRONMENT} {name}", source
    yield OPTIONS, dict(options)


def _file(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(text_of(path))
    except RecursionError as error:
        raise UsageError(f"{path}: contains itself") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {yaml_problem(error)}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path}: the file is a {type(content).__name__}, wanted keys and values")
    return content


def _variable(name: str, text: str, problems: list[str]) -> dict[str, Any] | None:
    """``LBD_AVG_SHEDDER__LOW_THRESHOLD=20`` as nested values; lists and objects are given as JSON."""
    keys = name[len(PREFIX) :].lower().split("__", 8)  # more levels than settings have
    if keys[0] not in Settings.model_fields and ".".join(keys) not in CONSTANTS:
        near = _nearest(keys[0], list(Settings.model_fields))
        problems.append(f"environment {name}: no such setting{near and f'; did you mean {PREFIX}{near.upper()}?'}")
        return None
    value: Any = text
    if (text[:1] in {"[", "{"} and not IPV6_AND_PORT.fullmatch(text)) or text == "null":
        try:
            value = json.loads(text)
            ends(value)
        except (ValueError, RecursionError) as error:
            problems.append(f"environment {name}: not JSON: {error}")
            return None
    for key in reversed(keys):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def _given(values: object, path: tuple[Any, ...]) -> tuple[str, ...]:
    """The keys of the setting that a problem is of, or of its section where the problem is of what is not given."""
    if path and isinstance(values, dict) and path[0] in values:
        return (path[0], *_given(values[path[0]], path[1:]))
    return ()


def _leave_out(values: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys[:-1]:
        values = values.get(key, {})
    values.pop(keys[-1], None)


def _put(values: dict[str, Any], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        inner = values.get(key)
        if not isinstance(inner, dict):
            inner = values[key] = {}
        values = inner
    values[keys[-1]] = value


def problem(item: ErrorDetails, origins: Mapping[str, str]) -> str:
    """One problem of settings: where it stands by ``origins``, key, value, and what would be right."""
    if not item["loc"]:
        return f"configuration: {complaint(item)}"
    key = ".".join(str(part) for part in item["loc"])
    where = next(
        (
            origin
            for name, origin in origins.items()
            if name == key or name.startswith(f"{key}.") or key.startswith(f"{name}.")
        ),
        "configuration",
    )
    if key in CONSTANTS:
        return f"{where}: {_constant(key)}"
    if item["type"] == "extra_forbidden":
        near = _nearest(str(item["loc"][-1]), _known(item["loc"][:-1]))
        return f"{where}: {key or repr('')}: no such setting{near and f'; did you mean {near}?'}"
    hidden = isinstance(item["input"], dict) or key.startswith("pulsar") or key.endswith("_file") or key in OF_SECRETS
    shown = "" if hidden else f" {item['input']!r}:"
    return f"{where}: {key}:{shown} {complaint(item)}"


def _constant(key: str) -> str:
    return f"{key}: no setting any more, always {str(CONSTANTS[key]).lower()}"


def _known(path: tuple[Any, ...]) -> list[str]:
    model: Any = Settings
    for part in (part for part in path if not isinstance(part, int)):
        annotation = model.model_fields[part].annotation if part in getattr(model, "model_fields", {}) else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        model = next((option for option in options if hasattr(option, "model_fields")), None)
        if model is None:
            return []
    return list(model.model_fields)


def _nearest(name: str, names: list[str]) -> str:
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.5)), "")


def environment() -> dict[str, str]:
    """The process's ``LBD_*`` variables."""
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}

"""The ``pulsar:`` section: how to reach the cluster, and with which credentials."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from lbd.file_settings import FilePath, SecretPath

SHORTEST_SECONDS, LONGEST_SECONDS = 0.05, 3600
"""A time-out above it is a slip of the pen; far above it, the system could not even count it."""

ACKNOWLEDGED_WITHIN_SECONDS = 10.0
"""How soon a leader's line must be in its topic; one that takes longer leads no more."""

_NEVER_IN_A_URL = re.compile(r"[\s\x00-\x1f\x7f<>\"{}|\\^`#]")


class TlsSettings(BaseModel):
    """Files for https."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ca_file: FilePath | None = Field(
        None, description="PEM file with the CA certificates to trust. With null, those of the system"
    )
    cert_file: FilePath | None = Field(None, description="PEM file with the client certificate")
    key_file: SecretPath | None = Field(None, description="PEM file with the private key of the client certificate")

    @model_validator(mode="after")
    def _both_or_none(self) -> TlsSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both or none")
        return self


class BasicSettings(BaseModel):
    """User and password for basic authentication."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    username: str = Field(
        min_length=1, pattern=r"^[^:\x00-\x1f\x7f]+$", description="Name of a superuser, without a colon"
    )
    password_file: SecretPath = Field(description="File with the password. lbd reads it again when it changes")


class PulsarSettings(BaseModel):
    """How lbd reaches the cluster, and as which user."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    admin_urls: tuple[str, ...] = Field(
        ("http://127.0.0.1:8080",), min_length=1, description="Web addresses of any brokers, tried in this order"
    )
    service_url: str | None = Field(
        None,
        description="Address that begins with pulsar:// or pulsar+ssl://. Required for leader.enabled and for"
        " the extensible load manager",
    )
    cluster: str | None = Field(
        None,
        pattern=r"^[-=:.\w]+$",
        max_length=255,
        description="Name of the cluster. With null, the name that the brokers give",
    )
    token_file: SecretPath | None = Field(
        None, description="File with a superuser's token. lbd reads it again when it changes"
    )
    tls: TlsSettings = TlsSettings()
    basic: BasicSettings | None = None
    connect_timeout_seconds: float = Field(
        3.0,
        ge=SHORTEST_SECONDS,
        le=LONGEST_SECONDS,
        description="Timeout for a connection. A healthy broker accepts one within milliseconds",
    )
    read_timeout_seconds: float = Field(
        10.0,
        ge=SHORTEST_SECONDS,
        le=LONGEST_SECONDS,
        description="Timeout for each read request. The complete response must arrive within it",
    )
    unload_timeout_seconds: float = Field(
        75.0,
        ge=70,
        le=LONGEST_SECONDS,
        description="Timeout for an unload. It must exceed the brokers' namespaceBundleUnloadingTimeoutMs (60"
        " s). Otherwise a slow unload looks lost",
    )
    concurrency: int = Field(16, ge=1, le=256, description="Number of load reports requested at the same time")

    @field_validator("admin_urls")
    @classmethod
    def _plain_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_checked(url) for url in urls)

    @field_validator("service_url")
    @classmethod
    def _plain_service_url(cls, url: str | None) -> str | None:
        return None if url is None else _checked_service(url)

    @field_validator("cluster")
    @classmethod
    def _a_name(cls, name: str | None) -> str | None:
        if name is not None and set(name) <= {"."}:
            raise ValueError("wanted the name of a Pulsar cluster")
        return name

    @model_validator(mode="after")
    def _one_identity(self) -> PulsarSettings:
        if self.token_file and self.basic:
            raise ValueError("token_file and basic exclude each other: give one of them")
        if len({urlsplit(url).scheme for url in self.admin_urls}) > 1:
            raise ValueError("admin_urls mix http and https: give all in one scheme")
        return self


class LeaderSettings(BaseModel):
    """Leader election between several instances."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(
        False,
        description="Several instances share one cluster: one of them moves, the others stand by. Requires "
        "pulsar.service_url",
    )
    topic: str = Field(
        "persistent://pulsar/system/lbd-leader",
        pattern=r"^persistent://[^/\s]+/[^/\s]+/[^/\s]+$",
        description="Topic that elects the leader and carries its journal to the standbys. lbd never moves its bundle",
    )

    @property
    def kept_topic(self) -> str:
        """The topic whose bundle stays where it is; empty where there is none."""
        return self.topic if self.enabled else ""


def _checked_service(url: str) -> str:
    if "@" in url:
        raise ValueError("the URL carries a user or password: secrets belong into token_file or basic")
    scheme, _, hosts = url.rstrip("/").partition("://")
    try:
        parts = [urlsplit(f"//{host}") for host in hosts.split(",")]
        usable = all(part.hostname and part.port != 0 and not part.path and not part.query for part in parts)
    except ValueError:
        usable = False
    if scheme not in {"pulsar", "pulsar+ssl"} or not usable or _NEVER_IN_A_URL.search(url):
        raise ValueError("wanted pulsar://host:port, or pulsar+ssl://host:port; several hosts are parted by commas")
    return url


def _checked(url: str) -> str:
    if "@" in url:
        raise ValueError("an admin URL carries a user or password: secrets belong into token_file or basic")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        usable = usable and not _NEVER_IN_A_URL.search(url)
    except ValueError:
        usable = False
    if not usable or parts.path.strip("/") or parts.query:
        raise ValueError(f"{url!r} is no web address of a broker; wanted http://host:port or https://host:port")
    return f"{parts.scheme}://{parts.netloc}"

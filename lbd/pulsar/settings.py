"""The ``pulsar:`` section: how to reach the cluster, and with which credentials."""

from __future__ import annotations

import re
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from lbd.file_settings import FilePath, SecretPath
from lbd.section import Section

SHORTEST_SECONDS, LONGEST_SECONDS = 0.05, 3600
"""Bounds of a timeout. A longer one is a typing error; far above, the system could not even count it."""

ACKNOWLEDGED_WITHIN_SECONDS = 10.0
"""Time in which a leader's line must be in its topic; a slower instance loses the lead."""

_PLAIN_LINE = r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$"
_NEVER_IN_A_URL = re.compile(r"[\s\x00-\x1f\x7f<>\"{}|\\^`#]")


class TlsSettings(Section):
    """Files for https."""

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


class BasicSettings(Section):
    """User and password for basic authentication."""

    username: str = Field(
        min_length=1, pattern=r"^[^:\x00-\x1f\x7f]+$", description="Name of a superuser, without a colon"
    )
    password_file: SecretPath = Field(description="File with the password. lbd reads it again when it changes")


_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")


class Oauth2Settings(Section):
    """OAuth2 client credentials (RFC 6749, 4.4), with the names that Pulsar's clients use."""

    issuer_url: str = Field(
        description="Address of the issuer, which serves /.well-known/openid-configuration below it. https, or http on"
        " a loopback address"
    )
    private_key_file: SecretPath = Field(
        description="Credentials file of Pulsar's clients: JSON with type client_credentials, client_id and"
        " client_secret. A path or a file:// URL. lbd reads it again at each renewal"
    )
    audience: str | None = Field(
        None, pattern=_PLAIN_LINE, description="Audience of the access token, if the issuer wants one"
    )
    scope: str | None = Field(
        None,
        pattern=_PLAIN_LINE,
        description="Scopes of the access token, separated by spaces, if the issuer wants them",
    )
    ca_file: FilePath | None = Field(
        None, description="PEM file with the CA certificates to trust for the issuer. With null, those of the system"
    )

    @field_validator("issuer_url")
    @classmethod
    def _issuer(cls, url: str) -> str:
        return checked_issuer(url, "issuer_url").rstrip("/")

    @field_validator("private_key_file", mode="before")
    @classmethod
    def _without_scheme(cls, value: object) -> object:
        """The path of a ``file:`` URL."""
        if not (isinstance(value, str) and value.startswith("file:")):
            return value
        parts = urlsplit(value)
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise ValueError("wanted a path, or file:///PATH")
        return unquote(parts.path)


def checked_issuer(url: str, what: str) -> str:
    """An address that may be sent a client's secret; ``what`` names it. Raises :class:`ValueError` for any other."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and "@" not in url
        usable = usable and not _NEVER_IN_A_URL.search(url) and not parts.query
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{what} is no address of an issuer; wanted https://HOST/PATH, without user or query")
    if parts.scheme == "http" and not _LOOPBACK.fullmatch(parts.hostname or ""):
        raise ValueError(
            f"{what} {parts.scheme}://{parts.netloc} would be sent the client's secret unencrypted; wanted https,"
            " or http on a loopback address"
        )
    return url


class PulsarSettings(Section):
    """How lbd reaches the cluster, and as which user."""

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
    oauth2: Oauth2Settings | None = None
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

    connect_timeout_seconds: ClassVar[float] = 3.0
    """A healthy broker accepts a connection within milliseconds, and a packet that was lost is sent again after one
    second. Less would take such a packet for a dead broker; more would only delay the news of one."""

    concurrency: ClassVar[int] = 16
    """Requests at the same time. Fewer make a round of a large cluster longer; more reach at once what the brokers
    share, their metadata store."""

    @field_validator("admin_urls")
    @classmethod
    def _plain_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        """Several hosts in one URL, as in Pulsar's own client.conf, are one URL each."""
        return tuple(_checked(each) for url in urls for each in _one_host_each(url))

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
        named = {"token_file": self.token_file, "basic": self.basic, "oauth2": self.oauth2}
        present = [name for name, value in named.items() if value is not None]
        if len(present) > 1:
            raise ValueError(f"{' and '.join(present)} exclude each other: give one of them")
        if len({urlsplit(url).scheme for url in self.admin_urls}) > 1:
            raise ValueError("admin_urls mix http and https: give all in one scheme")
        return self


class LeaderSettings(Section):
    """Leader election between several instances."""

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
    api_url: str | None = Field(
        None,
        pattern=r"^https?://[-.\w]+(:\d{1,5})?$|^https?://\[[0-9A-Fa-f:.]+\](:\d{1,5})?$",
        description="Address of this instance's API for other machines, as http://lbd-1.example:8085. The other "
        "instances give it in their refusals while this one leads. With null, the address of api.listen, with the name "
        "of the machine where that is every address, and none where it is a loopback address or its port is 0",
    )

    @property
    def kept_topic(self) -> str:
        """The topic whose bundle stays where it is; empty where there is none."""
        return self.topic if self.enabled else ""


def _checked_service(url: str) -> str:
    if "@" in url:
        raise ValueError("the URL carries a user or password: secrets belong into token_file, basic or oauth2")
    scheme, _, hosts = url.rstrip("/").partition("://")
    try:
        parts = [urlsplit(f"//{host}") for host in hosts.split(",")]
        usable = all(part.hostname and part.port != 0 and not part.path and not part.query for part in parts)
    except ValueError:
        usable = False
    if scheme not in {"pulsar", "pulsar+ssl"} or not usable or _NEVER_IN_A_URL.search(url):
        raise ValueError("wanted pulsar://host:port, or pulsar+ssl://host:port; several hosts are parted by commas")
    return url


def _one_host_each(url: str) -> list[str]:
    """``http://b1:8080,b2:8080`` as ``http://b1:8080`` and ``http://b2:8080``."""
    scheme, separator, hosts = url.partition("://")
    return [f"{scheme}{separator}{host}" for host in hosts.split(",")] if separator else [url]


def _checked(url: str) -> str:
    if "@" in url:
        raise ValueError("an admin URL carries a user or password: secrets belong into token_file, basic or oauth2")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        usable = usable and not _NEVER_IN_A_URL.search(url)
    except ValueError:
        usable = False
    if not usable or parts.path.strip("/") or parts.query:
        raise ValueError(f"{url!r} is no web address of a broker; wanted http://host:port or https://host:port")
    return f"{parts.scheme}://{parts.netloc}"

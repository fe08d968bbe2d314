"""How to reach the cluster, and as whom."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

LONGEST_SECONDS = 3600
"""A time-out above it is a slip of the pen; far above it, the system could not even count it."""

ACKNOWLEDGED_WITHIN_SECONDS = 10.0
"""How soon a leader's line must be in its topic; one that takes longer leads no more."""

_NEVER_IN_A_URL = re.compile(r"[\s\x00-\x1f\x7f<>\"{}|\\^`#]")


class TlsSettings(BaseModel):
    """Files for https."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ca_file: Path | None = Field(None, description="certificates to trust; null: the system's")
    cert_file: Path | None = Field(None, description="client certificate (PEM)")
    key_file: Path | None = Field(None, description="its private key (PEM)")

    @model_validator(mode="after")
    def _both_or_none(self) -> TlsSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both or none")
        return self


class BasicSettings(BaseModel):
    """User and password for basic authentication."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    username: str = Field(description="a superuser's name")
    password_file: Path = Field(description="file with the password; read again when it changes")


class PulsarSettings(BaseModel):
    """The ``pulsar:`` section."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    admin_urls: tuple[str, ...] = Field(
        ("http://127.0.0.1:8080",), min_length=1, description="web addresses of any brokers, asked in this order"
    )
    service_url: str | None = Field(
        None, description="pulsar:// or pulsar+ssl:// address; leader.enabled and the extensible load manager need it"
    )
    cluster: str | None = Field(None, description="null: the cluster that the brokers say they belong to")
    token_file: Path | None = Field(None, description="file with a superuser's token; read again when it changes")
    tls: TlsSettings = TlsSettings()
    basic: BasicSettings | None = None
    connect_timeout_seconds: float = Field(
        3.0, gt=0, le=LONGEST_SECONDS, description="a healthy broker accepts within milliseconds"
    )
    read_timeout_seconds: float = Field(
        10.0, gt=0, le=LONGEST_SECONDS, description="for all reads; the whole answer must come within it"
    )
    unload_timeout_seconds: float = Field(
        75.0,
        ge=70,
        le=LONGEST_SECONDS,
        description="above namespaceBundleUnloadingTimeoutMs (60 s), or a slow unload looks lost",
    )
    concurrency: int = Field(16, ge=1, le=256, description="load reports asked for at the same time")
    max_answer_bytes: int = Field(
        256 * 1024 * 1024, ge=1024 * 1024, description="an answer above it is refused: 65,000 bundles make 19 MiB"
    )

    @field_validator("admin_urls")
    @classmethod
    def _plain_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_checked(url) for url in urls)

    @model_validator(mode="after")
    def _one_identity(self) -> PulsarSettings:
        if self.token_file and self.basic:
            raise ValueError("token_file and basic exclude each other: give one of them")
        if len({urlsplit(url).scheme for url in self.admin_urls}) > 1:
            raise ValueError("admin_urls mix http and https: give all in one scheme")
        return self


class LeaderSettings(BaseModel):
    """The ``leader:`` section."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(
        False,
        description="several lbds for one cluster: one of them moves, the others stand by; needs pulsar.service_url",
    )
    topic: str = Field(
        "persistent://pulsar/system/lbd-leader",
        pattern=r"^persistent://[^/\s]+/[^/\s]+/[^/\s]+$",
        description="where they agree on who leads and tell each other their moves; its bundle is never moved",
    )

    @property
    def kept_topic(self) -> str:
        """The topic whose bundle stays where it is; empty where there is none."""
        return self.topic if self.enabled else ""


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

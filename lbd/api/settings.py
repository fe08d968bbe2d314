"""The ``api:`` section."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class ServerTlsSettings(BaseModel):
    """Files for https."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cert_file: Path | None = Field(None, description="the API's certificate and those that vouch for it (PEM)")
    key_file: Path | None = Field(None, description="its private key (PEM)")

    @model_validator(mode="after")
    def _both_or_none(self) -> ServerTlsSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both or none")
        return self


class ApiSettings(BaseModel):
    """Where the API listens, and who may ask it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(True, description="false: lbd run opens no port")
    listen: str = Field("127.0.0.1:8085", description="address:port; port 0: the system chooses, lbd status tells")
    token_file: Path | None = Field(
        None,
        description="file with the token that changes need, and reading too where listen is no loopback address; read "
        "again when it changes; null: the API can be read on loopback only, and changes nothing",
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
        if self.enabled and not self.loopback and self.token_file is None:
            raise ValueError(f"listen {self.listen} is open to others: give token_file, or listen on 127.0.0.1")
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
        """Its web address."""
        host: Any = ipaddress.ip_address(self.host)
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(host), str(host))  # noqa: S104 - what any stands for
        shown = f"[{reached}]" if ":" in reached else reached
        return f"{'https' if self.secure else 'http'}://{shown}:{self.port if port is None else port}"


def split_listen(listen: str) -> tuple[str, str]:
    """Address and port as they are written."""
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port

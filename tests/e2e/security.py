"""Tokens and certificates of a secured test cluster, made on the spot with hmac and the openssl command."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.e2e import settings
from tests.e2e.artifacts import Missing

if TYPE_CHECKING:
    from pathlib import Path

ADMIN = "admin"
_AUTHENTICATION = "org.apache.pulsar.broker.authentication"


@dataclass(frozen=True)
class Credentials:
    """Files a client of the secured cluster needs; None where that part of security is off."""

    token_file: Path | None = None
    ca_file: Path | None = None
    client_certificate_file: Path | None = None
    client_key_file: Path | None = None

    @property
    def token(self) -> str | None:
        return None if self.token_file is None else self.token_file.read_text().strip()


def credentials(work: Path, spec: settings.Spec) -> Credentials:
    """The credentials of a cluster with this work directory (the files may have been made by another process)."""
    tls = (work / "ca.pem", work / "client.pem", work / "client.key") if spec.tls else (None, None, None)
    return Credentials(work / "admin.token" if spec.tokens else None, *tls)


def prepare(work: Path, spec: settings.Spec) -> dict[str, str]:
    """Make keys, tokens and certificates in the work directory; the answer is what broker.conf must say about them."""
    values: dict[str, str] = {}
    if spec.tls:
        _make_certificates(work, [settings.address(index) for index in range(spec.brokers)])
        values |= _tls_settings(work)
    if spec.tokens:
        values |= _token_settings(work, with_tls=spec.tls)
    return values


def token(key: bytes, subject: str) -> str:
    """A JSON web token (HS256) for this role."""
    signed = ".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": subject}))
    return f"{signed}.{_base64url(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"


def role_token(work: Path, subject: str) -> str:
    """A valid token for another role of a running cluster, to try what an ordinary client may do."""
    return token((work / "token.key").read_bytes(), subject)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _token_settings(work: Path, *, with_tls: bool) -> dict[str, str]:
    key = os.urandom(32)
    (work / "token.key").write_bytes(key)
    (work / "admin.token").write_text(token(key, ADMIN) + "\n")
    providers = [f"{_AUTHENTICATION}.AuthenticationProviderToken"]
    providers += [f"{_AUTHENTICATION}.AuthenticationProviderTls"] * with_tls
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(providers),
        "tokenSecretKey": "data:;base64," + base64.b64encode(key).decode(),
        "authorizationEnabled": "true",
        "superUserRoles": ADMIN,
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": "token:" + token(key, ADMIN),
    }


def _tls_settings(work: Path) -> dict[str, str]:
    return {
        "webServicePortTls": str(settings.WEB_TLS_PORT),
        "brokerServicePortTls": str(settings.BROKER_TLS_PORT),
        "tlsCertificateFilePath": str(work / "server.pem"),
        "tlsKeyFilePath": str(work / "server.key"),
        "tlsTrustCertsFilePath": str(work / "ca.pem"),
        "brokerClientTrustCertsFilePath": str(work / "ca.pem"),
    }


def _make_certificates(work: Path, addresses: list[str]) -> None:
    if shutil.which("openssl") is None:
        raise Missing("no openssl command found; it makes the certificates of a TLS cluster (Debian: openssl)")
    authority = ["-x509", "-days", "30", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl("req", "-nodes", *_new_key(work, "ca", "lbd test authority"), *authority, "-out", str(work / "ca.pem"))
    _sign(work, "server", "broker", "subjectAltName=" + ",".join(f"IP:{each}" for each in addresses))
    _sign(work, "client", ADMIN, "extendedKeyUsage=clientAuth")


def _sign(work: Path, name: str, common_name: str, extension: str) -> None:
    request, extensions = work / f"{name}.csr", work / f"{name}.ext"
    extensions.write_text(extension + "\n")
    _openssl("req", "-nodes", *_new_key(work, name, common_name), "-out", str(request))
    signing = ["-CA", str(work / "ca.pem"), "-CAkey", str(work / "ca.key"), "-CAcreateserial", "-days", "30"]
    _openssl("x509", "-req", "-in", str(request), *signing, "-extfile", str(extensions), "-out", f"{work}/{name}.pem")


def _new_key(work: Path, name: str, common_name: str) -> list[str]:
    return ["-newkey", "rsa:2048", "-keyout", str(work / f"{name}.key"), "-subj", f"/CN={common_name}"]


def _openssl(*arguments: str) -> None:
    answer = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed: {answer.stderr.strip()[-300:]}")

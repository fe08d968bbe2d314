"""https: the certificate that is renewed on disk is the one that is shown after a reload."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.api.conftest import PATIENCE_SECONDS, serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar

OPENSSL = shutil.which("openssl")


def certify(folder: Path, name: str, extension: str = "basicConstraints=CA:TRUE") -> dict[str, str]:
    """A certificate and its key in this folder, as ``api.tls`` names them."""
    assert OPENSSL is not None
    files = {"cert_file": str(folder / "cert.pem"), "key_file": str(folder / "key.pem")}
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    out = ["-addext", extension, "-subj", f"/CN={name}", "-out", files["cert_file"], "-keyout", files["key_file"]]
    subprocess.run([OPENSSL, *words, *out], check=True, capture_output=True)
    return files


def _shown(api: Api) -> str:
    parts = urlsplit(api.serving.url or "")
    assert (parts.scheme, parts.hostname is not None, parts.port is not None) == ("https", True, True)
    return ssl.get_server_certificate((str(parts.hostname), int(parts.port or 0)), timeout=PATIENCE_SECONDS).strip()


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
def test_a_renewed_certificate_is_shown_after_a_reload(pulsar: FakePulsar, tmp_path: Path):
    """Its path stays the same, and so do all settings."""
    files = certify(tmp_path, "first")
    with serving(pulsar, tmp_path, {"tls": files}) as api:
        assert _shown(api) == (tmp_path / "cert.pem").read_text().strip()
        certify(tmp_path, "second")
        api.serving.take(api.engine.settings)
        assert _shown(api) == (tmp_path / "cert.pem").read_text().strip()


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
def test_a_reload_between_a_new_certificate_and_its_key_leaves_the_api_as_it_was(pulsar: FakePulsar, tmp_path: Path):
    """Whoever renews them writes one after the other, and nobody need look at the machine then."""
    with serving(pulsar, tmp_path, {"tls": certify(tmp_path, "first")}) as api:
        first, key = _shown(api), (tmp_path / "key.pem").read_text()
        certify(tmp_path, "second")
        renewed = (tmp_path / "key.pem").read_text()
        (tmp_path / "key.pem").write_text(key)
        api.serving.take(api.engine.settings)
        assert _shown(api) == first
        (tmp_path / "key.pem").write_text(renewed)
        api.serving.take(api.engine.settings)
        assert _shown(api) == (tmp_path / "cert.pem").read_text().strip()

"""Addresses that brokers register for themselves: which are asked, and whose address an error names."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import responses

from lbd.errors import AdminError
from lbd.pulsar.addresses import special_kind
from lbd.pulsar.http import Http
from lbd.pulsar.settings import PulsarSettings

if TYPE_CHECKING:
    from tests.fake_pulsar import FakePulsar


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("b1.example", ""),
        ("10.0.0.5", ""),
        ("2001:db8::5", ""),
        ("localhost", "loopback"),
        ("127.0.0.2", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("240.240.0.5", ""),
        ("100.100.100.200", "cloud metadata"),
        ("fd00:ec2::254", "cloud metadata"),
        ("::ffff:100.100.100.200", "cloud metadata"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b::a00:5", ""),
        ("fd00::5", ""),
    ],
)
def test_kinds(host: str, kind: str) -> None:
    """Those that mean another machine to lbd than to the broker, or none."""
    assert special_kind(host) == kind


@pytest.mark.security("a broker that registers a metadata, loopback or other special address")
@pytest.mark.parametrize(
    ("admin_url", "address", "kind"),
    [
        ("http://b1:8080", "127.0.0.1:8080", "loopback"),
        ("http://b1:8080", "localhost:8080", "loopback"),
        ("http://b1:8080", "169.254.169.254:80", "link-local"),
        ("http://b1:8080", "[fe80::1]:8080", "link-local"),
        ("http://b1:8080", "0.0.0.0:8080", "unspecified"),
        ("http://127.0.0.1:8080", "169.254.169.254:80", "link-local"),
        ("http://169.254.1.1:8080", "169.254.169.254:80", "link-local"),
        ("http://127.0.0.1:8080,b1:8080", "127.0.0.2:8080", "loopback"),
        ("http://b1:8080", "100.100.100.200:80", "cloud metadata"),
    ],
)
def test_nothing_is_sent_to_a_special_address(admin_url: str, address: str, kind: str) -> None:
    """Refused by name, with the broker's setting and the one of lbd that allows it."""
    http = Http(PulsarSettings(admin_urls=(admin_url,)))
    http.trust([address])
    with responses.RequestsMock(), pytest.raises(AdminError, match=f"is a {kind} address, nothing sent") as error:
        http.send("GET", f"http://{address}/x")
    assert not error.value.sent
    assert "advertisedAddress" in str(error.value)
    assert "name it in pulsar.admin_urls" in str(error.value)


@pytest.mark.parametrize(
    ("admin_url", "address"),
    [
        ("http://127.0.0.1:8080", "127.0.0.2:8080"),
        ("http://localhost:8080", "127.0.0.1:8081"),
        ("http://127.0.0.1:8080,b1:8080", "127.0.0.1:8081"),
        ("http://b1:8080", "10.0.0.5:8080"),
        ("http://169.254.1.1:8080", "169.254.1.1:8080"),
    ],
)
def test_an_address_that_the_settings_allow_is_asked(admin_url: str, address: str) -> None:
    """A standalone broker, and tests, are on loopback on both sides."""
    http = Http(PulsarSettings(admin_urls=(admin_url,)))
    http.trust([address])
    with responses.RequestsMock() as mock:
        mock.get(f"http://{address}/x", body="fine")
        assert http.send("GET", f"http://{address}/x").status == 200


NAME = "b2.example"


@pytest.mark.security("a name of a broker that leads to a metadata, loopback or other special address")
@pytest.mark.parametrize(
    ("admin_url", "leads_to", "kind"),
    [
        ("http://b1:8080", "127.0.0.1", "loopback"),
        ("http://b1:8080", "::1", "loopback"),
        ("http://127.0.0.1:8080,b1:8080", "127.0.0.2", "loopback"),
        ("http://127.0.0.1:8080", "169.254.169.254", "link-local"),
        ("http://b1:8080", "fd00:ec2::254", "cloud metadata"),
        ("http://169.254.1.1:8080", "169.254.169.254", "link-local"),
    ],
)
def test_no_connection_is_made_where_a_name_leads_to_a_special_address(
    admin_url: str, leads_to: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at when the connection is made, so a name that leads elsewhere later gains nothing."""
    _resolve(monkeypatch, (leads_to, 9))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("connected"))
    http = Http(PulsarSettings(admin_urls=(admin_url,)))
    http.trust([f"{NAME}:9"])
    with pytest.raises(AdminError, match=f"{NAME}:9 leads to {leads_to}, a {kind} address, nothing sent") as error:
        http.send("GET", f"http://{NAME}:9/x")
    assert not error.value.sent
    assert "name it in pulsar.admin_urls" in str(error.value)


@pytest.mark.parametrize("admin_url", [f"http://{NAME}:8080", "http://localhost:8080"])
def test_a_name_that_leads_to_an_address_that_the_settings_allow_is_asked(
    admin_url: str, pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name of the settings leads where it leads; a cluster on this machine may have names of its own."""
    host, _, port = pulsar.ids[0].rpartition(":")
    _resolve(monkeypatch, (host, int(port)))
    http = Http(PulsarSettings(admin_urls=(admin_url,)))
    http.trust([f"{NAME}:{port}"])
    assert http.send("GET", f"http://{NAME}:{port}/admin/v2/brokers/ready").body == b"ok"


def _resolve(monkeypatch: pytest.MonkeyPatch, address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(family, socket.SOCK_STREAM, 6, "", address)])


@pytest.mark.parametrize(("url", "registered"), [("http://b1.invalid:8080", False), ("http://b2.invalid:8080", True)])
def test_whose_address_it_is(url: str, registered: bool) -> None:
    """The setting of the broker is named only for an address that the settings do not have."""
    http = Http(PulsarSettings(admin_urls=("http://b1.invalid:8080",)))
    http.trust(["b2.invalid:8080"])
    with pytest.raises(AdminError, match="unknown host") as error:
        http.send("GET", f"{url}/x")
    assert ("a broker registered this address (advertisedAddress" in str(error.value)) is registered


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (("http://b1:8080,b2:8080",), ("http://b1:8080", "http://b2:8080")),
        (("https://b1:8443,b2:8443/", "https://b3"), ("https://b1:8443", "https://b2:8443", "https://b3")),
    ],
)
def test_several_hosts_in_one_url(urls: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """Pulsar's own form."""
    assert PulsarSettings(admin_urls=urls).admin_urls == expected

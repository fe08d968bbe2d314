"""Addresses that brokers register for themselves: which are asked, and whose address an error names."""

from __future__ import annotations

import pytest
import responses

from lbd.errors import AdminError
from lbd.pulsar.addresses import special_kind
from lbd.pulsar.http import Http
from lbd.pulsar.settings import PulsarSettings


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
    ],
)
def test_kinds(host: str, kind: str) -> None:
    """Those that mean another machine to lbd than to the broker, or none."""
    assert special_kind(host) == kind


@pytest.mark.security("a broker that registers a metadata, loopback or other special address", cases=6)
@pytest.mark.parametrize(
    ("admin_url", "address", "kind"),
    [
        ("http://b1:8080", "127.0.0.1:8080", "loopback"),
        ("http://b1:8080", "localhost:8080", "loopback"),
        ("http://b1:8080", "169.254.169.254:80", "link-local"),
        ("http://b1:8080", "[fe80::1]:8080", "link-local"),
        ("http://b1:8080", "0.0.0.0:8080", "unspecified"),
        ("http://127.0.0.1:8080", "169.254.169.254:80", "link-local"),
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
        ("http://b1:8080", "10.0.0.5:8080"),
        ("http://169.254.1.1:8080", "169.254.1.1:8080"),
    ],
)
def test_an_address_of_a_kind_that_the_settings_have_is_asked(admin_url: str, address: str) -> None:
    """A standalone broker, and tests, are on loopback on both sides."""
    http = Http(PulsarSettings(admin_urls=(admin_url,)))
    http.trust([address])
    with responses.RequestsMock() as mock:
        mock.get(f"http://{address}/x", body="fine")
        assert http.send("GET", f"http://{address}/x").status == 200


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

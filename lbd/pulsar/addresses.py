"""Addresses that a broker may register for itself. Pure.

A broker's id is its advertisedAddress and webServicePort, and lbd sends its token there. Refused unless
``pulsar.admin_urls`` has that host: loopback, link-local, unspecified, multicast and reserved addresses, and a cloud's
metadata service. Such an address means another machine to lbd than to the broker, or a service that is no broker.
Loopback is allowed where ``pulsar.admin_urls`` has nothing else: that cluster is on this machine. The address that a
name resolves to is checked in the same way.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

REGISTERED = (
    "; a broker registered this address (advertisedAddress or advertisedListeners, and webServicePort, in its"
    " broker.conf), and lbd must reach it from this machine"
)
"""Suffix of an error about an address that comes from a broker, not from the settings."""

_METADATA = frozenset(
    ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42")
)
"""Metadata services that are not link-local: Alibaba, Azure, Oracle, AWS, Google, Scaleway."""

_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv4 addresses behind a translator, as names resolve to on hosts with IPv6 only (RFC 6052)."""

_PODS = IPv4Network("240.0.0.0/4")
"""Reserved, but in use: GKE gives these addresses to pods, Istio to services outside of the mesh."""


@lru_cache(maxsize=4096)
def special_kind(host: str) -> str:
    """Kind of a special address: ``loopback``, ``link-local`` ...; empty for a usual one. ``host`` has no brackets."""
    if host == "localhost" or host.endswith(".localhost"):
        return "loopback"
    try:
        address = ip_address(host)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    elif isinstance(address, IPv6Address) and address in _NAT64:
        address = IPv4Address(address.packed[-4:])
    kinds = {
        "cloud metadata": address in _METADATA,
        "unspecified": address.is_unspecified,
        "loopback": address.is_loopback,
        "link-local": address.is_link_local,
        "multicast": address.is_multicast,
        "reserved": address.is_reserved and (address not in _PODS or address == _PODS.broadcast_address),
    }
    return next((kind for kind, holds in kinds.items() if holds), "")

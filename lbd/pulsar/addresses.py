"""Which addresses a broker may register for itself. Pure.

A broker's id is its advertisedAddress and webServicePort, and lbd sends its token there. An address that means another
machine to lbd than to the broker, or a service that is no broker, is refused unless ``pulsar.admin_urls`` has one of
its kind: loopback, link-local (a cloud's metadata service among them), unspecified, multicast or reserved.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

REGISTERED = (
    "; a broker registered this address (advertisedAddress or advertisedListeners, and webServicePort, in its"
    " broker.conf), and lbd must reach it from this machine"
)
"""Whose address it is that cannot be reached, where the settings do not have it."""


def special_kind(host: str) -> str:
    """``loopback``, ``link-local`` and so on; empty for a usual address or name. ``host`` is without brackets."""
    if host == "localhost" or host.endswith(".localhost"):
        return "loopback"
    try:
        address = ip_address(host)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    kinds = {
        "unspecified": address.is_unspecified,
        "loopback": address.is_loopback,
        "link-local": address.is_link_local,
        "multicast": address.is_multicast,
        "reserved": address.is_reserved,
    }
    return next((kind for kind, holds in kinds.items() if holds), "")

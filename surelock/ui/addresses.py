"""Addresses: which are this machine's, and which belong to one client."""

from __future__ import annotations

import os
from ipaddress import IPv6Address, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import Scope


def is_address(name: str) -> bool:
    """Whether it is a numeric address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_local(name: str) -> bool:
    """Whether a server of that name is out of the public's reach, so that a web page must not reach it either."""
    return not ip_address(name).is_global if is_address(name) else "." not in name or name.endswith(".local")


def client_of(scope: Scope) -> str:
    """Who calls, as `network_of` names it: the address of the connection; behind a Space's proxies, whose last words
    are private addresses, the last public one that they tell of.
    """
    own = network_of((scope.get("client") or ("unknown",))[0])
    if "SPACE_ID" not in os.environ:
        return own
    lines = Headers(scope=scope).getlist("x-forwarded-for")
    told = [_without_port(each.strip()) for each in ",".join(lines).split(",")]
    public = (each for each in reversed(told) if is_address(each) and ip_address(each).is_global)
    return network_of(next(public, own))


def network_of(address: str) -> str:
    """What one client has of addresses: an IPv4 address, or the 2**64 of IPv6 that it can choose among."""
    if not is_address(address):
        return address
    own = ip_address(address)
    if not isinstance(own, IPv6Address):
        return address
    return str(own.ipv4_mapped or ip_network((int(own), 64), strict=False))


def is_loopback(address: str) -> bool:
    """Whether it is an address of this machine to itself, where a proxy may stand."""
    own = ip_address(address) if is_address(address) else None
    if isinstance(own, IPv6Address):
        own = own.ipv4_mapped or own
    return own is not None and own.is_loopback


def _without_port(address: str) -> str:
    """`1.2.3.4:5678`, `[v6]:5678` and `[v6]` without what is not the address."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address

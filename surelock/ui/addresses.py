"""Network addresses: which are local, and which belong to one client."""

from ipaddress import IPv6Address, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import Scope

from surelock.environment import value_of


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_ipv6(name: str) -> bool:
    return is_address(name) and isinstance(ip_address(name), IPv6Address)


def is_local(name: str) -> bool:
    """Return whether a host name is local: pages of other sites must not call a local server."""
    if is_address(name):
        return not ip_address(name).is_global
    return "." not in name or name.endswith(".local")


def client_of(scope: Scope) -> str:
    """Return the client of a request, see `network_of`.

    It is the address of the connection. On a Space, whose proxies have private addresses, it is the
    last public address in `x-forwarded-for`.
    """
    connection = network_of((scope.get("client") or ("unknown",))[0])
    if not value_of("SPACE_ID"):
        return connection
    lines = Headers(scope=scope).getlist("x-forwarded-for")
    for hop in reversed(",".join(lines).split(",")):
        address = _without_port(hop.strip())
        if is_address(address) and ip_address(address).is_global:
            return network_of(address)
    return connection


def network_of(address: str) -> str:
    """Return the network of one client: its IPv4 address, or the IPv6 /64 in which it can choose addresses."""
    if not is_ipv6(address):
        return address
    ipv6 = IPv6Address(address)
    return str(ipv6.ipv4_mapped or ip_network((int(ipv6), 64), strict=False))


def _without_port(address: str) -> str:
    """The address in `1.2.3.4:5678`, `[v6]:5678` or `[v6]`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address

"""Network addresses: whether an address is local, and to which client it belongs."""

from ipaddress import IPv6Address, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import Scope

from surelock.environment import value_of


def is_address(name: str) -> bool:
    """Return whether a host name is a numeric address (IPv4 or IPv6)."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_ipv6(name: str) -> bool:
    """Return whether a host name is a numeric IPv6 address."""
    return is_address(name) and isinstance(ip_address(name), IPv6Address)


def is_local(name: str) -> bool:
    """Return whether a host name or an address is local, that is, not reachable from the internet.

    The gate refuses calls of a local server by pages of other sites.
    """
    if is_address(name):
        return not ip_address(name).is_global
    return "." not in name or name.endswith(".local")


def client_of(scope: Scope) -> str:
    """Return the client of a request: the network (see `network_of`) of the address that sent the request.

    On a Hugging Face Space, whose proxies have private addresses, the address is the last public one in
    `x-forwarded-for`. Elsewhere it is the address of the connection.
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
    """Return the network of a client's address: an IPv4 address itself, and the /64 network of an IPv6 address.

    A client can choose any IPv6 address in its /64 network. A text that is no address is returned unchanged.
    """
    if not is_ipv6(address):
        return address
    ipv6 = IPv6Address(address)
    return str(ipv6.ipv4_mapped or ip_network((int(ipv6), 64), strict=False))


def _without_port(address: str) -> str:
    """Return the address in `1.2.3.4:5678`, `[v6]:5678` or `[v6]`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address

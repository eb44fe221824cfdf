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
    """Return whether a host name is local, so that pages of other sites must not call it."""
    return not ip_address(name).is_global if is_address(name) else "." not in name or name.endswith(".local")


def client_of(scope: Scope) -> str:
    """Return the client of a request, see `network_of`.

    It is the address of the connection. On a Space, whose proxies have private addresses, it is the last public address
    of `x-forwarded-for`.
    """
    own = network_of((scope.get("client") or ("unknown",))[0])
    if not value_of("SPACE_ID"):
        return own
    lines = Headers(scope=scope).getlist("x-forwarded-for")
    hops = [_without_port(each.strip()) for each in ",".join(lines).split(",")]
    public = (each for each in reversed(hops) if is_address(each) and ip_address(each).is_global)
    return network_of(next(public, own))


def network_of(address: str) -> str:
    """Return the network of one client: an IPv4 address, or an IPv6 /64, within which it can choose addresses."""
    if not is_address(address):
        return address
    own = ip_address(address)
    if not isinstance(own, IPv6Address):
        return address
    return str(own.ipv4_mapped or ip_network((int(own), 64), strict=False))


def _without_port(address: str) -> str:
    """The address in `1.2.3.4:5678`, `[v6]:5678` or `[v6]`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address

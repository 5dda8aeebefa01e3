"""Resolving names for requests that a model chose: only addresses of the public internet are returned.

A name is resolved once, and the connection is made to the addresses returned here. Resolving it again to connect would let a
server answer differently the second time (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

RESOLVE_SECONDS = 10.0
"""The time limit of a lookup in seconds."""

_NOT_PUBLIC = tuple(
    ip_network(each)
    for each in (
        "168.63.129.16/32",  # the services of Azure's own network, at an address that is public elsewhere
        "192.88.99.0/24",  # relays of 6to4
        "::/96",  # IPv4-compatible addresses
        "64:ff9b:1::/48",  # NAT64 of a local network
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing inside a network
        "fec0::/10",  # site-local addresses
    )
)
"""Networks that `is_global` of a supported Python counts as global."""

_NAT64 = ip_network("64:ff9b::/96")


class AddressRefused(Exception):
    """A host cannot be reached: it has no address, or one that is not public. `str(error)` is a sentence."""


class HostUnknown(AddressRefused):
    """A name cannot be resolved."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return True for an address of the public internet. One that contains an IPv4 address must be public in that, too."""
    if any(address.version == network.version and address in network for network in _NOT_PUBLIC):
        return False
    inner = _embedded(address) if isinstance(address, IPv6Address) else None
    if inner is not None:
        return is_public(inner)
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address to which the network would deliver, None if there is none."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


async def resolve_public(host: str, port: int) -> list[str]:
    """Return the addresses of a host, in the order in which to try them.

    Args:
        host: A name or an IP address, without brackets.
        port: The port that will be connected to.

    Raises:
        AddressRefused: There is no address (`HostUnknown`), or any of them is not public.
    """
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        raise HostUnknown(f"The name {host!r} cannot be resolved.") from error
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    refused = [each for each in addresses if "%" in each or not is_public(ip_address(each))]
    if refused or not addresses:
        raise AddressRefused(f"{host!r} has the address {', '.join(refused) or 'none'}, which is not public.")
    return addresses

"""Names and addresses for requests that a model chose: nothing but the public internet can be reached."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import pytest

from plugins.http.public_addresses import AddressRefused, is_public, resolve_public

PUBLIC = ["8.8.8.8", "1.1.1.1", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"]

NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.1.1.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.1.2.3",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b:1::808:808",
    "100::1",
    "2001:0:7f00:1::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_of_this_machine_or_network_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("host", [*NOT_PUBLIC, "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "fe80::1%lo"])
async def test_no_spelling_of_such_an_address_is_resolved(host: str) -> None:
    with pytest.raises(AddressRefused):
        await resolve_public(host, 80)


@pytest.mark.parametrize("host", ["", "no-such-host.invalid", "a" * 64, "bad..name", "x" * 5000, "\0", "\udc80"])
async def test_a_host_without_an_address_is_refused(host: str) -> None:
    with pytest.raises(AddressRefused):
        await resolve_public(host, 80)


async def test_a_name_with_one_address_that_is_not_public_is_refused_altogether(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        found = {"one.example": ["8.8.8.8"], "two.example": ["8.8.8.8", "10.0.0.1"]}[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert await resolve_public("one.example", 443) == ["8.8.8.8"]
    with pytest.raises(AddressRefused, match=r"^'two\.example' has the address 10\.0\.0\.1, which is not public\.$"):
        await resolve_public("two.example", 443)

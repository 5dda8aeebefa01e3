"""Who may speak, and which names a request may use for the gateway."""

from __future__ import annotations

import pytest

from gateway.access import OWNER, Access
from plugins.secrets import Secret

TOKEN = "t" * 12 + "okenokenoken"


def access(host: str = "127.0.0.1", **fields: list[str]) -> Access:
    return Access(Secret(TOKEN), host=host, port=7117, hosts=fields.get("hosts", []), origins=fields.get("origins", []))


def test_the_token_names_the_owner_and_anything_else_nobody() -> None:
    assert access().person(TOKEN) == OWNER
    assert access().person_of_header(f"Bearer {TOKEN}") == OWNER
    assert access().person_of_header(f"bearer {TOKEN} ") == OWNER
    for wrong in ("", TOKEN[:-1], TOKEN + "x", "\ud800", TOKEN.upper()):
        assert access().person(wrong) is None
    for header in ("", TOKEN, f"Basic {TOKEN}", "Bearer"):
        assert access().person_of_header(header) is None


@pytest.mark.parametrize("host", ["127.0.0.1:7117", "localhost:7117", "LOCALHOST:7117", "[::1]:7117"])
def test_the_gateways_own_address_is_allowed(host: str) -> None:
    assert access().allows_host(host)
    assert access().allows_origin(f"http://{host}")


@pytest.mark.parametrize(
    "host", [None, "", "evil.example", "evil.example:7117", "localhost", "localhost:80", "127.0.0.1.evil.example:7117"]
)
def test_any_other_name_is_not(host: str | None) -> None:
    assert not access().allows_host(host)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "https://localhost:7117.evil.example",
        "file://localhost:7117",
        "http://[",
        "ws://x",
    ],
)
def test_a_page_of_somebody_else_is_not(origin: str) -> None:
    assert not access().allows_origin(origin)


def test_no_origin_is_no_browser_and_allowed() -> None:
    assert access().allows_origin(None)


def test_configured_names_are_allowed_beside() -> None:
    rules = access(hosts=["chat.example"], origins=["https://chat.example"])
    assert rules.allows_host("chat.example")
    assert rules.allows_origin("https://chat.example/")
    assert not rules.allows_origin("https://other.example")


def test_a_gateway_on_all_addresses_takes_literal_addresses_but_no_names() -> None:
    rules = access(host="0.0.0.0")
    assert rules.allows_host("192.0.2.7:7117")
    assert rules.allows_host("[2001:db8::1]:7117")
    assert not rules.allows_host("rebound.example:7117")
    assert not rules.allows_host("192.0.2.7:80")

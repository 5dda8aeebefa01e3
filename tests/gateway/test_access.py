"""Authentication, and the host names under which the gateway accepts requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.auth.access import Access, NotAuthorized
from gateway.auth.limits import FREE, AuthThrottle
from gateway.auth.people import People, Person
from gateway.auth.sign_ins import SignIns
from gateway.auth.signed_tokens import SignedOut, TokenSigner
from gateway.config.keys import GatewayKeys
from plugins.support.secrets import Secret
from plugins.support.workspace import OWNER

TOKEN = "t" * 12 + "okenokenoken"
OTHER = TOKEN[::-1]
HOME = "192.0.2.1"


def people(**tokens: str) -> People:
    return People((Secret(token), Person(name, name)) for name, token in ({OWNER: TOKEN} | tokens).items())


def access(
    host: str = "127.0.0.1",
    *,
    port: int = 7117,
    attempts: AuthThrottle | None = None,
    hosts: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
) -> Access:
    return Access(
        people(),
        attempts or AuthThrottle(lambda: 0.0),
        TokenSigner(lambda: 0.0, SignedOut(Path("/nowhere/signed_out.json"), lambda: 0.0)),
        GatewayKeys(host=host, allowed_hosts=hosts, allowed_origins=origins),
        port,
        sign_ins=SignIns(Path("/nowhere/sign_ins.json"), lambda: 0.0),
    )


def allows(rules: Access, origin: str | None, host: str | None = "127.0.0.1:7117") -> bool:
    return rules.allows_origin(origin, host)


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_only_the_token_authenticates_the_owner() -> None:
    assert access().admit(TOKEN, HOME).person.id == OWNER
    for header in (f"Bearer {TOKEN}", f"bearer {TOKEN} "):
        assert access().admit_by_header(header, HOME).person.id == OWNER
    for wrong in ("", TOKEN[:-1], TOKEN + "x", "\ud800", TOKEN.upper()):
        with pytest.raises(NotAuthorized):
            access().admit(wrong, HOME)
    for header in ("", TOKEN, f"Basic {TOKEN}", "Bearer"):
        with pytest.raises(NotAuthorized):
            access().admit_by_header(header, HOME)


def test_wrong_tokens_delay_only_their_own_address() -> None:
    rules = access()
    for number in range(FREE):
        with pytest.raises(NotAuthorized) as wrong:
            rules.admit(f"guess {number}", HOME)
        assert wrong.value.retry_after is None
    with pytest.raises(NotAuthorized) as waiting:
        rules.admit("one more", HOME)
    assert waiting.value.retry_after == 1
    with pytest.raises(NotAuthorized, match="Try again in 1 s"):
        rules.admit("and another", HOME)
    with pytest.raises(NotAuthorized, match="Invalid token"):
        rules.admit("one from elsewhere", "192.0.2.2")


def test_the_right_token_is_admitted_from_a_waiting_address() -> None:
    rules = access()
    for number in range(FREE + 20):
        with pytest.raises(NotAuthorized):
            rules.admit(f"guess {number}", HOME)
    assert rules.admit(TOKEN, HOME).person.id == OWNER
    with pytest.raises(NotAuthorized, match="Try again"):
        rules.admit("a guess again", HOME)  # which the right one did not make cheaper


def test_a_missing_token_is_not_counted_as_a_failed_attempt() -> None:
    attempts = AuthThrottle(lambda: 0.0)
    for _ in range(100):
        with pytest.raises(NotAuthorized):
            access(attempts=attempts).admit_by_header("", HOME)
    assert len(attempts) == 0


def test_changed_people_are_admitted_at_once_and_watchers_are_notified() -> None:
    rules = access()
    told: list[bool] = []
    admission = rules.admit(TOKEN, HOME)
    rules.watch(lambda: told.append(rules.still_admits(admission)))
    rules.replace(people(ana=OTHER))
    rules.replace(People([(Secret(OTHER), Person(OWNER, OWNER))]))
    assert told == [True, False]
    assert rules.admit(OTHER, HOME).person.id == OWNER


def test_a_token_that_now_belongs_to_another_person_ends_the_old_admission() -> None:
    rules = access()
    admission = rules.admit(TOKEN, HOME)
    rules.replace(People([(Secret(TOKEN), Person("ana", "Ana"))]))
    assert not rules.still_admits(admission)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:7117",
        "localhost:7117",
        "LOCALHOST:7117",
        "localhost.:7117",
        "[::1]:7117",
        "[0:0:0:0:0:0:0:1]:7117",
    ],
)
def test_the_gateways_own_address_is_allowed_in_every_spelling(host: str) -> None:
    assert access().allows_host(host)
    assert allows(access(), f"http://{host}", host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        ".",
        ":",
        ":7117",
        "[]:7117",
        "[::1",
        "evil.example",
        "evil.example:7117",
        "localhost",
        "localhost:80",
        "localhost..:7117",
        "somebody@localhost:7117",
        "127.0.0.1.evil.example:7117",
        "127.0.0.1:7117:7117",
        "127.0.0.1:07117",
        "127.0.0.1:７１１７",
        "::1:7117",
    ],
)
def test_any_other_host_name_is_refused(host: str | None) -> None:
    for rules in (access(), access("0.0.0.0"), access("::")):
        assert not rules.allows_host(host)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "https://localhost:7117.evil.example",
        "http://somebody@127.0.0.1:7117",
        "http://127.0.0.1:7117/page",
        "http://127.0.0.1:7118",
        "file://127.0.0.1:7117",
        "http://[",
        "http://",
        "ws://x",
    ],
)
def test_a_foreign_origin_is_refused(origin: str) -> None:
    assert not allows(access(), origin)


def test_a_request_without_an_origin_is_allowed() -> None:
    assert allows(access(), None)


def test_configured_host_names_are_also_allowed() -> None:
    rules = access(hosts=("Chat.example",), origins=("https://other.example",))
    assert rules.allows_host("chat.example")
    assert rules.allows_host("chat.example.")
    assert allows(rules, "https://chat.example", "chat.example")
    assert allows(rules, "https://other.example/")
    assert not allows(rules, "https://third.example")


def test_default_ports_may_be_omitted_as_browsers_do() -> None:
    rules = access(port=80)
    assert rules.allows_host("localhost")
    assert allows(rules, "http://localhost", "localhost")


def test_a_gateway_on_all_addresses_accepts_ip_addresses_but_no_names() -> None:
    rules = access(host="0.0.0.0")
    assert rules.allows_host("192.0.2.7:7117")
    assert rules.allows_host("[2001:db8::1]:7117")
    assert not rules.allows_host("rebound.example:7117")
    assert not rules.allows_host("192.0.2.7:80")


def test_an_origin_at_another_address_is_refused_even_on_the_same_port() -> None:
    rules = access(host="0.0.0.0")
    assert allows(rules, "http://192.0.2.7:7117", "192.0.2.7:7117")
    assert not allows(rules, "http://198.51.100.66:7117", "192.0.2.7:7117")
    assert not allows(access(), "http://localhost:7117", "127.0.0.1:7117")

"""Sign-in by the header of a reverse proxy, and everybody else who sends this header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.auth.people import people_of
from gateway.config.keys import load_config
from gateway.support.errors import ConfigRefused
from plugins.support.secrets import Secret
from tests.gateway.gateways import TOKEN, Gateway, gateway

SECRET = "the-secret-0123-of-the-proxy"
ANA, BEN = "ana-has-this-token-of-her-own", "ben-has-another-one-of-his-own"
FILE = """[agent]
model = "scripted:echo"
[sign_in.people]
"ana@example.org" = "ana"
"me@example.org" = "owner"
"gone@example.org" = "gone"
"""
PROXY: dict[str, Any] = {
    "people.ana.token": ANA,
    "people.ben.token": BEN,
    "sign_in.header": "X-Remote-User",
    "sign_in.addresses": ["127.0.0.0/8"],
    "sign_in.secret": SECRET,
}
Headers = list[tuple[str, str]]


def named(login: str, secret: str = SECRET) -> Headers:
    return [("X-Remote-User", login), ("X-Exuvia-Proxy-Secret", secret)]


async def session(g: Gateway, headers: Headers, cookie: str = "") -> tuple[str | None, str]:
    """Return who is signed in, and the cookie that was set."""
    more = [("Cookie", cookie)] if cookie else []
    async with g.http.get(f"{g.url}/api/session", headers=[*headers, *more]) as response:
        set_cookie = response.headers.get("Set-Cookie", "")
        return ((await response.json())["person"] or {}).get("id"), set_cookie


async def test_the_proxy_signs_in_the_people_of_its_logins_and_nobody_else_does(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=FILE, settings=PROXY) as g:
        person, cookie = await session(g, named("ana@example.org"))
        assert (person, "HttpOnly" in cookie, "Secure" in cookie) == ("ana", True, False)
        person, over_tls = await session(g, [*named("me@example.org"), ("X-Forwarded-Proto", "https")])
        assert (person, "Secure" in over_tls) == ("owner", True)
        attacks: list[Headers] = [
            [("X-Remote-User", "ana@example.org")],
            named("ana@example.org", "wrong"),
            named("ana@example.org", ""),
            [*named("ana@example.org", "wrong"), ("X-Exuvia-Proxy-Secret", SECRET)],
            [*named("ana@example.org"), ("X-Remote-User", "me@example.org")],
            [("X_Remote_User", "me@example.org"), ("X-Exuvia-Proxy-Secret", SECRET)],
            [*named("ana@example.org"), ("Sec-Fetch-Site", "cross-site")],
            [*named("ana@example.org"), ("Sec-Fetch-Site", "same-site")],
            *(
                named(login)
                for login in ("ana", "owner", "ben", "", "ANA@example.org", "gone@example.org", "me@example.org,x")
            ),
        ]
        assert [each for each in attacks if await session(g, each) != (None, "")] == []

        own = cookie.partition(";")[0]
        assert await session(g, [], own) == ("ana", "")
        assert await session(g, named("ana@example.org"), own) == ("ana", "")
        assert (await session(g, named("me@example.org"), own))[0] == "owner"
        for other in ("me@example.org", "stranger@example.org"):
            headers = [*named(other), ("Cookie", own), ("Sec-Fetch-Site", "same-origin")]
            async with g.http.get(f"{g.url}/api/sign-ins", headers=headers) as response:
                assert response.status == 401, "the cookie is of somebody else than the proxy names"


async def test_from_other_addresses_the_header_is_ignored(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=FILE, settings=PROXY | {"sign_in.addresses": ["192.0.2.0/24", "::1"]}) as g:
        headers = [*named("ana@example.org"), ("X-Forwarded-For", "192.0.2.1"), ("Forwarded", "for=192.0.2.1")]
        assert await session(g, headers) == (None, "")


async def test_without_a_header_in_the_configuration_nothing_is_read(tmp_path: Path) -> None:
    settings = {key: value for key, value in PROXY.items() if key != "sign_in.header"}
    async with gateway(tmp_path, file=FILE, settings=settings) as g:
        assert await session(g, named("ana@example.org")) == (None, "")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ('header = "X-User"', "sign_in.secret is missing: the proxy must send it as X-Exuvia-Proxy-Secret."),
        ('header = "X-User"\nsecret = "short"', "sign_in.secret is shorter than 24 characters."),
        (f'header = "X-User"\nsecret = "{SECRET}"', "sign_in.addresses is empty; name the addresses of the proxy."),
        (f'header = "Cookie"\nsecret = "{SECRET}"', "sign_in.header is Cookie, which is not the name of a login."),
        (f'header = "X-User"\nsecret = "{SECRET}"\naddresses = ["0.0.0.0/0"]', "which is every address"),
        (f'header = "X-User"\nsecret = "{SECRET}"\naddresses = ["proxy"]', "which is no address or network"),
        (
            f'header = "X-User"\nsecret = "{SECRET}"\naddresses = ["::1"]\npeople = {{ "a" = "../x" }}',
            "sign_in.people gives 'a' the person '../x', which is no valid id.",
        ),
    ],
)
def test_invalid_keys_are_refused_with_their_path(lines: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"[sign_in]\n{lines}\n")
    with pytest.raises(ConfigRefused) as refused:
        people_of(load_config(path, environment={}, overrides={}), Secret(TOKEN))
    assert sentence in str(refused.value)
    assert SECRET not in str(refused.value)

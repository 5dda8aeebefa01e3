"""Signing in to the console: by the token, by the one-time link, and what a cookie is good for."""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, Route

from gateway.auth.access import NotAuthorized
from gateway.auth.signed_tokens import (
    COOKIE_SECONDS,
    LINES,
    LINK_SECONDS,
    RENEWED_AFTER,
    SignedOut,
    SignedToken,
    TokenSigner,
    signing_key,
)
from gateway.http.console.pages import FOLDER
from tests.console.browser import visiting
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.waiting import deadline

KEYS = {"owner": signing_key(TOKEN), "ana": signing_key(TOKEN[::-1])}


class Hour:
    """A clock in seconds that the test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def passes_at(now: Callable[[], float]) -> TokenSigner:
    """Passes of a gateway that was signed out of by nobody."""
    return TokenSigner(now, SignedOut(Path("/nowhere/signed_out.json"), now))


# --- passes -----------------------------------------------------------------------------------------------------------


def test_a_signed_token_is_valid_until_it_expires() -> None:
    hour = Hour()
    passes = passes_at(hour)
    cookie = passes.issue("cookie", "ana", KEYS["ana"])
    hour.now += COOKIE_SECONDS - 1
    found = passes.read("cookie", cookie, KEYS.get)
    assert found is not None
    assert (found.person, found.until) == ("ana", 1_800_000_000 + COOKIE_SECONDS)
    hour.now += 1
    assert passes.read("cookie", cookie, KEYS.get) is None


def test_a_modified_signed_token_is_invalid() -> None:
    passes = passes_at(Hour())
    cookie = passes.issue("cookie", "ana", KEYS["ana"])
    changed = [cookie[:at] + ("0" if cookie[at] != "0" else "1") + cookie[at + 1 :] for at in range(len(cookie))]
    others = [cookie.replace("ana", "owner"), "", cookie + "0", cookie.upper(), "a.b.c.d", cookie.replace(".", "-")]
    assert [text for text in changed + others if passes.read("cookie", text, KEYS.get) is not None] == []


def test_a_signed_token_is_valid_for_its_purpose_and_while_the_token_exists() -> None:
    passes = passes_at(Hour())
    link = passes.issue("link", "owner", KEYS["owner"])
    assert passes.read("cookie", link, KEYS.get) is None
    assert passes.read("link", passes.issue("cookie", "owner", KEYS["owner"]), KEYS.get) is None
    assert passes.read("link", link, lambda person: signing_key("another token")) is None
    assert passes.read("link", link, lambda person: None) is None
    assert passes.read("link", link, KEYS.get) is not None


def test_a_cookie_survives_a_restart_and_a_link_does_not() -> None:
    hour = Hour()
    before = passes_at(hour)
    cookie, link = before.issue("cookie", "owner", KEYS["owner"]), before.issue("link", "owner", KEYS["owner"])
    hour.now += LINK_SECONDS / 2
    after = passes_at(hour)
    assert after.read("cookie", cookie, KEYS.get) is not None
    assert after.read("link", link, KEYS.get) is None
    assert before.read("link", link, KEYS.get) is not None


def test_used_links_are_forgotten_when_they_would_have_expired() -> None:
    hour = Hour()
    passes = passes_at(hour)
    for number in range(3):
        hour.now += LINK_SECONDS
        passes.use_up(SignedToken("owner", int(hour.now) + LINK_SECONDS, str(number)))
    assert len(passes._used) == 1


# --- signing out ------------------------------------------------------------------------------------------------------


async def test_a_hundred_sign_outs_sign_a_person_out_everywhere(tmp_path: Path) -> None:
    """The stored list of sign-outs stays small."""
    hour, path = Hour(), tmp_path / "signed_out.json"
    passes = TokenSigner(hour, SignedOut(path, hour))
    early, anas = passes.issue("cookie", "owner", KEYS["owner"]), passes.issue("cookie", "ana", KEYS["ana"])
    for _ in range(LINES):
        hour.now += 1
        await passes.sign_out(read(passes, passes.issue("cookie", "owner", KEYS["owner"])))
    hour.now += 1
    for each in (passes, TokenSigner(hour, SignedOut(path, hour))):
        assert each.read("cookie", early, KEYS.get) is None
        assert each.read("cookie", anas, KEYS.get) is not None
        assert each.read("cookie", passes.issue("cookie", "owner", KEYS["owner"]), KEYS.get) is not None
    assert path.stat().st_size < 200


async def test_a_sign_out_is_durable_including_its_directory_entry(tmp_path: Path, steps: list[str]) -> None:
    hour = Hour()
    await SignedOut(tmp_path / "signed_out.json", hour).add("owner", "line", int(hour()) + 1)
    assert steps == ["sync content", "sync folder", "replace", "sync folder"]


async def test_a_sign_out_is_forgotten_when_the_last_of_its_cookies_would_have_expired(tmp_path: Path) -> None:
    hour, path = Hour(), tmp_path / "signed_out.json"
    passes = TokenSigner(hour, SignedOut(path, hour))
    for _ in range(2):
        await passes.sign_out(read(passes, passes.issue("cookie", "owner", KEYS["owner"])))
        hour.now += COOKIE_SECONDS
    assert len(json.loads(path.read_bytes())["people"]["owner"]["lines"]) == 1


def read(passes: TokenSigner, cookie: str) -> SignedToken:
    """Return the content of a valid cookie."""
    found = passes.read("cookie", cookie, KEYS.get)
    assert found is not None
    return found


@pytest.mark.parametrize("content", [b"", b"{", b'{"people": 1}', b"\xff"])
def test_with_a_damaged_file_of_sign_outs_everybody_signs_in_again(tmp_path: Path, content: bytes) -> None:
    hour, path = Hour(), tmp_path / "signed_out.json"
    cookie = passes_at(hour).issue("cookie", "owner", KEYS["owner"])
    path.write_bytes(content)
    for _ in range(2):  # and the next start knows as much
        hour.now += 60
        passes = TokenSigner(hour, SignedOut(path, hour))
        assert passes.read("cookie", cookie, KEYS.get) is None
        assert read(passes, passes.issue("cookie", "owner", KEYS["owner"]))


# --- over HTTP --------------------------------------------------------------------------------------------------------


async def signed_in(running: Gateway, **shown: str) -> aiohttp.ClientResponse:
    """Return the gateway's response to a sign-in from its own page."""
    response = await running.http.post(f"{running.url}/api/sign-in", json=shown, headers={"Origin": running.url})
    await response.read()
    return response


async def cookie_of(running: Gateway) -> dict[str, str]:
    """The header of a browser that signed in with the token."""
    response = await signed_in(running, token=TOKEN)
    (cookie,) = response.cookies.values()
    return {"Cookie": f"{cookie.key}={cookie.value}"}


async def status(running: Gateway, method: str, path: str, **headers: str) -> int:
    url = running.url + path
    async with aiohttp.ClientSession() as unauthenticated, unauthenticated.request(method, url, headers=headers) as response:
        return response.status


async def test_the_cookie_is_http_only_and_same_site(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        response = await signed_in(running, token=f" {TOKEN}\n")
        assert response.status == 200
        assert (await response.json())["person"] == {"id": "owner", "name": "owner"}
        (cookie,) = response.cookies.values()
        assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "Strict", "/", "")
        assert TOKEN not in str(response.headers)


async def test_behind_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"gateway.allowed_hosts": ["chat.example.org"]}) as running:
        headers = {"Host": "chat.example.org", "Origin": "https://chat.example.org"}
        async with running.http.post(f"{running.url}/api/sign-in", json={"token": TOKEN}, headers=headers) as response:
            (cookie,) = response.cookies.values()
            assert cookie["secure"] is True


async def test_wrong_tokens_and_links_are_refused_and_throttled(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        answers = [await signed_in(running, **{kind: f"wrong-{kind}-{n}"}) for n in range(3) for kind in ("token", "link")]
        assert {answer.status for answer in answers} == {401}
        assert "Retry-After" in answers[-1].headers
        assert [response.cookies for response in answers if response.cookies] == []
        assert (await signed_in(running, token=TOKEN)).status == 200


async def test_only_the_gateways_own_page_signs_in(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"gateway.allowed_origins": ["http://friend.example"]}) as running:
        for headers in ({}, {"Origin": "http://friend.example"}):
            url = f"{running.url}/api/sign-in"
            async with running.http.post(url, json={"token": TOKEN}, headers=headers) as response:
                assert (response.status, len(response.cookies)) == (403, 0)


@pytest.mark.parametrize("body", ["[]", "{", '{"token": 3}', '{"tokem": "x"}'])
async def test_an_invalid_sign_in_is_a_bad_request(tmp_path: Path, body: str) -> None:
    async with gateway(tmp_path) as running:
        headers = {"Origin": running.url}
        async with running.http.post(f"{running.url}/api/sign-in", data=body, headers=headers) as response:
            assert response.status == 400


async def test_a_cookie_grants_what_the_token_does_to_our_own_page_only(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"gateway.allowed_origins": ["http://friend.example"]}) as running:
        cookie = await cookie_of(running)
        ours = {**cookie, "Origin": running.url}
        assert await status(running, "GET", "/status.json", **cookie) == 200
        assert await status(running, "GET", "/status.json", **cookie, **{"Sec-Fetch-Site": "same-origin"}) == 200
        assert await status(running, "POST", "/attachments", **ours) == 201
        # A page at another port is the same site to a browser, which sends the cookie along.
        assert await status(running, "GET", "/status.json", **cookie, **{"Sec-Fetch-Site": "same-site"}) == 401
        assert await status(running, "POST", "/attachments", **cookie) == 401
        assert await status(running, "POST", "/attachments", **cookie, Origin="http://friend.example") == 401
        assert await status(running, "POST", "/attachments", **cookie, Origin="http://evil.example") == 403
        # A token that is shown counts, also where it is wrong.
        assert await status(running, "GET", "/status.json", **cookie, Authorization="Bearer wrong") == 401


async def test_a_cookie_opens_the_websocket_from_our_own_page_only(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        cookie = await cookie_of(running)
        client = await running.connect(None, **cookie, Origin=running.url)
        assert (await client.next())["type"] == "welcome"
        await client.say("hello", protocol=1, client="console")
        assert (await client.next())["type"] == "welcome"
        assert await client.chat("hi") == "hi"
        assert {e["client"] for _, e in client.events() if e["kind"] == "message_received"} == {"console"}
        unauthenticated = await running.connect(None, **cookie)
        await unauthenticated.say("hello", protocol=1)
        assert await unauthenticated.closed() == 4401


async def test_signing_out_invalidates_the_cookie_and_closes_its_connections(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        cookie, other = await cookie_of(running), await cookie_of(running)
        client = await running.connect(None, **cookie, Origin=running.url)
        assert await status(running, "POST", "/api/sign-out", **cookie) == 200  # without an Origin it is nobody's
        assert await status(running, "GET", "/status.json", **cookie) == 200
        assert await status(running, "POST", "/api/sign-out", **cookie, Origin=running.url) == 200
        assert await client.closed(at_once=True) == 4401
        assert await status(running, "GET", "/status.json", **cookie) == 401
        assert await status(running, "GET", "/status.json", **other) == 200


async def test_a_sign_out_survives_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        cookie, other = await cookie_of(running), await cookie_of(running)
        assert await status(running, "POST", "/api/sign-out", **cookie, Origin=running.url) == 200
    async with gateway(tmp_path) as running:
        assert await status(running, "GET", "/status.json", **at_port(running, cookie)) == 401
        assert await status(running, "GET", "/status.json", **at_port(running, other)) == 200


@pytest.mark.parametrize("which", ["older", "newer"])
async def test_signing_out_invalidates_a_cookie_and_all_that_renewed_it(tmp_path: Path, which: str) -> None:
    """A copy of the older one would open everything for another month."""
    yesterday = passes_at(lambda: time.time() - 2 * RENEWED_AFTER)
    async with gateway(tmp_path) as running:
        older = at_port(running, {"Cookie": f"x={yesterday.issue('cookie', 'owner', KEYS['owner'])}"})
        response = await running.http.get(f"{running.url}/api/session", headers=older)
        (renewed,) = response.cookies.values()
        newer = {"Cookie": f"{renewed.key}={renewed.value}"}
        assert newer != older
        client = await running.connect(None, **older, Origin=running.url)
        for each in (older, newer):
            assert await status(running, "GET", "/status.json", **each) == 200
        cookie = older if which == "older" else newer
        assert await status(running, "POST", "/api/sign-out", **cookie, Origin=running.url) == 200
        assert await client.closed() == 4401
        for each in (older, newer):
            assert await status(running, "GET", "/status.json", **each) == 401


async def test_signing_out_invalidates_the_cookie_that_a_further_sign_in_replaced(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        first = await cookie_of(running)
        headers = {**first, "Origin": running.url}
        async with running.http.post(f"{running.url}/api/sign-in", json={"token": TOKEN}, headers=headers) as response:
            (second,) = response.cookies.values()
        cookie = {"Cookie": f"{second.key}={second.value}"}
        assert await status(running, "POST", "/api/sign-out", **cookie, Origin=running.url) == 200
        assert await status(running, "GET", "/status.json", **first) == 401


async def test_a_sign_out_that_cannot_be_saved_holds_until_the_restart_and_says_so(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        cookie, other = await cookie_of(running), await cookie_of(running)
        (tmp_path / "signed_out.json").mkdir()  # nothing can be put in its place
        url, headers = f"{running.url}/api/sign-out", {**cookie, "Origin": running.url}
        async with running.http.post(url, headers=headers) as response:
            assert (response.status, (await response.json())["code"]) == (503, "storage_failed")
            assert "restart" in (await response.json())["message"]
        assert await status(running, "GET", "/status.json", **cookie) == 401
        (tmp_path / "signed_out.json").rmdir()
        assert await status(running, "POST", "/api/sign-out", **other, Origin=running.url) == 200
    async with gateway(tmp_path) as running:  # what could not be kept was kept along with the next
        assert await status(running, "GET", "/status.json", **at_port(running, cookie)) == 401


def at_port(running: Gateway, cookie: dict[str, str]) -> dict[str, str]:
    """A cookie under the name that it has at this gateway's port."""
    assert running.daemon.address is not None
    return {"Cookie": f"exuvia-{running.daemon.address[1]}={cookie['Cookie'].partition('=')[2]}"}


async def test_a_link_signs_in_once(tmp_path: Path, capfd: Any) -> None:
    async with gateway(tmp_path) as running:
        said = capfd.readouterr()
        link = re.search(r"http://127.0.0.1:\d+/#link=(\S+)", said.out)
        assert link is not None
        assert link[1] not in said.err
        assert (await signed_in(running, link=link[1])).status == 200
        again = await signed_in(running, link=link[1])
        assert again.status == 401
        assert (await again.json())["message"].endswith("Sign in with the token.")


async def test_under_systemd_no_link_is_printed(tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    async with gateway(tmp_path):
        assert "#link" not in capfd.readouterr().out


def test_the_cookie_of_a_removed_person_is_invalid() -> None:
    from tests.gateway.test_access import access, people

    rules = access()
    rules.replace(people(ana="a-token-of-ana-that-is-long"))
    cookie = rules.cookie_for(rules.admit("a-token-of-ana-that-is-long", "192.0.2.1"))
    assert rules.admit_by_cookie(cookie).person.id == "ana"
    rules.replace(people())
    with pytest.raises(NotAuthorized):
        rules.admit_by_cookie(cookie)


# --- the files --------------------------------------------------------------------------------------------------------


async def test_the_content_security_policy_allows_only_the_gateway(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, running.http.get(f"{running.url}/") as response:
        page = await response.text()
        policy = dict(rule.split(" ", 1) for rule in response.headers["Content-Security-Policy"].split("; "))
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "img-src": "'self' blob: data:",
            "font-src": "'self'",
            "connect-src": "'self'",
            "manifest-src": "'self'",
            "worker-src": "'self'",
            "frame-src": "'self'",
            "form-action": "'self'",
            "frame-ancestors": "'none'",
            "base-uri": "'none'",
            "require-trusted-types-for": "'script'",
            "trusted-types": "service-worker",
        }
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
        files = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert {re.sub("^/console/[0-9a-f]{16}/[a-z0-9_./-]+$", "own", file) for file in files} == {"own"}
        for file in files:
            async with running.http.get(running.url + file) as found:
                assert (found.status, "immutable" in found.headers["Cache-Control"]) == (200, True)


async def test_the_frame_of_diagrams_runs_its_own_scripts_only_and_loads_nothing(tmp_path: Path) -> None:
    scripts = [(FOLDER / name).read_bytes() for name in ("vendor/mermaid.js", "answer/diagram_frame.js")]
    digests = " ".join(f"'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    async with gateway(tmp_path) as running:
        async with running.http.get(f"{running.url}/") as response:
            digest = re.findall("/console/([0-9a-f]{16})/", await response.text())[0]
        async with running.http.get(f"{running.url}/console/{digest}/answer/diagram_frame.html") as response:
            frame = await response.read()
            rules = response.headers["Content-Security-Policy"].split("; ")
            assert response.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert rules == [
        "sandbox allow-scripts",
        "default-src 'none'",
        f"script-src {digests}",
        "style-src 'unsafe-inline'",
        "form-action 'none'",
        "frame-ancestors 'self'",
        "base-uri 'none'",
    ]
    assert [frame.count(b"<script>%b</script>" % script) for script in scripts] == [1, 1]


@pytest.mark.asyncio(loop_scope="session")
async def test_every_module_of_the_first_page_is_loaded_at_once(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.page.goto(visit.url)
        await visit.page.get_by_label("Token").wait_for()
        loaded, named = await visit.page.evaluate(
            "[performance.getEntriesByType('resource').map(({ name }) => name).filter((name) => name.endsWith('.js')),"
            " [...document.querySelectorAll('script, link[rel=modulepreload]')].map(({ src, href }) => src ?? href)]"
        )
    assert set(loaded) == set(named)  # none is found only by reading another
    assert len(loaded) > 10


async def test_no_path_escapes_the_consoles_folder(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with running.http.get(f"{running.url}/") as response:
            digest = re.findall("/console/([0-9a-f]{16})/", await response.text())[0]
        for path in ("../pages.py", "..%2fpages.py", "vendor/../../pages.py", "", "nothing.js", "/etc/passwd"):
            assert await status(running, "GET", f"/console/{digest}/{path}") == 404
        assert await status(running, "GET", "/console/0123456789abcdef/app.js") == 404


def test_third_party_scripts_are_as_published() -> None:
    vendor = FOLDER / "vendor"
    rows = re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", (vendor / "README.md").read_text(), re.MULTILINE)
    groups: dict[str, bytes] = {}
    for path in sorted(each for each in vendor.rglob("*") if each.suffix not in ("", ".md", ".LICENSE")):
        name = path.relative_to(vendor)
        group = name.as_posix() if name.parent == Path() else f"{name.parent}/*{path.suffix}"
        groups[group] = groups.get(group, b"") + path.read_bytes()
    assert dict(rows) == {name: sha256(content).hexdigest() for name, content in groups.items()}
    licences = re.findall(r", `([^`]+\.LICENSE)` \|", (vendor / "README.md").read_text())
    assert len(licences) == len(rows)
    assert all((vendor / each).is_file() for each in licences)


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="session")
async def test_signing_in_and_out_applies_to_every_tab(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.page.goto(visit.url)
        await visit.page.get_by_label("Token").fill("not the token at all, really")
        await visit.page.get_by_role("button", name="Sign in").click()
        await visit.page.get_by_text("Invalid token.").wait_for()
        assert visit.errors.pop().startswith("Failed to load resource: the server responded with a status of 401")
        waiting = await visit.tab()
        await waiting.get_by_label("Token").wait_for()
        await visit.sign_in()
        await waiting.get_by_text("Connected", exact=True).wait_for()
        await waiting.close()
        assert await visit.page.evaluate("document.cookie") == ""
        second = await visit.tab()
        for page in (visit.page, second):
            await page.get_by_text("Sent to").wait_for()  # nothing is being asked for any more that would be refused
        await visit.page.get_by_role("button", name="Sign out").click()
        await visit.page.get_by_label("Token").wait_for()
        await second.get_by_label("Token").wait_for()
        assert (visit.errors, visit.elsewhere) == ([], [])


@pytest.mark.asyncio(loop_scope="session")
async def test_the_page_says_that_a_sign_out_was_not_saved(tmp_path: Path, browser: Browser) -> None:
    """The gateway ends the websocket before it answers, and the page must not take that for the answer."""
    closed = asyncio.Event()

    async def answer_last(route: Route) -> None:
        response = await route.fetch()
        async with deadline():
            await closed.wait()
        await visit.page.evaluate("0")  # the page has heard of it
        await route.fulfill(response=response)

    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        visit.page.on("websocket", lambda socket: socket.on("close", lambda _: closed.set()))
        await visit.page.route("**/api/sign-out", answer_last)
        await visit.sign_in()
        (tmp_path / "signed_out.json").mkdir()
        await visit.page.get_by_role("button", name="Sign out").click()
        await visit.page.get_by_text("that could not be saved").wait_for()
        await visit.page.get_by_label("Token").wait_for()


@pytest.mark.asyncio(loop_scope="session")
async def test_the_printed_link_signs_in_and_leaves_the_address_bar(tmp_path: Path, browser: Browser, capfd: Any) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        link = re.search(r"http://\S+", capfd.readouterr().out)
        assert link is not None
        await visit.page.goto(link[0])
        await visit.page.get_by_text("Connected", exact=True).wait_for()
        assert "link" not in visit.page.url
        async with visiting(browser, running) as other:
            await other.page.goto(link[0])
            await other.page.get_by_text("This link was used before").wait_for()


@pytest.mark.asyncio(loop_scope="session")
async def test_the_link_signs_in_a_tab_that_shows_the_form(tmp_path: Path, browser: Browser, capfd: Any) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        link = re.search(r"http://\S+", capfd.readouterr().out)
        assert link is not None
        await visit.page.goto(visit.url)
        await visit.page.get_by_label("Token").wait_for()
        await visit.page.goto(f"{visit.url}/#link=owner.1.wrong.0000")
        await visit.page.get_by_role("alert").get_by_text("link").wait_for()
        assert "link" not in visit.page.url
        assert visit.errors.pop().startswith("Failed to load resource: the server responded with a status of 401")
        await visit.page.goto(link[0])
        await visit.page.get_by_text("Connected", exact=True).wait_for(state="attached")
        assert "link" not in visit.page.url
        assert (visit.errors, visit.elsewhere) == ([], [])


@pytest.mark.asyncio(loop_scope="session")
async def test_the_link_in_a_signed_in_tab_leaves_the_address_bar_and_signs_its_person_in(
    tmp_path: Path, browser: Browser, capfd: Any
) -> None:
    bob = "a-token-for-bob-that-is-long-enough"
    async with gateway(tmp_path, settings={"people.bob.token": bob}) as running, visiting(browser, running) as visit:
        link = re.search(r"http://\S+", capfd.readouterr().out)
        assert link is not None
        await visit.sign_in(bob)
        await visit.page.get_by_text("bob", exact=True).wait_for(state="attached")
        second = await visit.tab()
        await second.get_by_text("bob", exact=True).wait_for(state="attached")
        await visit.page.goto(f"{visit.url}/#link=owner.1.wrong.0000")
        await visit.page.locator("#notices").get_by_text("link").wait_for()
        assert "link=" not in visit.page.url
        assert visit.errors.pop().startswith("Failed to load resource: the server responded with a status of 401")
        await visit.page.goto(link[0])
        await visit.page.get_by_text("owner", exact=True).wait_for(state="attached")
        assert "link=" not in visit.page.url
        await second.get_by_text("owner", exact=True).wait_for(state="attached")
        assert (visit.errors, visit.elsewhere) == ([], [])

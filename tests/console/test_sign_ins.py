"""The list of signed-in browsers: each person sees and ends their own, at once and durably."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, expect

from gateway.auth.sign_ins import LISTED, WRITTEN_AFTER, SignIns
from gateway.auth.signed_tokens import COOKIE_SECONDS, SignedToken
from tests.console.accessible import faults
from tests.console.browser import NARROW, WIDE, visiting
from tests.gateway.gateways import TOKEN, Gateway, gateway

ANA = "the-token-of-ana-who-is-no-owner"
PEOPLE = {"people.ana.token": ANA}

KHTML, MOBILE = "AppleWebKit/537.36 (KHTML, like Gecko)", "AppleWebKit/605.1.15 (KHTML, like Gecko)"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0"
PHONE = f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) {MOBILE} Version/18.1 Safari/604.1"
AGENTS = {
    FIREFOX: ("Firefox", "Linux"),
    PHONE: ("Safari", "iPhone"),
    f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {KHTML} Chrome/131.0.0.0 Safari/537.36": ("Chrome", "Windows"),
    f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {KHTML} Chrome/131.0.0.0 Safari/537.36 Edg/131.0": ("Edge", "Windows"),
    f"Mozilla/5.0 (Linux; Android 14; K) {KHTML} Chrome/131.0.0.0 Mobile Safari/537.36": ("Chrome", "Android"),
    f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {MOBILE} Version/18.1 Safari/605.1.15": ("Safari", "macOS"),
    "curl/8.5.0": ("", ""),
    "": ("", ""),
}


class Clock:
    """A clock in seconds that the test moves."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def cookie(clock: Clock, number: str, person: str = "ana") -> SignedToken:
    return SignedToken(person, int(clock()) + COOKIE_SECONDS, number)


# --- the list ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_browser_has_a_name_that_people_recognise(agent: str, tmp_path: Path) -> None:
    clock = Clock()
    known = SignIns(tmp_path / "sign_ins.json", clock)
    await known.add(cookie(clock, "one"), "key", agent)
    (found,) = known.of("ana", "key")
    assert (found.browser, found.system) == AGENTS[agent]


async def test_the_list_survives_a_restart_and_forgets_who_expired(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "sign_ins.json"
    known = SignIns(path, clock)
    await known.add(cookie(clock, "one"), "key", FIREFOX)
    clock.now += 5
    await known.add(cookie(clock, "two"), "key", PHONE)
    await known.add(cookie(clock, "three", "ben"), "key", PHONE)
    assert [each.number for each in SignIns(path, clock).of("ana", "key")] == ["two", "one"]
    assert SignIns(path, clock).of("ana", "another key") == []  # the token was changed: these cookies are invalid
    clock.now += COOKIE_SECONDS - 1
    assert [each.number for each in known.of("ana", "key")] == ["two"]
    clock.now += 1
    await known.add(cookie(clock, "four"), "key", FIREFOX)
    assert {person: len(each) for person, each in json.loads(path.read_bytes()).items()} == {"ana": 1}


async def test_a_use_is_stored_once_an_hour_and_a_renewal_at_once(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "sign_ins.json"
    known, first = SignIns(path, clock), cookie(Clock(), "one")
    await known.add(first, "key", FIREFOX)
    path.unlink()
    clock.now += WRITTEN_AFTER - 1
    await known.add(first, "key", FIREFOX)
    assert not path.exists()
    assert known.of("ana", "key")[0].used == clock()
    clock.now += 1
    await known.add(first, "key", FIREFOX)
    (stored,) = SignIns(path, clock).of("ana", "key")
    assert (stored.at, stored.used, stored.until) == (Clock.now, clock(), first.until)
    await known.add(cookie(clock, "one"), "key", FIREFOX)
    (renewed,) = SignIns(path, clock).of("ana", "key")
    assert (renewed.at, renewed.until) == (Clock.now, cookie(clock, "one").until)


async def test_a_damaged_list_is_replaced_and_one_that_cannot_be_stored_keeps_nobody_out(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "sign_ins.json"
    path.write_bytes(b"{")
    known = SignIns(path, clock)
    path.unlink()
    path.mkdir()
    await known.add(cookie(clock, "one"), "key", FIREFOX)
    assert len(known.of("ana", "key")) == 1
    path.rmdir()
    await known.add(cookie(clock, "two"), "key", FIREFOX)
    assert len(SignIns(path, clock).of("ana", "key")) == 2


async def test_the_list_is_bounded(tmp_path: Path) -> None:
    clock = Clock()
    known = SignIns(tmp_path / "sign_ins.json", clock)
    for number in range(LISTED + 5):
        clock.now += 1
        await known.add(cookie(clock, str(number)), "key", FIREFOX)
    assert [each.number for each in known.of("ana", "key")] == [str(number) for number in range(LISTED + 4, 4, -1)]


# --- over HTTP --------------------------------------------------------------------------------------------------------


async def sign_in(running: Gateway, agent: str = FIREFOX, token: str = TOKEN) -> dict[str, str]:
    """Sign in with a browser of this name; returns the headers that it sends then."""
    headers = {"Origin": running.url, "User-Agent": agent}
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http,
        http.post(f"{running.url}/api/sign-in", json={"token": token}, headers=headers) as response,
    ):
        assert response.status == 200
        (found,) = response.cookies.values()
    return {**headers, "Cookie": f"{found.key}={found.value}"}


async def ask(running: Gateway, method: str, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http,
        http.request(method, f"{running.url}{path}", headers=headers) as response,
    ):
        return response.status, await response.json() if response.content_type == "application/json" else None


async def listed(running: Gateway, headers: dict[str, str]) -> list[dict[str, Any]]:
    status, body = await ask(running, "GET", "/api/sign-ins", headers)
    assert status == 200
    found: list[dict[str, Any]] = body["sign_ins"]
    return found


async def test_a_person_sees_their_browsers_and_nobody_elses(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=PEOPLE) as running:
        laptop, phone, anas = await sign_in(running), await sign_in(running, PHONE), await sign_in(running, FIREFOX, ANA)
        found = {each["system"]: each for each in await listed(running, laptop)}
        assert (set(found), found["Linux"]["current"]) == ({"Linux", "iPhone"}, True)
        assert "current" not in found["iPhone"]
        assert [each.get("current") for each in await listed(running, anas)] == [True]
        assert {each["system"]: each.get("current") for each in await listed(running, phone)} == {
            "Linux": None,
            "iPhone": True,
        }
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert [each.get("current") for each in await listed(running, bearer)] == [None, None]
        client = await running.connect(None, **phone)
        assert {each["system"]: each.get("open") for each in await listed(running, laptop)} == {
            "Linux": None,
            "iPhone": True,
        }
        await client.socket.close()
        stored = (tmp_path / "sign_ins.json").read_text()
        for headers in (laptop, phone, anas):
            assert headers["Cookie"].rpartition(".")[2] not in stored  # the signature, without which nothing is a cookie
        for secret in (TOKEN, ANA):
            assert secret not in stored


async def test_ending_a_sign_in_closes_its_connections_and_survives_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=PEOPLE) as running:
        laptop, phone, anas = await sign_in(running), await sign_in(running, PHONE), await sign_in(running, FIREFOX, ANA)
        client = await running.connect(None, **phone)
        (number,) = (each["id"] for each in await listed(running, laptop) if each["system"] == "iPhone")
        assert (await ask(running, "DELETE", f"/api/sign-ins/{number}", anas))[0] == 404  # she has no such browser
        assert (await ask(running, "DELETE", f"/api/sign-ins/{number}", phone | {"Origin": "http://evil.test"}))[0] == 403
        assert (await ask(running, "DELETE", f"/api/sign-ins/{number}", laptop))[0] == 200
        assert await client.closed() == 4401
        assert (await ask(running, "GET", "/api/sign-ins", phone))[0] == 401
        assert [each["system"] for each in await listed(running, laptop)] == ["Linux"]
        assert (await ask(running, "DELETE", f"/api/sign-ins/{number}", laptop))[0] == 404
        assert len(await listed(running, anas)) == 1
    async with gateway(tmp_path, settings=PEOPLE) as running:
        port = running.url.rpartition(":")[2]
        names = [
            {**each, "Origin": running.url, "Cookie": f"exuvia-{port}={each['Cookie'].partition('=')[2]}"}
            for each in (phone, laptop)
        ]
        assert (await ask(running, "GET", "/api/sign-ins", names[0]))[0] == 401
        assert [each["system"] for each in await listed(running, names[1])] == ["Linux"]


async def test_ending_all_others_leaves_this_browser_and_other_people_signed_in(tmp_path: Path) -> None:
    """Cookies that were made within the same second end, too, and those that the list does not know."""
    async with gateway(tmp_path, settings=PEOPLE) as running:
        laptop, phone, anas = await sign_in(running), await sign_in(running, PHONE), await sign_in(running, FIREFOX, ANA)
        client = await running.connect(None, **phone)
        kept = await running.connect(None, **laptop)
        assert (await ask(running, "DELETE", "/api/sign-ins", laptop))[0] == 200
        assert await client.closed() == 4401
        assert (await ask(running, "GET", "/api/sign-ins", phone))[0] == 401
        assert [each["current"] for each in await listed(running, laptop)] == [True]
        assert len(await listed(running, anas)) == 1
        await kept.say("ping", id="still here")
        await kept.until(lambda frame: frame["type"] == "pong")
        assert (await ask(running, "DELETE", "/api/sign-ins", {"Authorization": f"Bearer {TOKEN}"}))[0] == 200
        assert await kept.closed() == 4401  # the token itself asked
        assert (await ask(running, "GET", "/api/sign-ins", laptop))[0] == 401
        assert len(await listed(running, await sign_in(running))) == 1


async def test_signing_out_removes_the_browser_and_one_that_cannot_be_stored_says_so(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        laptop, phone = await sign_in(running), await sign_in(running, PHONE)
        assert (await ask(running, "POST", "/api/sign-out", phone))[0] == 200
        assert [each["system"] for each in await listed(running, laptop)] == ["Linux"]
        await sign_in(running, PHONE)
        (tmp_path / "signed_out.json").unlink()
        (tmp_path / "signed_out.json").mkdir()
        status, body = await ask(running, "DELETE", "/api/sign-ins", laptop)
        assert (status, body["code"]) == (503, "storage_failed")
        assert "restart" in body["message"]
        assert [each["system"] for each in await listed(running, laptop)] == ["Linux"]


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("size", "dark", "token"), [(WIDE, False, TOKEN), (NARROW, True, ANA)])
async def test_a_person_ends_a_sign_in_on_the_page(
    size: tuple[int, int], dark: bool, token: str, tmp_path: Path, browser: Browser
) -> None:
    file = f'[agent]\nmodel = "scripted:echo"\n[people.ana]\ntoken = "{ANA}"\n'
    async with gateway(tmp_path, file=file) as running, visiting(browser, running, size=size, dark=dark) as visit:
        phone = await sign_in(running, PHONE, token)
        client = await running.connect(None, **phone)
        await visit.sign_in(token)
        await visit.page.goto(f"{visit.url}#/settings/browsers")
        rows = visit.page.locator(".sign-ins > li")
        await expect(rows).to_have_count(2)
        await expect(rows.nth(0)).to_contain_text("this browser")
        await expect(rows.nth(0).get_by_role("button")).to_have_count(0)
        await expect(rows.nth(1)).to_contain_text("Safari on iPhone")
        await expect(rows.nth(1)).to_contain_text("open now")
        assert await faults(visit.page) == []
        assert await visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await visit.page.get_by_role("button", name="Sign out Safari on iPhone").click()
        await expect(rows).to_have_count(1)
        assert await client.closed() == 4401
        await expect(visit.page.get_by_text("You are signed in nowhere else.")).to_be_visible()
        assert (visit.errors, visit.elsewhere) == ([], [])


@pytest.mark.asyncio(loop_scope="session")
async def test_all_other_browsers_are_signed_out_after_a_question(tmp_path: Path, browser: Browser) -> None:
    """Also in a gateway without a configuration file, whose settings cannot be shown."""
    async with gateway(tmp_path) as running, visiting(browser, running) as visit, visiting(browser, running) as other:
        await other.sign_in()
        await visit.sign_in()
        await visit.page.goto(f"{visit.url}#/settings/browsers")
        await visit.page.get_by_role("button", name="Sign out all other browsers").click()
        question = visit.page.locator(".sign-ins-others")
        await expect(question).to_contain_text("Sign out all browsers but this one?")
        await question.get_by_role("button", name="Sign out").click()
        await expect(other.page.get_by_text("You were signed out.")).to_be_visible()
        await expect(visit.page.locator(".sign-ins > li")).to_have_count(1)
        await expect(visit.page.get_by_text("Connected", exact=True)).to_be_attached()

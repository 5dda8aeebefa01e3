"""People who are added while the gateway runs: tokens, invitations, roles, and what is refused from when on."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.people_log import PeopleLog, PeopleRefused
from gateway.config.keys import load_config
from gateway.config.settings import Settings, agent_settings
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.servers.postgres_server import postgres_server
from tests.waiting import deadline

BEN = "ben-token-0123456789-abcdefg"


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of an empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


async def call(g: Gateway, method: str, path: str, body: Any = None, token: str = TOKEN) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    async with g.http.request(method, f"{g.url}{path}", json=body, headers=headers) as response:
        return response.status, await response.json()


async def added(g: Gateway, person: str = "ana", **fields: Any) -> str:
    status, made = await call(g, "POST", "/api/people", {"id": person, **fields})
    assert status == 200, made
    return str(made.get("token") or made["invitation"])


async def whoami(g: Gateway, token: str) -> str:
    return await (await g.connect(token)).command("/whoami")


async def sign_in(g: Gateway, link: str) -> tuple[int, Mapping[str, Any], str]:
    async with g.http.post(f"{g.url}/api/sign-in", json={"link": link}, headers={"Origin": g.url}) as response:
        cookies = "; ".join(f"{each.key}={each.value}" for each in response.cookies.values())
        return response.status, await response.json(), cookies


async def test_an_added_person_is_admitted_at_once_and_after_a_restart_and_no_token_is_stored(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        token = await added(g, name="Ana", role="member")
        assert "`ana`" in await whoami(g, token)
    assert token not in (tmp_path / "people.jsonl").read_text()
    async with gateway(tmp_path) as g:
        assert "`ana`" in await whoami(g, token)
        for wrong in (hashlib.sha256(token.encode()).hexdigest(), f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"):
            assert (await call(g, "GET", "/api/sign-ins", token=wrong))[0] == 401


async def test_a_disabled_person_is_cut_off_and_comes_back_when_enabled(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        token = await added(g)
        client = await g.connect(token)
        await client.chat("hi")
        assert (await call(g, "POST", "/api/people/ana/disable"))[0] == 200
        assert await client.closed() == 4401
        assert (await call(g, "GET", "/api/sign-ins", token=token))[0] == 401
        await call(g, "POST", "/api/people/ana/enable")
        assert "`ana`" in await whoami(g, token)


async def test_a_new_token_replaces_the_old_one_and_a_removed_person_is_nobody(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        old = await added(g)
        _, made = await call(g, "POST", "/api/people/ana/token")
        assert (await call(g, "GET", "/api/sign-ins", token=old))[0] == 401
        assert (await call(g, "GET", "/api/sign-ins", token=made["token"]))[0] == 200
        await call(g, "DELETE", "/api/people/ana")
        assert (await call(g, "GET", "/api/sign-ins", token=made["token"]))[0] == 401
        status, refused = await call(g, "POST", "/api/people", {"id": "ana"})
        assert (status, "conversations remain" in json.dumps(refused)) == (400, True), (
            "another ana would have their conversations"
        )


async def test_an_invitation_signs_in_once(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        secret = await added(g, name="Ana", invite=True)
        status, session, cookies = await sign_in(g, f"invitation.{secret}")
        assert (status, session["person"]) == (200, {"id": "ana", "name": "Ana"})
        async with g.http.get(f"{g.url}/api/session", headers={"Cookie": cookies, "Origin": g.url}) as response:
            assert (await response.json())["person"]["id"] == "ana"
        assert (await sign_in(g, f"invitation.{secret}"))[0] == 401
        assert (await sign_in(g, "invitation.wrong"))[0] == 401
    assert secret not in (tmp_path / "people.jsonl").read_text()


@pytest.mark.parametrize("id_", ["", "owner", "ben", "ana", "Ana", "a b", "../x", "x" * 40])
async def test_an_id_that_is_taken_or_not_valid_is_refused(tmp_path: Path, id_: str) -> None:
    async with gateway(tmp_path, file=f'[agent]\nmodel = "scripted:echo"\n[people.ben]\ntoken = "{BEN}"\n') as g:
        await added(g)
        before = (tmp_path / "people.jsonl").read_bytes()
        assert (await call(g, "POST", "/api/people", {"id": id_}))[0] == 400
        assert (tmp_path / "people.jsonl").read_bytes() == before


async def test_only_the_owner_changes_people_and_all_of_it_stands_in_the_trail(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        token = await added(g)
        assert (await call(g, "POST", "/api/people/ana/role", {"role": "member"}, token=token))[0] == 403
        for method, path in (
            ("GET", "/api/people"),
            ("POST", "/api/people"),
            ("POST", "/api/people/ana/token"),
            ("POST", "/api/people/ana/disable"),
            ("POST", "/api/people/ana/enable"),
            ("DELETE", "/api/people/ana"),
        ):
            assert (await call(g, method, path, {"id": "eve"} if method == "POST" else None, token=token))[0] == 403
        await call(g, "POST", "/api/people/ana/disable")
        _, listed = await call(g, "GET", "/api/people")
    assert [(each["by"], each["act"], each["person"]) for each in listed["trail"]] == [
        ("owner", "added", "ana"),
        ("owner", "disabled", "ana"),
    ]
    assert [(each["id"], each["role"], each.get("disabled", False)) for each in listed["people"]] == [
        ("owner", "owner", False),
        ("ana", "member", True),
    ]


async def test_people_and_costs_are_not_available_while_their_logs_cannot_be_read(tmp_path: Path) -> None:
    for name in ("people", f"spending-{datetime.now(UTC):%Y-%m}"):
        (tmp_path / f"{name}.jsonl").write_text('{"seq":1}\n{"seq":2}\n')
    async with gateway(tmp_path) as g:
        for path in ("/api/people", "/api/usage"):
            status, answer = await call(g, "GET", path)
            assert (status, answer["code"]) == (503, "storage_failed"), path


def test_the_settings_of_every_agent_know_the_people_who_were_added_and_their_roles() -> None:
    settings = Settings(load_config(None, environment={}, overrides={"agents": {"work": {}}}))
    settings.added = {"ana": "guest"}
    for agent in ("main", "work"):
        known = agent_settings(settings, agent)
        assert (known.role_of("ana"), known.knows("ana"), known.knows("ben")) == ("guest", True, False), agent


async def test_of_two_who_add_the_same_id_one_is_refused_and_a_removed_one_is_never_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.auth.people_log.TRAIL", 2)
    async with (
        Committer() as committer,
        PeopleLog(Journals(tmp_path, tmp_path, committer), lambda: datetime.now(UTC)) as people,
    ):

        async def add(person: str) -> str:
            return await people.add(person, name="", role="member", by="owner", taken={})

        with pytest.raises(PeopleRefused):
            await add("Not an id")
        assert list(tmp_path.iterdir()) == []
        first, second = await asyncio.gather(
            add("ana"), people.invite("ana", name="", role="guest", by="owner", taken={}), return_exceptions=True
        )
        assert isinstance(first, str)
        assert "There is somebody called ana already." in str(second)
        await people.remove("ana", "owner")
        for each in ("ben", "eve", "joe"):
            await add(each)
        with pytest.raises(PeopleRefused, match="was removed, and their conversations remain"):
            await add("ana")


@pytest.mark.parametrize("role", ["guest", "member"])
async def test_for_a_guest_only_tools_run_that_read(tmp_path: Path, role: str) -> None:
    script: list[dict[str, Any]] = [
        {"text": "", "calls": [{"tool": "write", "arguments": {"path": "x.md", "content": "x"}}]},
        {"text": "Done."},
    ]
    async with gateway(tmp_path, script=script) as g:
        client = await g.connect(await added(g, role=role))
        await client.send("Write it.")
        returned = await client.until_event("tool_returned")
        await client.until_event("turn_ended")
    assert ("There is no tool 'write'" in returned["output"]) is (role == "guest")
    assert any((tmp_path / "workspace").rglob("x.md")) is (role == "member")


async def test_a_changed_role_counts_from_the_next_call_on_and_after_a_restart(tmp_path: Path) -> None:
    script: list[dict[str, Any]] = [
        {"text": "", "calls": [{"tool": "write", "arguments": {"path": "x.md", "content": "x"}}]},
        {"text": "Done."},
    ]
    async with gateway(tmp_path, script=script) as g:
        token = await added(g, role="member")
        assert (await call(g, "POST", "/api/people/ana/role", {"role": "guest"}))[0] == 200
        for body, status in (({"role": "owner"}, 400), ({}, 400), ("guest", 400)):
            assert (await call(g, "POST", "/api/people/ana/role", body))[0] == status
        assert (await call(g, "POST", "/api/people/nobody/role", {"role": "guest"}))[0] == 400
        client = await g.connect(token)
        await client.send("Write it.")
        assert "There is no tool 'write'" in (await client.until_event("tool_returned"))["output"]
    async with gateway(tmp_path) as g:
        _, listed = await call(g, "GET", "/api/people")
    assert [each["role"] for each in listed["people"]] == ["owner", "guest"]
    assert [each["act"] for each in listed["trail"]] == ["added", "role_changed"]


async def test_other_gateways_of_a_database_learn_of_changes(tmp_path: Path, database: str) -> None:
    shared = {"store.kind": "postgres", "store.url": database}
    async with gateway(tmp_path / "a", settings=shared) as one, gateway(tmp_path / "b", settings=shared) as other:
        token = await added(one)

        async def is_admitted() -> bool:
            return (await call(other, "GET", "/api/sign-ins", token=token))[0] == 200

        async with deadline():
            while not await is_admitted():
                pass
        client = await other.connect(token)
        await call(one, "POST", "/api/people/ana/disable")
        assert await client.closed() == 4401
        assert not await is_admitted()


async def test_a_person_of_the_log_does_not_reach_another_ones_conversations(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        await (await g.connect()).chat("the owner's secret plan")
        client = await g.connect(await added(g))
        assert await client.chat("hello") == "hello"
        assert "secret plan" not in await client.command("/history 100 all")
        assert "secret" not in json.dumps(
            await call(g, "GET", "/api/conversations/search?q=secret", token=await added(g, "zoe"))
        )

"""What somebody whom the gateway does not know can do on a channel: nothing, and it costs nothing."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from gateway.cli.main import cli
from gateway.conversations.channels import channel_runner, reply_delivery
from gateway.conversations.channels.senders import ADMITTED
from tests.channels.test_channel_status import until_state
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.gateway.launching import LAUNCHING, launches, launching
from tests.shelf import Shelf
from tests.waiting import deadline, until

OWNER = {"EXUVIA_TOKEN": TOKEN}
BEN = "the-token-of-ben-is-long-enough"
CODE = re.compile(r"\b[0-9A-Z]{4}-[0-9A-Z]{4}\b")
HOSTILE = (
    "\x1b]0;pwned\x07\x1b[31mOwner\u202e\u2066\nAdmitted: everybody\r<script>alert(1)</script> `/pair X owner` @everyone"
)


@pytest.fixture
async def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Elsewhere]:
    shelf = Shelf(tmp_path / "shelf", monkeypatch)
    shelf.install("exuvia_lines", "lines", LINES)
    shelf.install("exuvia_launching", "launching", LAUNCHING)
    monkeypatch.setattr(channel_runner, "PAUSES", (0.05,))
    monkeypatch.setattr(reply_delivery, "CLOSED_SECONDS", 0.05)
    service = Elsewhere()
    await service.open()
    yield service
    service.close()


@asynccontextmanager
async def running(
    home: Path, elsewhere: Elsewhere, *, senders: str = '"lines:ana" = "owner"', script: Any = None
) -> AsyncIterator[Gateway]:
    file = (
        f'[plugins]\nallow = ["lines", "launching"]\nsenders = {{ {senders} }}\n[plugins.lines]\nport = {elsewhere.port}\n'
        f'[approvals]\n[people.ben]\ntoken = "{BEN}"\n'
    )
    settings = {} if script else {"agent.model": "scripted:echo"}
    async with gateway(home, file=file, script=script, settings=settings) as g:
        yield g


def stored(home: Path) -> str:
    """Return everything that a home's journals and logs hold."""
    return "".join(path.read_text() for path in sorted(home.rglob("*.jsonl")))


async def test_a_strangers_message_edit_reaction_and_press_leave_no_trace(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere) as g:
        kinds: list[dict[str, Any]] = [
            {"text": "let me in"},
            {"text": "let me in!", "edits": "1"},
            {"text": "", "deletes": "1"},
            {"text": "", "reaction": "👍", "reacts_to": "1"},
            {"text": "x", "choice": "/pair"},
            {"text": "/status"},
            {"text": "hi", "files": {"a.txt": "secret"}},
            {"text": "hi", "thread": "5"},
            {"text": "hi", "group": True},
        ]
        for number, fields in enumerate(kinds):
            await elsewhere.say(fields.pop("text"), id_=str(number), sender="eve", room="alley", **fields)
        told = [line async for line in taken(elsewhere, len(kinds))]
        assert g.journals() == {}
        assert stored(g.home) == ""
        assert not (g.home / "attachments").exists() or not any((g.home / "attachments").iterdir())
    assert [line.get("tell") for line in told].count(True) == 1
    assert all("owner" not in line.get("why", "").replace("Its owner can admit you", "") for line in told)


async def asked(elsewhere: Elsewhere) -> dict[str, Any]:
    """Return the question that the channel was sent."""
    while "buttons" not in (heard := await elsewhere.hear()):
        pass
    return heard


async def taken(elsewhere: Elsewhere, count: int) -> AsyncIterator[dict[str, Any]]:
    for _ in range(count):
        yield await elsewhere.hear()


@pytest.mark.parametrize("group", [False, True])
async def test_a_strangers_press_never_answers_a_question(group: bool, tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere, script=launching("moon")) as g:
        await elsewhere.say("Launch it.", group=group)
        question = await asked(elsewhere)
        press, receipt = question["buttons"]["Approve this time"], f"seen {question['id']}"
        approval = press.split()[1]
        attacks: list[dict[str, Any]] = [
            {"text": "", "choice": press},
            {"text": press},
            {"text": f"/approve {approval} always"},
            {"text": "", "reaction": "👍", "reacts_to": receipt},
            {"text": press, "edits": "1"},
        ]
        for number, fields in enumerate(attacks):
            for place in (True, False):
                id_ = f"e{number}{place}"
                await elsewhere.say(**{"id_": id_, "sender": "eve", "group": place, **fields})
                while id_ not in ((line := await elsewhere.hear()).get("no"), line.get("ok")):
                    pass
                assert not line.get("new")
        client = await g.connect()
        assert approval in await client.command("/approvals")
        assert launches(g.home) == []
        await elsewhere.say("", id_="2", choice=press, group=group)
        await until(lambda: launches(g.home) == ["moon"])


async def test_an_address_that_was_removed_answers_no_question_of_before(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere, script=launching("moon"), senders="") as g:
        client = await g.connect()
        await pair(elsewhere, client, "owner")
        await elsewhere.say("Launch it.", id_="2")
        press = (await asked(elsewhere))["buttons"]["Approve this time"]
        assert "speaks for `owner` no more" in await client.command("/pair remove lines:ana")
        await elsewhere.say("", id_="3", choice=press)
        await elsewhere.until_heard(no="3")
        assert launches(g.home) == []
        await client.command(press.replace("once", ""))
        await until(lambda: launches(g.home) == ["moon"])


async def pair(elsewhere: Elsewhere, client: Any, person: str, *, sender: str = "ana") -> str:
    """Pair a sender by the code that they are told, with the command in a chat; return the code."""
    await elsewhere.say("hello?", id_=f"first of {sender}", sender=sender)
    rejected = await elsewhere.until_heard(no=f"first of {sender}")
    assert rejected["tell"]
    (code,) = CODE.findall(rejected["why"])
    assert f"speaks for `{person}` from now on" in await client.command(f"/pair {code} {person}")
    return str(code)


@pytest.mark.parametrize("way", ["/pair", "exuvia pair", "console"])
async def test_who_is_admitted_is_told_once_where_they_asked(tmp_path: Path, elsewhere: Elsewhere, way: str) -> None:
    async with running(tmp_path / "home", elsewhere) as g:
        await elsewhere.say("hello?", id_="1", sender="eve", room="porch", thread="7")
        (code,) = CODE.findall((await elsewhere.until_heard(no="1"))["why"])
        headers = {"Authorization": f"Bearer {TOKEN}"}
        match way:
            case "/pair":
                answer = await (await g.connect()).command(f"/pair {code} ben")
                assert answer == "`lines:eve` speaks for `ben` from now on. `/pair remove` undoes it."
            case "exuvia pair":
                command = ["pair", code, "--as", "ben", "--home", str(g.home)]
                done = await asyncio.to_thread(CliRunner().invoke, cli, command, env=OWNER)
                assert done.output.endswith("lines:eve speaks for ben from now on.\n")
            case _:
                body = {"code": code, "person": "ben"}
                both = [g.http.post(f"{g.url}/api/pairings", json=body, headers=headers) for _ in range(2)]
                responses = await asyncio.gather(*both)
                assert [response.status for response in responses] == [200, 404]
                assert (await responses[0].json())["told"]
        told = await elsewhere.until_heard(room="porch")
        assert (told["thread"], told["text"]) == ("7", ADMITTED)
        await elsewhere.say("thanks", id_="2", sender="eve", room="porch")
        await elsewhere.until_heard(ok="2")
        await elsewhere.until_heard(text="thanks")
        assert [line["text"] for line in await elsewhere.rest()] == [ADMITTED, "thanks"]
        assert ADMITTED not in stored(g.home)


async def test_the_owner_learns_that_who_was_admitted_could_not_be_told(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere) as g:
        await elsewhere.say("hello?", id_="1", sender="eve")
        (code,) = CODE.findall((await elsewhere.until_heard(no="1"))["why"])
        elsewhere.close()
        elsewhere.hang_up()
        await until_state(g, "closed")
        answer = await (await g.connect()).command(f"/pair {code} ben")
        assert answer.startswith("`lines:eve` speaks for `ben` from now on. They have not been told.")


async def test_only_the_owner_pairs_and_never_in_a_group(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere, senders='"lines:ben" = "ben", "lines:ana" = "owner"') as g:
        await elsewhere.say("hello?", id_="1", sender="eve")
        (code,) = CODE.findall((await elsewhere.until_heard(no="1"))["why"])
        for number, (sender, group) in enumerate((("ben", False), ("ben", True), ("ana", True))):
            for command in ("/pair", f"/pair {code}", f"/pair {code} ben", "/pair remove lines:eve"):
                id_ = f"{number} {command}"
                await elsewhere.say(command, id_=id_, sender=sender, group=group, room=f"room {number}")
                answer = await elsewhere.until_heard(room=f"room {number}")
                assert code not in answer["text"]
                assert "eve" not in answer["text"]
        ben = await g.connect(BEN)
        assert "Only the owner may decide who speaks here." in await ben.command(f"/pair {code} ben")
        for method, path in (("GET", "/api/pairings"), ("POST", "/api/pairings"), ("DELETE", "/api/pairings/lines:ben")):
            headers = {"Authorization": f"Bearer {BEN}"}
            async with g.http.request(
                method, g.url + path, headers=headers, json={"code": code, "person": "ben"}
            ) as response:
                assert response.status == 403
        assert not (g.home / "pairings.jsonl").exists()


async def test_everybody_of_a_channel_who_counts_as_the_owner_pairs_nobody(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere, senders='"lines:*" = "owner"'):
        await elsewhere.say("/pair", sender="eve", room="alley")
        answer = await elsewhere.until_heard(room="alley")
        assert "Only an address that is named as the owner's" in answer["text"]


async def test_a_hostile_name_is_shown_as_harmless_text(tmp_path: Path, elsewhere: Elsewhere) -> None:
    with capture_logs() as logged:
        async with running(tmp_path / "home", elsewhere) as g:
            await elsewhere.say("hello?", id_="1", sender="eve", name=HOSTILE)
            (code,) = CODE.findall((await elsewhere.until_heard(no="1"))["why"])
            client = await g.connect()
            offered = await client.command(f"/pair {code}")
            shown = await client.command("/pair")
            listed = await asyncio.to_thread(CliRunner().invoke, cli, ["pair", "--home", str(g.home)], env=OWNER)
            as_json = await asyncio.to_thread(CliRunner().invoke, cli, ["pair", "--json", "--home", str(g.home)], env=OWNER)
            await client.command(f"/pair {code} ben")
            linked = await client.command("/pair")
    (logged_name,) = (each["name"] for each in logged if each["event"] == "pairing_requested")
    for text in (offered, shown, listed.output, as_json.output, linked, stored(g.home), logged_name):
        assert "pwned" in text
        assert not set("\x1b\x07\u202e\u2066\r") & set(text)
        assert "Admitted: everybody\n" not in text
        assert "\nAdmitted: everybody" not in text
    for text in (offered, shown, linked):
        assert "`/pair X owner`" not in text.replace(f"`/pair {code} owner`", "")
        assert re.search(r"`[^`]*<script>", text), "as code, not as HTML"
    (name,) = {each["name"] for each in json.loads(as_json.output)["codes"]}
    assert len(name) <= 64


async def test_requests_to_pair_are_checked(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere) as g:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        bodies = [b"", b"[]", b"{}", b'{"code":1,"person":"owner"}', b'{"code":"x","person":"' + b"o" * 100_000 + b'"}']
        for body in bodies:
            async with g.http.post(f"{g.url}/api/pairings", data=body, headers=headers) as response:
                assert response.status in (400, 413)
        for code, person in (("0000-0000", "owner"), ("", ""), ("\x00", "owner")):
            async with g.http.post(
                f"{g.url}/api/pairings", json={"code": code, "person": person}, headers=headers
            ) as response:
                assert response.status == 404
                assert "There is no such code" in (await response.json())["message"]
        async with g.http.delete(f"{g.url}/api/pairings/lines%3A..%2f..%2ftoken", headers=headers) as response:
            assert response.status == 404
        assert not (g.home / "pairings.jsonl").exists()


async def test_a_changed_configuration_counts_at_once(tmp_path: Path, elsewhere: Elsewhere) -> None:
    def table(rest: str) -> str:
        return (
            '[agent]\nmodel = "scripted:echo"\n[plugins]\nallow = ["lines"]\n'
            f'[plugins.lines]\nport = {elsewhere.port}\n[channels.lines]\nkind = "lines"\n{rest}\n'
        )

    async def becomes(expected: str, **said: Any) -> dict[str, Any]:
        """Send messages until one has this outcome; each has an id of its own."""
        async with deadline():
            for number in itertools.count():
                id_ = f"{expected} {len(said)} {number} {g.daemon.config.sources.text!r}"
                await elsewhere.say("hi", id_=id_, **said)
                while id_ not in ((line := await elsewhere.hear()).get("ok"), line.get("no")):
                    pass
                outcome = "told" if line.get("tell") else "no" if "no" in line else "new" if line["new"] else "ignored"
                if outcome == expected:
                    return line
                await asyncio.sleep(0.05)
        raise AssertionError

    anybody = {"sender": "ana", "room": "kitchen", "group": True, "mentioned": False}
    first = table('people = { "ana" = "owner" }\npairing = false\nmessages_per_minute = 100000')
    async with gateway(tmp_path / "home", file=first) as g:
        file = g.home / "config.toml"
        await becomes("no", sender="bo")
        await becomes("new", sender="ana")
        await becomes("ignored", **anybody)
        file.write_text(first + "mention = false\n")
        await becomes("new", **anybody)
        file.write_text(first.replace("100000", "1"))
        assert "You may send 1 message a minute" in (await becomes("told", sender="ana"))["why"]
        file.write_text(table(""))
        assert CODE.findall((await becomes("told", sender="bo"))["why"])
        assert elsewhere.connections == 1, "the channel stays open"

"""People: each token belongs to one person, and what one person has does not exist for another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.auth.people import people_of
from gateway.config.keys import load_config
from gateway.doctor.config_check import check
from gateway.http import web, websocket
from gateway.http.outbox import WAITING_BYTES, Outbox
from gateway.support.errors import ConfigRefused
from plugins.support.secrets import Secret
from plugins.support.workspace import OWNER
from tests.gateway.gateways import TOKEN, Client, Frame, Gateway, gateway, replies_wait
from tests.waiting import deadline, until

ANA, BEN = "ana-has-this-token-of-her-own", "ben-has-another-one-of-his-own"
BOTH = {"people.ana.token": ANA, "people.ana.name": "Ana María", "people.ben.token": BEN}
SECRET = "the-word-that-only-ana-knows"

FILE = '[agent]\nmodel = "scripted:echo"\n'


@contextlib.asynccontextmanager
async def two(tmp_path: Path, **more: Any) -> AsyncIterator[tuple[Gateway, Client, Client]]:
    """Run a gateway with Ana and Ben; Ana has sent something in `main` and begun a second session there."""
    async with gateway(tmp_path, settings=BOTH | more) as g:
        ana, ben = await g.connect(ANA), await g.connect(BEN)
        await ana.chat(SECRET)
        await ana.command("/new")
        await ana.chat(f"again {SECRET}")
        while not any(event["kind"] == "session_closed" for _, event in ana.events()):
            await ana.next()  # the old session is flushed in the background, and then nothing more comes there
        yield g, ana, ben


async def silence(client: Client) -> list[Frame]:
    """Return the frames that arrive before the answer to a ping."""
    before = len(client.frames)
    await client.say("ping", id="silence")
    await client.until_type("pong", id="silence")
    return client.frames[before:-1]


# --- who --------------------------------------------------------------------------------------------------------------


async def test_the_token_determines_the_person(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BOTH) as g:
        for token, person in ((TOKEN, "owner"), (ANA, "ana"), (BEN, "ben")):
            client = await g.connect(None)
            await client.say("hello", protocol=1, token=token, client="owner", sender="owner", person="owner")
            welcome = await client.next()
            assert welcome["person"] == {"id": person, "name": {"ana": "Ana María"}.get(person, person)}
            await client.say("send", id="1", session="main", text="/whoami", sender="owner", person="owner")
            assert (await client.until_event("message_received"))["sender"] == person
            assert f"Person: `{person}`" in (await client.until_event("command_answered"))["answer"]
        opened = [lines[0] for lines in g.journals().values()]
        assert sorted((line["person"], line["key"]) for line in opened) == [
            ("ana", "main"),
            ("ben", "main"),
            ("owner", "main"),
        ]


async def test_a_second_hello_does_not_change_the_person(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BOTH) as g:
        client = await g.connect(BEN)
        await client.say("hello", protocol=1, token=ANA)
        assert (await client.until_type("welcome"))["person"]["id"] == "ben"
        assert "`ben`" in await client.command("/whoami")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("[people.ana]\n", "people.ana.token is missing."),
        ('[people.ana]\ntoken = "short"\n', "people.ana.token is shorter than 24 characters."),
        (
            '[people.ana]\ntoken = "ana-ana-ana-ana-ana-ana-ana-1"\n',
            "people.ana.token has fewer than 6 different characters. Generate one with `python3 -c 'import secrets; "
            "print(secrets.token_urlsafe(32))'`.",
        ),
        ('[people.ana]\ntoken = ""\n', "people.ana.token is blank."),
        ('[people.ana]\ntoken = "changeme-changeme-changeme"\n', "people.ana.token is a placeholder."),
        (f'[people.ana]\ntoken = "{TOKEN}"\n', "people.ana.token is also the token of owner; each person needs their own."),
        (
            f'[people.ana]\ntoken = "{ANA}"\n[people.ben]\ntoken = "{ANA}"\n',
            "people.ben.token is also the token of ana; each person needs their own.",
        ),
        (f'[people.owner]\ntoken = "{ANA}"\n', "people.owner.token is not read; set gateway.token instead."),
        (f'[people.Ana]\ntoken = "{ANA}"\n', "people.Ana is not a valid name: use up to 32 of a-z 0-9 _ and -"),
        (f'[people."../x"]\ntoken = "{ANA}"\n', "people.../x is not a valid name"),
        ('[people.ana]\ntokken = "x"\n', "people.ana.tokken is not a known key; did you mean people.ana.token?"),
        ("[people.ana]\ntoken = 5\n", "people.ana.token must be text: env:NAME, file:PATH or credential:NAME."),
        ("people = 5\n", "people must be a table, not "),
        ("people.ana = 5\n", "people.ana must be a table, not "),
    ],
)
def test_invalid_people_are_refused_with_the_path_of_the_key(table: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(table)
    with pytest.raises(ConfigRefused) as refused:
        people_of(load_config(path, environment={}, overrides={}), Secret(TOKEN))
    assert sentence in str(refused.value)
    assert ANA not in str(refused.value)
    found = check(path, {"EXUVIA_TOKEN": TOKEN}).faults
    assert any(sentence in fault for fault in found), found


def test_the_owner_may_have_a_name_too(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[people.owner]\nname = "Olga"\n')
    admitted = people_of(load_config(path, environment={}, overrides={}), Secret(TOKEN)).admit(TOKEN)
    assert admitted is not None
    assert (admitted.person.id, admitted.person.name) == (OWNER, "Olga")


# --- each door --------------------------------------------------------------------------------------------------------


async def test_the_same_key_of_two_people_names_two_sessions(tmp_path: Path) -> None:
    async with two(tmp_path) as (g, _, ben):
        assert await ben.chat("hello") == "hello"
        people = [(lines[0]["person"], lines[0]["key"]) for lines in g.journals().values()]
        assert sorted(people) == [("ana", "main"), ("ana", "main"), ("ben", "main")]
        for lines in g.journals().values():
            assert {line["sender"] for line in lines if line["kind"] == "message_received"} == {lines[0]["person"]}


async def test_the_same_id_of_two_people_names_two_messages(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BOTH) as g:
        for token, text in ((ANA, "hers"), (BEN, "his")):
            client = await g.connect(token)
            await client.send(text, id_="one")
            assert (await client.until_answered("one")).get("duplicate") is False


async def test_a_session_of_somebody_else_does_not_exist_by_key_or_id(tmp_path: Path) -> None:
    async with two(tmp_path) as (g, _, ben):
        await ben.chat("mine", session="own")
        seen = len(ben.frames)
        for session_id in (*g.journals(), None):
            named = {} if session_id is None else {"session_id": session_id}
            for key in ("main", "own"):
                if key == "own" and (session_id is None or g.journals()[session_id][0]["person"] == "ben"):
                    continue
                for kind in ("subscribe", "history"):
                    await ben.say(kind, id="x", session=key, **named)
                    assert (await ben.until_type("error", id="x"))["code"] == "unknown_session"
        for kind in ("unsubscribe", "cancel"):
            await ben.say(kind, id="x", session="main")
            assert (await ben.until_type("error", id="x"))["code"] == "unknown_session"
        await ben.say("sessions", id="l")
        assert [row["session"] for row in (await ben.until_type("sessions"))["sessions"]] == ["own"]
        assert SECRET not in json.dumps(ben.frames[seen:])


async def test_live_events_reach_only_their_person(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, ana, ben):
        await ben.chat("mine")
        await ben.say("subscribe", session="main", after=0)
        await ana.chat(f"live {SECRET}")
        assert SECRET not in json.dumps(await silence(ben))


async def test_cancel_and_stop_do_not_affect_other_people(tmp_path: Path) -> None:
    script = [{"text": "a long story"}]
    with replies_wait() as go_on:
        async with gateway(tmp_path, settings=BOTH, script=script) as g:
            ana, ben = await g.connect(ANA), await g.connect(BEN)
            await ana.send("tell me")
            await ana.until_type("delta")
            await ben.say("cancel", session="main")
            await ben.until_type("error")
            await ben.command("/stop")
            await ben.say("cancel", session="main")
            await ben.command("/new")
            go_on.set()
            assert (await ana.until_event("turn_ended"))["outcome"] == "replied"


@pytest.mark.parametrize("command", ["/history 50", "/status", "/context", "/usage", "/queue", "/help"])
async def test_no_command_reveals_other_people(command: str, tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _ana, ben):
        assert SECRET not in await ben.command(command)


async def test_a_file_of_somebody_else_does_not_exist(tmp_path: Path) -> None:
    async with two(tmp_path) as (g, _, ben):
        headers = {token: {"Authorization": f"Bearer {token}"} for token in (ANA, BEN)}
        async with g.http.post(f"{g.url}/attachments", data=SECRET.encode(), headers=headers[ANA]) as answer:
            sha256 = (await answer.json())["sha256"]
        for token, status in ((ANA, 200), (BEN, 404)):
            async with g.http.get(f"{g.url}/attachments/{sha256}", headers=headers[token]) as answer:
                assert answer.status == status
        await ben.say("send", id="f", session="main", text="look", attachments=[{"sha256": sha256}])
        assert (await ben.until_answered("f"))["code"] == "bad_request"


async def test_after_a_restart_people_still_have_only_their_own_sessions(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _ana, ben):
        await ben.chat("his")
    (tmp_path / "catalog.sqlite").unlink()
    async with gateway(tmp_path, settings=BOTH) as g:
        for token, said in ((ANA, f"again {SECRET}"), (BEN, "his")):
            client = await g.connect(token)
            await client.say("history", id="h", session="main", limit=100)
            page = (await client.until_type("history"))["events"]
            assert [e["text"] for e in page if e["kind"] == "message_received"] == [said]


KEYS = st.sampled_from(["main", "own", "MAIN", "ana", "ana:main", "..", "other"])
FRAMES = st.fixed_dictionaries(
    {"type": st.sampled_from(["send", "subscribe", "unsubscribe", "cancel", "history", "sessions", "ping", "hello"])},
    optional={
        "session": KEYS,
        "session_id": st.integers(0, 2),
        "id": st.sampled_from(["c1", "x", "1"]),
        "text": st.sampled_from(["hello", "/new", "/history 50", "/status", "/stop", "/whoami", "/context"]),
        "after": st.integers(0, 30),
        "before": st.integers(0, 30),
        "limit": st.integers(1, 500),
        "token": st.sampled_from([ANA, "x"]),
        "person": st.just("ana"),
        "sender": st.just("ana"),
        "protocol": st.just(1),
    },
)


async def test_no_sequence_of_frames_shows_or_changes_other_peoples_data(tmp_path: Path) -> None:
    """Hypothesis draws frames, which Ben sends to a running gateway: Ana's journals do not change, and nothing of them is
    shown."""
    async with two(tmp_path) as (g, _, ben):
        before = {session: lines for session, lines in g.journals().items() if lines[0]["person"] == "ana"}
        drawn: list[list[dict[str, Any]]] = []

        @settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(FRAMES, max_size=6))
        def draw(sequence: list[dict[str, Any]]) -> None:
            drawn.append(sequence)

        await asyncio.to_thread(draw)
        hers = sorted(before)
        for frame in (frame for sequence in drawn for frame in sequence):
            place = frame.get("session_id")
            said = frame if place is None else {**frame, "session_id": (*hers, "20261121-000000-aaaaaa")[place]}
            await ben.say(**{("type_" if name == "type" else name): value for name, value in said.items()})
        await silence(ben)
        await ben.say("sessions", id="l")
        await ben.until_type("sessions", id="l")
        assert SECRET not in json.dumps(ben.frames)
        assert not set(hers) & {frame.get("session_id") for frame in ben.frames}
        after = g.journals()
        assert {session: after[session] for session in hers} == before
        assert sum(len(sequence) for sequence in drawn) > 50


# --- rotation ---------------------------------------------------------------------------------------------------------


def people_file(**tokens: str) -> str:
    return FILE + "".join(f'[people.{name}]\ntoken = "{token}"\n' for name, token in tokens.items())


async def test_a_revoked_token_closes_its_connections_only(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=people_file(ana=ANA, ben=BEN)) as g:
        ana, also_ana, ben = await g.connect(ANA), await g.connect(ANA), await g.connect(BEN)
        await ana.chat("before")
        (tmp_path / "config.toml").write_text(people_file(ana=ANA[::-1], ben=BEN))
        assert [await ana.closed(), await also_ana.closed()] == [4401, 4401]
        assert await ben.chat("still here") == "still here"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await g.connect(ANA)
        assert refused.value.status == 401
        again = await g.connect(ANA[::-1])
        await again.say("history", id="h", session="main")
        assert "before" in json.dumps(await again.until_type("history"))


async def test_a_weak_token_in_a_changed_configuration_is_reported_to_the_owner_only(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=people_file(ana=ANA, ben=BEN)) as g:
        owner, ana, ben = await g.connect(), await g.connect(ANA), await g.connect(BEN)
        assert "all is well" in await ben.command("/status")
        (tmp_path / "config.toml").write_text(people_file(ana="short", ben=BEN))
        async with deadline():
            while "people.ana.token is shorter" not in await owner.command("/status"):
                await asyncio.sleep(0.05)
        told = await ben.command("/status")
        assert told.endswith("\n- Trouble: The gateway has a problem; its owner can see the details.")
        assert "all is well" not in told
        assert not [word for word in ("people", "shorter", str(tmp_path)) if word in told]
        assert "all is well" not in await ana.command("/status")


@pytest.mark.parametrize("fault", ["", "[agent]\nmodle = 3\n", "x = [\n"])
async def test_a_running_gateway_follows_a_rotated_token(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EXUVIA_TOKEN", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    async with gateway(tmp_path, file=FILE, settings={"gateway.token": None}) as g:
        old = (tmp_path / "token").read_text().strip()
        client = await g.connect(old)
        if fault:  # somebody is editing
            (tmp_path / "config.toml").write_text(fault)
            await until(lambda: g.daemon.context.settings.fault is not None)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "exuvia", "token", "rotate", "--home", str(tmp_path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, warning = await process.communicate()
        assert (b"If gateway.token is set there" in warning) == fault.startswith("x")
        new = (tmp_path / "token").read_text().strip()
        assert (process.returncode, new in output.decode(), new == old) == (0, False, False)
        assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
        assert await client.closed() == 4401
        assert await (await g.connect(new)).chat("hi") == "hi"
        assert sorted(path.name for path in tmp_path.glob("*token*")) == ["token"]


# --- before it is known who is there ----------------------------------------------------------------------------------


async def test_wrong_tokens_wait_longer_and_get_retry_after(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        statuses = []
        for number in range(7):
            headers = {"Authorization": f"Bearer wrong-{number}"}
            async with g.http.post(f"{g.url}/attachments", data=b"x", headers=headers) as answer:
                statuses.append((answer.status, "Retry-After" in answer.headers))
        assert statuses == [(401, False)] * 5 + [(401, True)] * 2
        client = await g.connect(None)
        await client.say("hello", protocol=1, token="wrong")
        assert await client.closed() == 4401


async def test_unauthenticated_connections_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "UNAUTHENTICATED", 6)  # half of them for one address
    async with gateway(tmp_path) as g:
        unauthenticated = [await g.connect(None) for _ in range(3)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await g.connect(None)
        assert (refused.value.status, "Retry-After" in (refused.value.headers or {})) == (503, True)
        assert await (await g.connect()).chat("hi") == "hi"
        await unauthenticated[0].say("hello", protocol=1, token=TOKEN)
        await unauthenticated[0].until_type("welcome")
        await g.connect(None)


async def test_a_connection_without_hello_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "HELLO_SECONDS", 0.2)
    async with gateway(tmp_path) as g:
        assert await (await g.connect(None)).closed() == 4401


async def raw(g: Gateway, data: bytes) -> bytes:
    """Send bytes to the gateway and return everything until it closes."""
    assert g.daemon.address is not None
    reader, writer = await asyncio.open_connection(*g.daemon.address)
    try:
        writer.write(data)
        async with deadline():
            return await reader.read()
    except TimeoutError:
        raise AssertionError("The connection was not closed.") from None
    finally:
        writer.close()


async def test_an_incomplete_request_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "REQUEST_SECONDS", 0.3)
    async with gateway(tmp_path) as g:
        assert await raw(g, b"") == b""
        assert await raw(g, b"GET /ws HTTP/1.1\r\nHost: x\r\nX-Slow: ") == b""
        answered = await raw(g, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nX-Sl")
        assert answered.count(b"200 OK") == 1


async def test_an_endless_first_frame_is_cut_at_its_limit(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        assert g.daemon.address is not None
        reader, writer = await asyncio.open_connection(*g.daemon.address)
        host = "{}:{}".format(*g.daemon.address)
        writer.write(
            f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n".encode()
            + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert b"101" in await reader.readuntil(b"\r\n\r\n")
        # the head of a masked text frame of 3 MiB, of which 100 KiB come
        writer.write(b"\x81\xff" + (3 * 1024 * 1024).to_bytes(8, "big") + b"\x00" * 4 + b"x" * 100 * 1024)
        async with deadline():
            close = await reader.readexactly(4)
        assert (close[0], int.from_bytes(close[2:4], "big")) == (0x88, 1009)
        writer.close()


async def test_after_hello_larger_frames_are_accepted(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect(None)
        await client.say("hello", protocol=1, token=TOKEN)
        await client.until_type("welcome")
        assert len(await client.chat("x" * 500_000)) == 500_000


@pytest.mark.parametrize("header", ["Host", "Origin", "Authorization"])
async def test_a_repeated_header_is_refused(header: str, tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        own = {"Host": g.url.removeprefix("http://"), "Origin": g.url, "Authorization": f"Bearer {TOKEN}"}

        async def ask(*more: str) -> bytes:
            lines = [*(f"{name}: {value}" for name, value in own.items()), *more, "Connection: close"]
            return await raw(g, "\r\n".join(["GET /attachments/0 HTTP/1.1", *lines, "", ""]).encode())

        assert (await ask())[9:12] == b"404"
        assert (await ask(f"{header}: {own[header]}"))[9:12] == b"400"


# --- answers that wait ------------------------------------------------------------------------------------------------


class Stuck:
    """A socket whose client reads when the test says so."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.sent: list[bytes] = []

    async def send_frame(self, data: bytes, _: aiohttp.WSMsgType) -> None:
        await self.reads.wait()
        self.sent.append(data)


async def test_answers_to_a_client_that_does_not_read_are_bounded_in_bytes() -> None:
    stuck = Stuck()
    outbox = Outbox(stuck, lambda code, reason: None)  # type: ignore[arg-type]
    writer = asyncio.create_task(outbox.write())
    page, taken = b"x" * (1024 * 1024), 0
    while True:
        room = asyncio.create_task(outbox.until_room())
        for _ in range(10):
            await asyncio.sleep(0)
        if not room.done():
            break
        outbox.answer(page)
        taken += 1
    assert taken == WAITING_BYTES // len(page)
    stuck.reads.set()
    async with deadline():
        await room
    while len(stuck.sent) < taken:
        await asyncio.sleep(0)
    writer.cancel()


async def test_cancel_reaches_a_previous_session_that_is_still_running(tmp_path: Path) -> None:
    script = [{"text": "a long story"}]
    unflushed = {"compaction.memory_flush.enabled": False}
    with replies_wait():
        async with gateway(tmp_path, script=script, settings=unflushed) as g:
            client = await g.connect()
            for way in ("cancel", "/stop"):
                await client.send("tell me")
                await client.until_type("delta")
                await client.send("and then")
                await client.send("/new")
                if way == "cancel":
                    await client.say("cancel", session="main")
                else:
                    await client.send(way)
                assert (await client.until_event("turn_ended"))["outcome"] == "cancelled"
                await client.until_event("request_sent")
                await client.say("cancel", session="main")
                assert (await client.until_event("turn_ended"))["outcome"] == "cancelled"
                await client.until_event("session_closed")

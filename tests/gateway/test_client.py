"""The reconnecting client against a real gateway: nothing is lost or duplicated, whatever happens to its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.token import rotate_token
from gateway.config.keys import load_config
from gateway.protocol.client_frames import Delta
from gateway.support.home import Home
from gateway.terminal.client.client import ChatClient, MessageRefused
from gateway.terminal.client.connection import ConnectionRefused, NotConnected, websocket_url
from gateway.terminal.client.dedup import EventDedup, NewEvent
from gateway.terminal.client.signals import Connected, Disconnected, Happened, Postponed
from sessions.events.events import CommandAnswered, ModelReplied, SessionClosed, TurnEnded
from tests.gateway.cutting_proxy import CuttingProxy
from tests.gateway.gateways import TOKEN, Gateway, gateway, replies_wait
from tests.waiting import deadline, until

Place = tuple[str, int]

NOTHING_SET = load_config(None, environment={}, overrides={}).sources


@asynccontextmanager
async def talking(
    url: str, *, session: str = "main", patience: float = 5.0
) -> AsyncIterator[tuple[ChatClient, list[Happened]]]:
    """Run a client and collect the events it sees; a story may take ten seconds."""
    seen: list[Happened] = []

    async def watch(client: ChatClient) -> None:
        async for signal in client.signals():
            if isinstance(signal, Happened):
                seen.append(signal)

    async with deadline(), ChatClient(url, TOKEN, session=session, patience=patience) as client:
        watching = asyncio.create_task(watch(client))
        try:
            yield client, seen
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def places(seen: list[Happened]) -> list[Place]:
    return [(happened.session_id, happened.recorded.seq) for happened in seen]


def ends(seen: list[Happened]) -> int:
    return sum(isinstance(happened.recorded.event, TurnEnded | CommandAnswered) for happened in seen)


async def until_ended(seen: list[Happened], count: int) -> None:
    await until(lambda: ends(seen) >= count)


def stored(g: Gateway, key: str = "main") -> list[Place]:
    """Return session and seq of each event of a key, without the first, which precedes every client's first message."""
    journals = {session: lines for session, lines in g.journals().items() if lines and lines[0]["key"] == key}
    return [(session, line["seq"]) for session, lines in journals.items() for line in lines][1:]


def received(g: Gateway, key: str = "main") -> list[str]:
    """Return the texts received under a key, in order."""
    journals = [lines for lines in g.journals().values() if lines and lines[0]["key"] == key]
    return [line["text"] for lines in journals for line in lines if line["kind"] == "message_received"]


TEXTS = ["one two", "/new", "three", "four"]


async def converse(g: Gateway, url: str, key: str) -> list[Place]:
    """Send the texts, each after the answer to the previous one; return the places of the events seen, by session."""
    async with talking(url, session=key) as (client, seen):
        for number, text in enumerate(TEXTS, start=1):
            await client.send(text, message_id=f"m{number}")
            await until_ended(seen, number)
        await until(lambda: any(isinstance(h.recorded.event, SessionClosed) for h in seen))
        first = seen[0].session_id
        return sorted(places(seen), key=lambda place: place[0] != first)


async def test_a_message_is_accepted_and_its_turn_is_seen_to_its_end(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, talking(g.url) as (client, seen):
        accepted = await client.send("hello there", message_id="m1")
        await until(lambda: ends(seen) == 1)
        assert (accepted.seq, accepted.duplicate) == (2, False)
        assert places(seen) == stored(g)


async def test_wherever_the_connection_is_cut_each_message_arrives_once_and_each_event_is_seen_once(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, CuttingProxy(g.url) as proxy:
        await converse(g, proxy.url, "whole")
        frames = proxy.passed
        assert frames > 20
        for cut in range(1, frames + 1):
            key = f"cut-{cut}"
            proxy.passed, proxy.cuts = 0, frozenset({cut})
            assert await converse(g, proxy.url, key) == stored(g, key), f"cut in the place of frame {cut}"
            assert received(g, key) == TEXTS


async def test_a_connection_that_is_cut_again_and_again_loses_nothing(tmp_path: Path) -> None:
    cuts = frozenset(range(5, 80, 6))
    async with gateway(tmp_path) as g, CuttingProxy(g.url, cuts=cuts) as proxy:
        assert await converse(g, proxy.url, "main") == stored(g)
        assert received(g) == TEXTS
        assert proxy.connections > 3


async def test_a_message_whose_acceptance_was_lost_is_sent_again_under_the_same_id_and_counts_once(tmp_path: Path) -> None:
    # The gateway's frames: welcome, accepted.
    cuts = frozenset({2})
    async with gateway(tmp_path) as g, CuttingProxy(g.url, cuts=cuts) as proxy, talking(proxy.url) as (client, seen):
        accepted = await client.send("once", message_id="m1")
        await until(lambda: ends(seen) == 1)
        assert accepted.duplicate
        assert places(seen) == stored(g)
        assert received(g) == ["once"]


async def test_what_is_sent_while_the_gateway_is_restarted_arrives_in_order_when_it_is_back(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with gateway(tmp_path) as g:
            proxy = await stack.enter_async_context(CuttingProxy(g.url))
            client, seen = await stack.enter_async_context(talking(proxy.url))
            await client.send("before", message_id="m0")
            await until(lambda: ends(seen) == 1)
            await proxy.stop()
            waiting = [client.send(str(number), message_id=f"m{number}") for number in range(1, 4)]
        assert not any(accepted.done() for accepted in waiting)
        async with gateway(tmp_path) as g:
            proxy.upstream = g.url
            await proxy.start()
            accepted = await asyncio.gather(*waiting)
            await until(lambda: ends(seen) == 4)
            assert [each.seq for each in accepted] == sorted(each.seq for each in accepted)
            assert places(seen) == stored(g)
            assert received(g) == ["before", "1", "2", "3"]


async def test_what_others_did_in_old_and_new_sessions_while_the_client_was_away_is_seen_once(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, CuttingProxy(g.url) as proxy, talking(proxy.url) as (client, seen):
        await client.send("before", message_id="m0")
        await until(lambda: ends(seen) == 1)
        await proxy.stop()
        other = await g.connect()
        await other.chat("between")
        await other.command("/new")
        await other.chat("after")
        await proxy.start()
        await until(lambda: ends(seen) == 4)
        # The old session is flushed and closed behind its `/new`.
        await until(lambda: sorted(places(seen)) == sorted(stored(g)))
        assert len(set(places(seen))) == len(seen)


async def test_a_client_receives_new_events_only(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        other = await g.connect()
        await other.chat("before")
        head = len(stored(g))
        async with CuttingProxy(g.url) as proxy, talking(proxy.url) as (_, seen):
            await until(lambda: proxy.passed >= 2)
            await other.chat("after")
            await until(lambda: ends(seen) == 1)
            assert places(seen) == stored(g)[head:]


async def test_what_others_begin_under_a_key_without_a_session_is_seen_from_its_first_message(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, talking(g.url) as (client, seen):
        other = await g.connect()
        await other.chat("elsewhere", session="garden")
        await other.chat("hello")
        await until(lambda: ends(seen) == 1)
        await client.send("and here", message_id="m1")
        await until(lambda: ends(seen) == 2)
        assert places(seen) == stored(g)


async def test_a_log_restored_to_an_earlier_state_is_followed_from_its_end(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with gateway(tmp_path) as g:
            proxy = await stack.enter_async_context(CuttingProxy(g.url))
            client, seen = await stack.enter_async_context(talking(proxy.url))
            await client.send("first", message_id="m1")
            await until(lambda: ends(seen) == 1)
            head = len(stored(g))
            await client.send("second", message_id="m2")
            await until(lambda: ends(seen) == 2)
            await proxy.stop()
        (journal,) = (tmp_path / "sessions").glob("*.jsonl")
        journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[: head + 1]))
        (tmp_path / "catalog.sqlite").unlink()
        async with gateway(tmp_path) as g:
            proxy.upstream = g.url
            await proxy.start()
            await until(lambda: proxy.connections >= 3)
            await client.send("third", message_id="m3")
            await until(lambda: ends(seen) == 3)
            assert received(g) == ["first", "third"]
            assert places(seen)[-5:] == stored(g)[-5:]


async def test_a_session_whose_log_was_damaged_is_left_with_new_and_the_next_is_followed(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with gateway(tmp_path) as g:
            proxy = await stack.enter_async_context(CuttingProxy(g.url))
            client, seen = await stack.enter_async_context(talking(proxy.url))
            await client.send("first", message_id="m1")
            await until(lambda: ends(seen) == 1)
            await proxy.stop()
        (journal,) = (tmp_path / "sessions").glob("*.jsonl")
        journal.write_bytes(journal.read_bytes().replace(b'"text":"first"', b'"text":"frist"'))
        (tmp_path / "catalog.sqlite").unlink()
        async with gateway(tmp_path) as g:
            proxy.upstream = g.url
            await proxy.start()
            with pytest.raises(MessageRefused, match="damaged"):
                await client.send("second", message_id="m2")
            await client.send("/new", message_id="m3")
            await client.send("third", message_id="m4")
            await until(lambda: any(isinstance(h.recorded.event, TurnEnded) for h in seen[5:]))


async def test_pieces_of_the_answer_come_before_the_event_that_confirms_them(tmp_path: Path) -> None:
    slow = [{"text": "one two", "delay_ms": 80}]
    async with gateway(tmp_path, script=slow) as g, ChatClient(g.url, TOKEN) as client:
        client.send("go", message_id="m1")
        pieces: list[str] = []
        async with aclosing(client.signals()) as signals:
            async for signal in signals:
                if isinstance(signal, Delta):
                    pieces.append(signal.text)
                elif isinstance(signal, Happened) and isinstance(signal.recorded.event, ModelReplied):
                    break
    assert "".join(pieces) == "one two"


async def test_a_refused_message_says_why_and_is_not_sent_again(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, talking(g.url) as (client, seen):
        await client.send("one", message_id="m1")
        with pytest.raises(MessageRefused, match="This id was already used") as refused:
            await client.send("another", message_id="m1")
        assert (refused.value.code, client.unaccepted) == ("conflict", 0)
        await until(lambda: ends(seen) == 1)
        assert received(g) == ["one"]


async def test_messages_refused_by_a_full_queue_are_resent_in_order_and_commands_get_through(tmp_path: Path) -> None:
    with replies_wait() as go_on:
        async with (
            gateway(tmp_path, script=[{"text": "slowly"}], settings={"sessions.queue_limit": 1}) as g,
            talking(g.url) as (client, seen),
        ):
            await client.send("running", message_id="m1")
            await until(lambda: len(seen) >= 2)
            await client.send("waiting", message_id="m2")
            refused = client.send("too many", message_id="m3")
            await until(lambda: len(client._postponed) == 1)
            behind = client.send("far too many", message_id="m4")
            assert (client.unaccepted, len(client._postponed)) == (2, 2)
            await client.send("/stop", message_id="m5")
            go_on.set()
            await refused
            await behind
            assert received(g) == ["running", "waiting", "/stop", "too many", "far too many"]


async def test_what_is_sent_while_the_gateway_stops_arrives_once_it_is_back(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        go_on = stack.enter_context(replies_wait())
        async with gateway(tmp_path, script=[{"text": "slowly"}]) as g:
            proxy = await stack.enter_async_context(CuttingProxy(g.url))
            client = await stack.enter_async_context(ChatClient(proxy.url, TOKEN))
            signals = client.signals()
            await client.send("running", message_id="m1")
            g.daemon.stop()
            accepted = [client.send(text, message_id=text) for text in ("one", "two")]
            async with deadline():
                while not isinstance(signal := await anext(signals), Postponed):
                    pass
            assert signal.reason == "The gateway is stopping; try again in a moment."
            go_on.set()
        assert received(g) == ["running"]
        assert client.unaccepted == 2
        async with gateway(tmp_path) as g:
            proxy.upstream = g.url
            assert [each.duplicate for each in await asyncio.gather(*accepted)] == [False, False]
            assert received(g) == ["running", "one", "two"]


async def test_a_message_too_long_for_a_frame_is_refused_without_asking_the_gateway(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, talking(g.url) as (client, _):
        with pytest.raises(MessageRefused, match="bytes"):
            await client.send("x" * (1 << 20), message_id="m1")
        assert (await client.send("short", message_id="m2")).seq == 2


async def test_a_wrong_token_is_reported_at_once(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        with pytest.raises(ConnectionRefused, match="token"):
            async with ChatClient(g.url, "wrong"):
                pass


async def test_a_token_that_is_changed_meanwhile_ends_the_client(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with gateway(tmp_path) as g:
            proxy = await stack.enter_async_context(CuttingProxy(g.url))
            client = await stack.enter_async_context(ChatClient(proxy.url, TOKEN))
            signals = client.signals()
            assert isinstance(await anext(signals), Connected)
        async with gateway(tmp_path, settings={"gateway.token": TOKEN[::-1]}) as g:
            proxy.upstream = g.url
            assert isinstance(await anext(signals), Disconnected)
            with pytest.raises(ConnectionRefused, match="token"):
                await anext(signals)


async def test_a_token_that_is_changed_in_its_file_is_read_again_and_nothing_is_lost(tmp_path: Path) -> None:
    """Once while the gateway runs, and once while it is down."""
    home = Home(tmp_path)
    async with AsyncExitStack() as stack:
        async with gateway(tmp_path, settings={"gateway.token": None}) as g:
            proxy = await stack.enter_async_context(CuttingProxy(g.url))
            token = home.token.read_text().strip()
            client = await stack.enter_async_context(ChatClient(proxy.url, token, token_file=home.token))
            await client.send("before", message_id="m1")
            connections = proxy.connections
            rotate_token(home, NOTHING_SET, {})
            await until(lambda: proxy.connections > connections)
            await client.send("with the new one", message_id="m2")
            assert proxy.connections == connections + 1
            await proxy.stop()
        rotate_token(home, NOTHING_SET, {})
        async with gateway(tmp_path, settings={"gateway.token": None}) as g:
            proxy.upstream = g.url
            await proxy.start()
            await client.send("and the next", message_id="m3")
            assert received(g) == ["before", "with the new one", "and the next"]


async def test_a_token_file_that_is_gone_or_holds_the_refused_token_ends_the_client(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home") as g:
        for file in (tmp_path / "none", tmp_path / "token"):
            (tmp_path / "token").write_text("wrong\n")
            with pytest.raises(ConnectionRefused, match="Invalid token"):
                async with ChatClient(g.url, "wrong", token_file=file):
                    pass


async def test_an_address_without_a_gateway_is_reported(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        with pytest.raises(ConnectionRefused, match="status 404"):
            async with ChatClient(f"{g.url}/elsewhere", TOKEN):
                pass


async def test_a_missing_gateway_is_reported_with_the_command_that_starts_it(unused_tcp_port: int) -> None:
    with pytest.raises(NotConnected, match="exuvia run"):
        async with ChatClient(f"127.0.0.1:{unused_tcp_port}", TOKEN):
            pass


async def test_a_gateway_that_stays_away_ends_the_signals_and_what_waits(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g, CuttingProxy(g.url) as proxy, ChatClient(proxy.url, TOKEN, patience=0.2) as client:
        signals = client.signals()
        assert isinstance(await anext(signals), Connected)
        await proxy.stop()
        accepted = client.send("lost", message_id="m1")
        assert isinstance(await anext(signals), Disconnected)
        with pytest.raises(NotConnected):
            await anext(signals)
        with pytest.raises(NotConnected):
            await accepted
        with pytest.raises(NotConnected):
            await client.send("too late", message_id="m2")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:7117", "ws://127.0.0.1:7117/ws"),
        ("http://localhost:7117/", "ws://localhost:7117/ws"),
        ("https://chat.example.org", "wss://chat.example.org/ws"),
        ("ws://[::1]:7117/ws", "ws://[::1]:7117/ws"),
    ],
)
def test_a_gateways_address_may_be_abbreviated(address: str, url: str) -> None:
    assert websocket_url(address) == url


@pytest.mark.parametrize("address", ["ftp://a", "http://", "a:99999", "[::1"])
def test_an_invalid_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConnectionRefused, match="such as"):
        websocket_url(address)


@given(st.data())
def test_a_reader_who_asks_again_from_its_position_sees_each_event_once_in_order(data: st.DataObject) -> None:
    """There are two sessions, the second begun before the first has ended; the connection breaks anywhere."""
    log = {"old": 4, "new": 3}
    seen = EventDedup()
    taken: list[Place] = []
    seen.start("old", 0)
    for _ in range(data.draw(st.integers(1, 6))):
        assert seen.position is not None
        session_id, after = seen.position
        waiting = {session_id: list(range(after + 1, log[session_id] + 1))}
        if session_id == "old":
            waiting["new"] = [1, 2, 3]
        while any(waiting.values()) and data.draw(st.integers(0, 9)):
            name = data.draw(st.sampled_from([name for name, rest in waiting.items() if rest]))
            seq = waiting[name].pop(0)
            if seen.arrive(name, seq) is NewEvent.NEW:
                taken.append((name, seq))
                if (name, seq) == ("old", log["old"]):
                    seen.close("old")
    for name in log:
        mine = [seq for session_id, seq in taken if session_id == name]
        assert mine == list(range(1, len(mine) + 1))


def test_an_event_whose_predecessor_is_missing_is_not_taken() -> None:
    seen = EventDedup()
    seen.start("s", 4)
    assert seen.arrive("s", 6) is NewEvent.AHEAD
    assert seen.arrive("t", 2) is NewEvent.AHEAD
    assert [seen.arrive("s", seq) for seq in (5, 6, 5)] == [NewEvent.NEW, NewEvent.NEW, NewEvent.REPEATED]
    assert seen.position == ("s", 6)

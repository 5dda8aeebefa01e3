"""The lasting client: nothing lost, nothing doubled, whatever happens to its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client import Client, Connected, Disconnected, Happened, MessageRefused
from gateway.client_connection import NotConnected, TurnedAway, websocket_url
from gateway.client_frames import Delta
from gateway.seen import Arrival, Seen
from sessions.events import CommandAnswered, SessionClosed, TurnEnded
from tests.gateway.stub_gateway import TOKEN, StubGateway


@asynccontextmanager
async def talking(gateway: StubGateway, *, patience: float = 5.0) -> AsyncIterator[tuple[Client, list[Happened]]]:
    """A client of the gateway, and the events that it has seen so far."""
    seen: list[Happened] = []

    async def watch(client: Client) -> None:
        async for signal in client.signals():
            if isinstance(signal, Happened):
                seen.append(signal)

    async with Client(gateway.url, TOKEN, patience=patience) as client:
        watching = asyncio.create_task(watch(client))
        try:
            yield client, seen
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that comes about by itself."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.002)


def places(seen: list[Happened]) -> list[tuple[str, int]]:
    return [(happened.session_id, happened.recorded.seq) for happened in seen]


def ends(seen: list[Happened]) -> int:
    return sum(isinstance(happened.recorded.event, TurnEnded | CommandAnswered) for happened in seen)


async def converse(gateway: StubGateway) -> list[Happened]:
    """Three messages and a `/new` between them; returns what the client saw, once each was answered."""
    async with talking(gateway) as (client, seen):
        for number, text in enumerate(["one two", "/new", "three", "four"], start=1):
            accepted = await client.send(text, message_id=f"m{number}")
            assert accepted.id == f"m{number}"
            await until(lambda number=number: ends(seen) == number)
        await until(lambda: len(seen) >= len(gateway.events()) - 1)
        return seen


async def test_a_message_is_accepted_and_its_turn_is_seen_to_its_end() -> None:
    async with StubGateway() as gateway, talking(gateway) as (client, seen):
        accepted = await client.send("hello there", message_id="m1")
        await until(lambda: ends(seen) == 1)
    assert (accepted.seq, accepted.duplicate) == (2, False)
    assert [happened.recorded.seq for happened in seen] == [2, 3, 4, 5, 6]


async def test_wherever_the_connection_is_cut_every_message_arrives_once_and_every_event_is_seen_once() -> None:
    async with StubGateway() as whole:
        await converse(whole)
    for cut in range(2, whole.sent + 1):
        async with StubGateway(cuts=frozenset({cut})) as gateway:
            seen = await converse(gateway)
            by_session = sorted(places(seen), key=lambda place: place[0])
            assert by_session == gateway.events()[1:], f"cut at frame {cut}"
            assert gateway.events() == whole.events()


async def test_a_connection_that_is_cut_again_and_again_loses_nothing() -> None:
    async with StubGateway(cuts=frozenset(range(5, 60, 6))) as gateway:
        seen = await converse(gateway)
        assert sorted(places(seen)) == gateway.events()[1:]
        assert len(set(places(seen))) == len(seen)


async def test_a_message_whose_acceptance_was_lost_is_sent_again_under_the_same_id_and_counts_once() -> None:
    # Frames: welcome, accepted.
    async with StubGateway(cuts=frozenset({2})) as gateway, talking(gateway) as (client, seen):
        accepted = await client.send("once", message_id="m1")
        await until(lambda: ends(seen) == 1)
        assert accepted.duplicate
        assert places(seen) == gateway.events()[1:]


async def test_what_is_sent_while_the_gateway_is_away_arrives_in_order_when_it_is_back() -> None:
    async with StubGateway() as gateway, talking(gateway) as (client, seen):
        await client.send("before", message_id="m0")
        await until(lambda: ends(seen) == 1)
        await gateway.stop()
        waiting = [client.send(str(number), message_id=f"m{number}") for number in range(1, 4)]
        await asyncio.sleep(0.05)
        assert not any(accepted.done() for accepted in waiting)
        await gateway.start()
        accepted = await asyncio.gather(*waiting)
        await until(lambda: ends(seen) == 4)
        assert [each.seq for each in accepted] == sorted(each.seq for each in accepted)
        assert places(seen) == gateway.events()[1:]


async def test_what_happened_in_old_and_new_sessions_while_the_client_was_away_is_seen_once() -> None:
    async with StubGateway() as gateway, talking(gateway) as (client, seen):
        await client.send("before", message_id="m0")
        await until(lambda: ends(seen) == 1)
        await gateway.stop()
        # Another client's `/new`, and the old session's last words after the new one's first.
        old = gateway.current
        gateway._open(None)
        gateway.note(gateway.current, SessionClosed(reason="a second"))
        gateway.note(old, SessionClosed(reason="succeeded"))
        await gateway.start()
        await until(lambda: len(seen) >= len(gateway.events()) - 1)
        assert sorted(places(seen)) == gateway.events()[1:]


async def test_a_client_begins_with_what_comes_and_is_not_given_what_was() -> None:
    async with StubGateway() as gateway:
        async with talking(gateway) as (client, seen):
            await client.send("before", message_id="m1")
            await until(lambda: ends(seen) == 1)
        head = len(gateway.events())
        async with talking(gateway) as (client, seen):
            await client.send("after", message_id="m2")
            await until(lambda: ends(seen) == 1)
            assert places(seen) == gateway.events()[head:]


async def test_a_log_that_is_shorter_than_what_was_seen_is_followed_from_its_end() -> None:
    async with StubGateway() as gateway, talking(gateway) as (client, seen):
        await client.send("before", message_id="m1")
        await until(lambda: ends(seen) == 1)
        await gateway.stop()
        del gateway.journals[gateway.current][3:]
        await gateway.start()
        await until(lambda: gateway.greetings >= 3)
        await client.send("after", message_id="m2")
        await until(lambda: ends(seen) == 2)
        assert [happened.recorded.seq for happened in seen][-5:] == [4, 5, 6, 7, 8]


async def test_pieces_of_the_answer_come_between_the_events() -> None:
    async with StubGateway() as gateway, Client(gateway.url, TOKEN) as client:
        client.send("one two", message_id="m1")
        kinds = []
        async with aclosing(client.signals()) as signals:
            async for signal in signals:
                kinds.append(signal.text if isinstance(signal, Delta) else type(signal).__name__)
                if isinstance(signal, Happened) and isinstance(signal.recorded.event, TurnEnded):
                    break
    assert kinds == ["Connected", "Happened", "Happened", "Happened", "one", "two", "Happened", "Happened"]


async def test_a_refused_message_says_why_and_is_not_sent_again() -> None:
    async with StubGateway() as gateway, talking(gateway) as (client, _):
        gateway.busy = 1
        with pytest.raises(MessageRefused, match="Too much waits") as refused:
            await client.send("hello", message_id="m1")
        assert (refused.value.code, refused.value.retry_after) == ("busy", 0.05)
        assert gateway.journals == {}


async def test_a_message_too_long_for_a_frame_is_refused_without_asking_the_gateway() -> None:
    async with StubGateway() as gateway, talking(gateway) as (client, _):
        with pytest.raises(MessageRefused, match="bytes"):
            await client.send("x" * (1 << 20), message_id="m1")
        assert (await client.send("short", message_id="m2")).seq == 2


async def test_a_wrong_token_is_told_at_once() -> None:
    async with StubGateway() as gateway:
        with pytest.raises(TurnedAway, match="token"):
            async with Client(gateway.url, "wrong"):
                pass


async def test_no_gateway_is_told_with_how_to_start_one(unused_tcp_port: int) -> None:
    with pytest.raises(NotConnected, match="exuvia run"):
        async with Client(f"127.0.0.1:{unused_tcp_port}", TOKEN):
            pass


async def test_a_gateway_that_stays_away_ends_the_signals_and_what_waits() -> None:
    async with StubGateway() as gateway:
        async with Client(gateway.url, TOKEN, patience=0.2) as client:
            signals = client.signals()
            assert isinstance(await anext(signals), Connected)
            await gateway.stop()
            accepted = client.send("lost", message_id="m1")
            assert isinstance(await anext(signals), Disconnected)
            with pytest.raises(NotConnected):
                await anext(signals)
            with pytest.raises(NotConnected):
                await accepted
        await gateway.start()


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:7117", "ws://127.0.0.1:7117/ws"),
        ("http://localhost:7117/", "ws://localhost:7117/ws"),
        ("https://chat.example.org", "wss://chat.example.org/ws"),
        ("ws://[::1]:7117/ws", "ws://[::1]:7117/ws"),
    ],
)
def test_a_gateways_address_may_be_given_in_short(address: str, url: str) -> None:
    assert websocket_url(address) == url


@pytest.mark.parametrize("address", ["ftp://a", "http://", "a:99999", "[::1"])
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(TurnedAway, match="such as"):
        websocket_url(address)


@given(st.data())
def test_a_reader_who_asks_again_from_its_position_sees_each_event_once_in_order(data: st.DataObject) -> None:
    """Two sessions, the second begun before the first has ended; the connection breaks at any place."""
    log = {"old": 4, "new": 3}
    seen, taken = Seen(), []
    seen.start("old", 0)
    for _ in range(data.draw(st.integers(1, 6))):
        position = seen.position
        assert position is not None
        session_id, after = position
        waiting = {session_id: list(range(after + 1, log[session_id] + 1))}
        if session_id == "old":
            waiting["new"] = [1, 2, 3]
        while any(waiting.values()) and data.draw(st.integers(0, 9)):
            name = data.draw(st.sampled_from([name for name, rest in waiting.items() if rest]))
            seq = waiting[name].pop(0)
            if seen.arrive(name, seq) is Arrival.NEW:
                taken.append((name, seq))
                if (name, seq) == ("old", log["old"]):
                    seen.close("old")
    for name in log:
        mine = [seq for session_id, seq in taken if session_id == name]
        assert mine == list(range(1, len(mine) + 1))


def test_an_event_whose_predecessor_is_missing_is_not_taken() -> None:
    seen = Seen()
    seen.start("s", 4)
    assert seen.arrive("s", 6) is Arrival.AHEAD
    assert seen.arrive("t", 2) is Arrival.AHEAD
    assert [seen.arrive("s", seq) for seq in (5, 6, 5)] == [Arrival.NEW, Arrival.NEW, Arrival.REPEATED]
    assert seen.position == ("s", 6)

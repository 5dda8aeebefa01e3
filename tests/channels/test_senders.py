"""Who may speak on a channel: the configuration, pairing by a code, and the limit of messages."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.channels.pairing_requests import CODE_SECONDS, MOST_REQUESTS, PairingRequests
from gateway.conversations.channels.pairings import LINKS, Pairings, PairingsUnusable
from gateway.conversations.channels.sender_limits import MOST_SENDERS, SenderLimits
from gateway.conversations.channels.senders import MOST_REPORTED, PairingFailed, Sender, Senders
from plugins.api.channel import InboundMessage, MessageRejected
from plugins.testing.contexts import ManualClock
from sessions.events.events import MessageReceived
from sessions.files.committer import Committer
from sessions.files.journals import Journals

BEN = {"ben": {"token": "the-token-of-ben-is-long-enough"}}


def settings(**sections: Any) -> Settings:
    return Settings(load_config(None, environment={}, overrides=sections))


def message(sender: str = "77", **fields: Any) -> InboundMessage:
    return InboundMessage(**{"id": "1", "sender": sender, "chat": "kitchen", "text": "hi", **fields})


@asynccontextmanager
async def senders(
    home: Path, configured: Settings | None = None, clock: ManualClock | None = None
) -> AsyncIterator[Senders]:
    clock = clock or ManualClock()
    async with Committer() as committer, Pairings(Journals(home, home / "quarantine", committer), clock.now) as pairings:
        yield Senders(configured or settings(), pairings, clock)


async def rejection(known: Senders, said: InboundMessage, channel: str = "lines") -> MessageRejected:
    with pytest.raises(MessageRejected) as rejected:
        await known.person_of(channel, said)
    return rejected.value


async def code_for(known: Senders, said: InboundMessage, channel: str = "lines") -> str:
    rejected = await rejection(known, said, channel)
    assert rejected.tell
    (request,) = (each for each in known.requests() if each.sender == f"{channel}:{said.sender}")
    assert request.code in str(rejected)
    return request.code


# --- pairing ----------------------------------------------------------------------------------------------------------


async def test_a_stranger_is_told_a_code_with_which_the_owner_admits_them(tmp_path: Path) -> None:
    async with senders(tmp_path, settings(people=BEN)) as known:
        code = await code_for(known, message())
        await known.admit(code.lower().replace("-", " "), "ben")
        assert await known.person_of("lines", message()) == "ben"
        with pytest.raises(PairingFailed, match="There is no such code"):
            await known.admit(code, "owner")  # it counts once
        assert [(each.sender, each.person) for each in await known.linked()] == [("lines:77", "ben")]
    async with senders(tmp_path, settings(people=BEN)) as known:  # after a restart
        assert await known.person_of("lines", message()) == "ben"


async def test_one_person_speaks_from_many_addresses(tmp_path: Path) -> None:
    async with senders(tmp_path) as known:
        for channel in ("lines", "telegram", "telegram-work"):
            await known.admit(await code_for(known, message(), channel), "owner")
        assert [each.sender for each in await known.linked()] == ["lines:77", "telegram:77", "telegram-work:77"]
        assert await known.find("telegram", "77") == Sender("owner")
        assert await known.find("irc", "77") is None


async def test_an_address_that_is_removed_is_a_stranger_again_at_once(tmp_path: Path) -> None:
    async with senders(tmp_path) as known:
        await known.admit(await code_for(known, message()), "owner")
        assert (await known.unlink("lines:77")).person == "owner"
        assert (await rejection(known, message())).tell  # with a new code
        with pytest.raises(PairingFailed, match="'lines:77' is not a paired address"):
            await known.unlink("lines:77")
    async with senders(tmp_path) as known:
        assert await known.find("lines", "77") is None


async def test_a_stranger_is_answered_once_an_hour_and_their_code_ends_with_it(tmp_path: Path) -> None:
    clock = ManualClock()
    async with senders(tmp_path, clock=clock) as known:
        code = await code_for(known, message())
        assert not (await rejection(known, message(id="2"))).tell
        clock.move(CODE_SECONDS)
        with pytest.raises(PairingFailed, match="There is no such code"):
            await known.admit(code, "owner")
        assert await code_for(known, message(id="3")) != code


@pytest.mark.parametrize(
    ("said", "configured"),
    [
        (message(group=True), {}),
        (message(sender="7\u202e7"), {}),
        (message(sender="7\n7"), {}),
        (message(sender="7" * 200), {}),
        (message(sender=""), {}),
        (message(), {"channels": {"lines": {"kind": "lines", "pairing": False}}}),
        (message(), {"plugins": {"senders": {"lines:77": "nobody"}}}),
        (message(), {"channels": {"lines": {"kind": "lines", "people": {"77": "nobody"}}}}),
    ],
)
async def test_who_cannot_be_paired_is_told_nothing(
    tmp_path: Path, said: InboundMessage, configured: dict[str, Any]
) -> None:
    async with senders(tmp_path, settings(**configured)) as known:
        rejected = await rejection(known, said)
        assert (rejected.tell, rejected.later, known.requests()) == (False, False, [])


async def test_a_stranger_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    async with senders(tmp_path) as known:
        for number in range(200):
            await rejection(known, message(sender=str(number)))
        assert list(tmp_path.iterdir()) == []


async def test_the_configuration_counts_before_a_paired_address_and_everybody_else_after_it(tmp_path: Path) -> None:
    configured = settings(
        people=BEN,
        plugins={"senders": {"lines:named": "owner"}},
        channels={"lines": {"kind": "lines", "people": {"too": "ben"}}},
    )
    async with senders(tmp_path, configured) as known:
        await known.admit(await code_for(known, message(sender="paired")), "ben")
        found = [await known.find("lines", each) for each in ("named", "too", "paired", "anybody", "*")]
        assert found == [Sender("owner"), Sender("ben"), Sender("ben"), None, None]
        for everybody in (
            {"plugins": {"senders": {"lines:*": "owner"}}},
            {"channels": {"lines": {"kind": "lines", "people": {"*": "owner"}}}},
        ):
            configured.offer(load_config(None, environment={}, overrides={"people": BEN, **everybody}))
            assert await known.find("lines", "paired") == Sender("ben")
            assert await known.find("lines", "anybody") == Sender("owner", named=False)
            assert await known.find("lines", "*") == Sender("owner", named=False)


async def test_a_person_who_is_removed_from_the_configuration_speaks_from_no_address(tmp_path: Path) -> None:
    configured = settings(people=BEN)
    async with senders(tmp_path, configured) as known:
        await known.admit(await code_for(known, message()), "ben")
        configured.offer(load_config(None, environment={}, overrides={}))
        assert await known.find("lines", "77") is None
        with pytest.raises(PairingFailed, match="There is no person 'ben'"):
            await known.admit(await code_for(known, message(sender="78")), "ben")


async def test_a_message_of_an_address_that_was_removed_gives_no_rights(tmp_path: Path) -> None:
    received = MessageReceived(
        id="1",
        client="77",
        sender="owner",
        channel="lines",
        chat="private",
        text="/approve a1b2c3",
        attachments=(),
        reply_to="kitchen",
    )
    async with senders(tmp_path, settings(people=BEN)) as known:
        await known.admit(await code_for(known, message()), "owner")
        assert await known.sender_of(received) == Sender("owner")
        await known.unlink("lines:77")
        assert await known.sender_of(received) is None
        await known.admit(await code_for(known, message()), "ben")
        assert await known.sender_of(received) is None
        assert await known.sender_of(msgspec.structs.replace(received, sender="ben")) == Sender("ben")
        assert await known.sender_of(msgspec.structs.replace(received, reply_to="", channel="websocket")) == Sender("owner")


async def test_a_log_that_cannot_be_read_keeps_messages_waiting_and_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "pairings.jsonl").write_bytes(b'{"seq":1,"at":"","turn":null,"kind":"x","sum":"0000000000000000"}\n')
    configured = settings(plugins={"senders": {"lines:named": "owner"}})
    async with senders(tmp_path, configured) as known:
        with pytest.raises(PairingsUnusable, match="so their messages wait"):
            await known.person_of("lines", message())
        assert await known.person_of("lines", message(sender="named")) == "owner"


# --- many strangers ---------------------------------------------------------------------------------------------------


def test_a_code_that_was_told_stays_valid_however_many_strangers_follow() -> None:
    requests = PairingRequests(lambda: 0.0)
    first = requests.add(channel="lines", address="friend", name="", chat="")
    assert first is not None
    told = [requests.add(channel="lines", address=str(n), name="", chat="") for n in range(10_000)]
    assert len([each for each in told if each]) == MOST_REQUESTS - 1
    assert requests.find(first.code) == first
    assert requests.add(channel="other", address="friend", name="", chat="") is not None


def test_codes_are_random_and_are_found_as_people_type_them() -> None:
    codes = set()
    for number in range(50):
        requests = PairingRequests(lambda: 0.0)
        for each in range(MOST_REQUESTS):
            made = requests.add(channel=str(number), address=str(each), name="", chat="")
            assert made is not None
            codes.add(made.code)
            for typed in (
                made.code.lower(),
                f" {made.code.replace('-', '')} ",
                made.code.replace("0", "o").replace("1", "l"),
            ):
                assert requests.find(typed) == made
    assert len(codes) == 50 * MOST_REQUESTS
    assert {len(code) for code in codes} == {9}
    assert len(set("".join(codes))) == 33
    for wrong in ("", "-", "0000-0000-0000", "😀" * 1000, "\x00"):
        assert PairingRequests(lambda: 0.0).find(wrong) is None


async def test_many_strangers_need_no_more_memory_than_a_few(tmp_path: Path) -> None:
    async with senders(tmp_path) as known:
        with capture_logs() as logged:
            for number in range(2 * MOST_REQUESTS):
                await told(known, message(sender=f"first {number}", name="x" * 100_000))
            tracemalloc.start()
            try:
                for number in range(50_000):
                    if number == 10_000:
                        before = tracemalloc.get_traced_memory()[0]
                    assert not await told(known, message(sender=str(number), group=number % 2 == 0))
                assert tracemalloc.get_traced_memory()[0] - before < 20_000
            finally:
                tracemalloc.stop()
        assert len(known.requests()) == MOST_REQUESTS
        assert len(logged) == MOST_REQUESTS + MOST_REPORTED
        assert {len(each.name) for each in known.requests()} == {64}
        assert list(tmp_path.iterdir()) == []


async def told(known: Senders, said: InboundMessage) -> bool:
    """Return True if a stranger is answered."""
    try:
        await known.person_of("lines", said)
    except MessageRejected as rejected:
        return rejected.tell
    raise AssertionError("They are known.")


# --- too many messages ------------------------------------------------------------------------------------------------


def refused(limits: SenderLimits, sender: str = "ana", most: int = 3) -> bool | None:
    """Take a message; return None, or if it is rejected whether the sender is told."""
    try:
        limits.take("lines", sender, most)
    except MessageRejected as rejected:
        return rejected.tell if str(rejected).startswith("You may send 3 messages a minute.") else None
    return None


def test_a_sender_of_too_many_messages_is_told_once_and_is_heard_again_after_a_pause() -> None:
    clock = ManualClock()
    limits = SenderLimits(clock.monotonic)
    assert [refused(limits) for _ in range(6)] == [None, None, None, True, False, False]
    assert refused(limits, "ben") is None
    clock.move(20)
    assert [refused(limits) for _ in range(3)] == [None, True, False]
    clock.move(3600)
    assert [refused(limits) for _ in range(5)] == [None, None, None, True, False]


def test_a_message_that_comes_again_does_not_count() -> None:
    limits = SenderLimits(ManualClock().monotonic)
    for _ in range(100):
        assert refused(limits) is None
        limits.give_back("lines", "ana")


def test_messages_that_the_service_kept_count_for_the_time_at_which_they_were_sent() -> None:
    clock = ManualClock()
    limits = SenderLimits(clock.monotonic)

    def kept(*ages: float) -> list[bool]:
        return [accepts(limits, age) for age in ages]

    assert kept(*range(3600, 0, -20)) == [True] * 180  # three a minute, for an hour, all received at once
    assert kept(0, 0, 0, 0) == [True, True, True, False]
    clock.move(7200)
    assert kept(*[3600] * 4, 3580) == [True, True, True, False, True]  # four in the same minute
    clock.move(60)
    assert kept(*[-5, -1e9, 1e300], 0) == [True, True, True, False]  # clocks that are wrong give no more
    clock.move(10 * 86_400)
    assert kept(*(1e9 - 20 * n for n in range(10))) == [True, True, True, *[False] * 7]  # nor do invented times of long ago


def accepts(limits: SenderLimits, age: float) -> bool:
    try:
        limits.take("lines", "ana", 3, age=age)
    except MessageRejected:
        return False
    return True


async def test_the_time_of_a_message_counts_and_not_when_it_was_received(tmp_path: Path) -> None:
    clock = ManualClock()
    configured = settings(channels={"lines": {"kind": "lines", "people": {"77": "owner"}, "messages_per_minute": 2}})
    async with senders(tmp_path, configured, clock) as known:
        now = clock.now().timestamp()
        for number in range(10):
            assert await known.person_of("lines", message(id=str(number), at=now - 600 + 30 * number)) == "owner"
        assert await known.person_of("lines", message(id="a", at=now)) == "owner"
        assert await known.person_of("lines", message(id="b")) == "owner"
        assert (await rejection(known, message(id="c", at=now))).tell


def test_another_limit_counts_at_once() -> None:
    limits = SenderLimits(ManualClock().monotonic)
    for _ in range(10):
        limits.take("lines", "ana", 20)
    assert [refused(limits) for _ in range(4)] == [None, None, None, True]


def test_a_bounded_number_of_senders_is_remembered() -> None:
    limits = SenderLimits(ManualClock().monotonic)
    tracemalloc.start()
    try:
        for number in range(100_000):
            limits.take("lines", str(number), 20)
            if number == MOST_SENDERS:
                before = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


def test_the_links_are_read_while_another_process_writes_them(tmp_path: Path) -> None:
    assert LINKS.read(Journals(tmp_path, tmp_path / "q", Committer())) == {}

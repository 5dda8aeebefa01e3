"""All chat providers with the same faults.

Whatever a server does, a provider ends in its deadline with a reply or with the error that says what happened, has taken no
more memory than its limits allow, and has left nothing behind: no request still running, no connection beside the one that
it keeps, no task. And the next question is answered.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from time import time
from typing import Any

import msgspec
import pytest

from plugins.api.chat import Delta, Reply
from plugins.http.client import Limits, Timeouts
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.secrets import Secret
from plugins.testing.servers.faulty_server import Fault, FaultyServer, RawResponse
from sessions.events.messages import MAX_COUNT, AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from tests.plugins.provider_harness import MEANINGS, READ, ProviderClient, question
from tests.plugins.vendors import VENDORS, Vendor
from tests.waiting import deadline

pytestmark = pytest.mark.parametrize("vendor", [pytest.param(vendor, id=vendor.name) for vendor in VENDORS])

MEGABYTE = 1024 * 1024
BOMB = gzip.compress(bytes(50 * MEGABYTE), 1)


@asynccontextmanager
async def faulty(vendor: Vendor, *answers: Any, **options: Any) -> AsyncIterator[tuple[ProviderClient, FaultyServer[Any]]]:
    """Yield the provider and a server with these answers; check that the next request succeeds and that no task is left."""
    before = asyncio.all_tasks()
    async with deadline(), vendor.serving(*answers, **options) as (client, server):
        yield client, server
        while server.answering:
            await asyncio.sleep(0.01)
        server.now_says(vendor.says("well"))
        assert (await client.ask()).text == "well"
        assert server.open_connections <= 1
    assert asyncio.all_tasks() == before


async def fails(client: ProviderClient, kind: type[ProviderError]) -> ProviderError:
    """Return the error of a request after checking that it is of this kind, one line long and without the key."""
    with pytest.raises(ProviderError) as raised:
        await client.ask()
    assert type(raised.value) is kind, raised.value
    assert len(str(raised.value)) < 500
    assert str(raised.value).isprintable()
    return raised.value


@contextmanager
def memory(limit: int) -> Iterator[None]:
    """No more than this many bytes may be taken inside, by the server beside it too."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


# --- answers that stop ------------------------------------------------------------------------------------------------


async def test_a_silent_server_is_unreachable_and_not_asked_again_at_once(vendor: Vendor) -> None:
    async with faulty(vendor, Fault(end="silence"), first_seconds=0.25, timeouts=Timeouts(attempts=2)) as (client, server):
        await fails(client, Unreachable)
        assert len(server.requests) == 1


@pytest.mark.parametrize("pieces", [0, 3])
async def test_a_stalled_response_is_abandoned(vendor: Vendor, pieces: int) -> None:
    async with faulty(vendor, Fault(end="hang", pieces=pieces), first_seconds=0.25, between_seconds=0.25) as (client, _):
        assert "no content" in str(await fails(client, StreamCut))


@pytest.mark.parametrize("end", ["cut", "reset", "close"])
@pytest.mark.parametrize("pieces", [0, 1, 3, 5])
async def test_a_truncated_stream_is_never_a_short_reply(vendor: Vendor, end: str, pieces: int) -> None:
    async with faulty(vendor, Fault(end=end, pieces=pieces)) as (client, server):
        await fails(client, StreamCut)
        assert len(server.requests) == 1, "an answer that has begun is not asked for again here"


async def test_a_slow_reply_is_read_to_its_end(vendor: Vendor) -> None:
    async with vendor.serving(vendor.says("one two three")) as (client, server):
        whole = await recorded(client, server)
    async with faulty(vendor, RawResponse(b"".join(whole), chunk=30, delay=0.003)) as (client, _):
        assert (await client.ask()).text == "one two three"


async def test_a_slow_stream_without_a_reply_is_abandoned(vendor: Vendor) -> None:
    drip = RawResponse(b"\n" if vendor.lines else b": still here\n\n", delay=0.02, times=1000)
    async with faulty(vendor, drip, reply_seconds=0.4) as (client, _):
        assert "not complete within" in str(await fails(client, StreamCut))


SOON = {"first_seconds": 0.3, "between_seconds": 0.3}


async def given_up(vendor: Vendor, drip: RawResponse, **options: Any) -> ProviderError:
    """The error by which an answer that drips ends, well before the drip does."""
    async with deadline(), vendor.serving(drip, **{**SOON, **options}) as (client, server):
        error = await fails(client, StreamCut)
        assert len(server.requests) == 1
        assert "no content" in str(error)
        return error


async def test_comments_and_an_endless_line_are_no_progress(vendor: Vendor) -> None:
    await given_up(vendor, RawResponse(b"\n" if vendor.lines else b": still here\n\n", delay=0.02, times=5000))
    await given_up(vendor, RawResponse(b"x", delay=0.02, times=5000))


async def test_empty_parts_are_no_progress(vendor: Vendor) -> None:
    async with vendor.serving(vendor.says("one two three")) as (client, server):
        whole = await recorded(client, server)
    begun = b"".join(whole[: next(n for n, piece in enumerate(whole) if b"two" in piece)])
    for empty in vendor.empty:
        assert not (await given_up(vendor, RawResponse(vendor.framed(empty), delay=0.02, times=5000))).retryable
        drip = begun + vendor.framed(empty) * 5000
        broken_off = await given_up(vendor, RawResponse(drip, chunk=len(begun) or 64, delay=0.02), first_seconds=5.0)
        assert broken_off.retryable, "something was said, so the same request may do better"


async def test_a_reply_that_exceeds_its_time_limit_is_abandoned_and_not_retried(
    vendor: Vendor,
) -> None:
    async with vendor.serving(vendor.says("one two three")) as (client, server):
        whole = await recorded(client, server)
    word = next(piece for piece in whole if b"two" in piece)
    begun = b"".join(whole[: whole.index(word)])
    drip = RawResponse(begun + word * 5000, chunk=len(word), delay=0.02)
    async with deadline(), vendor.serving(drip, reply_seconds=1.0) as (client, _):
        error = await fails(client, StreamCut)
        assert "not complete within" in str(error)
        assert "reply_seconds" in str(error)
        assert not error.retryable
        assert client.deltas


async def test_thinking_is_progress(vendor: Vendor) -> None:
    async with vendor.serving(vendor.says("one two three")) as (client, server):
        whole = await recorded(client, server)
    at = next(n for n, piece in enumerate(whole) if b"one" in piece)
    thinking = b"".join(vendor.framed(vendor.thinking) for _ in range(60))
    pieces = b"".join(whole[:at]), thinking, b"".join(whole[at:])
    slow = RawResponse(b"".join(pieces), chunk=len(vendor.framed(vendor.thinking)), delay=0.04)
    async with faulty(vendor, slow, first_seconds=2.0, between_seconds=2.0) as (client, _):
        assert (await client.ask()).text == "one two three"


async def test_an_empty_body_is_an_interruption(vendor: Vendor) -> None:
    async with faulty(vendor, RawResponse(b"")) as (client, _):
        await fails(client, StreamCut)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "error", "requests"), [(400, BadRequest, 1), (413, ContextOverflow, 1), *MEANINGS])
async def test_each_status_has_its_error(vendor: Vendor, status: int, error: type[ProviderError], requests: int) -> None:
    async with faulty(vendor, Fault(status=status, body=vendor.refusal(status, "It is so."))) as (client, server):
        assert "It is so." in str(await fails(client, error))
        assert len(server.requests) == requests


async def test_a_refused_key_is_reported_and_not_shown(vendor: Vendor) -> None:
    wrong = Secret("sk-this-is-not-the-one")
    async with vendor.server().serving() as server, vendor.asking(server.url, api_key=wrong) as client:
        assert "sk-this" not in str(await fails(client, CredentialsRefused))
        assert len(server.headers) == 1


@pytest.mark.parametrize("words", [b"<html>busy</html>", b"", b"[" * 100_000, b"\xff\x00\r\n" * 50, b"[]", b"null"])
async def test_a_refusal_without_json_is_reported(vendor: Vendor, words: bytes) -> None:
    async with faulty(vendor, Fault(status=502, body=words, media="text/html")) as (client, server):
        await fails(client, Unreachable)
        assert len(server.requests) == 4


async def test_each_form_of_an_overflow_is_recognized(vendor: Vendor) -> None:
    for overflow in vendor.overflows:
        async with faulty(vendor, overflow) as (client, server):
            assert "{" not in str(await fails(client, ContextOverflow))
            assert len(server.requests) == 1


async def test_a_phrase_in_a_message_is_never_taken_for_an_error(vendor: Vendor) -> None:
    text = (
        "prompt is too long, maximum context length, exceed_context_size_error, exceeds the maximum number of tokens,"
        " invalid signature in thinking block, rate_limit_exceeded"
    )
    async with faulty(vendor, vendor.says(text)) as (client, server):
        asked = question(UserMessage(text=text), model=vendor.model)
        assert (await client.ask(asked)).text == text
        server.now_says(Fault(status=400, body=vendor.refusal(400, "Invalid value.")))
        with pytest.raises(BadRequest):
            await client.ask(asked)


async def test_a_redirect_is_a_refusal_and_is_not_followed(vendor: Vendor) -> None:
    async with vendor.server().serving() as elsewhere:
        away = Fault(status=307, headers={"Location": f"{elsewhere.url}/elsewhere"})
        async with faulty(vendor, away) as (client, server):
            await fails(client, BadRequest)
            assert (len(server.requests), elsewhere.headers) == (1, [])


# --- pauses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("headers", "pause"), [({"Retry-After": "2"}, 2.0), ({"Retry-After": "0.5"}, 0.5), ({}, 1.0)])
async def test_the_pause_that_a_server_asks_for_is_made(vendor: Vendor, headers: dict[str, str], pause: float) -> None:
    busy = Fault(status=429, body=vendor.refusal(429, "Too many."), headers=headers)
    async with faulty(vendor, busy, vendor.says("ok")) as (client, _):
        assert (await client.ask()).text == "ok"
        assert client.slept == [pause]


async def test_a_retry_date_is_observed(vendor: Vendor) -> None:
    date = format_datetime(datetime.fromtimestamp(time() + 30, UTC), usegmt=True)
    async with faulty(vendor, Fault(status=429, headers={"Retry-After": date}), vendor.says("ok")) as (client, _):
        assert (await client.ask()).text == "ok"
        assert 25 < client.slept[0] <= 30


async def test_a_pause_that_is_too_long_is_reported_and_not_made(vendor: Vendor) -> None:
    async with faulty(vendor, Fault(status=429, headers={"Retry-After": "3600"})) as (client, server):
        assert (await fails(client, RateLimited)).retry_after == 3600
        assert (len(server.requests), client.slept) == (1, [])


# --- nonsense ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"{nonsense}", b"7", b'"text"', b"[" * 100_000, b'{"a": NaN', b"\x00\xff"])
async def test_garbage_in_the_stream_is_a_bad_answer(vendor: Vendor, data: bytes) -> None:
    async with faulty(vendor, RawResponse(vendor.framed(data))) as (client, _):
        await fails(client, BadAnswer)


@pytest.mark.parametrize(
    ("media", "body"), [("text/html", b"<html>Sign in to this network</html>"), ("application/json", b"[[[")]
)
async def test_an_html_page_is_a_bad_answer(vendor: Vendor, media: str, body: bytes) -> None:
    async with faulty(vendor, Fault(media=media, body=body)) as (client, _):
        await fails(client, BadAnswer)


async def test_an_error_inside_the_stream_is_raised_as_its_kind(vendor: Vendor) -> None:
    for data, error in ((vendor.broken, StreamCut), (vendor.limited, RateLimited)):
        async with vendor.serving(vendor.says("one two three")) as (client, server):
            whole = await recorded(client, server)
        begun = whole[: next(n for n, piece in enumerate(whole) if b"two" in piece)]
        async with faulty(vendor, RawResponse(b"".join(begun) + vendor.framed(data))) as (client, _):
            await fails(client, error)
            assert client.deltas == ["one "]


async def test_an_empty_reply_is_valid(vendor: Vendor) -> None:
    async with faulty(vendor, vendor.says("")) as (client, _):
        reply = await client.ask()
        assert (reply.text, reply.calls, reply.stop, client.deltas) == ("", (), "end", [])


_COUNT = re.compile(rb'("\w*(?:_tokens|TokenCount|eval_count)"): ?\d+')


@pytest.mark.parametrize(
    "count",
    [
        b"1e30",
        b"1" + b"0" * 30,
        b"9" * 5000,
        b"1e999",
        b"-7",
        b"-1e30",
        b"0.5",
        b"NaN",
        b"-Infinity",
        b'"7"',
        b'"many"',
        b"[]",
        b"{}",
    ],
)
async def test_an_impossible_token_count_is_ignored(vendor: Vendor, count: bytes) -> None:
    async with vendor.serving(vendor.says("one two three")) as (client, server):
        whole = b"".join(await recorded(client, server))
    assert _COUNT.search(whole)
    async with faulty(vendor, RawResponse(_COUNT.sub(rb"\1: " + count, whole))) as (client, _):
        reply = await client.ask()
        assert reply.text == "one two three"
        for usage in (reply.usage,) if reply.usage else ():
            assert all(type(number) is int and 0 <= number <= MAX_COUNT for number in msgspec.structs.astuple(usage))


async def test_a_usage_that_is_no_object_is_ignored(vendor: Vendor) -> None:
    if vendor.lines:
        return  # its counts stand in the line itself
    async with vendor.serving(vendor.says("one two three")) as (client, server):
        whole = b"".join(await recorded(client, server))
    usage = re.compile(rb'"(usage|usageMetadata)": ?\{[^{}]*(\{[^{}]*\}[^{}]*)*\}')
    assert usage.search(whole)
    for nonsense in (b'"much"', b"7", b"[1]"):
        async with faulty(vendor, RawResponse(usage.sub(rb'"\1": ' + nonsense, whole))) as (client, _):
            assert (await client.ask()).text == "one two three"


# --- too much ---------------------------------------------------------------------------------------------------------


async def test_a_line_of_fifty_megabytes_is_abandoned_after_four(vendor: Vendor) -> None:
    flood = RawResponse(b"x" * 65_536, times=800)
    async with faulty(vendor, flood) as (client, server):
        with memory(32 * MEGABYTE):
            assert "longer than" in str(await fails(client, BadAnswer))
        assert server.written < 16 * MEGABYTE


async def test_an_endless_response_is_abandoned(vendor: Vendor) -> None:
    async with vendor.serving(vendor.says("y" * 1000)) as (client, server):
        whole = await recorded(client, server)
    endless = RawResponse(next(piece for piece in whole if b"yyyy" in piece), times=3000)
    async with faulty(vendor, endless, limits=Limits(body=MEGABYTE)) as (client, _):
        assert "more than" in str(await fails(client, BadAnswer))


@pytest.mark.parametrize(("status", "error"), [(200, BadAnswer), (500, Unreachable)])
async def test_a_compressed_response_is_refused(vendor: Vendor, status: int, error: type[ProviderError]) -> None:
    fault = Fault(status=status, body=BOMB, headers={"Content-Encoding": "gzip"}, media="text/event-stream")
    async with faulty(vendor, fault) as (client, server):
        with memory(16 * MEGABYTE):
            await fails(client, error)
        assert all(headers["Accept-Encoding"] == "identity" for headers in server.headers)


def called(reply: Reply) -> tuple[Message, ...]:
    """A reply with calls and their results, as the transcript has them: the ids are ours."""
    calls = tuple(ToolCall(id=f"call_4_{n}", tool=c.tool, arguments=c.arguments) for n, c in enumerate(reply.calls))
    answer = AssistantMessage(text=reply.text, calls=calls, opaque=reply.opaque)
    return UserMessage(text="hi"), answer, *(ToolMessage(id=call.id, tool=call.tool, text="a result") for call in calls)


async def test_a_thousand_calls_and_their_results_keep_their_order(vendor: Vendor) -> None:
    many = vendor.says("", *(("read", {"n": n}) for n in range(1000)))
    async with faulty(vendor, many, vendor.says("done")) as (client, _):
        reply = await client.ask(question(model=vendor.model, tools=(READ,)))
        assert [json.loads(call.arguments)["n"] for call in reply.calls] == list(range(1000))
        assert (await client.ask(question(*called(reply), model=vendor.model, tools=(READ,)))).text == "done"


@pytest.mark.parametrize("arguments", ['{"path": "a', "nonsense", "[1]", ""])
async def test_arguments_that_are_no_object_do_not_break_the_conversation(vendor: Vendor, arguments: str) -> None:
    async with faulty(vendor, vendor.says("", ("read", arguments)), vendor.says("sorry")) as (client, _):
        reply = await client.ask(question(model=vendor.model, tools=(READ,)))
        assert [call.tool for call in reply.calls] == ["read"]
        assert (await client.ask(question(*called(reply), model=vendor.model, tools=(READ,)))).text == "sorry"


# --- the end of it ----------------------------------------------------------------------------------------------------


async def test_closing_the_stream_early_ends_the_request(vendor: Vendor) -> None:
    slow = vendor.says("a b c d e f g h")
    slow.delay = 0.05
    async with faulty(vendor, slow) as (client, server):
        stream = client.provider.stream(question(model=vendor.model))
        assert await anext(stream) == Delta("a ")
        await stream.aclose()
        while not server.disconnects:
            await asyncio.sleep(0.01)


async def test_cancellation_ends_the_request(vendor: Vendor) -> None:
    async with faulty(vendor, Fault(end="silence")) as (client, server):
        asking = asyncio.create_task(client.ask())
        while not server.answering:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_the_connection_is_reused_although_the_end_arrives_late(vendor: Vendor) -> None:
    steady = vendor.says("one two")
    steady.delay = 0.01
    async with faulty(vendor, steady) as (client, server):
        for _ in range(3):
            assert (await client.ask()).text == "one two"
        assert len(server.connections) == 1


async def test_a_closed_port_is_unreachable(vendor: Vendor) -> None:
    async with vendor.asking("http://127.0.0.1:9") as client:
        assert "127.0.0.1" in str(await fails(client, Unreachable))


async def test_a_key_with_invalid_characters_is_reported_before_a_request(vendor: Vendor) -> None:
    async with vendor.server().serving() as server:
        async with vendor.asking(server.url, api_key=Secret(f"{vendor.key}…")) as client:
            told = str(await fails(client, CredentialsRefused))
        assert f"providers.{vendor.kind.name}.api_key" in told
        assert vendor.key not in told
        assert server.headers == []


async def recorded(client: ProviderClient, server: FaultyServer[Any]) -> list[bytes]:
    """Return the pieces of the server's reply."""
    pieces: list[bytes] = []
    ordinary = server.pieces

    def kept(*args: Any) -> list[bytes]:
        pieces[:] = ordinary(*args)
        return pieces

    setattr(server, "pieces", kept)  # noqa: B010 - so that the types need no word
    await client.ask()
    return pieces

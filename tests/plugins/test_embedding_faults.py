"""All embedding providers with the same faults.

Whatever a server does, a provider ends with as many vectors as there are texts, each its own, or with the error that says
what happened; nothing is mixed or half kept. And the next request is answered.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plugins.http.client import Limits, Timeouts
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    CredentialsRefused,
    NoSuchModel,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.secrets import Secret
from plugins.testing.servers.embedding_server import EmbeddingBehavior, EmbeddingServer, vector_of
from plugins.testing.servers.faulty_server import Fault, RawResponse
from tests.plugins.embedding_vendors import VENDORS, Embedded, Vendor
from tests.plugins.provider_harness import MEANINGS
from tests.waiting import deadline

pytestmark = pytest.mark.parametrize("vendor", [pytest.param(vendor, id=vendor.name) for vendor in VENDORS])

INFINITE = float("inf")


@asynccontextmanager
async def faulty(vendor: Vendor, *answers: Any, **options: Any) -> AsyncIterator[tuple[Embedded, EmbeddingServer]]:
    """Yield the provider and a server with these answers; check that the next request succeeds and that no task is left."""
    before = asyncio.all_tasks()
    async with deadline(), vendor.serving(*answers, **options) as (client, server):
        yield client, server
        server.now_says(EmbeddingBehavior())
        assert len(await client.embed()) == 3
        assert server.open_connections <= 1
    assert asyncio.all_tasks() == before


async def fails(client: Embedded, kind: type[ProviderError], **options: Any) -> str:
    """Return the message of the error after checking that it is of this kind and one line long."""
    with pytest.raises(ProviderError) as raised:
        await client.embed(**options)
    assert type(raised.value) is kind, raised.value
    assert len(str(raised.value)) < 500
    assert str(raised.value).isprintable()
    return str(raised.value)


# --- answers that are none --------------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[Callable[[list[Any]], list[Any]], str]] = {
    "one vector too few": (lambda vectors: vectors[:-1], "2 vectors for 3 texts"),
    "one vector too many": (lambda vectors: [*vectors, vectors[0]], "4 vectors for 3 texts"),
    "no vector": (lambda _: [], "0 vectors for 3 texts"),
    "an empty vector": (lambda vectors: [[] for _ in vectors], "all zeros"),
    "a vector of zeros": (lambda vectors: [*vectors[:2], [0.0] * len(vectors[0])], "all zeros"),
    "a longer vector among others": (lambda vectors: [*vectors[:2], [*vectors[2], 0.5]], "different lengths"),
    "not a number": (lambda vectors: [*vectors[:2], [float("nan")] * 8], "it contains NaN"),
    "infinity": (lambda vectors: [*vectors[:2], [INFINITE] * 8], "it contains Infinity"),
    "numbers beyond all bounds": (lambda vectors: [*vectors[:2], [1e200] * len(vectors[0])], "not finite"),
    "null": (lambda vectors: [*vectors[:2], [None] * 8], "Expected `float`, got `null`"),
    "words": (lambda vectors: [*vectors[:2], ["0.1"] * 8], "Expected `float`, got `str`"),
    "base64": (lambda vectors: [*vectors[:2], "AACAPwAAgD8="], "not a list of vectors"),
    "a null for a vector": (lambda vectors: [*vectors[:2], None], "not a list of vectors"),
}


@pytest.mark.parametrize("fault", CHANGES)
async def test_invalid_vectors_are_refused_as_a_whole(vendor: Vendor, fault: str) -> None:
    change, words = CHANGES[fault]
    async with faulty(vendor, EmbeddingBehavior(change)) as (client, server):
        assert words in await fails(client, BadAnswer)
        assert len(server.requests) == 2, "notes are asked for once more, and not for ever"


async def test_invalid_vectors_are_requested_once_more(vendor: Vendor) -> None:
    async with faulty(vendor, EmbeddingBehavior(lambda vectors: vectors[:-1]), EmbeddingBehavior()) as (client, _):
        assert len(await client.embed()) == 3


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("text/html", b"<html><h1>Sign in to this network</h1></html>"),
        ("application/json", b""),
        ("application/json", b"[[["),
        ("application/json", b"[" * 100_000),
        ("application/json", b'{"object": "list"}'),
        ("application/json", b'{"data": 7, "embeddings": "x"}'),
        ("application/json", b"\xff\xfe"),
        ("application/json", b'{"error": {"message": "an error with the status of an answer"}}'),
    ],
)
async def test_an_html_page_is_a_bad_answer(vendor: Vendor, media: str, body: bytes) -> None:
    async with faulty(vendor, Fault(media=media, body=body)) as (client, _):
        assert "not a list of vectors" in await fails(client, BadAnswer)


@pytest.mark.parametrize("end", ["cut", "reset", "close"])
@pytest.mark.parametrize("pieces", [0, 2])
async def test_a_truncated_response_is_never_accepted(vendor: Vendor, end: str, pieces: int) -> None:
    async with faulty(vendor, Fault(end=end, pieces=pieces)) as (client, server):
        with pytest.raises((StreamCut, BadAnswer)):
            await client.embed()
        server.now_says(Fault(end=end, pieces=pieces), EmbeddingBehavior())
        assert len(await client.embed()) == 3


async def test_an_endless_response_is_abandoned(vendor: Vendor) -> None:
    async with faulty(vendor, RawResponse(b"0.1," * 4096, times=300), limits=Limits(body=1024 * 1024)) as (client, _):
        assert "more than" in await fails(client, BadAnswer)


async def test_a_compressed_response_is_refused(vendor: Vendor) -> None:
    fault = Fault(body=gzip.compress(bytes(10_000_000)), headers={"Content-Encoding": "gzip"})
    async with faulty(vendor, fault) as (client, _):
        await fails(client, BadAnswer)


async def test_a_silent_server_is_unreachable_and_not_asked_again_at_once(vendor: Vendor) -> None:
    async with faulty(vendor, Fault(end="silence"), timeouts=Timeouts(first=0.2, attempts=2)) as (client, server):
        await fails(client, Unreachable)
        assert len(server.requests) == 1


async def test_a_stalled_response_is_abandoned(vendor: Vendor) -> None:
    async with faulty(vendor, Fault(end="hang"), timeouts=Timeouts(first=0.2, between=0.2)) as (client, _):
        assert "no data" in await fails(client, StreamCut)


async def test_a_closed_port_is_unreachable(vendor: Vendor) -> None:
    async with vendor.asking("http://127.0.0.1:9") as client:
        assert "127.0.0.1" in await fails(client, Unreachable)


# --- another model behind the same name -------------------------------------------------------------------------------


async def test_a_change_of_the_vectors_length_is_refused_once(vendor: Vendor) -> None:
    async with vendor.serving() as (client, server):
        lengths = {len(vector) for vector in await client.embed()}
        assert lengths == {client.provider.dimensions()}
        server.now_says(EmbeddingBehavior(lambda vectors: [[1.0, 2.0, 3.0] for _ in vectors]))
        assert "vectors of 3 numbers instead of" in await fails(client, BadAnswer)
        assert client.provider.dimensions() in lengths
        assert {len(vector) for vector in await client.embed()} == {3}
        assert client.provider.dimensions() == 3, "its vectors have another identity from now on"


async def test_vectors_of_another_length_than_configured_are_refused(vendor: Vendor) -> None:
    model = "codestral-embed" if vendor.name == "mistral" else vendor.server.MODEL
    shorter = EmbeddingBehavior(lambda vectors: [vector[:7] for vector in vectors])
    async with vendor.serving(shorter, dimensions=512, model=model) as (client, _):
        assert "memory.embedding.dimensions is 512" in await fails(client, BadAnswer)
        assert client.provider.dimensions() == 512


async def test_a_change_of_length_between_two_requests_of_a_batch_is_refused(vendor: Vendor) -> None:
    shorter = EmbeddingBehavior(lambda vectors: [vector[:4] for vector in vectors])
    async with faulty(vendor, EmbeddingBehavior(), shorter, batch_size=2) as (client, _):
        await fails(client, BadAnswer)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "error", "requests"), [(400, BadRequest, 2), *MEANINGS])
async def test_each_status_has_its_error(vendor: Vendor, status: int, error: type[ProviderError], requests: int) -> None:
    async with faulty(vendor, Fault(status=status, body=vendor.refusal(status, "It is so."))) as (client, server):
        assert "It is so." in await fails(client, error)
        assert len(server.requests) == requests + (status == 400)  # one more for the half of the half


async def test_a_refused_key_is_named_by_its_setting_and_not_shown(vendor: Vendor) -> None:
    wrong = Secret("sk-this-is-not-the-one")
    async with vendor.server().serving() as server, vendor.asking(server.url, api_key=wrong) as client:
        told = await fails(client, CredentialsRefused)
        assert told.startswith(f"{vendor.name}: The key of memory.embedding.api_key was refused: ")
        assert "sk-this" not in told
        assert len(server.headers) == 1


async def test_a_key_with_invalid_characters_is_reported_before_a_request(vendor: Vendor) -> None:
    async with vendor.server().serving() as server:
        async with vendor.asking(server.url, api_key=Secret(f"{vendor.server.KEY}…")) as client:
            told = await fails(client, CredentialsRefused)
        assert "memory.embedding.api_key holds a character" in told
        assert server.headers == []


async def test_an_unknown_model_is_named(vendor: Vendor) -> None:
    async with vendor.serving(model="no-such-model") as (client, server):
        assert "no model 'no-such-model'" in await fails(client, NoSuchModel)
        assert len(server.requests) == 1


@pytest.mark.parametrize("words", [b"<html>busy</html>", b"", b"[" * 100_000, b"\xff\x00\r\n" * 50, b"[]", b"null"])
async def test_a_refusal_without_json_is_reported(vendor: Vendor, words: bytes) -> None:
    async with faulty(vendor, Fault(status=502, body=words, media="text/html")) as (client, _):
        await fails(client, Unreachable)


async def test_a_redirect_is_a_refusal_and_does_not_leak_the_key(vendor: Vendor) -> None:
    async with vendor.server().serving() as elsewhere:
        away = Fault(status=307, headers={"Location": f"{elsewhere.url}/elsewhere"})
        async with faulty(vendor, away) as (client, server):
            assert re.search("address is (wrong|not that of an Ollama server)", await fails(client, BadRequest))
            assert (len(server.requests), elsewhere.headers) == (1, [])


# --- pauses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("headers", "pause"), [({"Retry-After": "2"}, 2.0), ({"Retry-After": "0.5"}, 0.5), ({}, 1.0)])
async def test_the_pause_that_a_server_asks_for_is_made(vendor: Vendor, headers: dict[str, str], pause: float) -> None:
    busy = Fault(status=429, body=vendor.refusal(429, "Too many."), headers=headers)
    async with faulty(vendor, busy, EmbeddingBehavior()) as (client, _):
        assert len(await client.embed()) == 3
        assert client.slept == [pause]


async def test_a_long_pause_is_reported_and_observed(vendor: Vendor) -> None:
    busy = Fault(status=429, headers={"Retry-After": "3600"})
    async with faulty(vendor, busy) as (client, server):
        await fails(client, RateLimited)
        assert client.slept == []
        with pytest.raises(RateLimited) as again:
            await client.provider.embed(["one"], "query")
        assert again.value.retry_after == 3600
        assert len(server.requests) == 1


async def test_an_unreachable_server_gets_no_request_for_half_a_minute(vendor: Vendor) -> None:
    async with faulty(vendor, Fault(status=503), EmbeddingBehavior(), timeouts=Timeouts(attempts=1)) as (client, server):
        await fails(client, Unreachable)
        client.clock.move(29)
        with pytest.raises(Unreachable):
            await client.provider.embed(["one"], "query")
        assert len(server.requests) == 1
        client.clock.move(1)
        assert len(await client.provider.embed(["one"], "query")) == 1


async def test_a_query_does_not_wait_long_for_its_vector(vendor: Vendor) -> None:
    busy = Fault(status=429, headers={"Retry-After": "30"})
    async with faulty(vendor, busy) as (client, server):
        await fails(client, RateLimited, purpose="query")
        assert (len(server.requests), client.slept) == (1, [])


# --- too much at once -------------------------------------------------------------------------------------------------

TEXTS = [f"text number {number}" for number in range(50)]


def whole(server: EmbeddingServer) -> list[str]:
    """All that was embedded, in order, without what stands before each text."""
    return [text.removeprefix("search_document: ") for texts in server.taken for text in texts]


async def test_a_limit_on_texts_is_found_by_halving_and_remembered(vendor: Vendor) -> None:
    async with faulty(vendor) as (client, server):
        server.most = 7
        vectors = await client.embed(*TEXTS)
        assert whole(server) == TEXTS
        assert [list(vector) for vector in vectors] == [list(vector) for vector in await client.embed(*TEXTS)]
        assert max(map(len, server.taken)) <= 7
        refused = len(server.requests) - len(server.taken)
        assert refused <= 5, "the second time nothing is refused"


async def test_a_limit_on_the_total_is_found_by_halving(vendor: Vendor) -> None:
    async with faulty(vendor) as (client, server):
        server.total = 25
        assert len(await client.embed(*TEXTS)) == 50
        assert whole(server) == TEXTS


async def test_a_limit_in_unknown_words_is_found_by_halving(vendor: Vendor) -> None:
    odd = 400, vendor.refusal(400, "Nein.")
    async with faulty(vendor) as (client, server):
        server.most = 7
        setattr(server, "too_much", lambda *_: odd)  # noqa: B010 - so that the types need no word
        assert len(await client.embed(*TEXTS)) == 50
        assert whole(server) == TEXTS


async def test_an_invalid_request_is_not_halved_for_ever(vendor: Vendor) -> None:
    async with faulty(vendor, Fault(status=400, body=vendor.refusal(400, "Nein."))) as (client, server):
        with pytest.raises(BadRequest):
            await client.embed(*TEXTS)
        assert len(server.requests) == 7


async def test_a_text_that_is_too_long_is_embedded_in_pieces(vendor: Vendor) -> None:
    long = " ".join(f"word{number}" for number in range(400))
    async with faulty(vendor) as (client, server):
        server.tokens = 100
        vectors = await client.embed("short", long, "last")
        sent = whole(server)
        assert (sent[0], sent[-1]) == ("short", "last")
        assert "".join(sent[1:-1]) == long
        assert len(vectors) == 3
        assert sum(number * number for number in vectors[1]) == pytest.approx(1.0)
        asked = len(server.requests)
        await client.embed(long)
        assert len(server.requests) - asked == len(server.taken[-1:]), "its length is known by now"


async def test_a_text_beyond_the_configured_length_is_never_sent_whole(vendor: Vendor) -> None:
    long = "x" * 1000 + " " + "y" * 1000
    async with faulty(vendor, max_input_length=600) as (client, server):
        assert len(await client.embed(long)) == 1
        assert "".join(whole(server)) == long
        assert max(map(len, whole(server))) <= 600


async def test_a_server_that_refuses_every_length_is_reported(vendor: Vendor) -> None:
    async with faulty(vendor) as (client, server):
        server.tokens = 0
        with pytest.raises(BadRequest, match="was refused as too long"):
            await client.embed("some words " * 100)
        assert len(server.requests) < 12
        server.tokens = 8192


async def test_blank_text_is_not_sent(vendor: Vendor) -> None:
    async with faulty(vendor) as (client, server):
        with pytest.raises(BadRequest, match="An empty text"):
            await client.embed("one", "  \n")
        assert server.requests == []


async def test_no_text_needs_no_request(vendor: Vendor) -> None:
    async with faulty(vendor) as (client, server):
        assert list(await client.provider.embed([], "note")) == []
        assert server.requests == []


async def test_every_text_has_its_own_vector(vendor: Vendor) -> None:
    async with faulty(vendor, batch_size=4) as (client, server):
        vectors = await client.embed(*TEXTS)
        length = client.provider.dimensions()
        before = "search_document: " if vendor.name == "ollama" else ""
        for text, vector in zip(TEXTS, vectors, strict=True):
            assert list(vector) == pytest.approx(vector_of(before + text, length), abs=1e-9)
        assert max(map(len, server.taken)) == 4


async def test_the_purpose_of_a_text_is_sent_where_supported(vendor: Vendor) -> None:
    async with faulty(vendor) as (client, server):
        await client.embed("a note")
        await client.embed("a question", purpose="query")
        assert server.purposes == list(vendor.told)


async def test_configured_headers_and_any_characters_are_sent(vendor: Vendor) -> None:
    headers = {"X-Account": Secret("seven")}
    async with faulty(vendor, headers=headers) as (client, server):
        text = 'quotes " and \\ and \x00 and 漢字 and 😀 and \u2028'
        assert len(await client.embed(text)) == 1
        assert server.headers[0]["X-Account"] == "seven"
        assert whole(server) == [text]


async def test_lone_surrogates_do_not_break_a_request(vendor: Vendor) -> None:
    async with faulty(vendor) as (client, _):
        assert len(await client.embed("half of a pair: \ud83d")) == 1


async def test_cancellation_ends_the_request(vendor: Vendor) -> None:
    async with faulty(vendor, Fault(end="silence")) as (client, server):
        asking = asyncio.create_task(client.embed())
        while not server.answering:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while server.answering:
            await asyncio.sleep(0.01)

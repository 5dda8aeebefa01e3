"""Each provider's errors for a request that is too long: the conversation is flushed and compacted once, the request is
repeated, and the turn is answered. A person's words about it change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugins.testing.servers.faulty_server import Fault, FaultyServer, Json, RawResponse
from tests.gateway.gateways import gateway
from tests.plugins.test_quoted_words import QUOTED, refusals
from tests.plugins.vendors import OPENAI, VENDORS, Vendor

PHRASES = (
    "context_length_exceeded: This model's maximum context length is 8192 tokens",
    "prompt is too long: 208310 tokens > 200000 maximum",
    "The input token count (1179782) exceeds the maximum number of tokens allowed (1048576).",
    "request (9 tokens) exceeds the available context size (8 tokens), exceed_context_size_error, ContextOverflow",
)
LLAMA_SERVER = OPENAI._replace(
    name="llama-server",
    overflows=(
        Fault(
            status=400,
            body=b'{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (8 tokens), try'
            b' increasing it","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}',
        ),
        Fault(
            status=500,
            body=b'{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the'
            b' context size or enable context shift","type":"server_error"}}',
        ),
    ),
)
WAYS = [
    pytest.param(vendor, overflow, id=f"{vendor.name}-{number}")
    for vendor in (*VENDORS, LLAMA_SERVER)
    for number, overflow in enumerate(vendor.overflows)
]


def settings(vendor: Vendor, server: FaultyServer[Any]) -> dict[str, Any]:
    name = vendor.kind.name
    given = {"base_url": server.url, "api_key": vendor.key, **vendor.harness.settings}
    return {"agent.model": f"{name}:{vendor.model}"} | {f"providers.{name}.{key}": value for key, value in given.items()}


def kinds(lines: list[Json]) -> list[str]:
    telling = ("compaction_began", "memory_flushed", "context_compacted", "compaction_abandoned")
    return [line["kind"] for line in lines if line["kind"] in telling]


@pytest.mark.parametrize(("vendor", "overflow"), WAYS)
async def test_a_refusal_as_too_long_is_answered_after_a_flush_and_a_compaction(
    vendor: Vendor, overflow: Fault | RawResponse, tmp_path: Path
) -> None:
    yes = vendor.says("yes")
    async with vendor.server(yes, yes, yes, overflow, yes).serving() as server:
        async with gateway(tmp_path, settings=settings(vendor, server)) as g:
            client = await g.connect()
            for number in range(4):
                assert await client.chat(f"{number} " + "what of it? " * 150) == "yes"
        (lines,) = g.journals().values()
    assert kinds(lines) == ["compaction_began", "memory_flushed", "context_compacted"]
    assert [line["trigger"] for line in lines if line["kind"] == "compaction_began"] == ["overflow"]
    assert [line["outcome"] for line in lines if line["kind"] == "turn_ended"] == ["replied"] * 4


# Failure 4: the guard is that only a provider's error is ever looked at.
@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_words_of_a_person_or_a_model_about_such_errors_compact_nothing(vendor: Vendor, tmp_path: Path) -> None:
    async with (
        vendor.server(vendor.says(PHRASES[0])).serving() as server,
        gateway(tmp_path, settings=settings(vendor, server)) as g,
    ):
        client = await g.connect()
        for phrase in PHRASES:
            assert await client.chat(phrase) == PHRASES[0]
        (lines,) = g.journals().values()
    assert kinds(lines) == []


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_a_refusal_for_another_reason_that_quotes_such_words_compacts_nothing(vendor: Vendor, tmp_path: Path) -> None:
    yes = vendor.says("yes")
    flagged = [Fault(status=400, body=body) for body in refusals(vendor, QUOTED)]
    async with (
        vendor.server(yes, yes, *flagged, yes).serving() as server,
        gateway(tmp_path, settings=settings(vendor, server)) as g,
    ):
        client = await g.connect()
        for number in range(2):
            assert await client.chat(f"{number} " + "what of it? " * 150) == "yes"
        for _ in flagged:
            await client.send(PHRASES[0])
            assert (await client.until_event("turn_ended"))["error"]["code"] == "bad_request"
        assert await client.chat("And now?") == "yes"
        (lines,) = g.journals().values()
    assert kinds(lines) == []

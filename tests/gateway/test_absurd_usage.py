"""Impossible token counts from a provider harm neither the answer nor the gateway nor its next start."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.sessions.session_commands import verify_sessions
from gateway.models.call import MOST_TOKENS
from gateway.support.home import Home
from plugins.facts.fact_events import FactsExtracted, FactsOpened
from plugins.testing.servers.faulty_server import Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from sessions.events.codec import FIRST, TRAILER, encode_line, line_sum
from sessions.events.events import ContextCompacted, Event, MemoryFlushed, ModelReplied, RequestSent, TurnEnded, TurnStarted
from sessions.events.messages import Usage
from sessions.events.tokens import TokenFeatures
from tests.gateway.gateways import TOKEN, Client, gateway
from tests.gateway.test_plugin_services import SCRIBE
from tests.sessions.journal_files import session_id
from tests.shelf import Shelf
from tests.stories import AT, lines_of, opened, received
from tests.waiting import until

SAID = "My favourite language is Rust, remember the port 3000. "
FACT = json.dumps({"facts": [{"content": "Ann likes Rust", "type": "preference", "importance": 0.8, "tags": []}]})
ALONE = {"memory.embedding.provider": "none", "memory.facts.quiet_seconds": 0.05}


def settings(server: OpenAIServer) -> dict[str, Any]:
    own = {"agent.model": "openai:gpt-test", "providers.openai.base_url": server.url, "providers.openai.api_key": KEY}
    return ALONE | own


def responds(counts: int) -> Any:
    """Answer every request of a gateway with this token count."""

    def respond(body: Json) -> ScriptedResponse:
        system, last = str(body["messages"][0]["content"]), body["messages"][-1]
        if "response_format" in body or "facts" in system:
            return ScriptedResponse(FACT, counts=counts)
        if "Write it down." in str(last["content"]) and last["role"] == "user":
            return ScriptedResponse("", ("scribe", "{}"), counts=counts)
        return ScriptedResponse("A crab sheds its shell.", counts=counts)

    return respond


async def status_settles(client: Client, home: Path) -> None:
    """Wait until facts have been extracted from all turns."""
    facts = home / "facts.jsonl"
    await until(lambda: facts.exists() and b'"facts_extracted"' in facts.read_bytes())


def usages(path: Path) -> list[Json]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [line["usage"] for line in lines if line.get("usage")]


@pytest.mark.parametrize("counts", [10**30, -(10**30)])
async def test_absurd_token_counts_break_no_request(counts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("scribing", "scribe", SCRIBE)
    home = tmp_path / "home"
    async with OpenAIServer(respond=responds(counts)).serving() as server:
        wanted = settings(server) | {"plugins.allow": ["scribe"], "agent.context_window": 20_000}
        for _ in range(2):  # the second start folds what the first one wrote
            async with gateway(home, settings=wanted) as g:
                client = await g.connect()
                for _ in range(3):
                    assert await client.chat(SAID * 20) == "A crab sheds its shell."
                await client.command("/compact")
                await client.send("Write it down.")
                await client.until_event("tool_returned")
                await client.until_event("turn_ended")
                await status_settles(client, home)
                body = {"model": "openai:gpt-test", "messages": [{"role": "user", "content": "hi"}]}
                headers = {"Authorization": f"Bearer {TOKEN}"}
                async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
                    stateless = (await response.json())["usage"]
                assert 0 <= stateless["prompt_tokens"] <= MOST_TOKENS
                shown = await client.command("/usage")
            assert max(int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", shown)) < 10**12
        (journal,) = (home / "sessions").iterdir()
        found = usages(journal) + usages(home / "facts.jsonl")
        assert len(found) >= 8
        assert all(0 <= number <= 10 * MOST_TOKENS for usage in found for number in usage.values())
    assert verify_sessions(Home(home), None, io.StringIO(), as_json=False) == 0


# --- what already stands in logs ----------------------------------------------------------------------------------------


def with_counts(lines: list[bytes], count: bytes) -> bytes:
    """Return the lines with each number of a usage replaced by `count`, with correct checksums."""
    written, digest = b"", FIRST
    for line in lines:
        body = re.sub(rb'"(input|output|cached)":7', rb'"\1":' + count, line[:-TRAILER])
        digest = line_sum(body, digest)
        written += b'%s,"sum":"%s"}\n' % (body, digest)
    return written


def story(session: str) -> list[Event | tuple[Event, int]]:
    """Create a session with a turn, a flush and a compaction, in whose usages each number is a seven."""
    seven = Usage(input=7, output=7, cached=7)
    started = TurnStarted(takes=(2,), provider="scripted", model="echo", window=None, reserve=0)
    asked = RequestSent(purpose="answer", sha256="0" * 64, messages=1, tokens=7, units=TokenFeatures())
    replied = ModelReplied(reply=1, model="echo", text="hi", calls=(), stop="end", usage=seven, compacted=True)
    return [
        opened(session),
        received("hi"),
        (started, 1),
        (asked, 1),
        (replied, 1),
        (TurnEnded(outcome="replied", millis=7), 1),
        MemoryFlushed(compaction=1, outcome="nothing", covers_to=4, model="scripted:echo", usage=seven),
        ContextCompacted(
            compaction=1,
            keep_from=5,
            summary="They greeted each other.",
            by="model_summary",
            tokens_before=9,
            tokens_after=5,
            model="scripted:echo",
            usage=seven,
        ),
    ]


@pytest.mark.parametrize("count", [b"1" + b"0" * 30, b"-7", b"null", b'"12"', b'"many"', b"1e30", b"0.5"])
async def test_a_home_whose_logs_hold_absurd_counts_starts_verifies_and_serves(count: bytes, tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    journal = tmp_path / "sessions" / f"{session_id(1)}.jsonl"
    journal.write_bytes(with_counts(lines_of(story(session_id(1))), count))
    first, digest = encode_line(1, AT, None, FactsOpened(format=1), FIRST)
    usage = Usage(input=7, output=7, cached=7)
    event = FactsExtracted(session=session_id(1), ordinal=1, upto=6, model="scripted:echo", usage=usage)
    second, _ = encode_line(2, AT, None, event, digest)
    (tmp_path / "facts.jsonl").write_bytes(with_counts([first, second], count))
    assert verify_sessions(Home(tmp_path), None, io.StringIO(), as_json=False) == 0
    for number in range(2):  # the second start reads what the catalog kept
        async with gateway(tmp_path, settings=ALONE) as g:
            client = await g.connect()
            assert await client.chat(f"Are you there? {number}") == f"Are you there? {number}"
            assert "tokens" in await client.command("/status")
            assert "| extraction |" in await client.command("/usage")
            assert g.daemon.readiness.refuses is None
    assert verify_sessions(Home(tmp_path), None, io.StringIO(), as_json=False) == 0

"""Secrets against servers and plugins that repeat them: none reaches a journal, a client, an answer or a log line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from mcp.shared.auth import OAuthToken

from gateway.conversations.turn.scrubbing import without_secrets
from gateway.support.errors import sentence_of
from plugins.channels.matrix.matrix_api import MatrixClient
from plugins.mcp.mcp_settings import ServerKeys
from plugins.mcp.oauth import OAuthFlow
from plugins.support import secrets
from plugins.support.http_errors import error_message
from plugins.support.secrets import HIDDEN, Secret, hide, hide_keys_of, scrubbed
from plugins.support.untrusted import error_text
from plugins.testing.servers.embedding_server import EmbeddingServer
from plugins.testing.servers.faulty_server import Fault, FaultyServer, RawResponse
from sessions.events import events
from sessions.events.events import CallRef, Event, Failure, Withheld
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.plugins.vendors import VENDORS, Vendor
from tests.shelf import Shelf
from tests.waiting import deadline

BOB = "a-token-of-bob-that-is-long-enough-7"
TOOL_KEY = "tool-key-4711-abcdef"
ENVIRONMENT = "environment-key-4711-xyz"
SAYS = "Incorrect API key provided: {}. You can find yours on the web."


def settings(vendor: Vendor, server: FaultyServer[Any]) -> dict[str, Any]:
    name = vendor.kind.name
    given = {"base_url": server.url, "api_key": vendor.key, **vendor.harness.settings}
    own = {"agent.model": f"{name}:{vendor.model}", "people.bob.token": BOB, "memory.embedding.provider": "none"}
    return own | {f"providers.{name}.{key}": value for key, value in given.items()}


async def answered(g: Gateway, body: Mapping[str, Any], **headers: str) -> str:
    """Return the response of the API, an error or a stream."""
    headers = {"Authorization": f"Bearer {BOB}", **headers}
    async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
        return await response.text()


async def pages(g: Gateway) -> str:
    """Return the texts of all status pages, as the owner sees them."""
    said = ""
    for path in ("/status.json", "/metrics", "/readyz"):
        async with g.http.get(f"{g.url}{path}", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            said += await response.text()
    return said


def on_disk(home: Path) -> bytes:
    """Return the content of a home's files, except those that are meant to hold a secret."""
    files = (path for path in home.rglob("*") if path.is_file() and path.name not in ("config.toml", "token"))
    return b"".join(path.read_bytes() for path in files)


def repeating(vendor: Vendor) -> list[Fault | RawResponse]:
    """The ways in which a server repeats the key that it was given."""
    words, key = SAYS.format(vendor.key), vendor.key.encode()
    in_stream = vendor.framed(vendor.refusal(400, words))
    if vendor.name == "responses":
        in_stream = vendor.framed(json.dumps({"type": "error", "code": "invalid_api_key", "message": words}).encode())
    return [
        Fault(status=401, body=vendor.refusal(401, words)),
        Fault(status=400, body=vendor.refusal(400, words)),
        Fault(status=401, body=b"x" * 290 + b" " + key),  # cut in the middle of it
        Fault(status=401, body=b" " * 4795 + key),
        Fault(status=500, body=b"<html>Bearer " + key + b"</html>", media="text/html", headers={"Retry-After": "3600"}),
        RawResponse(in_stream),
        RawResponse(vendor.framed(b"nonsense " + key)),
    ]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_a_providers_key_repeated_by_the_server_is_shown_to_nobody(
    vendor: Vendor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""
    async with vendor.server().serving() as server, gateway(tmp_path, settings=settings(vendor, server)) as g:
        owner, bob = await g.connect(), await g.connect(BOB)
        for number, fault in enumerate(repeating(vendor)):
            server.now_says(fault)
            for client in (owner, bob):
                await client.send("Hello?", session=f"s{number}")
                await client.until_event("turn_ended")
            model = {"model": f"{vendor.kind.name}:{vendor.model}", "messages": [{"role": "user", "content": "hi"}]}
            for stream in (False, True):
                said += await answered(g, {**model, "stream": stream})
                said += await answered(g, {**model, "stream": stream}, **{"X-Exuvia-Session": f"api{number}"})
            said += await owner.command("/status", session=f"s{number}") + await pages(g)
        said += json.dumps([owner.frames, bob.frames])
    assert scrubbed(f"{TOKEN} {BOB}") == f"{HIDDEN} {HIDDEN}"
    assert "Incorrect API key provided: " + HIDDEN in said
    logged = capsys.readouterr()
    for place in (said, on_disk(tmp_path).decode("utf-8", "replace"), logged.out, logged.err):
        for length in range(len(vendor.key), 11, -1):
            assert vendor.key[:length] not in place


async def test_an_embedding_services_key_repeated_by_the_server_is_shown_to_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "workspace" / "memory").mkdir(parents=True)
    (tmp_path / "workspace" / "memory" / "crabs.md").write_text("The crab sheds its shell in spring.\n")
    key = EmbeddingServer.KEY
    refused = Fault(status=401, body=json.dumps({"error": {"message": SAYS.format(key)}}).encode())
    embedding = {"provider": "openai", "model": EmbeddingServer.MODEL, "api_key": key}
    async with EmbeddingServer(refused).serving() as server:
        wanted = {f"memory.embedding.{name}": value for name, value in {**embedding, "base_url": server.url}.items()}
        async with gateway(tmp_path, settings=wanted) as g:
            client = await g.connect()
            async with deadline():
                while "Incorrect API key provided" not in (said := await client.command("/status")):
                    await asyncio.sleep(0.02)
            said += await client.command("/memory crab") + await pages(g) + json.dumps(client.frames)
    logged = capsys.readouterr()
    for place in (said, on_disk(tmp_path).decode("utf-8", "replace"), logged.out, logged.err):
        assert key not in place


# --- plugins ------------------------------------------------------------------------------------------------------------

LEAKY = """
import os
import msgspec
from exuvia import CommandFailed, Secret, ToolDefinition, ToolFailed, ToolOutput, hookimpl

class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: Secret = Secret("")

class Leaky:
    definition = ToolDefinition(name="leaky", description="Fails.", parameters={"type": "object"})
    repeatable = True

    def __init__(self, context):
        self._key = context.settings.key.reveal() + " " + context.environment["LEAKY_ACCESS_KEY"]

    async def run(self, arguments, call):
        match arguments["how"]:
            case "failed":
                raise ToolFailed(f"401 for {self._key}")
            case "raised":
                raise ValueError("x" * 280 + f" {self._key}")
            case "long":
                return ToolOutput(text=f"{self._key} " * 20_000)
        return ToolOutput(text=f"The service refused {self._key}.")

class Command:
    name = "leak"
    usage = "/leak"
    summary = "Leak."
    when = "now"

    async def run(self, argument, conversation):
        if argument:
            raise CommandFailed(f"No such thing for {os.environ['LEAKY_ACCESS_KEY']}")
        return f"Refused {os.environ['LEAKY_ACCESS_KEY']}"

@hookimpl
def register_tools():
    return [Leaky]

@hookimpl
def register_commands():
    return [Command]

@hookimpl
async def turn_ended(turn):
    raise ValueError(f"hook {os.environ['LEAKY_ACCESS_KEY']}")
"""


async def test_a_key_in_a_plugins_error_is_shown_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEAKY_ACCESS_KEY", ENVIRONMENT)
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_leaky", "leaky", LEAKY)
    ways = ("failed", "raised", "long", "returned")
    script = [{"text": "", "calls": [{"tool": "leaky", "arguments": {"how": how}}]} for how in ways] + [{"text": "Done."}]
    home = tmp_path / "home"
    wanted = {"plugins.allow": ["leaky"], "plugins.leaky.key": TOOL_KEY, "memory.embedding.provider": "none"}
    async with gateway(home, script=script, settings=wanted) as g:
        client = await g.connect()
        await client.chat("Try it.")
        said = await client.command("/leak") + await client.command("/leak now") + await client.command("/status")
        said += await pages(g) + json.dumps(client.frames)
    for sentence in (f"The service refused {HIDDEN} {HIDDEN}.", f"Refused {HIDDEN}", f"No such thing for {HIDDEN}"):
        assert sentence in said
    logged = capsys.readouterr()
    for place in (said, on_disk(home).decode("utf-8", "replace"), logged.out, logged.err):
        for secret in (TOOL_KEY, ENVIRONMENT):
            assert secret not in place
            assert secret[:12] not in place


async def test_secrets_in_a_commands_answer_are_redacted_in_a_new_and_in_a_reopened_session(tmp_path: Path) -> None:
    hide(Secret(TOOL_KEY))
    for _ in range(2):
        async with gateway(tmp_path) as g:
            answer = await (await g.connect()).command(f"/model scripted:{TOOL_KEY}")
            assert TOOL_KEY not in answer
            assert HIDDEN in answer


# --- the one place ------------------------------------------------------------------------------------------------------


def test_every_sentence_of_an_event_is_redacted_but_not_the_words_of_people_and_models() -> None:
    hide(Secret(TOOL_KEY))
    text = f"It says {TOOL_KEY}."
    call = CallRef(of=1, index=0)
    sentences: list[Event] = [
        events.TurnEnded(outcome="failed", millis=1, error=Failure(code="x", sentence=text)),
        events.TurnInterrupted(reason=text),
        events.ToolReturned(call=call, outcome="failed", output=text),
        events.ToolReturned(call=call, outcome="returned", output=text),
        events.CommandAnswered(answers=1, answer=text, failed=False),
        events.PluginFailed(plugin="p", hook="h", sentence=text),
        events.MemoryFlushed(compaction=1, outcome="failed", covers_to=1, reason=text),
        events.ContextCompacted(
            compaction=1, keep_from=1, summary="", by="x", tokens_before=1, tokens_after=1, checks=(text,), failed=text
        ),
        events.CompactionAbandoned(compaction=1, reason=text),
        events.ReplyDelivered(of=1, channel="c", failed=text, receipt=text),
        events.DeliveryAttempted(of=1, channel="c", failed=text),
        events.AttachmentsWithheld(model="m", files=(Withheld(sha256="0", sentence=text),)),
        events.SessionClosed(reason=text),
    ]
    for event in sentences:
        cleaned = msgspec.json.encode(without_secrets(event)).decode()
        assert TOOL_KEY not in cleaned, event
        assert HIDDEN in cleaned
    written: list[Event] = [
        events.MessageReceived(id="1", client="", sender="", channel="", chat="private", text=text, attachments=()),
        events.ModelReplied(reply=1, model="m", text=text, calls=(), stop="end", usage=None),
        events.MemoryFlushed(compaction=1, outcome="written", covers_to=1, text=text),
    ]
    for event in written:
        assert without_secrets(event) is event


def test_a_sentence_is_redacted_before_it_is_truncated() -> None:
    hide(Secret(TOOL_KEY))
    for margin in range(1, len(TOOL_KEY)):
        for cut, length in ((sentence_of, 500), (error_text, 300), (lambda error: error_message(str(error).encode()), 300)):
            told = cut(ValueError("x" * (length - margin) + TOOL_KEY + "y"))
            assert TOOL_KEY[: margin + 1] not in told
            assert len(told) <= length
            assert not told.endswith(TOOL_KEY[:margin]) or margin < 2


def test_a_header_is_hidden_with_its_scheme_and_without_it() -> None:
    hide(Secret("Bearer header-value-0815"))
    assert scrubbed("refused: header-value-0815") == f"refused: {HIDDEN}"


def test_the_longer_of_two_overlapping_secrets_is_replaced_completely() -> None:
    hide(Secret("prefix-0815"))
    hide(Secret("prefix-0815-and-more"))
    assert scrubbed("refused prefix-0815-and-more") == f"refused {HIDDEN}"


async def test_of_the_tokens_of_a_login_that_is_renewed_again_and_again_only_the_last_ones_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(Secret(TOOL_KEY))
    flow = OAuthFlow("far", ServerKeys(url="https://far.example.org/mcp"), tmp_path / "far.json")
    flow.interactive(AsyncMock(), AsyncMock(), "http://127.0.0.1/callback")
    monkeypatch.setattr(flow, "write", lambda login: None)
    login: Any = await flow.provider()
    for number in range(1000):
        await login.set_tokens(OAuthToken(access_token=f"access-{number}-of-far", refresh_token="refresh-of-far"))
    for recorded in (secrets._whole, secrets._parts):
        assert len([each for each in recorded if "-of-far" in each]) == secrets.RENEWALS + 1
    told = f"access-999-of-far access-998-of-far refresh-of-far {TOOL_KEY}"
    assert scrubbed(told) == " ".join([HIDDEN] * 4)


def test_of_the_tokens_of_a_matrix_account_only_the_last_ones_are_recorded() -> None:
    client = MatrixClient(AsyncMock(), "https://matrix.example.org")
    for number in range(1000):
        client.log_in(f"login-{number}-of-bot", "bot")
    assert len([each for each in secrets._whole if "-of-bot" in each]) == secrets.RENEWALS
    assert scrubbed("login-999-of-bot") == HIDDEN


def test_a_token_that_is_configured_too_stays_recorded() -> None:
    hide(Secret("configured-before-0815"))
    hide(Secret("configured-before-0815"), source="a server")
    hide(Secret("configured-after-0815"), source="a server")
    hide(Secret("configured-after-0815"))
    for number in range(secrets.RENEWALS + 1):
        hide(Secret(f"renewed-{number}-0815"), source="a server")
    told = "configured-before-0815 configured-after-0815 renewed-0-0815 renewed-1-0815"
    assert scrubbed(told) == f"{HIDDEN} {HIDDEN} renewed-0-0815 {HIDDEN}"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ACME_ACCESS_KEY", "acme-access-4711", True),
        ("ACME_KEY_ID", "acme-id-4711", True),
        ("ACME_PAT", "acme-pat-4711", True),
        ("HTTPS_PROXY", "http://me:proxy-pass-4711@127.0.0.1:3128", True),
        ("ACME_KEY_FILE", "acme-key-file-4711", False),
        ("ACME_KEYBOARD", "acme-keyboard-4711", False),
        ("ACME_MAX_TOKENS", "max-tokens-4711", False),
        ("OTHER_API_KEY", "/etc/keys/acme-4711", False),
        ("VLLM_API_KEY", "not-needed", False),
        ("LM_API_KEY", "lm-studio", False),
    ],
)
def test_a_variable_holds_a_secret_by_its_name_unless_it_names_a_location_or_that_none_is_needed(
    name: str, value: str, expected: bool
) -> None:
    hide_keys_of({name: value})
    told = value.partition("://")[2].partition("@")[0].rpartition(":")[2] or value
    assert (told not in scrubbed(f"It was {told} again.")) == expected


async def test_a_token_that_was_rotated_is_hidden_as_before(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"gateway.token": None}) as g:
        old = (tmp_path / "token").read_text().strip()
        (tmp_path / "token").write_text("another-token-that-is-long-enough-0815\n")
        async with deadline():
            while "another-token" in scrubbed("another-token-that-is-long-enough-0815"):
                await asyncio.sleep(0.01)
        assert old not in scrubbed(f"It was {old}.")
        assert g.daemon.readiness.refuses is None

"""`/model` offers what the servers list, and rejects names that none of them has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateways import NOBODY, Client, Gateway, gateway
from tests.gateway.listing import Serve

NAMES = ["gpt-4.1", "gpt-5-mini", "o4-mini-2025-04-16", "text-embedding-3-small", "whisper-1"]


def listing(names: list[str]) -> dict[str, Any]:
    """Return the answers of a server that has these models."""
    return {"/models": {"data": [{"id": name} for name in names]}}


def file(url: str) -> str:
    account = f'[providers.openai]\nbase_url = "{url}"\ndefault_model = "gpt-4.1"\napi_key = "sk-for-a-test"\n'
    return f'[agent]\nmodel = "scripted:echo"\n{account}'


def chosen(on: Gateway) -> list[str | None]:
    """Return the models that the journal records as chosen."""
    events = [event for events in on.journals().values() for event in events]
    return [event["value"] for event in events if event["kind"] == "setting_changed" and event["name"] == "model"]


async def fails(client: Client, text: str) -> str:
    """Return the answer of a command that fails."""
    await client.send(text)
    event = await client.until_event("command_answered")
    assert event["failed"], event
    answer: str = event["answer"]
    return answer


async def test_a_model_that_the_provider_does_not_list_is_refused_with_what_may_be_meant(
    tmp_path: Path, serve: Serve
) -> None:
    server = await serve(listing(NAMES))
    async with gateway(tmp_path, file=file(server.url)) as on:
        client = await on.connect()
        answer = await fails(client, "/model openai:gpt-5-mni")
        assert answer.startswith("openai has no model 'gpt-5-mni'; did you mean `openai:gpt-5-mini`? `/model openai` lists")
        assert await fails(client, "/model openai:nope") == ("openai has no model 'nope'. `/model openai` lists its models.")
        assert "did you mean `openai:gpt-4.1`?" in await fails(client, "/model opnai:gpt-4.1")
        assert chosen(on) == []
        assert "gpt-5-mini, because it was chosen" in await client.command("/model openai:gpt-5-mini")
        assert "o4-mini, because" in await client.command("/model openai:o4-mini")
        assert chosen(on) == ["openai:gpt-5-mini", "openai:o4-mini"]
        assert server.asked == ["GET /models"], "what a server has is not asked each time"


@pytest.mark.parametrize("names", [None, []])
async def test_without_a_list_the_model_is_accepted_with_a_note(
    names: list[str] | None, tmp_path: Path, serve: Serve
) -> None:
    url = NOBODY if names is None else (await serve(listing(names))).url
    async with gateway(tmp_path, file=file(url)) as on:
        client = await on.connect()
        answer = await client.command("/model openai:nope")
        assert answer.startswith("From the next turn on: openai:nope, because it was chosen with /model")
        assert "The model could not be verified: its list of models could not be fetched" in answer
        assert chosen(on) == ["openai:nope"]
        answer = await client.command("/model scripted:script")
        assert answer.endswith("The model could not be verified: it does not list its models.")


async def test_model_lists_the_available_chat_models(tmp_path: Path, serve: Serve) -> None:
    server = await serve(listing(NAMES))
    async with gateway(tmp_path, file=file(server.url)) as on:
        client = await on.connect()
        answer = await client.command("/model")
        assert "- openai has `openai:gpt-4.1`, `openai:gpt-5-mini`, `openai:o4-mini-2025-04-16`" in answer
        assert "whisper" not in answer
        assert "`openai:gpt-5-mini`" in await client.command("/model openai")
        assert "did you mean `openai:gpt-5-mini`?" in await fails(client, "/model gpt-5-mini")
    async with gateway(tmp_path / "2", file=file(NOBODY)) as on:
        assert "- openai: its models could not be listed (unreachable)" in await (await on.connect()).command("/model")


async def test_a_long_list_is_shortened_and_complete_for_one_provider(tmp_path: Path, serve: Serve) -> None:
    names = [f"model-{number:03}" for number in range(200)]
    server = await serve(listing(names))
    async with gateway(tmp_path, file=file(server.url)) as on:
        client = await on.connect()
        answer = await client.command("/model")
        assert "`openai:model-000`" in answer
        assert "model-199" not in answer
        assert "170 more: `/model openai`" in answer
        assert "`openai:model-199`" in await client.command("/model openai")


async def test_an_unknown_command_is_answered_with_the_one_that_may_be_meant(tmp_path: Path) -> None:
    async with gateway(tmp_path) as on:
        client = await on.connect()
        assert await fails(client, "/staus") == "There is no command /staus; did you mean `/status`? `/help` lists them all."
        assert await fails(client, "/xyzzy") == "There is no command /xyzzy. `/help` lists them all."
        assert "did you mean `/status`?" in await fails(client, "/help staus")

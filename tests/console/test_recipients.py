"""The empty page says where what is said is stored, and to whom it is sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.console.asked import ask
from tests.console.browser import visiting
from tests.gateway.gateways import gateway

SECRET = "sk-nobody-may-see-this"
FILE = f"""
[agent]
model = "openai:gpt-5"
fallback_models = ["ollama:llama3", "ollama:gpt-oss:120b-cloud", "nobody:nothing"]
[compaction]
model = "anthropic:claude-sonnet-4-5"
[memory.facts]
model = "gemini:gemini-2.5-flash"
[memory.embedding]
provider = "voyage"
api_key = "{SECRET}"
[transcription]
model = "openai:whisper"
[providers.openai]
transcription_url = "http://me:{SECRET}@127.0.0.1:8000/v1"
api_key = "{SECRET}"
base_url = "https://me:{SECRET}@models.example.com/v1"
[providers.ollama]
base_url = "http://127.0.0.1:9"
"""


async def test_recipients_have_an_address_without_secrets(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=FILE) as running:
        answered = await ask(running, "/api/recipients")
    assert SECRET not in answered.body.decode()
    told = answered.json
    assert told["folder"] == str(tmp_path)
    assert [(each["purpose"], each["name"], each["address"]) for each in told["recipients"]] == [
        ("answers", "openai:gpt-5", "https://models.example.com/v1"),
        ("fallback", "ollama:llama3", "http://127.0.0.1:9"),
        ("fallback", "ollama:gpt-oss:120b-cloud", "https://ollama.com"),
        ("summaries", "anthropic:claude-sonnet-4-5", "https://api.anthropic.com"),
        ("facts", "gemini:gemini-2.5-flash", "https://generativelanguage.googleapis.com"),
        ("vectors", "voyage:voyage-4-large", "https://api.voyageai.com/v1"),
        ("transcription", "openai:whisper", "http://127.0.0.1:8000/v1"),
    ]


async def test_only_the_owner_sees_the_folder(tmp_path: Path) -> None:
    bob = "a-token-for-bob-that-is-long-enough"
    async with gateway(tmp_path, settings={"people.bob.token": bob}) as running:
        told = (await ask(running, "/api/recipients", token=bob)).json
        assert (await ask(running, "/api/recipients", token="wrong")).status == 401
    assert told["folder"] is None
    assert told["recipients"][0] == {"purpose": "answers", "name": "scripted:echo", "address": ""}


@pytest.mark.asyncio(loop_scope="session")
async def test_an_empty_conversation_names_the_recipients_of_messages(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path, file=FILE) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        page = visit.page
        for _ in range(2):
            said = page.locator(".hello")
            await expect(said).to_contain_text(f"on the gateway, in {tmp_path}")
            sent = said.locator("dl > div").nth(1)
            await expect(sent).to_contain_text("openai:gpt-5 at models.example.com, for answers")
            await expect(sent).to_contain_text("voyage:voyage-4-large at api.voyageai.com, for search")
            await expect(sent).to_contain_text(
                "ollama:llama3 at 127.0.0.1:9 (the gateway’s machine), for answers if that fails"
            )
            await expect(sent).to_contain_text(
                "openai:whisper at 127.0.0.1:8000 (the gateway’s machine), for what you dictate"
            )
            await expect(said).not_to_contain_text("alone")
            await page.get_by_role("button", name="New conversation").click()
        assert (visit.errors, visit.elsewhere) == ([], [])


@pytest.mark.asyncio(loop_scope="session")
async def test_an_empty_conversation_says_if_nothing_leaves_the_machine(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        await expect(visit.page.locator(".hello")).to_contain_text("Sent tonobody")
        await expect(visit.page.locator(".hello")).to_contain_text("scripted:echo, for answers")

"""Dictation: the microphone of the composer, with Chromium's artificial one."""

from __future__ import annotations

import asyncio
import re
import struct
import wave
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Error, Page, Route, expect

from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import KEY, OpenAIServer, refusal
from tests.console.accessible import faults
from tests.console.browser import CHROMIUM, WIDE, Visit, chromium, visiting
from tests.gateway.gateways import gateway

MODEL = f"openai:{OpenAIServer.TRANSCRIBES}"
START, END = f"Dictate; {MODEL} writes it down", "End the recording and insert the text"

pytestmark = pytest.mark.asyncio(loop_scope="session")


def configured(server: OpenAIServer, model: str = MODEL) -> str:
    chosen = f'[transcription]\nmodel = "{model}"\n' if model else ""
    return f'[providers.openai]\nbase_url = "{server.url}"\napi_key = "{KEY}"\n{chosen}'


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def speaking(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """Chromium whose microphone plays a tone."""
    if CHROMIUM is None:
        pytest.skip("Chromium is missing (Debian: apt install chromium): dictation was not tried in a browser")
    path = tmp_path_factory.mktemp("audio") / "tone.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 48_000, 0, "NONE", ""))
        file.writeframes(b"".join(struct.pack("<h", 20_000 * (1 if n % 100 < 50 else -1)) for n in range(48_000)))
    microphone = ("--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={path}")
    async with chromium(*microphone, program=CHROMIUM) as running:
        yield running


async def opened(visit: Visit, *, allowed: bool = True) -> Page:
    if allowed:
        await visit.context.grant_permissions(["microphone"])
    await visit.sign_in()
    await visit.page.evaluate("location.hash = '#/chat/main'")
    return visit.page


@pytest.mark.parametrize("size", [WIDE, (320, 700)])
async def test_speech_becomes_text_at_the_cursor(tmp_path: Path, speaking: Browser, size: tuple[int, int]) -> None:
    async with OpenAIServer().serving() as server:
        server.transcripts = ["the red bicycle"]
        async with gateway(tmp_path, file=configured(server)) as running, visiting(speaking, running, size=size) as visit:
            page = await opened(visit)
            area = page.get_by_role("textbox", name="Message", exact=True)
            await area.fill("Sell tomorrow.")
            await area.evaluate("area => area.setSelectionRange(4, 4)")
            start = page.get_by_role("button", name=START)
            await start.focus()
            await page.keyboard.press("Enter")
            end = page.get_by_role("button", name=END)
            await expect(end).to_be_focused()
            await expect(page.get_by_role("status").filter(has_text="Recording. Escape discards it.")).to_be_attached()
            await expect(page.locator(".level")).to_have_attribute("style", re.compile(r"--loudness: (0\.\d*[1-9]|1)"))
            await expect(page.locator(".dictation .clock")).to_have_text(re.compile("0:0[1-9]"))
            assert await faults(page) == []
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            await page.keyboard.press("Enter")
            await expect(area).to_have_value("Sell the red bicycle tomorrow.")
            await expect(area).to_be_focused()
            assert await area.evaluate("area => area.selectionStart") == len("Sell the red bicycle")
            await expect(start).to_be_enabled()
            assert (visit.errors, visit.elsewhere) == ([], [])
    (sent,) = server.recordings
    assert (sent.name, sent.media, sent.content[:4]) == ("dictation.webm", "audio/webm", b"\x1aE\xdf\xa3")
    assert sent.fields == {"model": [OpenAIServer.TRANSCRIBES], "response_format": ["json"]}


async def test_escape_discards_a_recording_and_its_transcription(tmp_path: Path, speaking: Browser) -> None:
    """It ends the recording only, not the turn."""
    async with (
        OpenAIServer().serving() as server,
        gateway(tmp_path, file=configured(server)) as running,
        visiting(speaking, running) as visit,
    ):
        page = await opened(visit)
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            asked.set()
            await go_on.wait()
            with suppress(Error):  # the page has cancelled it
                await route.continue_()

        await page.route("**/v1/audio/transcriptions", hold)
        start, end = page.get_by_role("button", name=START), page.get_by_role("button", name=END)
        discarded = page.get_by_role("status").filter(has_text="The recording was discarded.")
        await start.click()
        await end.wait_for()
        await page.keyboard.press("Escape")
        await expect(discarded).to_be_attached()
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
        await start.click()
        await page.get_by_role("button", name="Discard the recording (Escape)").click()
        await expect(discarded).to_be_attached()
        assert not asked.is_set()
        await start.click()
        await expect(page.locator(".dictation .clock")).to_have_text(re.compile("0:0[1-9]"))
        await end.click()
        await asked.wait()
        await expect(page.locator(".dictation .clock")).to_have_text("Transcribing…")
        await page.keyboard.press("Escape")
        await expect(start).to_be_enabled()
        go_on.set()
        await page.unroute_all(behavior="wait")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_have_value("")


async def test_a_recording_ends_after_ten_minutes(tmp_path: Path, speaking: Browser) -> None:
    async with (
        OpenAIServer().serving() as server,
        gateway(tmp_path, file=configured(server)) as running,
        visiting(speaking, running) as visit,
    ):
        page = await opened(visit)
        await page.get_by_role("button", name=START).click()
        await page.get_by_role("button", name=END).wait_for()
        await expect(page.locator(".dictation .clock")).to_have_text(re.compile("0:0[1-9]"))
        await page.evaluate("Date.now = () => performance.timeOrigin + performance.now() + 601_000")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_have_value("Hello there.")
        await expect(page.get_by_text("The recording ended after 10 minutes")).to_be_visible()


async def test_why_there_is_no_text_is_said(tmp_path: Path, speaking: Browser) -> None:
    async with OpenAIServer().serving() as server:
        odd = Fault(status=400, body=refusal("Audio file might be corrupted", "invalid_value"))
        server.transcripts = [odd, "  "]
        async with gateway(tmp_path, file=configured(server)) as running:
            async with visiting(speaking, running) as visit:
                page = await opened(visit)
                for sentence in ("Audio file might be corrupted", "No words were recognised."):
                    await page.get_by_role("button", name=START).click()
                    await expect(page.locator(".dictation .clock")).to_have_text(re.compile("0:0[1-9]"))
                    await page.get_by_role("button", name=END).click()
                    await expect(page.get_by_role("alert").filter(has_text=sentence)).to_be_visible()
            async with visiting(speaking, running) as visit:
                page = await opened(visit, allowed=False)
                await page.get_by_role("button", name=START).click()
                await expect(page.get_by_text("does not let this page use the microphone")).to_be_visible()
                assert await faults(page) == []


async def test_without_a_microphone_or_a_model(tmp_path: Path, browser: Browser) -> None:
    async with OpenAIServer().serving() as server:
        async with gateway(tmp_path / "a", file=configured(server)) as running, visiting(browser, running) as visit:
            page = await opened(visit)
            await page.get_by_role("button", name=START).click()
            await expect(page.get_by_text("There is no microphone.")).to_be_visible()
        async with gateway(tmp_path / "b", file=configured(server, "")) as running, visiting(browser, running) as visit:
            page = await opened(visit)
            await expect(page.get_by_role("button", name="Model: ")).to_be_visible()
            assert (
                await page.evaluate("fetch('/api/models').then((r) => r.json()).then((list) => 'transcription' in list)")
                is False
            )
            await expect(page.locator(".dictate")).to_be_hidden()

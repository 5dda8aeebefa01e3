"""Pages that show what is erased meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import visiting
from tests.gateway.gateways import TOKEN, gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_page_that_shows_what_is_erased_is_loaded_again(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        for text in ("kept words", "the secret is 4711", "more kept words"):
            await client.chat(text)
        async with visiting(browser, running) as visit:
            page = visit.page
            await visit.sign_in()
            timeline = page.get_by_role("log")
            await expect(timeline).to_contain_text("the secret is 4711")
            message = next(
                frame["event"]["seq"]
                for frame in client.frames
                if frame.get("event", {}).get("text") == "the secret is 4711"
            )
            headers = {"Authorization": f"Bearer {TOKEN}"}
            wanted = {"session": "main", "message": message}
            async with running.http.post(f"{running.url}/api/erasures", json=wanted, headers=headers) as response:
                assert response.status == 200, await response.text()
            await expect(timeline).to_contain_text("[erased]")
            await expect(timeline).not_to_contain_text("4711")
            await expect(timeline).to_contain_text("more kept words")
            assert "4711" not in await page.content()

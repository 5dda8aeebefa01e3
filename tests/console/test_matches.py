"""The places of searched words in a text, in every script."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.console.browser import visiting
from tests.gateway.gateways import gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

CASES = [
    ("Roses, rosemary; primroses", "rose", ["Rose", "rose"]),
    ("a+b (c) [d] a.b", "a.b (c", ["a", "b", "c", "a", "b"]),
    ("我们在花园里种玫瑰", "花园 玫瑰", ["花园", "玫瑰"]),
    ("ÜBER über", "Über", ["ÜBER", "über"]),
    ("nothing", "  .*+ ", []),
    ("Un café CRÈME, cafés", "cafe crème", ["café", "CRÈME", "café"]),
    ("cre\u0300me brule\u0301e", "crème brulee", ["cre\u0300me", "brule\u0301e"]),
    ("부산에 각각", "부산 가", ["부산"]),
    ("plant plants planting", "plants plant", ["plant", "plants", "plant"]),
]


async def test_words_are_found_where_they_begin(tmp_path: Path, browser: Browser) -> None:
    async with gateway(tmp_path) as running, visiting(browser, running) as visit:
        await visit.sign_in()
        module = await visit.page.evaluate(
            "new URL('matches.js', document.querySelector('script[src$=\"app.js\"]').src).href"
        )
        find = """async ([module, text, query]) =>
            (await import(module)).matches(text, query).map(([start, end]) => text.slice(start, end))"""
        for text, query, found in CASES:
            assert await visit.page.evaluate(find, [module, text, query]) == found, query

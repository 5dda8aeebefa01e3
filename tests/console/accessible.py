"""Whether everybody can use a page: the rules of axe, run in the page itself."""

from __future__ import annotations

from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page


async def faults(page: Page) -> list[str]:
    """What axe finds serious or critical, each with where it is."""
    found = (await Axe().run(page)).response["violations"]
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]

"""The time and memory that reading a page of the web takes, in a ratio to the bare library that parses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from benchmarks.figures import Figure, figure
from benchmarks.process import resident_mb
from benchmarks.setting import Setting
from plugins.tools.web.extractor import Extractor
from plugins.tools.web.provenance import is_named
from sessions.events.messages import Message, ToolMessage, UserMessage

BAR_MEMORY, BAR_NAMED = 120.0, 50.0
"""What is accepted: MB, and milliseconds."""

_SENTENCE = (
    "An article has paragraphs of several sentences, with <a href='/page/{0}'>a link</a> and <code>code_{0}</code> in them. "
)


def run(setting: Setting) -> list[Figure]:
    """Measure with a page of a usual size, and a conversation that has read many."""
    return asyncio.run(_measured(setting))


async def _measured(setting: Setting) -> list[Figure]:
    from resiliparse.extract.html2text import extract_plain_text  # noqa: PLC0415 - the gateway never imports it

    page = _page(400)
    bare = [_milliseconds(lambda: extract_plain_text(page, main_content=True)) for _ in range(setting.runs)]
    extractor = Extractor()
    try:

        async def read() -> float:
            began = time.perf_counter()
            found = await extractor.extract(page.encode(), charset="utf-8", url="https://site.example/", whole=False)
            assert "code_399" in found.text
            return 1000 * (time.perf_counter() - began)

        first = await read()
        times = [await read() for _ in range(setting.runs)]
        assert extractor.pid is not None
        memory = resident_mb(extractor.pid)
    finally:
        await extractor.close()
    read_before = _conversation()
    named = [_milliseconds(lambda: is_named("https://site.example/none", read_before)) for _ in range(setting.runs)]
    size = f"a page of {len(page) // 1000} kB"
    floor = sorted(bare)[len(bare) // 2]
    return [
        figure("web", f"{size} as Markdown, first, with the start of the process", "ms", [first]),
        figure("web", f"{size} as Markdown", "ms", times, against="the bare library's plain text", reference=floor),
        figure("web", "memory of the process after it", "MB", [memory], against="bar", reference=BAR_MEMORY),
        figure(
            "web", "whether a URL was named, after 100 pages with 100 links", "ms", named, against="bar", reference=BAR_NAMED
        ),
    ]


def _page(paragraphs: int) -> str:
    text = "".join(f"<p>{_SENTENCE.format(number) * 3}</p>" for number in range(paragraphs))
    items = "".join(f"<li>Point {number} of a list without links</li>" for number in range(paragraphs // 4))
    links = "".join(f"<li><a href='/nav/{number}'>Entry {number}</a></li>" for number in range(100))
    return f"<html><body><nav><ul>{links}</ul></nav><main><h1>Title</h1>{text}<ul>{items}</ul></main></body></html>"


def _conversation() -> list[Message]:
    """Return a conversation that read 100 pages, whose links are the same by half."""
    pages: list[Message] = []
    for page in range(100):
        links = (number if number < 50 else page * 100 + number for number in range(100))
        shown = "\n".join(f"[{at}]: https://site.example/page/{at}?x=1" for at in links)
        pages.append(ToolMessage(id=str(page), tool="fetch", text=f"{'words ' * 3000}\n{shown}"))
    return [UserMessage(text="Read them all."), *pages]


def _milliseconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)

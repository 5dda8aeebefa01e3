"""The console in a browser: the first paint, and the frames while an answer with code streams below a long transcript."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from playwright.sync_api import sync_playwright

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import TOKEN, gateway, new_home
from benchmarks.journals import write_journal
from benchmarks.process import serving
from benchmarks.setting import Setting

BAR_PAINT = 300.0
"""Milliseconds."""
BAR_FRAME = 20.0
"""Milliseconds, at the 99th percentile."""
SESSION = "20261121-090000-benchm"
PIECE = 40
"""Characters of a delta."""
PAUSE = 0.008
"""Seconds between two deltas: 5,000 characters a second are ten times what models write."""

FRAMES = """() => {
    const frames = (window.measured = { between: [], work: [] });
    const { port1, port2 } = new MessageChannel();
    let [last, began] = [null, 0];
    port1.onmessage = () => frames.work.push(performance.now() - began);
    const tick = (now) => {
        if (last !== null) frames.between.push(now - last);
        last = now;
        began = performance.now();
        port2.postMessage(null); // received once the frame is laid out and painted
        window.ticking = requestAnimationFrame(tick);
    };
    window.ticking = requestAnimationFrame(tick);
}"""
TAKEN = "() => { cancelAnimationFrame(window.ticking); return window.measured; }"
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def run(setting: Setting) -> list[Figure]:
    """Measure the frames below the newest page of a transcript, and below all of it. Needs Chromium and Playwright."""
    program = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    with serving("model_server") as (_, model_port), new_home(setting.folder) as home, sync_playwright() as play:
        (home / "sessions").mkdir()
        write_journal(home / "sessions", SESSION, key="main", turns=setting.transcript)
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        with gateway(home, model_port) as process:
            figures = _measure(browser, f"http://127.0.0.1:{process.port}", setting)
        browser.close()
    return figures


def _measure(browser: Any, url: str, setting: Setting) -> list[Figure]:
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    deltas: list[Any] = []
    page.route_web_socket("**/ws", lambda route: deltas.append(_joined(route)))
    page.goto(url)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Connected", exact=True).wait_for(state="attached")
    paints = []
    for _ in range(setting.runs):
        page.reload()
        page.locator("article").first.wait_for(state="attached")
        paints.append(page.evaluate(PAINT))
    figures = [figure("console", "first paint, signed in", "ms", paints, against="bar", reference=BAR_PAINT)]
    figures += _frames("code streams", _streamed(page, deltas[-1], setting))
    began = time.perf_counter()
    while page.locator("article.person").count() < setting.transcript:
        page.evaluate("document.querySelector('.timeline').scrollTop = 0")
        page.wait_for_timeout(20)
    messages = f"{2 * setting.transcript:,} messages"
    figures.append(figure("console", f"{messages} loaded by scrolling", "s", [time.perf_counter() - began]))
    page.get_by_role("button", name="Scroll to the newest message").click()
    page.wait_for_timeout(500)
    figures += _frames(f"{messages}: code streams", _streamed(page, deltas[-1], setting))
    figures += _frames(f"{messages}: scrolling", _scrolled(page))
    return figures


def _joined(route: Any) -> Any:
    """Connect a page's WebSocket with the gateway; further frames can be sent to the page."""
    route.connect_to_server()
    return route


def _frames(what: str, frames: dict[str, list[float]]) -> list[Figure]:
    """Return the figures of some frames: their work is that of the page, the time between them that of the machine, too."""
    slowest = {name: statistics.quantiles(samples, n=100)[98] for name, samples in frames.items()}
    return [
        figure("console", f"{what}: work of a frame", "ms", frames["work"]),
        figure("console", f"{what}: work, 99th percentile", "ms", [slowest["work"]], against="bar", reference=BAR_FRAME),
        figure(
            "console",
            f"{what}: between frames, 99th percentile",
            "ms",
            [slowest["between"]],
            against="bar",
            reference=BAR_FRAME,
        ),
    ]


def _streamed(page: Any, socket: Any, setting: Setting) -> dict[str, list[float]]:
    """Send an answer to the page in pieces, and return the measured frames."""
    turn, offset = setting.transcript + 1, 0
    page.evaluate(FRAMES)
    for piece in _pieces(setting.pieces):
        frame = {"type": "delta", "session": "main", "session_id": SESSION, "turn": turn, "reply": 1, "offset": offset}
        socket.send(msgspec.json.encode({**frame, "text": piece}).decode())
        offset += len(piece)
        page.wait_for_timeout(1000 * PAUSE)
    frames: dict[str, list[float]] = page.evaluate(TAKEN)
    page.locator("article.live .c-keyword").first.wait_for(state="attached")
    return frames


def _pieces(count: int) -> Iterator[str]:
    function = (
        'def measure_{0}(values: list[float], limit: float = 0.{0}) -> dict[str, float]:\n    """Return what `{0}` is."""\n'
        '    found = {{"name": "measure {0}", "limit": limit}}\n    for index, value in enumerate(values):  # all of them\n'
        "        if value > limit and index % {0} != 1:\n            found[str(index)] = value ** 2 / 3.5\n"
        "    return found\n\n\n"
    )
    text = "Here is **the code** that you asked for, with $x^2$ in it:\n\n```python\n"
    text += "".join(function.format(number) for number in range(1, 2 + count * PIECE // 350))
    for at in range(0, count * PIECE, PIECE):
        yield text[at : at + PIECE]


def _scrolled(page: Any) -> dict[str, list[float]]:
    page.evaluate(FRAMES)
    page.mouse.move(640, 400)
    for _ in range(200):
        page.mouse.wheel(0, -400)
        page.wait_for_timeout(16)
    frames: dict[str, list[float]] = page.evaluate(TAKEN)
    return frames

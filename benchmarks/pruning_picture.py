"""`python -m benchmarks.pruning_picture FILE.svg`: plot the requests of a recorded session under pruning and compaction."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.agent_session import DATA, WINDOW, lines_of, replay
from benchmarks.fitted import Fitted, fitted
from benchmarks.pruned_session import PrunedSession
from gateway.support import logs
from plugins.api.pruning import PruningMode, PruningRules

WIDTH, HEIGHT = 860, 850
LEFT, RIGHT = 70, 840


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A plot with its edges in pixels from the top. `most` is the value at its top, `step` the distance of grid lines."""

    top: int
    bottom: int
    most: int
    step: int

    def y(self, value: float) -> float:
        """Return the position of a value in pixels from the top."""
        return round(self.bottom - (self.bottom - self.top) * min(value, self.most) / self.most, 1)


MODES = Panel(top=60, bottom=330, most=WINDOW, step=50_000)
SAVED = Panel(top=390, bottom=470, most=150_000, step=150_000)
"""In characters."""
FITTED = Panel(top=560, bottom=800, most=400_000, step=100_000)

COLOURS: dict[PruningMode, str] = {"off": "#8a8f98", "cache-ttl": "#c77700", "always": "#1a6fb5"}

FITTED_COLOURS = {
    ("unchanged", 200_000): "#8a8f98",
    ("pruned", 200_000): "#1a6fb5",
    ("compacted", 200_000): "#2a8a4a",
    ("pruned and compacted", 128_000): "#7a3fb0",
    ("pruned and compacted", 32_000): "#c2342b",
}

STYLE = "text{font:13px system-ui,sans-serif;fill:#333}.small{font-size:11px;fill:#667}.grid{stroke:#e3e6ea}"


def main(path: Path) -> int:
    """Write the picture and return the exit code."""
    if not DATA.exists():
        print(f"{DATA.name} not found.", file=sys.stderr)
        return 1
    path.write_text(asyncio.run(_draw()))
    return 0


async def _draw() -> str:
    lines = lines_of(DATA)
    modes = {mode: await replay(lines, PrunedSession(PruningRules(mode=mode), WINDOW)) for mode in COLOURS}
    return picture(modes, await fitted(lines))


def picture(modes: dict[PruningMode, PrunedSession], fits: Sequence[Fitted]) -> str:
    """Return an SVG plot of the session in each pruning mode and at several window sizes."""
    requests = len(modes["off"].sent)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">',
        '<title id="title">Tokens of each request of a recorded session, by reduction</title>',
        f'<style>{STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(LEFT, 24, "A coding agent's session with its own two compactions: tokens of each request, window 200,000"),
        *_axes(MODES, requests),
        *_legend(46, [(COLOURS[mode], f"{mode}: {_millions(session)}") for mode, session in modes.items()]),
        *(_line(MODES, COLOURS[mode], session) for mode, session in modes.items()),
        _text(LEFT, SAVED.top - 14, "Characters saved by the edits of each request in the mode always"),
        *_axes(SAVED, 0),
        *_saved(modes["always"]),
        _text(LEFT, FITTED.top - 50, "Without these two compactions, reduced by the gateway, at several window sizes"),
        *_axes(FITTED, requests),
        *_fits(fits),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _fits(fits: Sequence[Fitted]) -> Iterator[str]:
    drawn = [(colour, each) for each in fits if (colour := FITTED_COLOURS.get((each.what, each.window)))]
    entries = [
        (
            colour,
            each.what if each.what == "unchanged" else f"{each.what}, {each.window // 1000}k: {_millions(each.session)}",
        )
        for colour, each in drawn
    ]
    yield from _legend(FITTED.top - 30, entries[:3])
    yield from _legend(FITTED.top - 13, entries[3:])
    for colour, each in drawn:
        yield _line(FITTED, colour, each.session)


def _millions(session: PrunedSession) -> str:
    return f"{sum(each.tokens for each in session.sent) / 1e6:.1f} million total"


def _axes(panel: Panel, requests: int) -> Iterator[str]:
    for value in range(0, panel.most + 1, panel.step):
        y = panel.y(value)
        yield f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>'
        yield _text(LEFT - 8, y + 4, f"{value // 1000}k", anchor="end", small=True)
    for request in range(0, requests, 100):
        name = f"request {request}" if request else "0"
        yield _text(_x(request, requests), panel.bottom + 18, name, anchor="middle", small=True)


def _legend(y: int, entries: Iterable[tuple[str, str]], *, apart: int = 262) -> Iterator[str]:
    for column, (colour, words) in enumerate(entries):
        x = LEFT + apart * column
        yield f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="2.5"/>'
        yield _text(x + 28, y, words, small=True)


def _line(panel: Panel, colour: str, session: PrunedSession) -> str:
    tokens = [each.tokens for each in session.sent]
    points = " ".join(f"{_x(index, len(tokens))},{panel.y(each)}" for index, each in enumerate(tokens))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _saved(session: PrunedSession) -> Iterable[str]:
    saved: dict[int, int] = {}
    for request, edit in session.edits:
        saved[request] = saved.get(request, 0) + edit.saved
    for request, characters in saved.items():
        x, y = _x(request, len(session.sent)), SAVED.y(characters)
        yield f'<path d="M{x} {SAVED.bottom}V{y}" stroke="{COLOURS["always"]}" stroke-width="2"/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", small: bool = False) -> str:
    kind = ' class="small"' if small else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{kind}>{words}</text>'


def _x(request: int, requests: int) -> float:
    return round(LEFT + (RIGHT - LEFT) * request / max(1, requests - 1), 1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.pruning_picture FILE.svg")
    logs.configure("error", "text")
    sys.exit(main(Path(sys.argv[1])))

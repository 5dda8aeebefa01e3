"""`python -m benchmarks.pruning_picture FILE.svg`: draw what pruning makes of a recorded session, request by request."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.agent_session import DATA, WINDOW, lines_of, replay
from benchmarks.pruned_session import PrunedSession
from plugins.pruning import Mode

WIDTH, LEFT, RIGHT = 860, 70, 840
TOP, BOTTOM = 60, 330
"""Where the tokens are drawn, in pixels from the top."""
SAVED_TOP, SAVED_BOTTOM = 390, 470
"""Where what edits saved is drawn."""
MOST_SAVED = 150_000
"""Characters at the top of that."""

COLOURS: dict[Mode, str] = {"off": "#8a8f98", "cache-ttl": "#c77700", "always": "#1a6fb5"}

STYLE = "text{font:13px system-ui,sans-serif;fill:#333}.small{font-size:11px;fill:#667}.grid{stroke:#e3e6ea}"


def main(path: Path) -> int:
    """Write the picture; returns the exit code."""
    if not DATA.exists():
        print(f"{DATA.name} is not there.", file=sys.stderr)
        return 1
    path.write_text(asyncio.run(_drawn()))
    return 0


async def _drawn() -> str:
    lines = lines_of(DATA)
    return picture({mode: await replay(lines, mode) for mode in COLOURS})


def picture(sessions: dict[Mode, PrunedSession]) -> str:
    """The same session under several modes, as SVG."""
    height = SAVED_BOTTOM + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        '<title id="title">Tokens of each request of a recorded session, by the mode of pruning</title>',
        f'<style>{STYLE}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        _text(LEFT, 24, "A coding agent's session: tokens of each request, window 200,000"),
        *_axes(len(sessions["off"].sent)),
        *_legend(sessions),
        *(_line(mode, [each.tokens for each in session.sent]) for mode, session in sessions.items()),
        _text(LEFT, SAVED_TOP - 14, "What each request's edits saved in the mode always, in characters"),
        *_saved(sessions["always"]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axes(requests: int) -> Iterator[str]:
    for tokens in range(0, WINDOW + 1, 50_000):
        y = _y(tokens)
        yield f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>'
        yield _text(LEFT - 8, y + 4, f"{tokens // 1000}k", anchor="end", small=True)
    for request in range(0, requests, 100):
        yield _text(
            _x(request, requests), BOTTOM + 18, f"request {request}" if request else "0", anchor="middle", small=True
        )
    for characters in (0, MOST_SAVED):
        y = _saved_y(characters)
        yield f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>'
        yield _text(LEFT - 8, y + 4, f"{characters // 1000}k", anchor="end", small=True)


def _legend(sessions: dict[Mode, PrunedSession]) -> Iterator[str]:
    for row, (mode, session) in enumerate(sessions.items()):
        x = LEFT + 250 * row
        total = sum(each.tokens for each in session.sent) / 1e6
        yield f'<path d="M{x} 42h22" stroke="{COLOURS[mode]}" stroke-width="2.5"/>'
        yield _text(x + 28, 46, f"{mode}: {total:.1f} million in all", small=True)


def _line(mode: Mode, tokens: Sequence[int]) -> str:
    points = " ".join(f"{_x(index, len(tokens))},{_y(each)}" for index, each in enumerate(tokens))
    return f'<polyline points="{points}" fill="none" stroke="{COLOURS[mode]}" stroke-width="1.6"/>'


def _saved(session: PrunedSession) -> Iterable[str]:
    saved: dict[int, int] = {}
    for request, edit in session.edits:
        saved[request] = saved.get(request, 0) + edit.saved
    for request, characters in saved.items():
        x, y = _x(request, len(session.sent)), _saved_y(min(characters, MOST_SAVED))
        yield f'<path d="M{x} {SAVED_BOTTOM}V{y}" stroke="{COLOURS["always"]}" stroke-width="2"/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", small: bool = False) -> str:
    kind = ' class="small"' if small else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{kind}>{words}</text>'


def _x(request: int, requests: int) -> float:
    return round(LEFT + (RIGHT - LEFT) * request / max(1, requests - 1), 1)


def _y(tokens: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * tokens / WINDOW, 1)


def _saved_y(characters: float) -> float:
    return round(SAVED_BOTTOM - (SAVED_BOTTOM - SAVED_TOP) * characters / MOST_SAVED, 1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.pruning_picture FILE.svg")
    sys.exit(main(Path(sys.argv[1])))

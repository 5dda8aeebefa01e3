"""The savings of pruning, its effect on a provider's cache, and its cost."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from typing import get_args

import msgspec

from benchmarks.agent_session import DATA, lines_of, replay
from benchmarks.figures import Figure, figure
from benchmarks.fitted import figures_of, fitted
from benchmarks.pruned_session import PrunedSession, Sent
from benchmarks.setting import Setting
from plugins.api.pruning import PruningMode, PruningRules
from sessions.events.events import RequestedCall

BAR_MILLIS = 15.0
BAR_REPEATED = 90.0
WINDOW = 200_000
TURNS = 300
WARM = 30
"""Initial requests excluded from the cached share, as they have little to repeat."""


def run(setting: Setting) -> list[Figure]:
    """Measure a busy session, the cost of a large request, and the recorded agent's session if it exists."""
    return asyncio.run(_run(setting))


async def _run(setting: Setting) -> list[Figure]:
    figures: list[Figure] = []
    turns = min(TURNS, setting.turns)
    for mode in get_args(PruningMode):
        figures += _figures(f"{turns} busy turns, {mode}", await busy(mode, turns))
    for what, window in (("nothing to prune", 10**6), ("much to prune", 150_000)):
        samples = [await _large(window) for _ in range(setting.runs)]
        label = f"prune, assemble and measure 200k tokens, {what}"
        figures.append(figure("pruning", label, "ms", samples, against="bar", reference=BAR_MILLIS))
    if not DATA.exists():
        print(f"  {DATA.name} not found: skipped", file=sys.stderr)
        return figures
    lines = lines_of(DATA)
    for mode in get_args(PruningMode):
        figures += _figures(f"agent's session, {mode}", await replay(lines, PrunedSession(PruningRules(mode=mode), WINDOW)))
    for each in await fitted(lines):
        figures += figures_of(each)
        figures += _saved(f"agent's session at {each.window:,}, {each.what}", each.session)
    return figures


async def busy(mode: PruningMode, turns: int, window: int = WINDOW) -> PrunedSession:
    """Return a session of turns without pauses, each with one to five calls that return 200 to 40,000 characters."""
    chance = random.Random(4)
    session = PrunedSession(PruningRules(mode=mode), window)
    for turn in range(turns):
        session.hear(f"Do the thing number {turn}.")
        for _ in range(chance.randint(1, 5)):
            await session.send()
            call = RequestedCall(id="", tool="read", arguments='{"path":"file.py"}')
            (ref,) = session.reply("Let me look.", call)
            session.give(ref, _words(chance, int(10 ** chance.uniform(2.3, 4.6))))
        await session.send()
        session.reply("It is done. " * 20)
    return session


def repeated_share(sent: list[Sent]) -> float:
    """Return the percentage of the bytes of requests that are in the provider's cache."""
    return 100 * sum(each.repeated for each in sent[WARM:]) / max(1, sum(each.bytes for each in sent[WARM:]))


def _words(chance: random.Random, characters: int) -> str:
    text = " ".join(chance.choice(("crab", "shell", "moult", "tide", "return", "x=1")) for _ in range(characters // 4))
    return text[:characters]


def _figures(what: str, session: PrunedSession) -> Iterator[Figure]:
    sent = session.sent
    yield figure("pruning", f"{what}: request", "tokens", [float(each.tokens) for each in sent])
    yield figure("pruning", f"{what}: all requests", "Mtokens", [sum(each.tokens for each in sent) / 1e6])
    yield figure("pruning", f"{what}: not cached", "Mtokens", [sum(each.fresh for each in sent) / 1e6])
    share = [repeated_share(sent)]
    yield figure("pruning", f"{what}: cached", "%", share, against="at least", reference=BAR_REPEATED)
    yield figure("pruning", f"{what}: prune, assemble and measure", "ms", [each.millis for each in sent])
    yield from _saved(what, session)


def _saved(what: str, session: PrunedSession) -> Iterator[Figure]:
    """Yield the characters saved by the edits of each proposer and kind."""
    saved: dict[str, list[float]] = {}
    for _, edit in session.edits:
        saved.setdefault(f"{edit.by}, {type(edit).__name__.lower()}", []).append(float(edit.saved))
    for name, each in sorted(saved.items()):
        yield figure("pruning", f"{what}: saved by an edit of {name}", "chars", each)


async def _large(window: int) -> float:
    """Return the milliseconds to prune, assemble and measure a request of 200,000 tokens in results of 2,000 characters."""
    session = PrunedSession(PruningRules(mode="off"), window)
    session.hear("Go.")
    for number in range(380):
        (ref,) = session.reply("", RequestedCall(id="", tool="read", arguments="{}"))
        session.give(ref, f"{number} " + "shell " * 330)
    await session.send()
    session.settings.offer(msgspec.structs.replace(session.settings.current, pruning=PruningRules(mode="always")))
    (ref,) = session.reply("", RequestedCall(id="", tool="read", arguments="{}"))
    session.give(ref, "shell " * 330)
    return (await session.send()).millis

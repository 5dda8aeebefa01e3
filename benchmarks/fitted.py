"""A recorded agent's session at several window sizes: unchanged, pruned, compacted, and both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from benchmarks.agent_session import replay, without_compactions
from benchmarks.compacted_session import CompactedSession
from benchmarks.figures import Figure, figure
from benchmarks.pruned_session import PrunedSession
from plugins.api.pruning import PruningRules

WINDOWS = (32_000, 128_000, 200_000)


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """The session replayed at one window size. `what` names the reduction; `compactions` counts those of the gateway."""

    what: str
    window: int
    session: PrunedSession
    compactions: int = 0


async def fitted(lines: list[dict[str, Any]]) -> list[Fitted]:
    """Replay the session without the agent's own compactions, with each reduction at each window size.

    Pruning is in the mode `always`.
    """
    lines, always, off = without_compactions(lines), PruningRules(mode="always"), PruningRules(mode="off")
    unchanged = await replay(lines, PrunedSession(off, WINDOWS[-1]))
    found = [Fitted(what="unchanged", window=WINDOWS[-1], session=unchanged)]
    for window in WINDOWS:
        pruned = await replay(lines, PrunedSession(always, window))
        found.append(Fitted(what="pruned", window=window, session=pruned))
        for what, rules in (("compacted", off), ("pruned and compacted", always)):
            session = CompactedSession(rules, window)
            await replay(lines, session)
            found.append(Fitted(what=what, window=window, session=session, compactions=len(session.made)))
    return found


def figures_of(each: Fitted) -> Iterator[Figure]:
    """Yield the figures of the session's requests."""
    what, tokens = f"agent's session at {each.window:,}, {each.what}", [sent.tokens for sent in each.session.sent]
    yield figure("pruning", f"{what}: request", "tokens", [float(count) for count in tokens])
    yield figure("pruning", f"{what}: largest", "tokens", [max(tokens)], against="window", reference=each.window)
    yield figure("pruning", f"{what}: all requests", "Mtokens", [sum(tokens) / 1e6])
    yield figure("pruning", f"{what}: not cached", "Mtokens", [sum(sent.fresh for sent in each.session.sent) / 1e6])
    yield figure("pruning", f"{what}: compactions", "", [each.compactions])

"""A page of a chat's history, read backwards from any event."""

from __future__ import annotations

from gateway.conversations.chat import Chat

HISTORY_BYTES = 1024 * 1024
"""Bytes of events in one page of history."""


async def page_before(chat: Chat, session: str, before: int, limit: int) -> list[bytes]:
    """The up to `limit` lines before a seq, oldest first, as many as a page's bytes hold and at least one."""
    wanted = min(limit, before - 1)
    while wanted > 0:
        first = before - wanted
        lines = (await chat.lines(session, first, limit=HISTORY_BYTES))[:wanted]
        if len(lines) == wanted or wanted == 1:
            return lines
        wanted = max(1, min(wanted // 2, len(lines)))
    return []

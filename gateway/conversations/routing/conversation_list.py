"""Lists of conversations for people: of all their keys, and of the forks that share an origin."""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec

from sessions.events.events import MAIN_AGENT
from sessions.store.catalog import ListedSession, SessionRow


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session that a fork continues, its last event in the fork, and its key, unless it was deleted."""

    session_id: str
    seq: int
    session: str = ""


# gc=False: there may be very many, and none can be part of a cycle.
class ListedConversation(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A key with its current session.

    `created` is the time of the key's first session, `at` that of the last event, `used` that of the newest message or
    answer unless it is the last event. `beginning` is that of the first message while there is no title. `replied` is the
    seq of the newest answer, `channel` is where the conversation began unless that is the websocket, `question` the
    seq of the oldest open question, `agent` the agent that answers, unless it is `main`, `parent` the key of the
    conversation that started this one as a subagent.
    """

    session: str
    session_id: str
    head: int
    at: str
    title: str
    created: str
    beginning: str = ""
    pinned: bool = False
    archived: bool = False
    running: bool = False
    replied: int = 0
    used: str = ""
    origin: Origin | None = None
    channel: str = ""
    question: int | None = None
    agent: str = ""
    parent: str = ""


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a tree of forks; `parent` is what it was forked from."""

    session: str
    session_id: str
    title: str
    at: str
    head: int
    parent: Origin | None


def listed_conversations(sessions: Iterable[ListedSession], running: Container[str]) -> list[ListedConversation]:
    """Return the conversations with these current sessions; turns run in the keys `running`."""
    return [
        ListedConversation(
            session=row.key,
            session_id=row.session,
            head=row.head,
            at=row.at,
            title=row.title,
            beginning="" if row.title else row.beginning,
            created=listed.created,
            pinned=row.pinned,
            archived=row.archived,
            running=row.key in running,
            replied=row.replied,
            used=row.used if row.used != row.at else "",
            origin=_origin(row, listed.origin_key) if row.origin else None,
            channel=row.channel,
            agent="" if row.agent == MAIN_AGENT else row.agent,
            parent=row.parent,
        )
        for listed in sessions
        for row in (listed.row,)
    ]


def related_sessions(rows: Iterable[SessionRow], key: str) -> list[TreeNode]:
    """Return the sessions of a key among all of a person, and those that share an origin with one of them, oldest first."""
    by_id = {row.session: row for row in rows}
    roots = {_root(by_id, row) for row in by_id.values() if row.key == key}
    related = sorted((row for row in by_id.values() if _root(by_id, row) in roots), key=lambda row: row.opened_at)
    return [
        TreeNode(
            session=row.key,
            session_id=row.session,
            title=row.title,
            at=row.at,
            head=row.head,
            parent=_origin(row, _key(by_id.get(row.origin.session))) if row.origin else None,
        )
        for row in related
    ]


def _origin(row: SessionRow, key: str) -> Origin:
    assert row.origin is not None
    return Origin(session_id=row.origin.session, seq=row.origin.seq, session=key)


def _key(row: SessionRow | None) -> str:
    return row.key if row else ""


def _root(rows: dict[str, SessionRow], row: SessionRow) -> str:
    """Return the id of the session that a fork goes back to, whether or not it still exists."""
    while row.origin is not None and row.origin.session in rows:
        row = rows[row.origin.session]
    return row.origin.session if row.origin else row.session

"""Read-only links to conversations: their log `HOME/shares.jsonl`, and the part of a conversation that a link shows.

A link contains a random secret, of which only the SHA-256 is stored. The line format is that of all logs (docs/events.md).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from gateway.protocol.slash_commands import parse_command
from sessions.events.codec import InvalidLine, decode
from sessions.events.events import (
    MessageImported,
    MessageReceived,
    ModelReplied,
    Recorded,
    ReplyImported,
    RequestedCall,
    ToolReturned,
    TurnEnded,
)
from sessions.events.handed_messages import is_handed
from sessions.events.messages import Attachment
from sessions.store.catalog import SessionRow
from sessions.store.header import random_suffix
from sessions.store.lazy_log import LazyLog, LogFormat
from sessions.store.log_writer import stamp
from sessions.store.protocols import Lines, Store

SECRET_BYTES = 24
"""Random bytes in a link."""


class SharedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a shared conversation, and the last seq that the link shows."""

    session: str
    upto: int


class ConversationShared(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="conversation_shared"
):
    """A person made a link to a conversation as it was then, or, if it is `live`, as it grows.

    `digest` is the SHA-256 of the secret. `expires` is a time (RFC 3339), or empty. Tools are shown only if `tools` is True,
    and files only if `files` is True; otherwise they are named.
    """

    share: str
    person: str
    key: str
    sessions: tuple[SharedSession, ...]
    digest: str
    expires: str = ""
    live: bool = False
    tools: bool = False
    files: bool = False


class ShareRevoked(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="share_revoked"):
    """A link no longer works."""

    share: str
    by: str


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A link that was not revoked, and the time at which it was made."""

    at: str
    made: ConversationShared


ShareEvent: TypeAlias = ConversationShared | ShareRevoked
KnownShares: TypeAlias = Mapping[str, Share]


def fold_share(shares: KnownShares, event: ShareEvent, *, seq: int, at: str, turn: int | None, size: int) -> KnownShares:
    """Return the links after one more event."""
    others = {id_: each for id_, each in shares.items() if id_ != event.share}
    return {**others, event.share: Share(at=at, made=event)} if isinstance(event, ConversationShared) else others


SHARES: LogFormat[ShareEvent, KnownShares] = LogFormat(
    name="shares", events=(ConversationShared, ShareRevoked), empty={}, fold=fold_share
)


class Shares:
    """The links of all people, as an async context manager.

    Args:
        store: The store of the log.
        now: Returns the current time in UTC.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._log = LazyLog(SHARES, store, now, unusable="No link to a conversation works")
        self._now = now

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._log.close()

    def problems(self) -> list[str]:
        """Return the problem of the log as a sentence, if there is one."""
        return [self._log.problem] if self._log.problem else []

    async def rewrite(self, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace the lines of the log, see `LazyLog.rewrite`. Raises StorageFailed, JournalDamaged."""
        await self._log.rewrite(rewritten)

    async def make(
        self, rows: Sequence[SessionRow], *, days: float | None, live: bool, tools: bool, files: bool
    ) -> tuple[ConversationShared, str]:
        """Make a link to the conversation of these sessions, oldest first, durably; return it with its secret.

        It expires after a number of days, or never. Raises SessionsError.
        """
        secret = secrets.token_urlsafe(SECRET_BYTES)
        made = ConversationShared(
            share=random_suffix() + random_suffix(),
            person=rows[0].person,
            key=rows[0].key,
            sessions=tuple(SharedSession(session=row.session, upto=row.head) for row in rows),
            digest=_digest(secret),
            expires=stamp(self._now() + timedelta(days=days)) if days else "",
            live=live,
            tools=tools,
            files=files,
        )
        async with self._log.writing() as writer:
            await writer.append_durable(made)
        return made, secret

    async def of_key(self, person: str, key: str) -> list[Share]:
        """Return the links to a person's conversation that work, oldest first. Raises SessionsError."""
        shares = (await self._log.durable_state()).values()
        return [each for each in shares if (each.made.person, each.made.key) == (person, key) and self._works(each.made)]

    async def revoke(self, person: str, key: str, share: str) -> bool:
        """Revoke a link durably; return False if the conversation has none with this id. Raises SessionsError."""
        if not any(each.made.share == share for each in await self.of_key(person, key)):
            return False
        async with self._log.writing() as writer:
            await writer.append_durable(ShareRevoked(share=share, by=person))
        return True

    async def find(self, secret: str) -> ConversationShared | None:
        """Return the link with a secret if it works. Raises SessionsError."""
        digest = _digest(secret)
        shares = (await self._log.durable_state()).values()
        return next((each.made for each in shares if each.made.digest == digest and self._works(each.made)), None)

    def _works(self, made: ConversationShared) -> bool:
        return not made.expires or stamp(self._now()) < made.expires


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def shown_sessions(made: ConversationShared, rows: Sequence[SessionRow]) -> list[SharedSession]:
    """Return the sessions that a link shows, oldest first; empty if the conversation was deleted.

    `rows` are the sessions that its key has now. They belong to another conversation if the first one is not among them.
    """
    heads = {row.session: row.head for row in rows}
    if not made.sessions or made.sessions[0].session not in heads:
        return []
    if not made.live:
        return [each for each in made.sessions if each.session in heads]
    ordered = sorted(rows, key=lambda row: (row.opened_at, row.session))
    return [SharedSession(session=row.session, upto=row.head) for row in ordered]


def shown_events(lines: Sequence[bytes], made: ConversationShared) -> list[dict[str, Any]]:
    """Return what a link shows of these lines: messages, answers and, if wanted, tools. Commands are left out, and so is
    everything about people and the gateway."""
    return [
        {"seq": recorded.seq, "at": recorded.at, "turn": recorded.turn} | fields
        for recorded in _decoded(lines)
        if (fields := _shown(recorded, made)) is not None
    ]


def shown_files(lines: Sequence[bytes], made: ConversationShared) -> list[Attachment]:
    """Return the files that a link shows of these lines."""
    return [file for recorded in _decoded(lines) for file in _files_of(recorded, made)] if made.files else []


def _decoded(lines: Sequence[bytes]) -> Iterator[Recorded]:
    for line in lines:
        with suppress(InvalidLine):
            yield decode(line)


def _files_of(recorded: Recorded, made: ConversationShared) -> tuple[Attachment, ...]:
    match recorded.event:
        case MessageReceived(text=text, attachments=files) if parse_command(text) is None:
            return files
        case MessageImported(attachments=files):
            return files
        case ToolReturned(attachments=files) if made.tools:
            return files
        case _:
            return ()


def _shown(  # noqa: PLR0911 - one arm for each kind
    recorded: Recorded, made: ConversationShared
) -> dict[str, Any] | None:
    event, tools = recorded.event, made.tools
    files = [_file(each, with_hash=made.files) for each in _files_of(recorded, made)]
    match event:
        case MessageReceived() as message if parse_command(message.text) is None:
            handed = {"client": message.client} if is_handed(message) else {}
            return {"kind": "message_received", "text": message.text, "attachments": files, **handed}
        case MessageImported() as imported:
            return {"kind": "message_imported", "text": imported.text, "attachments": files}
        case ReplyImported() as imported if imported.text or (tools and imported.calls):
            calls = _calls(imported.calls) if tools else []
            return {"kind": "reply_imported", "model": imported.model, "text": imported.text, "calls": calls}
        case ModelReplied() as reply if reply.text or (tools and reply.calls):
            return {
                "kind": "model_replied",
                "model": reply.model,
                "text": reply.text,
                "calls": _calls(reply.calls) if tools else [],
                "stop": reply.stop,
            }
        case ToolReturned() as returned if tools:
            call = {"of": returned.call.of, "index": returned.call.index}
            shown = {"kind": "tool_returned", "call": call, "outcome": returned.outcome, "output": returned.output}
            more = {"diff": returned.diff, "exit_code": returned.exit_code, "millis": returned.millis}
            return shown | more | {"attachments": files}
        case TurnEnded(outcome=outcome, millis=millis):
            return {"kind": "turn_ended", "outcome": outcome, "millis": millis}
        case _:
            return None


def _calls(calls: tuple[RequestedCall, ...]) -> list[dict[str, str]]:
    return [{"id": call.id, "tool": call.tool, "arguments": call.arguments} for call in calls]


def _file(file: Attachment, *, with_hash: bool) -> dict[str, Any]:
    named: dict[str, Any] = {"name": file.name, "media": file.media, "bytes": file.bytes}
    size = {"width": file.width, "height": file.height} if file.width else {}
    return named | size | ({"sha256": file.sha256} if with_hash else {})

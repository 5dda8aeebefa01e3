"""Responses that are stored without a session: the log `HOME/responses.jsonl`.

It has the line format of all logs (see docs/events.md), and is opened by the first request that needs it. An event has the
input that was new and the response; `base` is the response whose conversation the input continues, either named by the
client or recognised because the client sent that whole conversation again. So the log grows by what is new only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from types import TracebackType
from typing import Any, Self

import msgspec

from sessions.events.messages import Message
from sessions.store.lazy_log import LazyLog, LogFormat
from sessions.store.protocols import Lines, Store


class ResponseStored(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="response_stored"):
    """The response `id` answered `messages`, which continue the conversation of the response `base`.

    `digest` is that of the whole conversation, the answer included, and of its person.
    """

    id: str
    person: str
    base: str
    messages: tuple[Message, ...]
    answer: tuple[Message, ...]
    response: dict[str, Any]
    digest: str


class StoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that a stored response ended with, its own included, and their digest."""

    id: str
    messages: tuple[Message, ...]
    digest: str


class _Row(msgspec.Struct, frozen=True):
    person: str
    seq: int


class _Index(msgspec.Struct):
    """Where each response is, and the response that ended each conversation, by its digest."""

    rows: dict[str, _Row] = msgspec.field(default_factory=dict)
    ended: dict[str, str] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(ResponseStored).decode


class StoredResponses:
    """The stored responses of all persons.

    Args:
        store: The store of the log.
        now: Returns the current time in UTC.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        form = LogFormat(name="responses", events=(ResponseStored,), empty=_Index(), fold=_fold)
        self._log: LazyLog[ResponseStored, _Index] = LazyLog(
            form, store, now, unusable="The stored responses cannot be used"
        )

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

    async def find(self, person: str, id_: str) -> ResponseStored | None:
        """Return a stored response of this person. Raises StorageFailed."""
        row = (await self._log.durable_state()).rows.get(id_)
        if row is None or row.person != person:
            return None
        lines = await self._log.lines(row.seq, limit=1)
        return _decode(lines[0])

    async def conversation(self, person: str, id_: str) -> StoredConversation | None:
        """Return the conversation that a stored response ended. Raises StorageFailed."""
        last = found = await self.find(person, id_)
        parts: list[Sequence[Message]] = []
        while found is not None:
            parts += [found.answer, found.messages]
            found = await self.find(person, found.base) if found.base else None
        if last is None:
            return None
        return StoredConversation(
            id=id_, messages=tuple(each for part in reversed(parts) for each in part), digest=last.digest
        )

    async def recognised(self, person: str, messages: Sequence[Message]) -> tuple[str, str, int]:
        """Find the longest beginning of a conversation that a stored response ended.

        Returns:
            The id of that response, the digest of that beginning, and its number of messages; without one "", the digest of
            no messages, and 0. Raises StorageFailed.
        """
        ended = (await self._log.durable_state()).ended
        digest = digest_of(person, ())
        best = "", digest, 0
        if not ended:
            return best
        for number, message in enumerate(messages, start=1):
            digest = digest_of(digest, (message,))
            if digest in ended:
                best = ended[digest], digest, number
        return best

    async def add(self, stored: ResponseStored) -> None:
        """Store a response durably. Raises StorageFailed, LineTooLong."""
        async with self._log.writing() as writer:
            await writer.append_durable(stored)


def digest_of(before: str, messages: Sequence[Message]) -> str:
    """Return the digest of a conversation, which begins with the person and grows with each message."""
    digest = before
    for message in messages:
        digest = blake2b(digest.encode() + b"\0" + msgspec.json.encode(message), digest_size=16).hexdigest()
    return digest


def _fold(index: _Index, event: ResponseStored, *, seq: int, at: str, turn: int | None, size: int) -> _Index:
    """Add a response to the index, in place: only ids that were given out after the commit are looked up."""
    index.rows[event.id] = _Row(event.person, seq)
    index.ended[event.digest] = event.id
    return index

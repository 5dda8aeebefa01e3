"""Receipts: which message ids a key has seen, so that a message sent again is known and no second turn begins.

Ids and texts are kept as digests: an id may be 512 bytes long, and ten thousand of them stay well under 2 MB.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice

import msgspec

from sessions.events.events import MessageReceived, Recorded
from sessions.events.messages import Attachment

REMEMBERED = 10_000
"""At least so many ids of a key are known."""

MOST = 12_000
"""Beyond so many the oldest are let go of, down to REMEMBERED."""

_ENTRY = struct.Struct(">IQ12s")


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message stands, and the digest of what it said."""

    session: str
    seq: int
    digest: bytes


class SeenMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message of a journal: the digest of its id, its seq, and the digest of what it said."""

    id: bytes
    seq: int
    digest: bytes


class Receipts:
    """The ids that one key has seen, across its sessions. Opening a journal notes on a thread what the event loop looks up
    meanwhile, so changes take a lock."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}
        self._sessions: list[str] = []
        self._places: dict[str, int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, id_: str) -> Receipt | None:
        """The first message that came with this id."""
        entry = self._entries.get(_id(id_))
        if entry is None:
            return None
        session, seq, digest = _ENTRY.unpack(entry)
        return Receipt(session=self._sessions[session], seq=seq, digest=digest)

    def note(self, session: str, recorded: Recorded) -> None:
        """Remember a `message_received` of this session; other events are nothing to it."""
        if isinstance(recorded.event, MessageReceived):
            self.add(session, recorded.seq, recorded.event)

    def add(self, session: str, seq: int, message: MessageReceived) -> None:
        """Remember a message that stands at `seq` of this session. An id that is known keeps its first receipt."""
        self.extend(session, (seen(seq, message),))

    def extend(self, session: str, messages: Iterable[SeenMessage]) -> None:
        """Remember several messages of one session, oldest first."""
        with self._lock:
            place = self._place(session)
            for message in messages:
                self._entries.setdefault(message.id, _ENTRY.pack(place, message.seq, message.digest))
            if len(self._entries) > MOST:
                # Cut rarely and deep: taking one from a dict's front for each that comes costs more with every time.
                newest = islice(self._entries.items(), len(self._entries) - REMEMBERED, None)
                self._entries = dict(newest)

    def forget(self, session: str, *, after: int) -> None:
        """Take back the messages of a session beyond seq `after`: they never reached the disk."""
        with self._lock:
            for lost in list(self._newest(session, after)):
                del self._entries[lost.id]

    def between(self, session: str, after: int, upto: int) -> list[SeenMessage]:
        """The messages of a session with a seq above `after` and not above `upto`, oldest first."""
        with self._lock:
            found = [message for message in self._newest(session, after) if message.seq <= upto]
        return found[::-1]

    def _newest(self, session: str, after: int) -> Iterator[SeenMessage]:
        """A session's messages from the newest back to `after`; a session's messages are remembered in their order."""
        place = self._place(session)
        for id_, entry in reversed(self._entries.items()):
            at, seq, digest = _ENTRY.unpack(entry)
            if at == place:
                if seq <= after:
                    return
                yield SeenMessage(id_, seq, digest)

    def _place(self, session: str) -> int:
        place = self._places.setdefault(session, len(self._sessions))
        if place == len(self._sessions):
            self._sessions.append(session)
        return place


def digest_of(text: str, attachments: Sequence[Attachment]) -> bytes:
    """The digest that is equal for the same message: equal text and equal attachments (by content, in order)."""
    said = msgspec.msgpack.encode((text, [attachment.sha256 for attachment in attachments]))
    return blake2b(said, digest_size=12).digest()


def seen(seq: int, message: MessageReceived) -> SeenMessage:
    """What is remembered of a message that stands at `seq`."""
    return SeenMessage(_id(message.id), seq, digest_of(message.text, message.attachments))


def _id(id_: str) -> bytes:
    return blake2b(id_.encode(), digest_size=12).digest()

"""Receipts: the message ids that a key has received, so that a message sent twice is recognized and starts no second turn.

Ids and texts are kept as digests: an id may be 512 bytes long, while ten thousand digests take well under 2 MB.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice

import msgspec

from sessions.events.codec import InvalidLine, decode
from sessions.events.events import MessageReceived
from sessions.events.messages import Attachment

REMEMBERED = 10_000
"""Minimum number of ids that are kept for a key, if it has as many."""

MOST = 12_000
"""Number of ids at which the oldest are dropped, down to REMEMBERED."""

_KIND = b'"kind":"message_received"'
_HEAD = 128
"""Bytes at the start of a line that contain its kind."""

_ENTRY = struct.Struct(">IQ12s")


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a message, and the digest of its content."""

    session: str
    seq: int
    digest: bytes


class SeenMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message of a journal: the digest of its id, its seq, and the digest of its content."""

    id: bytes
    seq: int
    digest: bytes


class Receipts:
    """The ids that one key has received, across its sessions. Opening a journal adds ids on a thread while the event loop
    looks them up, so changes take a lock."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}
        self._sessions: list[str] = []
        self._places: dict[str, int] = {}
        self._upto: dict[str, int] = {}
        """For each session, the seq up to which all its messages were added, as far as they are remembered."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, id_: str) -> Receipt | None:
        """Return the receipt of the first message with this id."""
        entry = self._entries.get(_id(id_))
        if entry is None:
            return None
        session, seq, digest = _ENTRY.unpack(entry)
        return Receipt(session=self._sessions[session], seq=seq, digest=digest)

    def upto(self, session: str) -> int | None:
        """Return the seq up to which all messages of a session were added, as far as they are remembered; None if nothing
        was."""
        return self._upto.get(session)

    def add(self, session: str, seq: int, message: MessageReceived) -> None:
        """Add a message at `seq` of this session. A known id keeps its first receipt."""
        self.extend(session, (seen_message(seq, message),), upto=seq)

    def extend(self, session: str, messages: Iterable[SeenMessage], *, upto: int) -> None:
        """Add the messages of one session up to a seq, oldest first, which follow those that were added before."""
        with self._lock:
            self._upto[session] = max(upto, self._upto.get(session, 0))
            place = self._place(session)
            for message in messages:
                self._entries.setdefault(message.id, _ENTRY.pack(place, message.seq, message.digest))
            if len(self._entries) > MOST:
                # Drop many at once: removing single items from the front of a dict becomes slower each time.
                newest = islice(self._entries.items(), len(self._entries) - REMEMBERED, None)
                self._entries = dict(newest)

    def forget(self, session: str, *, after: int) -> None:
        """Remove the messages of a session after a seq, which may not have reached the disk. Opening the session decides
        that, and adds those that did."""
        with self._lock:
            if session in self._upto:
                self._upto[session] = min(after, self._upto[session])
            for lost in list(self._newest(session, after)):
                del self._entries[lost.id]

    def between(self, session: str, after: int, upto: int) -> list[SeenMessage]:
        """Return the messages of a session with a seq above `after` and up to `upto`, oldest first."""
        with self._lock:
            found = [message for message in self._newest(session, after) if message.seq <= upto]
        return found[::-1]

    def _newest(self, session: str, after: int) -> Iterator[SeenMessage]:
        """Yield a session's messages from the newest back to `after`. They were added in order."""
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
    """Return a digest of a message's content: its text and its attachments (by content, in order)."""
    said = msgspec.msgpack.encode((text, [attachment.sha256 for attachment in attachments]))
    return blake2b(said, digest_size=12).digest()


def seen_message(seq: int, message: MessageReceived) -> SeenMessage:
    """Return the digests of a message at `seq`."""
    return SeenMessage(_id(message.id), seq, digest_of(message.text, message.attachments))


def message_in(line: bytes) -> SeenMessage | None:
    """Return the message in a line of a log; None if there is none, or if the line is damaged."""
    if line.find(_KIND, 0, _HEAD) < 0:
        return None
    try:
        recorded = decode(line)
    except InvalidLine:
        return None  # reported when the journal is opened
    return seen_message(recorded.seq, recorded.event) if isinstance(recorded.event, MessageReceived) else None


def _id(id_: str) -> bytes:
    return blake2b(id_.encode(), digest_size=12).digest()

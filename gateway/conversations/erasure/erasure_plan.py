"""What an erasure reaches: from the messages that a person chose to the events, notes, files and facts that came of them.

All functions block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec

from gateway.conversations.erasure.tombstones import tombstone, without_hash
from gateway.conversations.notes.day_notes import as_section, digest_of
from plugins.api.fact_values import Fact
from plugins.facts.fact_log import DOCUMENT, recalled_fact
from plugins.memory.sources.transcripts import document_of
from sessions.attachments.attachment_refs import attachments_of_event
from sessions.events.codec import TRAILER, InvalidLine, decode, encode_line
from sessions.events.errors import JournalDamaged, UnknownSession
from sessions.events.events import (
    ChangesUndone,
    CommandAnswered,
    ContextCompacted,
    MemoryFlushed,
    MemoryRecalled,
    MessageImported,
    MessageReceived,
    ModelReplied,
    NoteAppended,
    RecalledHit,
    Recorded,
    ReplyImported,
    SessionForked,
    SessionOpened,
    SessionTitled,
    ToolReturned,
    TurnJoined,
    TurnStarted,
    kind_of,
)
from sessions.state.transcript import ForkOrigin
from sessions.store.header import read_header
from sessions.store.protocols import START, LogReader
from sessions.store.reading import is_torn
from sessions.store.rewriting import Change

_ENVELOPE = re.compile(rb'\A\{"seq":([0-9]{1,19}),"at":"[^"]{20,30}","turn":(null|[0-9]+),"kind":"([a-z_]+)"')
_MESSAGE = kind_of(MessageReceived).encode()
_TELLING = frozenset(
    kind_of(kind).encode()
    for kind in (
        *(MessageReceived, TurnStarted, TurnJoined, CommandAnswered, ChangesUndone, MemoryFlushed, ContextCompacted),
        *(NoteAppended, SessionTitled, SessionOpened, SessionForked, MessageImported, ReplyImported),
    )
)
"""The kinds of events that have to be decoded: they say what came of messages, or belong to messages outside of a turn."""
_REQUESTS = frozenset({b"request_sent", b"request_repeated"})
_RETURNED = kind_of(ToolReturned).encode()
"""Outside of a turn, the result of an imported call."""
_RECALLED = kind_of(MemoryRecalled).encode()


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What of a session is erased: the messages with these seqs, and every event up to the seq `upto`."""

    messages: frozenset[int] = frozenset()
    upto: int = 0

    def shared(self, seq: int) -> Chosen:
        """Return the part of it in a session that shares the events up to a seq."""
        return Chosen(messages=frozenset(each for each in self.messages if each <= seq), upto=min(self.upto, seq))

    def __or__(self, other: Chosen) -> Chosen:
        return Chosen(messages=self.messages | other.messages, upto=max(self.upto, other.upto))

    def __bool__(self) -> bool:
        return bool(self.messages or self.upto)


class NoteSection(msgspec.Struct, frozen=True, kw_only=True):
    """A section of a note that was written from the session: its text, and the digest in its mark; or, without a digest, a
    text that a person wanted remembered."""

    path: str
    text: str
    digest: str = ""


class Reached(msgspec.Struct, kw_only=True):
    """What an erasure reaches in one session: the seqs of events, those of messages, and what they say of other places."""

    seqs: set[int] = msgspec.field(default_factory=set)
    messages: set[int] = msgspec.field(default_factory=set)
    sections: list[NoteSection] = msgspec.field(default_factory=list)
    attachments: set[str] = msgspec.field(default_factory=set)
    texts: list[str] = msgspec.field(default_factory=list)

    @property
    def first(self) -> int:
        """The first of the seqs."""
        return min(self.seqs)


def family(logs: LogReader, sessions: Iterable[str], chosen: Mapping[str, Chosen]) -> dict[str, Chosen]:
    """Return what is erased of sessions, of those that they were forked from, and of forks, as far as they share it.

    The headers of all `sessions` are read, since a catalog that was rebuilt does not know the origins. Raises
    StorageFailed.
    """
    known = set(sessions)
    origins = {name: origin for name in known if (origin := _origin(logs, name)) is not None}
    found, waiting = dict[str, Chosen](), [*chosen.items()]
    while waiting:
        name, more = waiting.pop()
        if (part := found.get(name, Chosen()) | more) == found.get(name, Chosen()):
            continue
        found[name] = part
        if (own := origins.get(name)) is not None and own.session in known:  # else it was deleted
            waiting.append((own.session, part.shared(own.seq)))
        waiting += [(fork, part.shared(each.seq)) for fork, each in origins.items() if each.session == name]
    return found


def _origin(logs: LogReader, session: str) -> ForkOrigin | None:
    with suppress(UnknownSession, JournalDamaged, InvalidLine), logs.read(session) as lines:
        header = read_header(lines)
        return ForkOrigin(session=header.parent, seq=header.seq - 1) if header.parent else None
    return None


def reached_in(logs: LogReader, session: str, chosen: Chosen) -> Reached:
    """Return what an erasure reaches in a session, whose lines are verified when they are rewritten. Raises UnknownSession,
    StorageFailed."""
    search = _Search(chosen)
    with logs.read(session) as lines:
        for line in lines.forward(START):
            search(line)
    return search.reached


class _Search:
    """A fold over the lines of a session."""

    def __init__(self, chosen: Chosen) -> None:
        self.reached = Reached()
        self._chosen = chosen
        self._messages = set(chosen.messages)
        self._ids = set[str]()
        self._turns = set[int]()
        self._imported = False
        """True while replies belong to an imported message that is reached."""
        self._covered = 0
        self._key = ""
        self._sections = dict[int, NoteSection]()

    def __call__(self, line: bytes) -> None:
        if not self._is_relevant(line):
            return
        with suppress(InvalidLine):
            recorded = decode(line)
            if self._is_reached(recorded):
                self.reached.seqs.add(recorded.seq)
                self.reached.attachments |= {each.sha256 for each in attachments_of_event(recorded.event)}
                self.reached.texts += _texts_of(recorded)
            self._look_for_notes(recorded)

    def _is_relevant(self, line: bytes) -> bool:
        """Return False, without decoding it, for a line that is certainly not reached and says nothing about what is."""
        head = _ENVELOPE.match(line)
        if head is None:
            return False
        seq, turn, kind = int(head[1]), head[2], head[3]
        if seq <= self._chosen.upto or (turn != b"null" and int(turn) in self._turns):
            return True
        if kind == _RETURNED:
            return turn == b"null"
        return seq in self._messages if kind == _MESSAGE and b'"edits":"' not in line else kind in _TELLING

    def _is_reached(self, recorded: Recorded) -> bool:
        seq, event = recorded.seq, recorded.event
        match event:
            case MessageReceived(id=id_, edits=edits):
                if seq in self._messages or (edits and edits in self._ids):
                    self._messages.add(seq)
                    self._ids.add(id_)
                    self.reached.messages.add(seq)
            case MessageImported():
                self._imported = seq in self._messages
                self.reached.messages |= {seq} if self._imported else set()
            case ReplyImported() | ToolReturned() if self._imported and recorded.turn is None:
                return True
            case TurnStarted(takes=takes) | TurnJoined(takes=takes) if self._messages.intersection(takes):
                self._turns.add(recorded.turn or 0)
            case CommandAnswered(answers=answers) | ChangesUndone(answers=answers) if answers in self._messages:
                return True
            case MemoryFlushed(covers_to=covers_to):
                before, self._covered = self._covered, max(self._covered, covers_to)
                return any(before < each <= covers_to for each in self.reached.seqs)
            case ContextCompacted(keep_from=keep_from):
                # Later summaries were made from earlier ones.
                return bool(self.reached.seqs) and self.reached.first < keep_from
            case SessionTitled(by=""):
                return bool(self.reached.seqs)
        return seq in self._messages or recorded.turn in self._turns or seq <= self._chosen.upto

    def _look_for_notes(self, recorded: Recorded) -> None:
        """Remember the sections of notes that were written from events that are reached."""
        event, is_reached = recorded.event, recorded.seq in self.reached.seqs
        match event:
            case SessionOpened(key=key) | SessionForked(key=key):
                self._key = key
            case MemoryFlushed(text=text, digest=digest, path=path) if is_reached and text:
                self._sections[recorded.seq] = NoteSection(path=path, text=text, digest=digest)
            case ContextCompacted(path=path) if is_reached and path:
                text = as_section(f"Summary {event.compaction} of {self._key}", event.summary)
                self._sections[recorded.seq] = NoteSection(path=path, text=text, digest=digest_of(text))
            case MessageReceived(text=text) if is_reached:
                self._sections[recorded.seq] = NoteSection(path="", text=text)
            case NoteAppended(of=of, path=path) if of in self._sections:
                self.reached.sections.append(msgspec.structs.replace(self._sections[of], path=path))


def _texts_of(recorded: Recorded) -> Iterator[str]:
    """Yield the texts of an event that others may quote."""
    match recorded.event:
        case MessageReceived(text=text) | MessageImported(text=text) | MemoryFlushed(text=text):
            yield text
        case ModelReplied(text=text, reasoning=reasoning) | ReplyImported(text=text, reasoning=reasoning):
            yield text
            yield reasoning
        case ToolReturned(output=output):
            yield output
        case CommandAnswered(answer=answer):
            yield answer
        case ContextCompacted(summary=summary):
            yield summary


def facts_from(facts: Iterable[Fact], reached: Mapping[str, Reached]) -> list[Fact]:
    """Return the facts that came from events that are reached, and those that were distilled from them."""
    known = list(facts)
    ids = {fact.id for fact in known if _comes_from(fact, reached)}
    while more := {fact.id for fact in known if fact.id not in ids and not ids.isdisjoint(fact.made_of)}:
        ids |= more
    return [fact for fact in known if fact.id in ids]


def _comes_from(fact: Fact, reached: Mapping[str, Reached]) -> bool:
    origin = fact.origin
    return origin is not None and origin.session in reached and origin.seq in reached[origin.session].seqs


class RecallEraser:
    """Erases passages that the memory found for other messages: of events, and of facts."""

    def __init__(self, reached: Mapping[str, Reached], facts: Iterable[str]) -> None:
        self._seqs = {document_of(session): sorted(found.seqs) for session, found in reached.items()}
        self._facts = frozenset(facts)

    def __call__(self, line: bytes) -> bytes:
        """Return the line of a recall without those passages; the same object if it has none."""
        recorded = decode(line)
        assert isinstance(recorded.event, MemoryRecalled)
        hits = tuple(hit for hit in recorded.event.hits if not self._is_erased(hit))
        if len(hits) == len(recorded.event.hits):
            return line
        event = msgspec.structs.replace(recorded.event, hits=hits)
        return encode_line(recorded.seq, recorded.at, recorded.turn, event, b"erased")[0]

    def _is_erased(self, hit: RecalledHit) -> bool:
        if hit.path == DOCUMENT:
            return recalled_fact(hit.digest) in self._facts
        first, last = hit.lines
        return any(first <= seq <= last for seq in self._seqs.get(hit.path, ()))


class SessionEraser:
    """The changes to the lines of one session; `changed` has the seqs of lines that were changed."""

    def __init__(self, seqs: Iterable[int], recalled: Change, scrubber: Change) -> None:
        self.changed: list[int] = []
        self._seqs = frozenset(seqs)
        self._recalled = recalled
        self._scrubber = scrubber

    def __call__(self, line: bytes) -> bytes:
        head = _ENVELOPE.match(line)
        if head is None:
            raise InvalidLine("it does not begin like an event")
        seq, kind = int(head[1]), head[3]
        after = tombstone(line) if seq in self._seqs else line
        if kind == _RECALLED:
            after = self._recalled(after)
        after = self._scrubber(after)
        if self.changed and kind in _REQUESTS:
            after = without_hash(after)  # its context had what was erased
        if after is not line and after[:-TRAILER] != line[:-TRAILER]:
            self.changed.append(seq)
            return after
        return line


def would_change(logs: LogReader, session: str, eraser: SessionEraser) -> bool:
    """Return True if a session has lines to change, or if that cannot be told because it is damaged, which its rewriting
    reports. Raises StorageFailed."""
    with suppress(UnknownSession), logs.read(session) as lines:
        following = lines.forward(START)
        try:
            for line in following:
                try:
                    changed = eraser(line) is not line
                except InvalidLine:
                    return not is_torn(line, following)
                if changed:
                    return True
        except JournalDamaged:
            return True
    return False


def ranges(seqs: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the first and last seq of each range of consecutive seqs."""
    found = list[tuple[int, int]]()
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return tuple(found)

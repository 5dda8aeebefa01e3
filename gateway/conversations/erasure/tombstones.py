"""Tombstones: what remains of an event whose content was erased. Its kind and its references to other events stay, so that
the journal folds into the same sequence of turns."""

from __future__ import annotations

import re
from functools import singledispatch

import msgspec

from sessions.events.codec import decode, encode_line, seq_of
from sessions.events.events import (
    ActionPattern,
    ApprovalAsked,
    ApprovalGiven,
    AttachmentsWithheld,
    ChangesUndone,
    CommandAnswered,
    CompactionAbandoned,
    CompactionBegan,
    ContextCompacted,
    Event,
    MemoryFlushed,
    MemoryRecalled,
    MessageImported,
    MessageReceived,
    ModelReplied,
    PluginFailed,
    ReplyDelivered,
    ReplyImported,
    RequestedCall,
    RequestRepeated,
    RequestSent,
    SessionTitled,
    ToolReturned,
    TurnEnded,
    UnknownEvent,
)

ERASED = "[erased]"
"""The text in place of an erased one."""

_COMMAND = re.compile(r"\A\s*(/[a-z]+)")
_ENVELOPE = re.compile(rb'\A\{"seq":[0-9]+,"at":"[^"]*","turn":(?:null|[0-9]+),"kind":"[^"]*"')
_HASH = re.compile(rb'"sha256":"[0-9a-f]{64}"')
_EMPTY_TRAILER = b',"sum":"0000000000000000"}\n'

_replace = msgspec.structs.replace


def tombstone(line: bytes) -> bytes:
    """Return a line without its content, with the same envelope and any sum. Raises InvalidLine."""
    recorded = decode(line)
    if isinstance(recorded.event, UnknownEvent):  # of a later version or a plugin: nothing of it is known to be harmless
        found = _ENVELOPE.match(line)
        return (found[0] if found else line[:-27]) + _EMPTY_TRAILER
    emptied = without_content(recorded.event)
    if emptied is recorded.event:
        return line
    return encode_line(seq_of(line), recorded.at, recorded.turn, emptied, b"erased")[0]


def without_hash(line: bytes) -> bytes:
    """Return the line of a request without the hash of its context, from which a short text could be guessed."""
    return _HASH.sub(b'"sha256":""', line, count=1)


@singledispatch
def without_content(event: Event) -> Event:
    """Return an event without what people, models and tools wrote; the same object if it has nothing of that."""
    return event


@without_content.register
def _(event: MessageReceived) -> Event:
    command = _COMMAND.match(event.text)
    return _replace(event, text=f"{command[1]} {ERASED}" if command else ERASED, attachments=())


@without_content.register
def _(event: MessageImported) -> Event:
    return _replace(event, text=ERASED, attachments=())


@without_content.register
def _(event: ReplyImported) -> Event:
    return _replace(event, text=ERASED, reasoning="", calls=_bare(event.calls))


@without_content.register
def _(event: ModelReplied) -> Event:
    return _replace(event, text=ERASED if event.text else "", calls=_bare(event.calls), opaque=None, reasoning="", notice="")


def _bare(calls: tuple[RequestedCall, ...]) -> tuple[RequestedCall, ...]:
    return tuple(_replace(call, arguments="{}") for call in calls)


@without_content.register
def _(event: ToolReturned) -> Event:
    return _replace(event, output=ERASED, cut_from=None, whole=None, diff="", attachments=(), changes=())


@without_content.register
def _(event: MemoryRecalled) -> Event:
    return _replace(event, query="", hits=tuple(_replace(hit, text=ERASED, digest="", headings=()) for hit in event.hits))


@without_content.register
def _(event: MemoryFlushed) -> Event:
    return _replace(event, outcome="nothing", text="", digest="") if event.text else event


@without_content.register
def _(event: ContextCompacted) -> Event:
    return _replace(event, summary=ERASED, checks=(), failed="", kept=(), lost=())


@without_content.register
def _(event: CompactionBegan) -> Event:
    return _replace(event, focus="") if event.focus else event


@without_content.register
def _(event: CompactionAbandoned) -> Event:
    return _replace(event, reason=ERASED)


@without_content.register
def _(event: ApprovalAsked) -> Event:
    return _replace(event, what=ERASED, detail="", why="", digest="", pattern=ActionPattern())


@without_content.register
def _(event: ApprovalGiven) -> Event:
    return _replace(event, reason=ERASED) if event.reason else event


@without_content.register
def _(event: TurnEnded) -> Event:
    return _replace(event, error=_replace(event.error, sentence=ERASED)) if event.error else event


@without_content.register
def _(event: CommandAnswered) -> Event:
    return _replace(event, answer=ERASED)


@without_content.register
def _(event: ChangesUndone) -> Event:
    return _replace(event, files=(), told="")


@without_content.register
def _(event: SessionTitled) -> Event:
    return _replace(event, title=ERASED) if event.title else event


@without_content.register
def _(event: AttachmentsWithheld) -> Event:
    return _replace(event, files=())


@without_content.register
def _(event: ReplyDelivered) -> Event:
    return _replace(event, failed=ERASED) if event.failed else event


@without_content.register
def _(event: PluginFailed) -> Event:
    return _replace(event, sentence=ERASED)


@without_content.register
def _(event: RequestSent) -> Event:
    return _replace(event, sha256="")


@without_content.register
def _(event: RequestRepeated) -> Event:
    return _replace(event, sha256="")

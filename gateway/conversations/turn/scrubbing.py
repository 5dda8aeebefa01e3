"""Removal of secrets from events: failures reported by servers, tools and plugins may repeat a key that they were given.

Texts of people and models are kept as they are. Tool results are scrubbed, so a model sees no secret unless a person wrote
it; an answer is shown while it streams, where a secret may span two pieces.
"""

from __future__ import annotations

import msgspec

from plugins.support.secrets import scrubbed
from sessions.events.events import (
    ApprovalAsked,
    AttachmentsWithheld,
    CommandAnswered,
    CompactionAbandoned,
    ContextCompacted,
    DeliveryAttempted,
    Event,
    Failure,
    MemoryFlushed,
    PluginFailed,
    ReplyDelivered,
    SessionClosed,
    ToolReturned,
    TurnEnded,
    TurnInterrupted,
    Withheld,
)

_FIELDS: dict[type[Event], tuple[str, ...]] = {
    ApprovalAsked: ("what", "detail", "why"),
    AttachmentsWithheld: ("files",),
    CommandAnswered: ("answer",),
    CompactionAbandoned: ("reason",),
    ContextCompacted: ("failed", "checks"),
    MemoryFlushed: ("reason",),
    PluginFailed: ("sentence",),
    ReplyDelivered: ("failed", "receipt"),
    DeliveryAttempted: ("failed",),
    SessionClosed: ("reason",),
    ToolReturned: ("output", "diff"),
    TurnEnded: ("error",),
    TurnInterrupted: ("reason",),
}
"""The fields that hold texts of others."""


def without_secrets(event: Event) -> Event:
    """Return the event without the secrets in its sentences; the same event where there are none."""
    changes = {}
    for field in _FIELDS.get(type(event), ()):
        value = getattr(event, field)
        if (cleaned := _cleaned(value)) != value:
            changes[field] = cleaned
    return msgspec.structs.replace(event, **changes) if changes else event


def _cleaned(value: object) -> object:
    match value:
        case str():
            return scrubbed(value)
        case tuple():
            return tuple(_cleaned(each) for each in value)
        case Failure() | Withheld():
            return msgspec.structs.replace(value, sentence=scrubbed(value.sentence))
    return value

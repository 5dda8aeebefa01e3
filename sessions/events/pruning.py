"""Edits of the model's view: an old message text is trimmed to its beginning and end, or cleared. The log keeps it whole.

An edit carries exact parameters, so that later requests contain the same bytes. Edits of the same message combine: a clear
overrides a trim; of two trims, the shorter head and the shorter tail apply. The result depends neither on the order of the
edits nor on repetition, so plugins do not need to coordinate.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from sessions.events.messages import AssistantMessage, Message

GAP = "\n...\n"
"""The separator between the head and the tail of a trimmed text."""


class Trim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="trim", tag_field="how"):
    """An edit that keeps only the first `head` and the last `tail` characters, followed by `note`. `of` is the seq of the
    `tool_returned` or `message_received` that holds the text, `by` names the proposer, `saved` is the number of characters
    removed."""

    of: int
    head: int
    tail: int
    note: str = ""
    by: str = ""
    saved: int = 0


class Clear(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="clear", tag_field="how"):
    """An edit that replaces the whole text by `note`."""

    of: int
    note: str
    by: str = ""
    saved: int = 0


Edit: TypeAlias = Trim | Clear


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """The combined edit of a message, and the length of its unedited text in characters."""

    edit: Edit
    size: int


def combine_edits(one: Edit, other: Edit) -> Edit:
    """Return the combination of two edits of the same message. Commutative, associative and idempotent."""
    note, by = min(one.note, other.note), min(one.by, other.by)
    match one, other:
        case Trim(), Trim():
            head, tail = min(one.head, other.head), min(one.tail, other.tail)
            return Trim(of=one.of, head=head, tail=tail, note=note, by=by)
        case Clear(), Clear():
            return Clear(of=one.of, note=note, by=by)
        case Clear(), Trim():
            return Clear(of=one.of, note=one.note, by=one.by)
        case Trim(), Clear():
            return Clear(of=one.of, note=other.note, by=other.by)
    raise AssertionError(f"{one!r} and {other!r} are not edits")


def apply_edit(message: Message, before: Edited | None, edit: Edit) -> tuple[Message, Edited]:
    """Return a message in the view after one more edit, and the combined edit.

    The text of a model's reply is never edited, because its signed reasoning must be sent back unchanged.

    Args:
        message: The message as the view shows it.
        before: The edits already applied to it, if any.
        edit: The edit to add.
    """
    whole = before or Edited(edit=Trim(of=edit.of, head=len(message.text), tail=len(message.text)), size=len(message.text))
    now = Edited(edit=edit if before is None else combine_edits(before.edit, edit), size=whole.size)
    if isinstance(message, AssistantMessage) or now.edit == whole.edit:
        return message, now
    return msgspec.structs.replace(message, text=_text(message.text, whole, now)), now


def shown_size(edit: Edit, size: int) -> int:
    """Return the length in characters of a text of `size` characters after an edit."""
    if isinstance(edit, Clear):
        return len(edit.note)
    if edit.head + edit.tail >= size:
        return size
    return edit.head + len(GAP) + edit.tail + (2 + len(edit.note) if edit.note else 0)


def _text(text: str, before: Edited, now: Edited) -> str:
    if isinstance(now.edit, Clear):
        return now.edit.note
    if now.edit.head + now.edit.tail >= now.size:
        return text
    head, tail = _ends(text, before)
    shown = head[: now.edit.head] + GAP + tail[max(len(tail) - now.edit.tail, 0) :]
    return f"{shown}\n\n{now.edit.note}" if now.edit.note else shown


def _ends(text: str, before: Edited) -> tuple[str, str]:
    """Return the visible head and tail of a text; for an unedited text both are the whole text."""
    if isinstance(before.edit, Clear) or before.edit.head + before.edit.tail >= before.size:
        return text, text
    behind = before.edit.head + len(GAP)
    return text[: before.edit.head], text[behind : behind + before.edit.tail]

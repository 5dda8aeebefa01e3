"""Edits of what the model is shown: an old result is trimmed to its head and tail, or cleared. The log keeps all of it.

An edit carries exact parameters, so that the same bytes are sent for ever after. Edits of one message meet: clearing wins
over trimming, of two trims the shorter head and the shorter tail count. The meet does not depend on the order in which
edits came and changes nothing when one comes twice, so plugins need not know of each other.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from sessions.events.messages import AssistantMessage, Message

GAP = "\n...\n"
"""What stands between the head and the tail of a trimmed text."""


class Trim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="trim", tag_field="how"):
    """Only the first `head` and the last `tail` characters are shown, and `note` behind them. `of` is the seq of the
    `tool_returned` or `message_received` whose text it is, `by` who proposed it, `saved` how many characters it spared."""

    of: int
    head: int
    tail: int
    note: str = ""
    by: str = ""
    saved: int = 0


class Clear(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="clear", tag_field="how"):
    """Only `note` is shown, in place of the whole text."""

    of: int
    note: str
    by: str = ""
    saved: int = 0


Edit: TypeAlias = Trim | Clear


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """The edit in force of a message, and how many characters its text had before any."""

    edit: Edit
    size: int


def meet(one: Edit, other: Edit) -> Edit:
    """The edit that two edits of the same message amount to. Commutative, associative and idempotent."""
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
    raise AssertionError(f"{one!r} and {other!r} are no edits")


def applied(message: Message, before: Edited | None, edit: Edit) -> tuple[Message, Edited]:
    """A message as it stands in the view (`before`: the edit that it already shows), after one more edit.

    Returns the message to be shown from now on, and what is in force. What a model wrote is never edited: its text returns
    as it is, since its signed reasoning must be sent back unchanged.
    """
    whole = before or Edited(edit=Trim(of=edit.of, head=len(message.text), tail=len(message.text)), size=len(message.text))
    now = Edited(edit=edit if before is None else meet(before.edit, edit), size=whole.size)
    if isinstance(message, AssistantMessage) or now.edit == whole.edit:
        return message, now
    return msgspec.structs.replace(message, text=_text(message.text, whole, now)), now


def shown_size(edit: Edit, size: int) -> int:
    """Characters of a text of `size` characters under an edit."""
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
    """The head and the tail that a text still shows; the whole text is both."""
    if isinstance(before.edit, Clear) or before.edit.head + before.edit.tail >= before.size:
        return text, text
    behind = before.edit.head + len(GAP)
    return text[: before.edit.head], text[behind : behind + before.edit.tail]

"""Which proposed edits become part of the log: those that exist, are sound, and show the model less.

Whoever proposes is not believed: what is no edit, names no tool result or has nonsense numbers is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, reduce
from itertools import islice

import msgspec

from sessions.events.messages import Message, ToolMessage
from sessions.events.pruning import Clear, Edit, Trim, applied, meet
from sessions.events.tokens import estimate
from sessions.state.view import View

NOTE = 200
"""Characters of the longest note or placeholder."""

AT_ONCE = 1000
"""Edits in one event, so that it fits a line; further ones come before the next request."""

MOST = 2**31
"""No text is longer, and no journal has more events."""


class ValidatedEdits(msgspec.Struct, frozen=True, kw_only=True):
    """The edits of one who proposed that can be made, with `by` filled in; and why others cannot, as the ends of sentences.
    One that would change nothing, or show the model more, is in neither."""

    edits: tuple[Edit, ...]
    refused: tuple[str, ...]


def admitted(view: View, proposed: Iterable[object], by: str) -> ValidatedEdits:
    """Check what was proposed, whatever it is; at most `AT_ONCE` of it is looked at."""
    places = MessagePositions(view)
    edits: list[Edit] = []
    refused: list[str] = []
    for offer in islice(proposed, AT_ONCE):
        try:
            edit = _sound(offer)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            refused.append(f"it proposed what is no edit: {error}")
            continue
        if not isinstance(places.message(edit.of), ToolMessage):
            refused.append(f"there is no tool result at seq {edit.of} to be pruned")
        elif places.outcome(edit) is not None:
            edits.append(msgspec.structs.replace(edit, by=by, saved=0))
    return ValidatedEdits(edits=tuple(edits), refused=tuple(refused))


def joined(view: View, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """What these edits, of several who proposed, amount to: one for each message, whatever their order, with the characters
    that it saves. Those that save nothing are left out."""
    by_message: dict[int, list[Edit]] = {}
    for edit in edits:
        by_message.setdefault(edit.of, []).append(edit)
    if not by_message:
        return ()
    places, found = MessagePositions(view), list[Edit]()
    for of in sorted(by_message):
        edit = reduce(meet, by_message[of])
        message = places.message(of)
        if message is not None and (left := places.outcome(edit)) is not None:
            found.append(msgspec.structs.replace(edit, saved=len(message.text) - len(left)))
    return tuple(found[:AT_ONCE])


class MessagePositions:
    """Where in a view the messages stand that edits name."""

    def __init__(self, view: View) -> None:
        self._view = view

    @cached_property
    def _index(self) -> dict[int, int]:
        # Mostly nobody proposes anything: then it is not worth looking at each message.
        return {source: index for index, source in enumerate(self._view.sources)}

    def message(self, of: int) -> Message | None:
        """The message from this source; None if it is not shown."""
        index = self._index.get(of)
        return None if index is None else self._view.messages[index]

    def outcome(self, edit: Edit) -> str | None:
        """What the edit leaves of its message, which must be there; None if that is not less."""
        message = self._view.messages[self._index[edit.of]]
        left = applied(message, self._view.edited.get(edit.of), edit)[0].text
        return left if len(left) < len(message.text) and estimate(left) <= estimate(message.text) else None


def _sound(offer: object) -> Edit:
    """The offer as an edit, its fields of the types that they promise and within bounds."""
    if type(offer) not in (Trim, Clear):
        raise TypeError(f"{type(offer).__name__} is neither a Trim nor a Clear")
    # Through JSON and back: what comes out is made of plain numbers and texts, whatever a stranger's own kinds of them do.
    edit: Edit = msgspec.json.decode(msgspec.json.encode(offer), type=Edit)
    counts = (edit.of, edit.head, edit.tail) if isinstance(edit, Trim) else (edit.of,)
    if not all(0 <= count <= MOST for count in counts):
        raise ValueError("it has a number that cannot be")
    if len(edit.note) > NOTE:
        raise ValueError(f"its note has more than {NOTE} characters")
    return edit

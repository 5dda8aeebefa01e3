"""Validation of proposed edits: only those that are well formed, refer to a tool result and shorten it are logged.

Proposals are untrusted input: anything else is rejected with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, reduce
from itertools import islice

import msgspec

from sessions.events.messages import Message, ToolMessage
from sessions.events.pruning import Clear, Edit, Trim, apply_edit, combine_edits
from sessions.events.tokens import estimate
from sessions.state.view import View

NOTE = 200
"""Maximum length in characters of a note or placeholder."""

AT_ONCE = 1000
"""Maximum number of edits in one event, so that it fits a line; the rest follows before the next request."""

MOST = 2**31
"""An upper bound on the length of a text and the number of events in a journal."""


class ValidatedEdits(msgspec.Struct, frozen=True, kw_only=True):
    """The valid edits of one proposer, with `by` filled in, and the reasons why others were rejected, as the ends of
    sentences. An edit that would change nothing, or lengthen the text, is in neither."""

    edits: tuple[Edit, ...]
    refused: tuple[str, ...]


def validate_edits(view: View, proposed: Iterable[object], by: str) -> ValidatedEdits:
    """Validate untrusted proposals, at most `AT_ONCE` of them."""
    places = MessagePositions(view)
    edits: list[Edit] = []
    refused: list[str] = []
    for offer in islice(proposed, AT_ONCE):
        try:
            edit = _parse_edit(offer)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            refused.append(f"it proposed an invalid edit: {error}")
            continue
        if not isinstance(places.message(edit.of), ToolMessage):
            refused.append(f"there is no tool result at seq {edit.of}")
        elif places.outcome(edit) is not None:
            edits.append(msgspec.structs.replace(edit, by=by, saved=0))
    return ValidatedEdits(edits=tuple(edits), refused=tuple(refused))


def merge_proposals(view: View, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Combine the edits of several proposers: one for each message, whatever their order, with the characters that it saves.
    Edits that save nothing are dropped."""
    by_message: dict[int, list[Edit]] = {}
    for edit in edits:
        by_message.setdefault(edit.of, []).append(edit)
    if not by_message:
        return ()
    places, found = MessagePositions(view), list[Edit]()
    for of in sorted(by_message):
        edit = reduce(combine_edits, by_message[of])
        message = places.message(of)
        if message is not None and (left := places.outcome(edit)) is not None:
            found.append(msgspec.structs.replace(edit, saved=len(message.text) - len(left)))
    return tuple(found[:AT_ONCE])


class MessagePositions:
    """An index of the messages in a view by the source that edits refer to."""

    def __init__(self, view: View) -> None:
        self._view = view

    @cached_property
    def _index(self) -> dict[int, int]:
        # Usually there are no proposals, and building the index is not worth it.
        return {source: index for index, source in enumerate(self._view.sources)}

    def message(self, of: int) -> Message | None:
        """Return the message with this source, or None if it is not in the view."""
        index = self._index.get(of)
        return None if index is None else self._view.messages[index]

    def outcome(self, edit: Edit) -> str | None:
        """Return the text of a message in the view after the edit, or None if that is not shorter."""
        message = self._view.messages[self._index[edit.of]]
        left = apply_edit(message, self._view.edited.get(edit.of), edit)[0].text
        return left if len(left) < len(message.text) and estimate(left) <= estimate(message.text) else None


def _parse_edit(offer: object) -> Edit:
    """Return a proposal as an edit with fields of the declared types and within bounds. Raises TypeError, ValueError."""
    if type(offer) not in (Trim, Clear):
        raise TypeError(f"{type(offer).__name__} is neither a Trim nor a Clear")
    # A JSON round trip yields plain numbers and strings, even from a plugin's own subclasses of them.
    edit: Edit = msgspec.json.decode(msgspec.json.encode(offer), type=Edit)
    counts = (edit.of, edit.head, edit.tail) if isinstance(edit, Trim) else (edit.of,)
    if not all(0 <= count <= MOST for count in counts):
        raise ValueError("a number is out of range")
    if len(edit.note) > NOTE:
        raise ValueError(f"its note has more than {NOTE} characters")
    return edit

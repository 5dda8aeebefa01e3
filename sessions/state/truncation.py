"""Truncation of messages that are too large for the window.

In every pruning mode, a tool result of more than 30 % of the window is trimmed to its beginning and end. Messages that
cannot be separated by a cut (the results of one reply, or the messages that one turn took) are trimmed, largest first, until
together they fit half of the window without the reserve. The other half is for the instructions and a summary, so a
compaction always finds a cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from sessions.events.messages import ToolMessage, UserMessage
from sessions.events.pruning import Trim, apply_edit
from sessions.events.tokens import estimate
from sessions.state.view import View

RESULT_SHARE = 0.3
"""The limit of one result, as a share of the window."""

TOGETHER_SHARE = 0.5
"""The limit of inseparable messages, as a share of the window without the reserve."""

TRIES = 5
"""Maximum attempts to shrink one trim when the previous estimate left too much."""

BY = "oversize"
"""The proposer of these edits in the log."""


def required_trims(
    view: View, window: int, reserve: int = 0, start: int = 0, *, count_tokens: Callable[[str], float] = estimate
) -> Iterator[Trim]:
    """Yield the trims that are required, each as small as possible.

    Args:
        view: The view to check.
        window: The context window in tokens.
        reserve: Tokens reserved for the answer.
        start: Index of the first message to check.
        count_tokens: Returns the tokens of a text for the model in use.
    """
    for indexes in _inseparable(view, start):
        sizes = [count_tokens(view.messages[index].text) for index in indexes]
        limit = size_limit(sizes, TOGETHER_SHARE * (window - reserve))
        if isinstance(view.messages[indexes[0]], ToolMessage):
            limit = min(limit, RESULT_SHARE * window)
        for index, size in zip(indexes, sizes, strict=True):
            if size > limit:
                yield _largest_trim(view, index, limit, count_tokens)


def size_limit(sizes: Sequence[float], room: float) -> float:
    """Return the size to which the largest must be reduced so that the sum fits the room; infinity if it fits already."""
    for rank, size in enumerate(ordered := sorted(sizes)):
        share = room / (len(ordered) - rank)
        if size > share:
            return share
        room -= size
    return float("inf")


def truncation_note(size: int) -> str:
    """Return the note below a text whose middle is left out. It stays correct when edits are combined."""
    return f"[Shortened: it had {size:,} characters.]"


def _inseparable(view: View, start: int) -> Iterator[list[int]]:
    """Yield the indexes of inseparable messages: the results of each reply, and the messages taken at once. Replies, which
    the model's own window limits, and summaries are not included."""
    group: list[int] = []
    of: tuple[type, int] | None = None
    for index, message in enumerate(view.messages[start:], start):
        this = _group_key(view, index) if isinstance(message, ToolMessage | UserMessage) and view.sources[index] else None
        if this != of and group:
            yield group
            group = []
        if this is not None:
            group.append(index)
        of = this
    if group:
        yield group


def _group_key(view: View, index: int) -> tuple[type, int]:
    """Return a key that adjacent messages share if they are inseparable. A reply stands between results of different
    replies."""
    message = view.messages[index]
    return type(message), view.placed[index] if isinstance(message, UserMessage) else 0


def _largest_trim(view: View, index: int, limit: float, count_tokens: Callable[[str], float]) -> Trim:
    """Return the largest trim within the limit. The cheap estimate finds it; a text whose ends have more tokens than its
    middle is trimmed again."""
    message, before = view.messages[index], view.edited.get(view.sources[index])
    room, shown = float(estimate(message.text)), message
    for _ in range(TRIES):
        room = room * limit / count_tokens(shown.text)
        trim = _trim(view, index, room)
        shown, _ = apply_edit(message, before, trim)
        if count_tokens(shown.text) <= limit:
            break
    return trim


def _trim(view: View, index: int, limit: float) -> Trim:
    """Return the trim that keeps as much as the limit allows, half of it from the beginning."""
    message, before = view.messages[index], view.edited.get(view.sources[index])
    note = truncation_note(before.size if before is not None else len(message.text))

    def keeping(count: int) -> Trim:
        return Trim(of=view.sources[index], head=count - count // 2, tail=count // 2, note=note, by=BY)

    def is_too_much(count: int) -> bool:
        return estimate(apply_edit(message, before, keeping(count))[0].text) > limit

    count = bisect_left(range(len(message.text) + 1), True, key=is_too_much) - 1
    return keeping(max(0, count))


def head_and_tail(text: str, limit: int) -> str:
    """Return a text of more than `limit` bytes reduced to its beginning and end, with a line between that states what is
    missing."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return text
    half = limit // 2
    head = encoded[:half].decode("utf-8", "ignore")
    tail = encoded[-half:].decode("utf-8", "ignore")
    return f"{head}\n[… {len(encoded) - 2 * half} bytes left out …]\n{tail}"

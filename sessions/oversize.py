"""The oversize rule: no single text takes the window for itself.

Whatever the mode of pruning, and wherever it stands, a tool result of more than 30 % of the window, or a person's message of
more than half of it, is shown as its head and tail.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from sessions.messages import AssistantMessage, ToolMessage
from sessions.pruning import Trim, applied
from sessions.tokens import estimate
from sessions.view import View

RESULT_SHARE = 0.3
MESSAGE_SHARE = 0.5

BY = "oversize"
"""Who proposes these, as the log has it."""


def oversize(view: View, window: int, start: int = 0) -> Iterator[Trim]:
    """The trims that the rule demands at a window of so many tokens, each as mild as fits its share. Messages before the
    index `start` are not looked at."""
    for index, message in enumerate(view.messages[start:], start):
        if isinstance(message, AssistantMessage):
            continue  # what a model wrote was bounded by its own window
        limit = window * (RESULT_SHARE if isinstance(message, ToolMessage) else MESSAGE_SHARE)
        if view.sources[index] and estimate(message.text) > limit:
            yield _trim(view, index, limit)


def shortened(size: int) -> str:
    """The note below a text whose middle is left out; true also where edits meet."""
    return f"[Shortened: it had {size:,} characters.]"


def _trim(view: View, index: int, limit: float) -> Trim:
    """The trim that leaves as much as the limit holds, half of it from the beginning."""
    message, before = view.messages[index], view.edited.get(view.sources[index])
    note = shortened(before.size if before is not None else len(message.text))

    def keeping(count: int) -> Trim:
        return Trim(of=view.sources[index], head=count - count // 2, tail=count // 2, note=note, by=BY)

    def is_too_much(count: int) -> bool:
        return estimate(applied(message, before, keeping(count))[0].text) > limit

    count = bisect_left(range(len(message.text) + 1), True, key=is_too_much) - 1
    return keeping(max(0, count))

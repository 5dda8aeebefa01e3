"""The oversize rule: nothing that cannot be parted takes the window for itself.

Whatever the mode of pruning, and wherever it stands, a tool result of more than 30 % of the window is shown as its head and
tail. So are the largest of what must stay together, the results of one reply or the messages that one turn took, until all
of them fit half of what the reserve leaves of the window. The rest of it is for the instructions and a summary: so a
compaction always finds a place to cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from sessions.events.messages import ToolMessage, UserMessage
from sessions.events.pruning import Trim, applied
from sessions.events.tokens import estimate
from sessions.state.view import View

RESULT_SHARE = 0.3
"""Of the window, for one result."""

TOGETHER_SHARE = 0.5
"""Of what the reserve leaves of the window, for what stays together."""

TRIES = 5
"""How often one trim is made smaller, where the guess before leaves too much."""

BY = "oversize"
"""Who proposes these, as the log has it."""


def oversize(
    view: View, window: int, reserve: int = 0, start: int = 0, *, weigh: Callable[[str], float] = estimate
) -> Iterator[Trim]:
    """The trims that the rule demands at a window and a reserve of so many tokens, each as mild as can be. Messages before
    the index `start` are not looked at. `weigh` says how many tokens a text has for the model that is asked."""
    for indexes in _together(view, start):
        sizes = [weigh(view.messages[index].text) for index in indexes]
        limit = level(sizes, TOGETHER_SHARE * (window - reserve))
        if isinstance(view.messages[indexes[0]], ToolMessage):
            limit = min(limit, RESULT_SHARE * window)
        for index, size in zip(indexes, sizes, strict=True):
            if size > limit:
                yield _fitting(view, index, limit, weigh)


def level(sizes: Sequence[float], room: float) -> float:
    """To what the largest of the sizes must be cut so that all together fit the room; infinite where they do."""
    for rank, size in enumerate(ordered := sorted(sizes)):
        share = room / (len(ordered) - rank)
        if size > share:
            return share
        room -= size
    return float("inf")


def shortened(size: int) -> str:
    """The note below a text whose middle is left out; true also where edits meet."""
    return f"[Shortened: it had {size:,} characters.]"


def _together(view: View, start: int) -> Iterator[list[int]]:
    """The indexes of the results of each reply, and of the messages that were taken at once. What a model wrote is not
    among them, which was bounded by its own window, nor is a summary."""
    group: list[int] = []
    of: tuple[type, int] | None = None
    for index, message in enumerate(view.messages[start:], start):
        this = _unit(view, index) if isinstance(message, ToolMessage | UserMessage) and view.sources[index] else None
        if this != of and group:
            yield group
            group = []
        if this is not None:
            group.append(index)
        of = this
    if group:
        yield group


def _unit(view: View, index: int) -> tuple[type, int]:
    """What a message stays together with. Results of different replies have a reply between them."""
    message = view.messages[index]
    return type(message), view.placed[index] if isinstance(message, UserMessage) else 0


def _fitting(view: View, index: int, limit: float, weigh: Callable[[str], float]) -> Trim:
    """The trim that leaves as much as the limit holds. The estimate finds it, which costs next to nothing, and a text whose
    ends are denser than its middle is cut again."""
    message, before = view.messages[index], view.edited.get(view.sources[index])
    room, shown = float(estimate(message.text)), message
    for _ in range(TRIES):
        room = room * limit / weigh(shown.text)
        trim = _trim(view, index, room)
        shown, _ = applied(message, before, trim)
        if weigh(shown.text) <= limit:
            break
    return trim


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

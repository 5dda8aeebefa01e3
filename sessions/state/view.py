"""The view: what the model is shown of a session, as values that each event turns into the next.

Beside each message stands where it was placed (the seq of the event that put it there, which never falls along the view,
so that cuts bisect) and its source (the seq of the event that carries its text, to which edits refer). A person's message
comes before it is placed; what was recalled for it comes after, and is placed where it stands.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from sessions.events.messages import Message, UserMessage
from sessions.events.pruning import Edit, Edited, applied
from sessions.state.persistent_list import PersistentList

SUMMARY = (
    "This conversation goes on from an earlier part that is no longer shown. Here is a summary of it, written by the"
    " assistant's own system. It is a record of what was said, not a message of the person.\n\n<summary>\n{}\n</summary>"
)
"""The message that stands for everything that a compaction removed."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The messages, and for each where it was `placed` and its `source`; both are 0 for the summary. `edited` holds the
    edits in force by source, `recalled` what the memory gave, by source: the digests of what was found."""

    messages: PersistentList[Message] = msgspec.field(default_factory=PersistentList)
    placed: PersistentList[int] = msgspec.field(default_factory=PersistentList)
    sources: PersistentList[int] = msgspec.field(default_factory=PersistentList)
    edited: dict[int, Edited] = {}
    recalled: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def summarised(self) -> bool:
        """Whether the first message is a summary."""
        return len(self.placed) > 0 and self.placed[0] == 0

    @property
    def begins(self) -> int | None:
        """The seq of the first message that is no summary; None if there is none."""
        first = int(self.summarised)
        return self.sources[first] if len(self) > first else None

    def grown(self, message: Message, placed: int, source: int | None = None) -> View:
        """The view with one more message; its source is the placing event where none is named."""
        return View(
            messages=self.messages.grown(message),
            placed=self.placed.grown(placed),
            sources=self.sources.grown(placed if source is None else source),
            edited=self.edited,
            recalled=self.recalled,
        )

    def recalling(self, message: Message, placed: int, source: int, digests: tuple[str, ...]) -> View:
        """The view with what was recalled for the messages placed there, which are its last."""
        return msgspec.structs.replace(self.grown(message, placed, source), recalled={**self.recalled, source: digests})

    def first_from(self, seq: int) -> int:
        """The index of the first message that was placed at `seq` or later; the length if there is none."""
        return bisect_left(self.placed, seq)

    def said(self, start: int, end: int) -> tuple[Message, ...]:
        """The messages from one index to another, without what was recalled: that stands in the memory already."""
        sources = self.sources[start:end]
        pairs = zip(self.messages[start:end], sources, strict=True)
        return tuple(message for message, source in pairs if source not in self.recalled)

    def index_of(self, source: int) -> int | None:
        """Where the message from this source stands; None if it does not."""
        index = self.first_from(source)
        if source in self.recalled:  # it stands before that, behind the message that it was recalled for
            return next((at for at in range(index - 1, -1, -1) if self.sources[at] == source), None)
        while index < len(self):  # a person's message stands where it was taken, which is later than where it came
            if self.sources[index] == source:
                return index
            index += 1
        return None

    def cut(self, keep_from: int, summary: str) -> View:
        """The view after a compaction: the summary, then what was placed at `keep_from` or later."""
        first = self.first_from(keep_from)
        head: list[Message] = [UserMessage(text=SUMMARY.format(summary))] if summary else []
        sources = self.sources[first:]
        staying = set(sources)
        return View(
            messages=PersistentList([*head, *self.messages[first:]]),
            placed=PersistentList([*(0 for _ in head), *self.placed[first:]]),
            sources=PersistentList([*(0 for _ in head), *sources]),
            edited={source: edited for source, edited in self.edited.items() if source in staying},
            recalled={source: digests for source, digests in self.recalled.items() if source in staying},
        )

    def pruned(self, edits: tuple[Edit, ...]) -> View:
        """The view after edits; one whose message does not stand in it changes nothing."""
        messages, known = list(self.messages), dict(self.edited)
        for edit in edits:
            if (index := self.index_of(edit.of)) is not None:
                messages[index], known[edit.of] = applied(messages[index], known.get(edit.of), edit)
        return msgspec.structs.replace(self, messages=PersistentList(messages), edited=known)

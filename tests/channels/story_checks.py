"""What must be true of a story that was told: see `story`. Each finding is one sentence that begins with what happened."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec

SHOWN = 20
"""Findings of one check that are shown."""

POSTED = re.compile(r"\bn(\d+)\.(\d+)\b")
"""The number of a message and of a paragraph of its answer, at the beginning of that paragraph."""

ASKED = re.compile(r"\bn(\d+)\b")
"""The number of a message, in its text."""

Event = dict[str, Any]
Journal = list[Event]
Place = tuple[int, int]
"""The number of a message and of a paragraph of its answer."""


class Said(msgspec.Struct, frozen=True):
    """A message: the chat in which it was said, and when."""

    chat: str
    at: float


class Told(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A story at its end.

    Attributes:
        said: The messages by their numbers.
        lengths: The number of paragraphs of each answer.
        posts: The paragraphs on the service, by chat.
        marked: The indexes of those whose post says that it may be a repetition, by chat.
        journals: All events of all sessions.
        down: The intervals in which the gateway was not connected to the service.
    """

    said: dict[int, Said]
    lengths: dict[int, int]
    posts: dict[str, list[Place]]
    marked: dict[str, set[int]]
    journals: Sequence[Journal]
    down: Sequence[tuple[float, float]]

    @cached_property
    def received(self) -> list[tuple[int, Event, Journal]]:
        """The messages in the journals: number, event, and journal."""
        return [
            (int(ASKED.findall(event["text"])[0]), event, journal)
            for journal in self.journals
            for event in journal
            if event["kind"] == "message_received"
        ]

    def unseen(self) -> set[int]:
        """Return the messages that stand in no journal."""
        return set(self.said) - received(self.journals)


def received(journals: Sequence[Journal]) -> set[int]:
    """Return the numbers of the messages in some journals."""
    texts = [event["text"] for journal in journals for event in journal if event["kind"] == "message_received"]
    return {int(ASKED.findall(text)[0]) for text in texts}


def marked_places(texts: Sequence[str], mark: str) -> set[int]:
    """Return the indexes of the first paragraphs in posts with a mark, among all that `places` returns."""
    found, index = set(), 0
    for text in texts:
        if mark and mark in text:
            found.add(index)
        index += len(places([text]))
    return found


def places(texts: Sequence[str]) -> list[Place]:
    """Return the paragraphs of answers in some posts."""
    return [(int(number), int(part)) for text in texts for number, part in POSTED.findall(text)]


def is_delivered(journal: Journal) -> bool:
    """Return True if every message of a journal was answered, and every answer delivered or abandoned."""
    taken = {seq for event in journal if event["kind"] == "turn_started" for seq in event["takes"]}
    ended = {event["turn"] for event in journal if event["kind"] == "turn_ended"}
    delivered = {event["of"] for event in journal if event["kind"] == "reply_delivered" and not event.get("more")}
    return all(
        event["seq"] in taken
        if event["kind"] == "message_received"
        else event["seq"] in delivered
        if event["kind"] == "model_replied"
        else event["turn"] in ended or event["kind"] != "turn_started"
        for event in journal
    )


def check(story: Told, *, acknowledges: bool, repeats: bool) -> list[str]:
    """Return what is wrong; the two arguments are those of `StoryService`."""
    checks = (
        doubled(story),
        lost(story) if acknowledges else unexcused(story),
        reordered(story),
        turns(story),
        abandoned(story),
        chain.from_iterable(delivered(story, chat, posts, repeats=repeats) for chat, posts in story.posts.items()),
    )
    return [*chain.from_iterable(list(found)[:SHOWN] for found in checks)]


def doubled(story: Told) -> Iterator[str]:
    """A message stands in the journals once."""
    for number, count in Counter(number for number, _, _ in story.received).items():
        if count > 1:
            yield f"doubled: message {number} stands {count} times in the journals"


def lost(story: Told) -> Iterator[str]:
    """A message stands in a journal."""
    for number in sorted(story.unseen()):
        yield f"lost: message {number} stands in no journal"


def unexcused(story: Told) -> Iterator[str]:
    """A message that was lost was said before a connection ended, and the next one of its chat thereafter."""
    unseen = story.unseen()
    for number in sorted(unseen):
        said = story.said[number]
        later = [
            each.at
            for other, each in story.said.items()
            if other > number and other not in unseen and each.chat == said.chat
        ]
        if not any(began <= min(later, default=float("inf")) and said.at <= ended for began, ended in story.down):
            yield f"lost: message {number} stands in no journal, although the gateway was connected"


def reordered(story: Told) -> Iterator[str]:
    """The messages of a chat stand in their order."""
    orders = defaultdict(list)
    for number, _, _ in story.received:
        orders[story.said[number].chat].append(number)
    for chat, numbers in orders.items():
        if numbers != sorted(numbers):
            yield f"reordered: the messages of {chat} stand as {numbers}"


def turns(story: Told) -> Iterator[str]:
    """A message has one turn, which ended with one reply of the model."""
    for number, event, journal in story.received:
        taken = [each["turn"] for each in journal if event["seq"] in each.get("takes", ())]
        if len(taken) != 1:
            yield f"turns: message {number} has {len(taken)} turns"
            continue
        kinds = Counter(each["kind"] for each in journal if each["turn"] == taken[0])
        ends = [each["outcome"] for each in journal if each["kind"] == "turn_ended" and each["turn"] == taken[0]]
        if (kinds["model_replied"], ends) != (1, ["replied"]):
            yield f"turns: that of message {number} has {kinds['model_replied']} replies and ended with {ends}"


def abandoned(story: Told) -> Iterator[str]:
    """No answer was abandoned."""
    for journal in story.journals:
        for event in journal:
            if event["kind"] == "reply_delivered" and event.get("failed"):
                yield f"abandoned: an answer, because {event['failed']}"


def delivered(story: Told, chat: str, posts: list[Place], *, repeats: bool) -> Iterator[str]:
    """The answers to the messages of a chat are posted in order, once each."""
    numbers = [number for number, _, _ in story.received if story.said[number].chat == chat]
    expected = [(number, part) for number in numbers for part in range(1, story.lengths[number] + 1)]
    excused = repeated_parts(posts, story.marked[chat]) if repeats else set()
    known: set[Place] = set()
    for index, place in enumerate(posts):
        if place in known and index not in excused:
            yield f"posted twice: paragraph {place} in {chat}"
        known.add(place)
    if missing := sorted(set(expected) - set(posts)):
        yield f"not posted: {missing[:SHOWN]} in {chat}"
    if unexpected := sorted(set(posts) - set(expected)):
        yield f"posted elsewhere: {unexpected[:SHOWN]} in {chat}"
    first = list(dict.fromkeys(posts))
    if sorted(first) == sorted(expected) and first != expected:
        wrong = next(index for index, place in enumerate(first) if place != expected[index])
        yield f"reordered: {chat} has {first[wrong : wrong + 5]} instead of {expected[wrong : wrong + 5]}"


def repeated_parts(posts: Sequence[Place], marked: set[int]) -> set[int]:
    """Return the indexes of the paragraphs that are marked as possibly repeated, and of those that follow in their part."""
    found: set[int] = set()
    for index, (number, part) in enumerate(posts):
        if index in marked or (index - 1 in found and posts[index - 1] == (number, part - 1)):
            found.add(index)
    return found

"""How far each conversation was received, and what was written while there was no connection.

Slack keeps no events for a program that is not connected. What was missed is read from the history of the conversations. A
message that had been received after all has the same id, and is then a duplicate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from plugins.api.channel import DeliveryUnknown, TryLater
from plugins.channels.slack.slack_api import SlackApi, SlackError
from plugins.support.state_file import StateFile

OVERLAP = 600.0
"""Seconds before the last message received that are read again: Slack delivers late what it must send again."""

BEFORE_FIRST = 60.0
"""Seconds before the very first start from which on messages count: somebody may write while it starts."""

LONGEST = 7 * 86_400.0
"""Seconds of an outage that are caught up."""

LOOKBACK = 86_400.0
"""Seconds before the gap in which edited messages, and threads with new replies, are looked for."""

THREAD_SECONDS = 14 * 86_400.0
"""Seconds since the last message of a thread of the assistant until which it is looked at."""

MOST_THREADS, MOST_CONVERSATIONS, MOST_UPLOADS = 200, 2_000, 100
MOST_MESSAGES = 10_000
"""Messages of a conversation that are caught up, the newest."""

AT_ONCE, PACE_SECONDS = 20, 1.5
"""Conversations that are read without a pause, and the pause after each further one: Slack allows 50 requests in a minute,
and new messages need some of them."""

PAGE = 200
SAVE_SECONDS = 5.0
KINDS = ("im", "mpim", "public_channel", "private_channel")

log = structlog.get_logger("exuvia.channels")

Message = dict[str, Any]


class Progress:
    """The position in each conversation, in a file.

    While a gap is open, positions stay where they were, so that a crash does not hide it.
    """

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._since = 0.0
        self._seen: dict[str, float] = {}
        self._threads: dict[str, float] = {}
        self._uploads: dict[str, str] = {}
        self._ahead: dict[str, float] = {}
        self._caught_up: set[str] | None = set()
        self._gaps = 0
        self._changed = asyncio.Event()

    async def load(self, now: datetime) -> None:
        """Read the file. What was written long before the very first start, which is `now` then, does not matter."""
        state = await self._file.load()
        self._seen = {str(name): float(ts) for name, ts in (state.get("seen") or {}).items()}
        self._threads = {str(name): float(ts) for name, ts in (state.get("threads") or {}).items()}
        self._uploads = {str(name): str(file) for name, file in (state.get("uploads") or {}).items()}
        self._since = float(state.get("since") or 0.0)
        if not self._since:
            self._since = now.timestamp() - BEFORE_FIRST
            await self.save()

    async def save(self) -> None:
        """Write the file."""
        self._changed.clear()
        await self._file.save({"since": self._since, "seen": self._seen, "threads": self._threads, "uploads": self._uploads})

    async def keep_saved(self) -> None:
        """Write the file after changes, but not for each of them, until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(SAVE_SECONDS)
            try:
                await self.save()
            except OSError as error:  # then more of the history is read again after a crash
                log.error("slack_positions_not_saved", reason=str(error))

    @property
    def changed(self) -> bool:
        """True if there are changes that were not written."""
        return self._changed.is_set()

    def handled(self, channel: str, ts: str) -> None:
        """Note a message that was received, or that does not matter."""
        positions = self._seen if self._caught_up is None or channel in self._caught_up else self._ahead
        _raise(positions, channel, float(ts), MOST_CONVERSATIONS)
        self._changed.set()

    def took_part(self, channel: str, thread: str, ts: str) -> None:
        """Note a message for the assistant in a thread."""
        _raise(self._threads, f"{channel}/{thread}", float(ts), MOST_THREADS)
        self._changed.set()

    def upload(self, delivery: str) -> str:
        """Return the file that was uploaded for a delivery, or ""."""
        return self._uploads.get(delivery, "")

    async def note_upload(self, delivery: str, file: str) -> None:
        """Note durably which file was uploaded for a delivery."""
        self._uploads[delivery] = file
        while len(self._uploads) > MOST_UPLOADS:
            del self._uploads[next(iter(self._uploads))]
        await self.save()

    # --- gaps ---------------------------------------------------------------------------------------------------------

    def open_gap(self) -> int:
        """Keep all positions, because messages may have been missed. Return the number of the gap."""
        self._caught_up = set()
        self._gaps += 1
        return self._gaps

    def gap(self, channel: str) -> int:
        """Return the number of the gap that is open in a conversation; 0 if nothing is missing there."""
        return 0 if self._caught_up is None or channel in self._caught_up else self._gaps

    def caught_up(self, channel: str, gap: int) -> None:
        """Note that a gap is closed in a conversation."""
        if gap == self._gaps:
            if self._caught_up is not None:
                self._caught_up.add(channel)
            self._advance(channel)

    def close_gap(self, gap: int) -> None:
        """Note that a gap is closed everywhere."""
        if gap == self._gaps:
            self._caught_up = None
            for channel in tuple(self._ahead):
                self._advance(channel)

    def _advance(self, channel: str) -> None:
        if ahead := self._ahead.pop(channel, 0.0):
            _raise(self._seen, channel, ahead, MOST_CONVERSATIONS)
            self._changed.set()

    def position(self, channel: str) -> tuple[float, float]:
        """Return the time stamp up to which a conversation was received, and that from which on it is read again."""
        position = self._seen.get(channel, self._since)
        return position, max(position - OVERLAP, self._since)

    def order(self, channels: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return conversations, those with the latest messages first."""
        return sorted(channels, key=lambda each: -self._seen.get(each[0], 0.0))

    def threads(self, channel: str, after: float) -> list[str]:
        """Return the threads of a conversation in which the assistant took part after a time stamp."""
        places = ((*name.partition("/"), ts) for name, ts in self._threads.items())
        return [thread for place, _, thread, ts in places if place == channel and ts > after]


def _raise(positions: dict[str, float], name: str, ts: float, most: int) -> None:
    """Move a position forward, and forget those that were moved longest ago."""
    positions[name] = max(positions.pop(name, 0.0), ts)
    while len(positions) > most:
        del positions[next(iter(positions))]


class CatchUp:
    """Reads what was missed.

    Args:
        api: The Web API.
        progress: The positions.
        bot: The bot's user.
        now: The time.
        handle: Handles a message: the conversation, its type, the message, and whether a version of it was received.
    """

    def __init__(
        self,
        api: SlackApi,
        progress: Progress,
        bot: str,
        now: Callable[[], datetime],
        handle: Callable[[str, str, Message, bool], Awaitable[None]],
    ) -> None:
        self._api = api
        self._progress = progress
        self._bot = bot
        self._now = now
        self._handle = handle

    async def run(self, gap: int, in_order: Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]]) -> None:
        """Handle all messages that were missed.

        Args:
            gap: The number of the gap.
            in_order: Does work on a conversation when the work that began before it is done.
        """
        channels = self._progress.order([each async for each in self._conversations()])
        for number, (channel, kind) in enumerate(channels):
            await in_order(channel, partial(self.conversation, channel, kind))
            if number >= AT_ONCE:
                await asyncio.sleep(PACE_SECONDS)
        self._progress.close_gap(gap)

    async def conversation(self, channel: str, kind: str) -> None:
        """Handle the messages that were missed in a conversation, in their order, unless that was done."""
        gap = self._progress.gap(channel)
        if not gap:
            return
        try:
            await self._catch_up(channel, kind, self._now().timestamp())
        except SlackError as error:
            log.warning("slack_conversation_not_caught_up", chat=channel, reason=str(error))
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # the history is not as Slack describes it
            log.error("slack_conversation_not_caught_up", chat=channel, reason=f"{type(error).__name__}: {error}")
        self._progress.caught_up(channel, gap)

    async def _conversations(self) -> AsyncIterator[tuple[str, str]]:
        """Yield the conversations of the bot with their types."""
        for types in KINDS:
            kind = {"public_channel": "channel", "private_channel": "group"}.get(types, types)
            try:
                async for page in self._pages("users.conversations", types=types, exclude_archived=True, limit=PAGE):
                    for channel in page.get("channels") or ():
                        yield str(channel.get("id", "")), kind
            except SlackError as error:
                log.warning("slack_conversations_not_listed", types=types, reason=str(error))

    async def _catch_up(self, channel: str, kind: str, now: float) -> None:
        position, start = self._progress.position(channel)
        start, first = max(start, now - LONGEST), 0.0
        missed: dict[str, Message] = {}
        threads = set(self._progress.threads(channel, now - THREAD_SECONDS))
        begin = max(start - LOOKBACK, now - LONGEST)
        async for message in self._messages("conversations.history", begin, channel=channel):
            if message.get("subtype") == "channel_join" and message.get("user") == self._bot:
                first = max(first, float(message["ts"]))  # what others said before is none of its business
            elif float(message["ts"]) > start or _edited_at(message) > start:
                missed[str(message["ts"])] = message
            if message.get("reply_count"):
                threads.discard(str(message["ts"]))
                if float(message.get("latest_reply") or 0) > start:
                    threads.add(str(message["ts"]))
        for thread in sorted(threads):
            try:
                async for message in self._messages("conversations.replies", start, channel=channel, ts=thread):
                    if float(message["ts"]) > start:
                        missed[str(message["ts"])] = message
            except SlackError as error:  # its first message was deleted
                log.info("slack_thread_not_caught_up", chat=channel, reason=str(error))
        if len(missed) > MOST_MESSAGES:
            log.warning("slack_messages_skipped", chat=channel, skipped=len(missed) - MOST_MESSAGES)
        for ts in sorted(missed, key=float)[-MOST_MESSAGES:]:
            if float(ts) > first:
                await self._handle(channel, kind, missed[ts], float(ts) <= position)

    async def _messages(self, method: str, oldest: float, **arguments: Any) -> AsyncIterator[Message]:
        async for page in self._pages(method, oldest=f"{oldest:.6f}", limit=PAGE, **arguments):
            for message in page.get("messages") or ():
                yield message

    async def _pages(self, method: str, **arguments: Any) -> AsyncIterator[Message]:
        """Yield the pages of a list, and wait where Slack asks to."""
        cursor: str | None = None
        while True:
            page = await patient(partial(self._api.call, method, cursor=cursor, **arguments))
            yield page
            cursor = str((page.get("response_metadata") or {}).get("next_cursor") or "")
            if not cursor:
                return


async def patient(call: Callable[[], Awaitable[Message]]) -> Message:
    """Repeat a call that reads until Slack answers it."""
    pause = 1.0
    while True:
        try:
            return await call()
        except TryLater as error:
            await asyncio.sleep(max(error.after, 0.1))
        except DeliveryUnknown:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 60.0)


def _edited_at(message: Message) -> float:
    return float((message.get("edited") or {}).get("ts") or 0.0)

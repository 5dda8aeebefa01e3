"""What has been received durably: the session to resume with its last event, and where to catch up from in each channel.

Events are handled concurrently, those of one channel in order. What is saved never runs ahead of an event that is still
being handled, so after a crash Discord sends it again (RESUME), or it is fetched (REST); the gateway recognises what it has.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import msgspec

from plugins.api.context import Clock
from plugins.channels.discord.discord_events import EPOCH
from plugins.support.state_file import StateFile

CHANNELS = 1000
"""Channels whose last message is remembered: direct messages, and those in which somebody has spoken to the bot."""

SLACK = 60_000 << 22
"""A minute, in ids: messages of different channels arrive about in their order, and clocks differ."""

SAVE_SECONDS = 0.5
"""Seconds after a handled message until the state is saved."""

IDLE_SAVE_SECONDS = 60.0
"""Seconds between two saves while only messages for other people arrive."""


class Pending(msgspec.Struct, frozen=True, eq=False):
    """An event that is being handled, and the id of its message; 0 if it has none."""

    session: str
    seq: int
    message: int = 0


class Progress:
    """The progress of a channel, in a file.

    Attributes:
        session: The session to resume, "" for none.
        url: The websocket's address to resume it at.
        received: The number of its last event that has arrived.
        away: For servers that have not been seen since a session ended: the id after which their messages are missing.
        posted: The last post of the bot in a channel.
    """

    def __init__(self, file: StateFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._pending: set[Pending] = set()
        self._first = 0
        self._newest = 0
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._vital = False
        self.session = ""
        self.url = ""
        self.received = 0
        self.away: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._guilds: dict[str, str] = {}
        self.posted: dict[str, int] = {}

    async def load(self) -> None:
        """Read the file. Raises OSError."""
        state = await self._file.load()
        try:
            saved = msgspec.convert(state, _Saved, strict=False)
        except msgspec.ValidationError:
            saved = _Saved()  # of a version that is not known: a new session, without catching up
        self.session, self.url, self.received = saved.session, saved.url, saved.seq
        self._newest, self.away, self.posted = saved.seen, saved.away, saved.posted
        self._last, self._guilds = saved.last, saved.guilds

    def started(self, session: str, url: str, seq: int, guilds: list[str]) -> None:
        """Note a new session with its first event: what happened since the one before is to be fetched."""
        since = self.seen
        for guild in guilds if since else ():  # what is from before the first session is not for the bot
            self.away.setdefault(guild, since)
        self.session, self.url, self.received, self._first = session, url, seq, seq
        self._newest = self._newest or _id_of(self._clock.now())  # the first session of all
        self._vital = True

    def ended(self) -> None:
        """Forget a session that cannot be resumed."""
        self.session, self.url, self.received, self._first = "", "", 0, 0
        self.changed(urgent=True)

    def begin(self, message: str = "") -> Pending:
        """Note that the event that arrived last is being handled. Call `finish` when it has been."""
        pending = Pending(self.session, self.received, int(message) if message.isdigit() else 0)
        self._pending.add(pending)
        return pending

    def finish(self, pending: Pending) -> None:
        """Note that an event has been handled: what it said is durable, or of no concern."""
        self._pending.discard(pending)
        self._newest = max(self._newest, pending.message)
        self.changed(urgent=True)

    def passed(self, message: int) -> None:
        """Note a message that is of no concern."""
        self._newest = max(self._newest, message)
        self.changed()

    def handled(self, channel: str, guild: str, message: int) -> None:
        """Note a handled message of a channel in which the bot takes part; `guild` is "" for direct messages."""
        self._vital |= channel not in self._last
        _remember(self._last, channel, message)
        if guild:
            self._guilds[channel] = guild
        if len(self._guilds) > CHANNELS:
            self._guilds = {each: self._guilds[each] for each in self._last if each in self._guilds}

    def heard_of(self, channel: str, message: int) -> None:
        """Note direct messages with somebody before their first one is handled: Discord lists them nowhere."""
        if channel not in self._last:
            self.handled(channel, "", message - 1)

    def takes_part(self, channel: str) -> bool:
        """Return True if the last handled message of a channel is remembered."""
        return channel in self._last

    def last_of(self, channel: str) -> int:
        """Return the id of the last handled message of a channel; 0 if none is remembered."""
        return self._last.get(channel, 0)

    def channels_of(self, guild: str) -> list[str]:
        """Return the channels of a server in which the bot takes part; those of direct messages for ""."""
        return [channel for channel in self._last if self._guilds.get(channel, "") == guild]

    def sent(self, channel: str, message: int) -> None:
        """Note a post of the bot."""
        _remember(self.posted, channel, message)
        self.changed(urgent=True)

    def changed(self, *, urgent: bool = False) -> None:
        """Have the state saved soon."""
        self._changed.set()
        if urgent:
            self._urgent.set()

    @property
    def durable(self) -> int:
        """The number of the session's last event before which all have been handled."""
        return min([each.seq - 1 for each in self._pending if each.session == self.session] + [self.received])

    @property
    def seen(self) -> int:
        """An id before which all messages have been handled; 0 if nothing is known."""
        return max(0, min((each.message for each in self._pending if each.message), default=self._newest) - SLACK)

    async def keep_saving(self) -> None:
        """Save what changes, until cancelled. Nothing wakes up while nothing changes."""
        while True:
            await self._changed.wait()
            try:
                async with asyncio.timeout(IDLE_SAVE_SECONDS):
                    await self._urgent.wait()
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(SAVE_SECONDS)
            await self.save()

    async def settle(self) -> None:
        """Save what could not be found out again after a crash: a session, or a channel from which to catch up."""
        if self._vital:
            await self.save()

    async def save(self) -> None:
        """Save the state. Raises OSError."""
        self._vital = False
        self._changed.clear()
        self._urgent.clear()
        await self._file.save(self._state())

    def _state(self) -> dict[str, Any]:
        # A session whose beginning is still being handled cannot be resumed before its first event.
        resumable = self.durable >= self._first
        saved = _Saved(
            session=self.session if resumable else "",
            url=self.url if resumable else "",
            seq=self.durable if resumable else 0,
            seen=self.seen and self.seen + SLACK,
            away=self.away,
            last=self._last,
            guilds=self._guilds,
            posted=self.posted,
        )
        return msgspec.to_builtins(saved)  # type: ignore[no-any-return]


class _Saved(msgspec.Struct, kw_only=True):
    session: str = ""
    url: str = ""
    seq: int = 0
    seen: int = 0
    away: dict[str, int] = {}
    last: dict[str, int] = {}
    guilds: dict[str, str] = {}
    posted: dict[str, int] = {}


def _id_of(time: datetime) -> int:
    """Return the id that something created at a time would have."""
    return (int(time.timestamp() * 1000) - EPOCH) << 22


def _remember(where: dict[str, int], channel: str, message: int) -> None:
    """Note a channel's newest message; the channels that were used least recently are forgotten."""
    where[channel] = max(message, where.pop(channel, 0))
    while len(where) > CHANNELS:
        del where[next(iter(where))]

"""The heartbeat: wakes the model at an interval, within active hours, with what stands in `HEARTBEAT.md`.

A beat that cannot begin at its time is skipped, never made up for: while its conversation is busy, while the gateway is
stopped, or if there is nothing to say. An empty answer leaves the model's view and is not delivered. The times of a day are
counted from the beginning of the active hours, so a restart changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import msgspec
import structlog

from gateway.config.agents import HeartbeatKeys
from gateway.config.keys import Config
from gateway.config.settings import Settings
from gateway.conversations.channels.channel_inbox import conversation_key
from gateway.conversations.routing.chat import AgentChoice, Chat
from gateway.conversations.routing.switchboard import Switchboard
from gateway.conversations.schedules.recurrence import stamp_seconds, zone_named
from gateway.conversations.schedules.scheduler import HAND_OVER_SECONDS, LONGEST_SLEEP
from gateway.conversations.schedules.schedules import ON_TIME
from gateway.support.errors import Busy, Conflict, GatewayError, OwnedElsewhere, error_fields, sentence_of
from gateway.support.home import Home
from gateway.support.small_files import read_at_most
from plugins.api.context import Clock
from sessions.events.codec import replace_surrogates
from sessions.events.errors import SessionsError
from sessions.events.events import MAIN_AGENT, MessageReceived
from sessions.events.handed_messages import HEARTBEAT
from sessions.store.catalog import WEBSOCKET
from sessions.store.leases import Leases, SoleLeases

LEASE = "heartbeat"
"""The name of the lease of the gateway that sends the beats of `main`; followed by its name, of another agent."""

FILE_BYTES = 16 * 1024
"""Bytes of the file that are used."""

SHORTEST = 60.0
"""The shortest interval in seconds."""

PROMPT = (
    "This is a heartbeat, sent by the gateway and not by a person. Do what is due of the list below, and nothing else. If"
    " nothing needs the person's attention, answer only HEARTBEAT_OK."
)

Outcome: TypeAlias = Literal["sent", "busy", "empty", "failed"]

log = structlog.get_logger("exuvia.heartbeat")


async def _unknown(channel: str, chat: str, person: str) -> bool:
    """Return False: nothing is known of any chat."""
    return False


class HeartbeatReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the heartbeat: `next` is RFC 3339 in UTC, empty if there is none; `last` is the outcome of the last beat
    since the start. `sent` and `skipped` count since the start."""

    every: float
    active: str
    zone: str
    person: str
    key: str
    next: str
    last: str = ""
    sent: int = 0
    skipped: int = 0


class Heartbeats:
    """The heartbeats of all agents, as an async context manager. Without one in the configuration there is no task.

    Args:
        settings: The configuration in force.
        clock: The clock.
        home: The home, for the workspaces of the agents.
        persons: Returns True if there is a person with an id.
        leases: One gateway at a time sends the beats of an agent.
        is_named: Returns True if a chat of a channel is known to be a person's own. May raise Busy.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        home: Home,
        persons: Callable[[str], bool],
        leases: Leases | None = None,
        *,
        is_named: Callable[[str, str, str], Awaitable[bool]] = _unknown,
    ) -> None:
        self._settings = settings
        self._home = home
        self._make = partial(Heartbeat, settings, clock, persons, leases or SoleLeases(), is_named)
        self._switchboard: Switchboard | None = None
        self._of_agents: dict[str, Heartbeat] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._of_agents.values():
            await each.stop()

    async def start(self, switchboard: Switchboard) -> None:
        """Begin to send the beats to these conversations, if the configuration says so."""
        self._switchboard = switchboard
        await self.reconfigure()

    async def reconfigure(self) -> None:
        """Begin, change or end the beats as the configuration in force says, once this has been started."""
        config = self._settings.current
        for each in self._of_agents.values():
            await each.stop()
        for agent in (MAIN_AGENT, *config.agents):
            if heartbeat_of(config, agent).every and self._switchboard is not None:
                self._of(agent).start(self._switchboard)

    def report(self, agent: str = MAIN_AGENT) -> HeartbeatReport | None:
        """Return the state of an agent's heartbeat; None if none is configured."""
        return self._of(agent).report() if heartbeat_of(self._settings.current, agent).every else None

    def _of(self, agent: str) -> Heartbeat:
        config = self._settings.current
        workspace = (config.agents[agent] if agent != MAIN_AGENT else config.agent).workspace
        return self._of_agents.setdefault(agent, self._make(workspace=self._home.workspace(workspace), agent=agent))


def heartbeat_of(config: Config, agent: str) -> HeartbeatKeys:
    """Return the keys of an agent's heartbeat; the defaults for an agent that is not configured any more."""
    if agent == MAIN_AGENT:
        return config.heartbeat
    return config.agents[agent].heartbeat if agent in config.agents else HeartbeatKeys()


class Heartbeat:
    """Sends the beats of one agent.

    Args:
        settings: The configuration in force.
        clock: The clock.
        persons: Returns True if there is a person with an id.
        leases: One gateway at a time sends the beats.
        is_named: Returns True if a chat of a channel is known to be a person's own. May raise Busy.
        workspace: The folder of the file.
        agent: The agent.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        persons: Callable[[str], bool],
        leases: Leases,
        is_named: Callable[[str, str, str], Awaitable[bool]],
        *,
        workspace: Path,
        agent: str,
    ) -> None:
        self._switchboard: Switchboard | None = None
        self._settings = settings
        self._clock = clock
        self._persons = persons
        self._leases = leases
        self._is_named = is_named
        self._workspace = workspace
        self._agent = agent
        self._task: asyncio.Task[None] | None = None
        self._last: Outcome | None = None
        self._sent = self._skipped = 0

    def start(self, switchboard: Switchboard) -> None:
        """Begin to send the beats to these conversations, as the configuration in force says."""
        self._switchboard = switchboard
        lease = LEASE if self._agent == MAIN_AGENT else f"{LEASE}:{self._agent}"
        self._task = asyncio.create_task(self._leases.hold(lease, partial(self._run, self._keys)))

    async def stop(self) -> None:
        """End the beats."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    @property
    def _keys(self) -> HeartbeatKeys:
        return heartbeat_of(self._settings.current, self._agent)

    def report(self) -> HeartbeatReport | None:
        """Return the state; None if there is no heartbeat."""
        keys = self._keys
        if not keys.every:
            return None
        return HeartbeatReport(
            every=max(SHORTEST, keys.every),
            active=keys.active,
            zone=self._zone(keys),
            person=keys.person,
            key=_place(keys, self._agent)[0],
            next=stamp_seconds(self._next(keys, self._clock.now())),
            last=self._last or "",
            sent=self._sent,
            skipped=self._skipped,
        )

    def _zone(self, keys: HeartbeatKeys) -> str:
        return str(keys.timezone or self._settings.zone_of(keys.person))

    def _next(self, keys: HeartbeatKeys, after: datetime) -> datetime:
        return next_beat(max(SHORTEST, keys.every or 0.0), keys.active, after, zone_named(self._zone(keys)))

    async def _run(self, keys: HeartbeatKeys) -> None:
        due = self._next(keys, self._clock.now())
        while True:
            left = (due - self._clock.now()).total_seconds()
            if left > 0:
                await asyncio.sleep(min(left, LONGEST_SLEEP))  # the wall clock may be set
                due = min(due, self._next(keys, self._clock.now()))
                continue
            if self._clock.now() - due <= ON_TIME:  # else the machine slept
                self._count(await self._beat(keys, due))
            due = self._next(keys, max(due, self._clock.now()))

    def _count(self, outcome: Outcome) -> None:
        self._last = outcome
        if outcome == "sent":
            self._sent += 1
        else:
            self._skipped += 1
            log.info("heartbeat_skipped", agent=self._agent, reason=outcome)

    async def _beat(self, keys: HeartbeatKeys, due: datetime) -> Outcome:
        """Send one beat, unless there is a reason not to."""
        key, channel, chat = _place(keys, self._agent)
        try:
            text = await asyncio.to_thread(self._text, keys)
            if not text or not self._persons(keys.person):
                return "failed" if text else "empty"
            # As long as nothing else is known, others may read what is sent to a chat.
            private = not chat or await self._is_named(channel, chat, keys.person)
            message = MessageReceived(
                id=f"{HEARTBEAT}:{stamp_seconds(due)}",
                client=HEARTBEAT,
                sender=keys.person,
                channel=channel or "websocket",
                chat="private" if private else "group",
                text=text,
                attachments=(),
                reply_to=chat,
            )
            async with asyncio.timeout(HAND_OVER_SECONDS):
                conversation = await self._chat(keys.person, key)
                if conversation.has_turn or any(each.recorder.transcript.waiting for each in conversation.conversations):
                    return "busy"
                received = await conversation.receive(message, None)
                await conversation.until_durable(received)
        except (TimeoutError, Busy):
            return "busy"
        except (GatewayError, SessionsError) as error:
            log.warning("heartbeat_failed", agent=self._agent, reason=sentence_of(error))
            return "failed"
        except Exception as error:  # the next beat may succeed
            log.error("heartbeat_failed", agent=self._agent, **error_fields(error))
            return "failed"
        return "sent"

    async def _chat(self, person: str, key: str) -> Chat:
        """Return the conversation of the beats, begun with the agent if there is none. Another gateway hands it over.

        Raises:
            Conflict: Another agent answers in it.
        """
        assert self._switchboard is not None
        if self._agent == MAIN_AGENT:
            return await self._switchboard.chat_here(person, key, channel=WEBSOCKET)
        choice = AgentChoice(agent=self._agent, by_person=True)
        try:
            chat = await self._switchboard.begun_with(person, key, choice)
        except OwnedElsewhere as owner:
            if not await self._switchboard.obtain((person, key), owner):
                raise
            chat = await self._switchboard.begun_with(person, key, choice)
        if chat.current is not None and chat.current.recorder.transcript.agent != self._agent:
            raise Conflict(f"Another agent than {self._agent} answers in {key}.")
        return chat

    def _text(self, keys: HeartbeatKeys) -> str:
        """Return the message: the prompt, and the file below it. A file without a list says nothing."""
        said = ""
        with suppress(OSError, UnicodeError):
            said = (read_at_most(self._workspace / keys.file, FILE_BYTES) or b"").decode(errors="replace")
        lines = [line for line in said.splitlines() if line.strip() and not line.lstrip().startswith(("#", "<!--"))]
        if not lines and keys.prompt is None:
            return ""
        return replace_surrogates(
            "\n\n".join(part for part in (keys.prompt or PROMPT, said.strip() if lines else "") if part)
        )


def next_beat(every: float, active: str, after: datetime, zone: tzinfo) -> datetime:
    """Return the first time after another one at which a beat is due, in UTC.

    Args:
        every: The interval in seconds, counted on each day from the beginning of the active hours.
        active: The active hours, such as `08:00-22:00`. If they end before they begin, they end on the next day.
        after: The other time.
        zone: The time zone of the active hours.
    """
    begin, end = (_minutes(part) for part in active.split("-"))
    length = (end - begin) % 1440 or 1440
    day = after.astimezone(zone).date() - timedelta(days=1)
    while True:
        first = _at(day, begin, zone)
        last = _at(day, begin + length, zone)
        number = max(0, int((after - first).total_seconds() // every) + 1)
        if (due := first + timedelta(seconds=number * every)) < last and due > after:
            return due
        day += timedelta(days=1)


def _minutes(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def _at(day: date, minutes: int, zone: tzinfo) -> datetime:
    """Return the time so many minutes by the clock on the wall after a day has begun, in UTC."""
    return (datetime.combine(day, time()) + timedelta(minutes=minutes)).replace(tzinfo=zone).astimezone(UTC)


def _place(keys: HeartbeatKeys, agent: str) -> tuple[str, str, str]:
    """Return the conversation, by default that with the name of the agent, and the channel and chat that answers go to, both
    empty for the conversation itself.
    """
    channel, _, chat = (keys.to or "").partition(":")
    return keys.session or (conversation_key(channel, chat) if chat else agent), channel if chat else "", chat

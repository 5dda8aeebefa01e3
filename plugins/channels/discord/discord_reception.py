"""What people do on Discord, passed on: messages, edits, deletions, reactions, buttons; and what was missed while away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from plugins.api.channel import ChannelInbox, InboundFile, InboundMessage, MessageRejected
from plugins.channels.discord import discord_events as events
from plugins.channels.discord.discord_api import DiscordApi, Refused
from plugins.channels.discord.discord_lanes import Lanes
from plugins.channels.discord.discord_markdown import MAX_LENGTH, escape
from plugins.channels.discord.discord_posts import PAGE, megabytes, payload_of
from plugins.channels.discord.discord_progress import Pending, Progress
from plugins.support.errors import PluginError

MAX_DOWNLOAD = 25 * 1024 * 1024
"""Bytes of the largest file of a message that is downloaded."""

DOWNLOADS = 4
"""Downloads at the same time."""

DOWNLOAD_PAUSES = (1.0, 5.0)
"""Seconds before a download that broke off is tried again."""

KNOWN_PLACES = 20_000
AUTHORS = 2000
"""Threads and channels, and messages with their authors, that are remembered at most."""

OVERLAP = 2000 << 22
"""Two seconds, in ids: messages of one channel may arrive in another order than that of their ids."""

DEFERRED_UPDATE = 6
"""The answer to a press of a button that only says that it has arrived."""

EPHEMERAL = 1 << 6
"""The flag of a message that only the person who pressed a button sees."""

log = structlog.get_logger("exuvia.channels")


class _Author(NamedTuple):
    """Who wrote a message, and where."""

    sender: str
    chat: str
    thread: str
    group: bool


class Reception:
    """Takes the events of one run of the channel. `me` is the bot's id."""

    def __init__(self, api: DiscordApi, progress: Progress, inbox: ChannelInbox, tasks: asyncio.TaskGroup, me: str) -> None:
        self._api = api
        self._progress = progress
        self._inbox = inbox
        self._tasks = tasks
        self._me = me
        self._lanes = Lanes(progress, tasks)
        self._parents: dict[str, str] = {}
        self._own_roles: dict[str, frozenset[str]] = {}
        self._roles: dict[str, frozenset[str]] = {}
        self._authors: dict[str, _Author] = {}
        self._downloads = asyncio.Semaphore(DOWNLOADS)
        self._handlers: dict[str, tuple[type[Any], Callable[[Any], None]]] = {
            "MESSAGE_CREATE": (events.Message, self._on_message),
            "MESSAGE_UPDATE": (events.Message, self._on_edit),
            "MESSAGE_DELETE": (events.Deleted, self._on_deletion),
            "MESSAGE_DELETE_BULK": (events.Deleted, self._on_deletion),
            "MESSAGE_REACTION_ADD": (events.Reaction, self._on_reaction),
            "INTERACTION_CREATE": (events.Interaction, self._on_interaction),
            "GUILD_CREATE": (events.Guild, self._on_guild),
            "GUILD_DELETE": (events.Guild, self._on_guild_gone),
            "GUILD_MEMBER_UPDATE": (events.MemberUpdate, self._on_member_update),
            "CHANNEL_CREATE": (events.Place, self._learn),
            "THREAD_CREATE": (events.Place, self._learn),
            "THREAD_UPDATE": (events.Place, self._learn),
        }

    async def on_event(self, kind: str, data: msgspec.Raw) -> None:
        """Take an event. Returns once there is room for another."""
        form, handle = self._handlers.get(kind, (None, None))
        if form is not None and handle is not None:
            try:
                handle(msgspec.json.decode(data, type=form))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                log.warning("discord_event_not_read", kind=kind, reason=str(error))
        self._progress.changed()
        await self._progress.settle()
        await self._lanes.until_room()

    def on_start(self) -> None:
        """Fetch what was written in direct messages before a new session; servers follow when Discord tells of them."""
        for channel in self._progress.channels_of(""):
            self._enqueue_catching_up(channel, "")

    # --- messages -----------------------------------------------------------------------------------------------------

    def _on_message(self, message: events.Message) -> None:
        self._lanes.enqueue(message.channel_id, lambda: self._take(message), message.id)

    def _on_edit(self, message: events.Message) -> None:
        if message.edited_timestamp:  # otherwise Discord added previews of links
            self._lanes.enqueue(message.channel_id, lambda: self._take(message, edited=True))

    async def _take(self, message: events.Message, *, edited: bool = False) -> None:
        """Pass a message on. It counts as handled when the gateway has it durably, or does not want it."""
        taken = False
        if not message.author.bot and not message.webhook_id and message.type in events.SPOKEN:
            taken = await self._pass_on(message, edited=edited)
        if not edited and (taken or self._progress.takes_part(message.channel_id)):
            self._progress.handled(message.channel_id, message.guild_id or "", int(message.id))
            await self._progress.settle()

    async def _pass_on(self, message: events.Message, *, edited: bool) -> bool:
        """Return True if a message is of the bot's concern: the gateway took it, or a known sender addresses the bot."""
        roles = self._roles.get(message.guild_id or "", frozenset())
        parent = await self._parent(message.channel_id) if message.guild_id else ""
        known = await self._inbox.knows(message.author.id)
        addressed = events.is_addressed(message, self._me, roles)
        concerned, heard = known and addressed, await self._inbox.knows(message.author.id, mentioned=addressed)
        if concerned and message.guild_id is None:
            self._progress.heard_of(message.channel_id, int(message.id))
        files, notes = ((), ()) if edited else await self._files(message, known=heard)
        inbound = events.inbound(message, me=self._me, roles=roles, parent=parent, edited=edited, files=files, notes=notes)
        if not inbound.text.strip() and not files and not edited:
            return concerned
        taken = await self._receive(inbound, message)
        if taken or concerned:
            self._authors[message.id] = _Author(inbound.sender, inbound.chat, inbound.thread, inbound.group)
            while len(self._authors) > AUTHORS:
                del self._authors[next(iter(self._authors))]
        return taken or concerned

    async def _receive(self, inbound: InboundMessage, message: events.Message | None = None) -> bool:
        """Pass something on, and tell the author of a message why the gateway rejects it, if it wants that."""
        try:
            return await self._inbox.receive(inbound)
        except MessageRejected as error:
            if error.later:
                raise
            if error.tell and message is not None:
                await self._tell(message, str(error))
            return False

    async def _tell(self, message: events.Message, text: str) -> None:
        """Answer a message; once, however often it is handled."""
        channel = message.channel_id
        payload = payload_of(escape(text)[:MAX_LENGTH], f"{channel}/{message.id}/told", message.id)
        try:
            await self._api.post(f"/channels/{channel}/messages", payload)
        except Refused as error:
            log.warning("discord_sender_not_told", reason=str(error))

    async def _files(self, message: events.Message, *, known: bool) -> tuple[tuple[InboundFile, ...], tuple[str, ...]]:
        """Return the files of a message, and what is to be said of those that were not taken, as from unknown senders."""
        files: list[InboundFile] = []
        notes: list[str] = []
        attached = [*message.attachments, *(each for one in message.message_snapshots for each in one.message.attachments)]
        for each in attached:
            if not known:
                notes.append(f"[file: {each.filename}]")
            elif each.size > MAX_DOWNLOAD:
                notes.append(f"[file {each.filename} not received: it has {megabytes(each.size)}, the limit is 25 MB]")
            else:
                try:
                    content = await self._download(each.url)
                except PluginError as error:
                    notes.append(f"[file {each.filename} not received: {error}]")
                else:
                    files.append(InboundFile(content=content, name=each.filename, media=each.content_type or ""))
        return tuple(files), tuple(notes)

    async def _download(self, url: str) -> bytes:
        """Return the content of a file, tried again a few times. Raises PluginError."""
        for pause in DOWNLOAD_PAUSES:
            try:
                async with self._downloads:
                    return await self._api.download(url, MAX_DOWNLOAD)
            except Refused:
                raise
            except PluginError:
                await asyncio.sleep(pause)
        async with self._downloads:
            return await self._api.download(url, MAX_DOWNLOAD)

    def _on_deletion(self, deleted: events.Deleted) -> None:
        self._lanes.enqueue(deleted.channel_id, lambda: self._take_deletion(deleted))

    async def _take_deletion(self, deleted: events.Deleted) -> None:
        for message in (deleted.id, *deleted.ids):
            if (author := self._authors.get(message)) is not None:
                inbound = InboundMessage(
                    id=f"{message}/deleted",
                    deletes=message,
                    sender=author.sender,
                    chat=author.chat,
                    thread=author.thread,
                    group=author.group,
                    text="",
                )
                await self._receive(inbound)

    def _on_reaction(self, reaction: events.Reaction) -> None:
        if reaction.message_author_id == self._me and reaction.user_id != self._me:
            self._lanes.enqueue(reaction.channel_id, lambda: self._take_reaction(reaction))

    async def _take_reaction(self, reaction: events.Reaction) -> None:
        parent = await self._parent(reaction.channel_id) if reaction.guild_id else ""
        inbound = InboundMessage(
            id=f"{reaction.message_id}/{reaction.user_id}/{reaction.emoji.name}",
            sender=reaction.user_id,
            chat=parent or reaction.channel_id,
            thread=reaction.channel_id if parent else "",
            text="",
            group=reaction.guild_id is not None,
            reaction=reaction.emoji.name or "",
            reacts_to=reaction.message_id,
        )
        await self._receive(inbound)

    # --- buttons ------------------------------------------------------------------------------------------------------

    def _on_interaction(self, press: events.Interaction) -> None:
        if press.type == events.COMPONENT:
            self._tasks.create_task(self._acknowledge(press))
            self._lanes.enqueue(press.channel_id, lambda: self._take_press(press))

    async def _acknowledge(self, press: events.Interaction) -> None:
        """Tell Discord within its three seconds that a press has arrived. It counts once the gateway has it."""
        try:
            await self._api.post(f"/interactions/{press.id}/{press.token}/callback", {"type": DEFERRED_UPDATE})
        except PluginError as error:  # after a crash the three seconds have passed; the press counts nevertheless
            log.info("discord_press_not_acknowledged", reason=str(error))

    async def _take_press(self, press: events.Interaction) -> None:
        user = (press.member.user if press.member else None) or press.user
        if user is None:
            return
        if press.channel is not None:
            self._learn(press.channel)
        parent = await self._parent(press.channel_id) if press.guild_id else ""
        inbound = InboundMessage(
            id=press.id,
            sender=user.id,
            name=(press.member.nick if press.member else None) or user.shown,
            chat=parent or press.channel_id,
            thread=press.channel_id if parent else "",
            text=press.data.custom_id,
            choice=press.data.custom_id,
            group=press.guild_id is not None,
        )
        try:
            await self._inbox.receive(inbound)
        except MessageRejected as error:
            if error.later:
                raise
            if error.tell:
                await self._tell_privately(press, str(error))

    async def _tell_privately(self, press: events.Interaction, text: str) -> None:
        payload = payload_of(escape(text)[:MAX_LENGTH], press.id) | {"flags": EPHEMERAL}
        try:
            await self._api.post(f"/webhooks/{press.application_id}/{press.token}", payload)
        except PluginError as error:
            log.info("discord_sender_not_told", reason=str(error))

    # --- servers, and what was missed ---------------------------------------------------------------------------------

    def _on_guild(self, guild: events.Guild) -> None:
        """Learn a server's channels, and fetch what was written while the bot was away from it."""
        if guild.unavailable:
            return
        own = [role.id for role in guild.roles if role.tags is not None and role.tags.bot_id == self._me]
        mine = [role for each in guild.members if each.user and each.user.id == self._me for role in each.roles]
        self._own_roles[guild.id], self._roles[guild.id] = frozenset(own), frozenset([*own, *mine])
        places = [*guild.channels, *guild.threads]
        for place in places:
            self._learn(place)
        pending = self._progress.begin()
        since = self._progress.away.get(guild.id)
        missed = set(self._progress.channels_of(guild.id)) if since is not None else set()
        missed |= {place.id for place in places if since and place.has_messages_after(since)}
        caught_up = [self._enqueue_catching_up(channel, guild.id, since or 0) for channel in sorted(missed)]
        self._tasks.create_task(self._note_caught_up(guild.id, caught_up, pending))
        self._progress.passed(max((int(place.last_message_id or 0) for place in places), default=0))

    async def _note_caught_up(self, guild: str, caught_up: Sequence[asyncio.Event], pending: Pending) -> None:
        """Note that a server no longer counts as away, once that is so."""
        for each in caught_up:
            await each.wait()
        self._progress.away.pop(guild, None)
        self._progress.finish(pending)

    def _on_guild_gone(self, guild: events.Guild) -> None:
        if guild.unavailable:
            self._progress.away.setdefault(guild.id, self._progress.seen)

    def _on_member_update(self, update: events.MemberUpdate) -> None:
        if update.user.id == self._me:
            self._roles[update.guild_id] = self._own_roles.get(update.guild_id, frozenset()) | frozenset(update.roles)

    def _learn(self, place: events.Place) -> None:
        self._parents[place.id] = place.parent_id or "" if place.type in events.THREADS else ""
        while len(self._parents) > KNOWN_PLACES:
            del self._parents[next(iter(self._parents))]

    async def _parent(self, place: str) -> str:
        """Return the channel of a thread; "" if the place is not a thread."""
        if place not in self._parents:
            try:
                self._learn(msgspec.convert(await self._api.get(f"/channels/{place}"), events.Place))
            except Refused:
                return ""
        return self._parents[place]

    def _enqueue_catching_up(self, channel: str, guild: str, since: int = 0) -> asyncio.Event:
        """Have the messages of a channel fetched after its last one, or else after `since`, before later ones are handled.
        Return an event that is set when that is done."""
        done = asyncio.Event()

        async def catch_up() -> None:
            last = self._progress.last_of(channel)
            await self._catch_up(channel, guild, last - OVERLAP if last else since, last)
            done.set()

        self._lanes.enqueue(channel, catch_up)
        return done

    async def _catch_up(self, channel: str, guild: str, after: int, last: int) -> None:
        """Fetch the messages of a channel after an id, and handle them in order. Those up to `last` have been handled."""
        while True:
            try:
                page = await self._api.get(f"/channels/{channel}/messages", after=str(after), limit=str(PAGE))
            except Refused as error:
                log.info("discord_channel_not_read", channel=channel, reason=str(error))
                return
            messages = sorted(msgspec.convert(page, list[events.Message]), key=lambda message: int(message.id))
            for message in messages:
                message.guild_id = guild or None
                after = int(message.id)
                await self._take(message, edited=after <= last and message.edited_timestamp is not None)
            if len(messages) < PAGE:
                return

"""Updates as messages for the gateway: who wrote what, whether it is for the bot, and its files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog

from plugins.api.channel import ChannelInbox, InboundFile, InboundMessage, MessageRejected
from plugins.channels.telegram.bot_api import DOWNLOAD_BYTES, BotApi, BotApiError, NotSent, OutcomeUnknown
from plugins.channels.telegram.bot_updates import (
    CallbackQuery,
    Chat,
    Message,
    Reaction,
    Update,
    User,
    addresses_bot,
    display_name,
    file_of,
    quoted_text,
    text_of_message,
    thread_of,
    without_address,
)
from plugins.channels.telegram.telegram_state import TelegramState
from plugins.support.errors import PluginError

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until a message that was rejected for now is passed on again; the last for all later attempts."""

DOWNLOAD_ATTEMPTS = 4
"""Attempts to download a file before its message is passed on without it."""

ALERT_CHARS = 200
"""Characters of the longest text that is shown to who pressed a button."""

log = structlog.get_logger("exuvia.channels")

Tell = Callable[[Message, str], Awaitable[None]]
"""Replies to a message with a text."""


class UpdateReader:
    """Passes updates to the gateway. `tell` replies to a message, `state` holds what must survive a restart."""

    def __init__(self, api: BotApi, bot: User, state: TelegramState, inbox: ChannelInbox, tell: Tell) -> None:
        self._api = api
        self._bot = bot
        self._state = state
        self._inbox = inbox
        self._tell = tell

    async def read(self, updates: list[Update]) -> None:
        """Pass on an update, or the updates of an album as one message. Returns once what counts is durable."""
        first = updates[0]
        if first.message is not None:
            await self._read_messages([update.message for update in updates if update.message is not None])
        elif first.edited_message is not None:
            edited = first.edited_message
            await self._receive(edited, edits=message_id(edited), id_=f"{message_id(edited)}/e{first.update_id}")
        elif first.callback_query is not None:
            await self._pressed(first.callback_query)
        elif first.message_reaction is not None:
            await self._reacted(first.message_reaction, first.update_id)

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _read_messages(self, messages: list[Message]) -> None:
        if messages[0].migrate_to_chat_id:
            await self._state.migrate(messages[0].chat.id, messages[0].migrate_to_chat_id)
        elif album := messages[0].media_group_id:
            for part in await self._state.album_parts(album, [message.message_id for message in messages]):
                found = [message for message in messages if message.message_id in part]
                await self._receive(found[0], *found[1:])
        else:
            await self._receive(messages[0])

    async def _receive(self, message: Message, *more: Message, edits: str = "", id_: str = "") -> None:
        """Pass on a message, with the texts and files of the rest of its album."""
        author = message.sender_chat or message.from_
        if author is None or (isinstance(author, User) and author.is_bot):
            return  # another bot: two that answer each other would never end
        messages = (message, *more)
        text = "\n".join(filter(None, (text_of_message(each) for each in messages)))
        files = [(each, file) for each in messages if (file := file_of(each)) is not None]
        if not text and not files:
            return  # a service message, such as somebody joining the group
        inbound = self._inbound(message, author, text, edits=edits, id_=id_ or message_id(message))
        notes: list[str] = []
        if files and await self._inbox.knows(inbound.sender, mentioned=inbound.mentioned):
            attachments = [await self._download(*found, notes) for found in files]
            inbound = msgspec.structs.replace(
                inbound,
                text="\n".join([*filter(None, [inbound.text]), *(f"[{note}]" for note in notes)]),
                attachments=tuple(each for each in attachments if each is not None),
            )
        new, rejected = await self._pass_on(inbound)
        if told := rejected or "\n".join(notes if new else ()):
            await self._tell(message, told)

    def _inbound(self, message: Message, author: User | Chat, text: str, **ids: str) -> InboundMessage:
        group = message.chat.type != "private"
        text = without_address(text, self._bot)
        if not group and text.split(maxsplit=1)[:1] == ["/start"]:
            text = "/help"  # what everybody who opens a chat with a bot sends, by a button
        return InboundMessage(
            id=ids["id_"],
            edits=ids["edits"],
            sender=str(author.id),
            name=display_name(author),
            chat=self._state.conversation(message.chat.id),
            thread=thread_of(message),
            text=text,
            group=group,
            mentioned=not group or addresses_bot(message, self._bot),
            reply=quoted_text(message),
            at=0.0 if ids["edits"] else float(message.date),
        )

    async def _pass_on(self, inbound: InboundMessage) -> tuple[bool, str]:
        """Pass a message to the gateway until it is accepted or rejected for good.

        Returns:
            True if it was new, and what to tell its sender; "" for nothing.
        """
        attempt = 0
        while True:
            try:
                return await self._inbox.receive(inbound), ""
            except MessageRejected as rejected:
                if not rejected.later:
                    return False, str(rejected) if rejected.tell else ""
            await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
            attempt += 1

    # --- files --------------------------------------------------------------------------------------------------------

    async def _download(self, message: Message, found: tuple[Any, str, str], notes: list[str]) -> InboundFile | None:
        """Return a file of a message. If there is none, a sentence that says so is added to `notes`."""
        (file, name, media), why = found, "Telegram asked to wait"
        if file.file_size > DOWNLOAD_BYTES:
            notes.append(_too_large(name, file.file_size))
            return None
        for attempt in range(DOWNLOAD_ATTEMPTS):
            try:
                return InboundFile(content=await self._api.download(file.file_id), name=name, media=media)
            except BotApiError as error:
                if error.status == 429:
                    await asyncio.sleep(error.retry_after or 1.0)
                    continue
                if "too big" in error.description:
                    notes.append(_too_large(name, file.file_size))
                    return None
                why = str(error)
            except (NotSent, OutcomeUnknown) as error:
                why = str(error)
            await asyncio.sleep(RETRY_SECONDS[attempt])
        log.warning("channel_file_not_received", message=message_id(message), reason=why)
        notes.append(f"The file {name!r} could not be received. Please send it again.")
        return None

    # --- buttons and reactions ----------------------------------------------------------------------------------------

    async def _pressed(self, pressed: CallbackQuery) -> None:
        message, told = pressed.message, ""
        if message is not None and pressed.data:
            _, told = await self._pass_on(
                InboundMessage(
                    id=f"press/{pressed.id}",
                    sender=str(pressed.from_.id),
                    name=display_name(pressed.from_),
                    chat=self._state.conversation(message.chat.id),
                    thread=thread_of(message),
                    text="",
                    choice=pressed.data,
                    group=message.chat.type != "private",
                )
            )
        try:
            # Without an answer the button keeps spinning; one that comes too late is refused, which does no harm.
            alert: dict[str, Any] = {"text": told[:ALERT_CHARS], "show_alert": True} if told else {}
            await self._api.call("answerCallbackQuery", callback_query_id=pressed.id, **alert)
        except PluginError as error:
            log.info("channel_press_not_answered", reason=str(error))

    async def _reacted(self, reaction: Reaction, update: int) -> None:
        author = reaction.user or reaction.actor_chat
        before = {each.emoji for each in reaction.old_reaction}
        added = next((each.emoji for each in reaction.new_reaction if each.emoji and each.emoji not in before), "")
        if author is None or not added:
            return
        await self._pass_on(
            InboundMessage(
                id=f"{reaction.chat.id}/{reaction.message_id}/r{update}",
                sender=str(author.id),
                name=display_name(author),
                chat=self._state.conversation(reaction.chat.id),
                text="",
                reaction=added,
                reacts_to=f"{reaction.chat.id}/{reaction.message_id}",
                group=reaction.chat.type != "private",
            )
        )


def message_id(message: Message) -> str:
    """Return a message's id, which is unique among all chats."""
    return f"{message.chat.id}/{message.message_id}"


def _too_large(name: str, size: int) -> str:
    has = f"it has {size / 1024**2:.1f} MB, and " if size else ""
    return f"The file {name!r} could not be received: {has}Telegram gives bots only files of at most 20 MB."

"""The Telegram channel: a bot, by long polling.

Telegram does not recognise a message that is sent twice. So the gateway notes each attempt, and one whose outcome is unknown
follows the setting `unknown`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar, Literal, NoReturn, Self

import msgspec
import structlog

from plugins.api.channel import (
    Channel,
    ChannelActivity,
    ChannelInbox,
    DeliveryUnknown,
    OutboundMessage,
    TryLater,
    Undeliverable,
)
from plugins.api.context import PluginContext
from plugins.api.hookspecs import hookimpl
from plugins.api.tool import OutputFile
from plugins.channels.telegram.bot_api import (
    PHOTO_BYTES,
    UPLOAD_BYTES,
    BotApi,
    BotApiError,
    NotSent,
    OutcomeUnknown,
    Upload,
)
from plugins.channels.telegram.bot_updates import ALLOWED, Message, Update, User, thread_of
from plugins.channels.telegram.telegram_entities import TEXT_UNITS, FormattedText, format_markdown, utf16_units
from plugins.channels.telegram.telegram_state import TelegramState
from plugins.channels.telegram.update_queue import UpdateQueue
from plugins.channels.telegram.update_reader import UpdateReader
from plugins.http.client import Timeouts
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.secrets import Secret

ADDRESS = "https://api.telegram.org"

REPEATED = "*[possibly repeated]*"
"""The first line of a message that may have been sent before."""

SURELY_FITS = 1024
"""UTF-16 units of a text without tables that needs no parsing to see that it fits."""

SURELY_TOO_LONG = 4 * TEXT_UNITS
"""UTF-16 units of a text that is not parsed to see that it is too long."""

MARGIN = 10
"""Seconds after which a poll has failed that the server should have answered."""

PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between polls that fail; the last for all later ones."""

TYPING_SECONDS = 4.0
"""Seconds between two requests that show "typing", which lasts five."""

MENU_COMMANDS, MENU_CHARS = 100, 256
"""Commands of the bot's menu, and characters of their descriptions, at most."""

DEFAULT_WAIT = 5.0
"""Seconds to wait if Telegram asks to wait and does not say how long."""

LOGIN_REFUSED = (
    "Telegram does not accept the token. Ask @BotFather for it (/mybots, the bot, API Token) "
    "and set it as the channel's token."
)
OTHER_POLLER = (
    "Another program receives this bot's messages: stop it; or, if you do not know it, have @BotFather revoke the token "
    "(/revoke) and set the new one."
)
WEBHOOK = (
    "The bot has a webhook, so that no messages arrive here: stop the program that set it, and open "
    "BASE_URL/botTOKEN/deleteWebhook once in a browser."
)

log = structlog.get_logger("exuvia.channels")


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of `[channels.NAME]` with `kind = "telegram"`.

    Attributes:
        token: The bot's token.
        base_url: The Bot API server; one of your own if you run one.
        unknown: What to do with a message that Telegram may or may not have accepted: `again` sends it once more, marked as
            a possible repetition; `drop` does not.
    """

    token: Secret
    base_url: str = ADDRESS
    unknown: Literal["again", "drop"] = "again"


class _Sent(msgspec.Struct):
    message_id: int


class TelegramChannel:
    """A Telegram bot."""

    name: ClassVar[str] = "telegram"
    Settings: ClassVar[type[msgspec.Struct]] = TelegramSettings
    attempts_noted: ClassVar[bool] = True
    activity_seconds: ClassVar[float] = 2.0

    def __init__(self, context: PluginContext) -> None:
        self._settings: TelegramSettings = context.settings
        self._clock = context.clock
        self._commands = context.commands
        self._api = BotApi(context.transport, self._settings.base_url, self._settings.token)
        self._state = TelegramState(context.folder / "state.json")
        self._bot = User(0)
        self._drafts: dict[str, int] = {}
        """The id of the draft that is shown in each chat; 0 where drafts are refused, so that "typing" is shown."""
        self._typing: dict[str, float] = {}
        self._quiet_until = 0.0
        self._last_draft = 0

    async def __aenter__(self) -> Self:
        await self._state.load()
        try:
            self._bot = msgspec.json.decode(await self._api.call("getMe"), type=User)
        except BotApiError as error:
            if error.status in (401, 404):
                raise SettingsRefused(LOGIN_REFUSED) from error
            raise PluginError(str(error)) from error
        except msgspec.ValidationError as error:
            raise PluginError("The server does not speak Telegram's Bot API: check base_url.") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held open: the connections are those of the gateway's HTTP client."""

    async def check(self) -> str:
        """Return who the bot is, and what it sees in groups."""
        sees = (
            "In groups it sees every message."
            if self._bot.can_read_all_group_messages
            else "In groups it sees only commands, mentions and replies (privacy mode)."
        )
        return f"It is logged in as @{self._bot.username} (id {self._bot.id}). {sees}"

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def run(self, inbox: ChannelInbox) -> None:
        """Receive messages; see `Channel.run`."""
        reader = UpdateReader(self._api, self._bot, self._state, inbox, self._tell)
        menu = asyncio.create_task(self._set_menu())
        try:
            await UpdateQueue(_Polling(self._api, inbox), reader.read).run()
        finally:
            menu.cancel()
            await asyncio.wait([menu])

    async def _set_menu(self) -> None:
        """Show the slash commands in the bot's menu."""
        commands = [
            {"command": command.name, "description": command.summary[:MENU_CHARS] or command.name}
            for command in self._commands()
        ]
        try:
            await self._api.call("setMyCommands", commands=commands[:MENU_COMMANDS])
        except PluginError as error:
            log.warning("channel_menu_not_set", reason=str(error))

    async def _tell(self, message: Message, text: str) -> None:
        """Reply to a message with a text that need not arrive."""
        try:
            await self._send_text(
                message.chat.id,
                FormattedText(text[: TEXT_UNITS // 2]),
                message_thread_id=int(thread_of(message) or 0) or None,
                reply_parameters=_reply_to(message.message_id),
            )
        except PluginError as error:
            log.warning("channel_notice_not_sent", reason=str(error))

    # --- sending ------------------------------------------------------------------------------------------------------

    def fits(self, text: str) -> bool:
        """Return True if a text fits into one message, with the line that marks a repetition."""
        units = utf16_units(text)
        if units <= SURELY_FITS and "|" not in text:
            return True
        return units <= SURELY_TOO_LONG and format_markdown(f"{REPEATED}\n\n{text}").fits

    async def deliver(self, message: OutboundMessage) -> str:
        """Send a message; see `Channel.deliver`.

        Returns:
            The ids of the chat and the message.
        """
        if message.again and self._settings.unknown == "drop":
            raise Undeliverable("Telegram may have accepted it already, and the setting unknown is drop.")
        self._drafts.pop(message.chat, None)
        self._typing.pop(message.chat, None)
        group = self._state.chat(message.chat)
        try:
            return await self._post(message, group)
        except BotApiError as error:
            if not error.migrated_to or not isinstance(group, int):
                _raise_for(error)
            supergroup = error.migrated_to
        await self._state.migrate(group, supergroup)
        try:
            return await self._post(message, supergroup)
        except BotApiError as error:
            _raise_for(error)

    async def _post(self, message: OutboundMessage, chat: int | str) -> str:
        """Send a message to a chat with this id."""
        parameters: dict[str, Any] = {"message_thread_id": int(message.thread or 0) or None}
        there, _, replied = message.reply_to.partition("/")
        if there == str(chat) and replied.isdecimal() and message.part == 1:
            parameters["reply_parameters"] = _reply_to(int(replied))
        if message.choices:
            rows = [[{"text": choice.label, "callback_data": choice.id}] for choice in message.choices]
            parameters["reply_markup"] = {"inline_keyboard": rows}
        if message.attachments:
            return await self._send_file(chat, message.attachments[0], again=message.again, **parameters)
        text = f"{REPEATED}\n\n{message.text}" if message.again else message.text
        formatted = await asyncio.to_thread(format_markdown, text)
        if not formatted.text.strip():
            raise Undeliverable("It has no text that Telegram could show.")
        if not formatted.fits:
            return await self._send_long(chat, text, **parameters)
        try:
            return await self._send_text(chat, formatted, **parameters)
        except BotApiError as error:
            if error.status != 400:
                raise
            if "too long" in error.description:
                return await self._send_long(chat, text, **parameters)
            if "entit" in error.description.lower():
                return await self._send_text(chat, FormattedText(formatted.text), **parameters)
            if "BUTTON" in error.description:
                return await self._send_text(chat, formatted, **{**parameters, "reply_markup": None})
            raise

    async def _send_text(self, chat: int | str, formatted: FormattedText, **parameters: Any) -> str:
        # Without previews: Telegram's servers would open the addresses that a model wrote.
        return await self._send(
            "sendMessage",
            chat,
            text=formatted.text,
            entities=formatted.entities or None,
            link_preview_options={"is_disabled": True},
            **parameters,
        )

    async def _send_long(self, chat: int | str, text: str, **parameters: Any) -> str:
        """Send a text that does not fit into a message as a file, which is complete and one message."""
        file = OutputFile(content=text.encode("utf-8", "replace"), media="text/markdown", name="answer.md")
        return await self._send_file(chat, file, **parameters)

    async def _send_file(self, chat: int | str, file: OutputFile, *, again: bool = False, **parameters: Any) -> str:
        """Send a file, as a picture if it is one that Telegram can show."""
        if len(file.content) > UPLOAD_BYTES:
            raise Undeliverable(f"The file {file.name!r} has more than the 50 MB that bots may send.")
        caption = REPEATED.strip("*") if again else None
        name = file.name or "file"
        if file.media in ("image/jpeg", "image/png", "image/webp") and len(file.content) <= PHOTO_BYTES:
            try:
                photo = Upload("photo", name, file.media, file.content)
                return await self._send("sendPhoto", chat, upload=photo, caption=caption, **parameters)
            except BotApiError as error:
                if error.status != 400 or not _is_about_picture(error):
                    raise
        document = Upload("document", name, file.media, file.content)
        return await self._send("sendDocument", chat, upload=document, caption=caption, **parameters)

    async def _send(self, method: str, chat: int | str, **parameters: Any) -> str:
        try:
            sent = msgspec.json.decode(await self._api.call(method, chat_id=chat, **parameters), type=_Sent)
        except OutcomeUnknown as error:
            raise DeliveryUnknown(str(error)) from error
        except msgspec.ValidationError as error:
            raise DeliveryUnknown("Telegram's answer names no message.") from error
        return f"{chat}/{sent.message_id}"

    # --- activity -----------------------------------------------------------------------------------------------------

    async def show_activity(self, activity: ChannelActivity) -> None:
        """Show "typing", or in a private chat the answer so far as a draft."""
        chat, now = self._state.chat(activity.chat), self._clock.monotonic()
        if now < self._quiet_until:
            return
        try:
            if activity.text and isinstance(chat, int) and chat > 0 and self._drafts.get(activity.chat) != 0:
                await self._show_draft(activity, chat)
            elif now - self._typing.get(activity.chat, -TYPING_SECONDS) >= TYPING_SECONDS:
                self._typing[activity.chat] = now
                await self._api.call(
                    "sendChatAction", chat_id=chat, action="typing", message_thread_id=int(activity.thread or 0) or None
                )
        except BotApiError as error:
            self._quiet_until = now + (error.retry_after or DEFAULT_WAIT)

    async def _show_draft(self, activity: ChannelActivity, chat: int) -> None:
        if (draft := self._drafts.get(activity.chat)) is None:
            self._last_draft += 1
            draft = self._drafts[activity.chat] = self._last_draft
        shown = await asyncio.to_thread(_draft, activity.text)
        try:
            await self._api.call(
                "sendMessageDraft",
                chat_id=chat,
                draft_id=draft,
                text=shown.text,
                entities=shown.entities or None,
                message_thread_id=int(activity.thread or 0) or None,
            )
        except BotApiError as error:
            if error.status in (400, 403, 404):  # an older server
                self._drafts[activity.chat] = 0
                return
            raise


class _Polling:
    """Polls for updates until there is an answer, and reports the state of the connection."""

    def __init__(self, api: BotApi, inbox: ChannelInbox) -> None:
        self._api = api
        self._inbox = inbox
        self._down = False

    async def __call__(self, offset: int, seconds: int) -> Sequence[Update]:
        """Return the updates from an offset on; wait for `seconds` at most if there are none."""
        failures = 0
        while True:
            try:
                found = await self._api.call(
                    "getUpdates",
                    offset=offset or None,
                    timeout=seconds,
                    allowed_updates=ALLOWED,
                    timeouts=Timeouts(
                        connect=MARGIN, first=seconds + MARGIN, between=MARGIN, whole=seconds + 3 * MARGIN, attempts=1
                    ),
                )
                updates = _updates(found)
            except BotApiError as error:
                if error.status in (401, 404):
                    raise SettingsRefused(LOGIN_REFUSED) from error
                pause = error.retry_after
                problem = str(error) if error.status != 409 else WEBHOOK if "webhook" in error.description else OTHER_POLLER
            except (NotSent, OutcomeUnknown) as error:
                pause, problem = 0.0, str(error)
            else:
                if self._down:
                    self._down = False
                    self._inbox.report()
                return updates
            self._down = True
            self._inbox.report(problem)
            await asyncio.sleep(pause or PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1


class _Numbered(msgspec.Struct):
    update_id: int


def _updates(found: msgspec.Raw) -> list[Update]:
    """Return the updates of a poll. One that cannot be read is passed over: it must not hold the others for ever."""
    updates = []
    try:
        each_found = msgspec.json.decode(found, type=list[msgspec.Raw])
        for each in each_found:
            try:
                updates.append(msgspec.json.decode(each, type=Update))
            except msgspec.ValidationError as error:
                number = msgspec.json.decode(each, type=_Numbered).update_id
                log.error("channel_update_not_read", update=number, reason=str(error))
                updates.append(Update(number))
    except msgspec.MsgspecError as error:
        raise OutcomeUnknown("Telegram's answer has no updates; check base_url.") from error
    return updates


def _draft(text: str) -> FormattedText:
    """Return the end of an answer so far, as much as fits."""
    while not (shown := format_markdown(text)).fits:
        text = text[len(text) // 4 :]
    return shown


def _reply_to(message: int) -> dict[str, Any]:
    return {"message_id": message, "allow_sending_without_reply": True}


def _is_about_picture(error: BotApiError) -> bool:
    return any(word in error.description.upper() for word in ("PHOTO", "IMAGE"))


def _raise_for(error: BotApiError) -> NoReturn:
    """Raise the error of a message that was not sent, as the gateway expects it."""
    if error.status == 429:
        raise TryLater(error.retry_after or DEFAULT_WAIT, "Telegram asks to wait.") from error
    if error.status in (401, 404):
        raise SettingsRefused(LOGIN_REFUSED) from error
    if error.status >= 500:
        raise DeliveryUnknown(str(error)) from error
    raise Undeliverable(str(error)) from error


@hookimpl
def register_channels() -> Sequence[type[Channel]]:
    """Register the channel."""
    return [TelegramChannel]

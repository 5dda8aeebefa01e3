"""Posts and files, each sent once.

Slack does not recognise a post that is sent twice. Each post carries the delivery's id as metadata, and after an attempt
whose outcome is unknown the history is searched for it. For files, which carry no metadata, the id of the uploaded file is
noted before it is shared, and Slack is asked where it was shared.

Slack's streams of text (`chat.startStream`) are not used: they are messages that stay, and an interrupted one would remain
beside the answer that is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from plugins.api.channel import DeliveryUnknown, OutboundMessage, Undeliverable
from plugins.api.tool import OutputFile
from plugins.channels.slack.slack_api import CREDENTIALS, SlackApi, SlackError, SlackStatusRefused
from plugins.channels.slack.slack_blocks import blocks_of, buttons_of, escaped, fits, plain_text
from plugins.channels.slack.slack_catch_up import Progress
from plugins.channels.slack.slack_events import Identity, message_id

EVENT_TYPE = "exuvia_reply"
"""The type of the metadata."""

SETTLE_SECONDS = 10.0
"""Seconds after an attempt of unknown outcome until which Slack may still carry it out."""

LOOK_SECONDS = 2.0
SHARE_PAUSES = (0.2, 0.5, 1.0, 2.0, 3.0, 3.0)
"""Seconds between two questions whether a file was shared. Slack looks for malware first."""

SEARCHED_SECONDS = 2 * 86_400.0
"""Seconds of history that are searched for a post; the gateway gives one up after a day."""

MOST_PAGES = 50
TEXT_CHARS = 40_000
"""Slack shortens longer texts."""

_NEVER = {
    "cannot_dm_bot": "it is a conversation with another app",
    "cannot_reply_to_message": "nobody can reply to that message",
    "channel_not_found": "the conversation does not exist, or the app was removed from it",
    "channel_type_not_supported": "apps cannot write there",
    "ekm_access_denied": "the workspace's administrators do not allow it",
    "is_archived": "the channel is archived",
    "messages_tab_disabled": "the app takes no direct messages: allow them in its settings, “App Home”",
    "msg_too_long": "the text is too long",
    "no_text": "the message is empty",
    "not_in_channel": "the app is not in the channel: invite it with /invite",
    "restricted_action": "a setting of the workspace forbids it",
    "restricted_action_non_threadable_channel": "the channel has no threads",
    "restricted_action_read_only_channel": "the channel is read-only",
    "restricted_action_thread_locked": "the thread is locked",
    "restricted_action_thread_only_channel": "the channel has threads only",
    "thread_not_found": "the thread was deleted",
    "user_disabled": "the account was deactivated",
    "user_not_found": "the account does not exist",
}
_BLOCKS_REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"})


class SlackDelivery:
    """Sends replies.

    Args:
        api: The Web API with the bot token.
        progress: Where uploads are noted.
        me: The bot.
        now: The time.
    """

    def __init__(self, api: SlackApi, progress: Progress, me: Identity, now: Callable[[], datetime]) -> None:
        self._api = api
        self._progress = progress
        self._me = me
        self._now = now
        self._unknown: dict[str, float] = {}

    async def deliver(self, message: OutboundMessage) -> str:
        """Send a reply, see `Channel.deliver`."""
        try:
            receipt = await self._once(message, message.id, self._found, self._post) if message.text else ""
            for number, file in enumerate(message.attachments):
                receipt = await self._deliver_file(message, file, f"{message.id}#{number}") or receipt
        except SlackError as error:
            if error.code in _NEVER:
                raise Undeliverable(f"Slack does not deliver it: {_NEVER[error.code]} ({error.code}).") from error
            if error.code in CREDENTIALS or (error.code == "missing_scope" and message.text):
                raise  # no other post would be accepted either
            raise Undeliverable(str(error)) from error
        if not receipt:
            raise Undeliverable("The message is empty.")
        return receipt

    async def _once(
        self, message: OutboundMessage, key: str, find: Callable[..., Any], send: Callable[..., Any], *more: Any
    ) -> str:
        """Send something, unless an earlier attempt turns out to have sent it."""
        loop = asyncio.get_running_loop()
        if message.again or key in self._unknown:
            until = self._unknown.setdefault(key, loop.time()) + SETTLE_SECONDS
            receipt = await find(message, *more)
            while not receipt and (left := until - loop.time()) > 0:
                await asyncio.sleep(min(left, LOOK_SECONDS))
                receipt = await find(message, *more)
            if receipt:
                self._unknown.pop(key, None)
                return str(receipt)
        try:
            receipt = await send(message, *more)
        except (DeliveryUnknown, asyncio.CancelledError):
            self._unknown[key] = loop.time()
            raise
        except BaseException:
            self._unknown.pop(key, None)
            raise
        self._unknown.pop(key, None)
        return str(receipt)

    # --- posts --------------------------------------------------------------------------------------------------------

    async def _post(self, message: OutboundMessage) -> str:
        blocks = blocks_of(message.text) if fits(message.text) else []
        text = escaped(plain_text(blocks) or message.text)[:TEXT_CHARS]
        if not text.strip():
            raise Undeliverable("The message is empty.")
        arguments: dict[str, Any] = {
            "channel": message.chat,
            "thread_ts": message.thread or None,
            "text": text,
            "metadata": {"event_type": EVENT_TYPE, "event_payload": {"id": message.id}},
            "unfurl_links": False,
            "unfurl_media": False,
        }
        try:
            posted = await self._api.call(
                "chat.postMessage", blocks=[*blocks, *buttons_of(message.choices)] or None, **arguments
            )
        except SlackStatusRefused as error:
            if error.status not in (400, 403, 413):
                raise
            raise Undeliverable(str(error)) from error
        except SlackError as error:
            if error.code not in _BLOCKS_REFUSED:
                raise
            # It was refused whole, so nothing was posted. The text says how to answer without buttons.
            arguments["text"] = escaped(message.text)[:TEXT_CHARS]
            posted = await self._api.call("chat.postMessage", **arguments)
        return message_id(message.chat, str(posted.get("ts", "")))

    async def _found(self, message: OutboundMessage) -> str:
        """Return the receipt of a post that an earlier attempt made, or ""."""
        method = "conversations.replies" if message.thread else "conversations.history"
        oldest = f"{self._now().timestamp() - SEARCHED_SECONDS:.6f}"
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await self._api.call(
                method, channel=message.chat, ts=message.thread or None, oldest=oldest, limit=200, cursor=cursor,
                include_all_metadata=True,
            )  # fmt: skip
            for each in page.get("messages") or ():
                metadata = each.get("metadata") or {}
                ours = each.get("user") == self._me.user or each.get("bot_id") == self._me.bot
                payload = metadata.get("event_payload") or {}
                if ours and metadata.get("event_type") == EVENT_TYPE and payload.get("id") == message.id:
                    return message_id(message.chat, str(each["ts"]))
            cursor = str((page.get("response_metadata") or {}).get("next_cursor") or "")
            if not cursor:
                break
        return ""

    # --- files --------------------------------------------------------------------------------------------------------

    async def _deliver_file(self, message: OutboundMessage, file: OutputFile, key: str) -> str:
        if not file.content:
            raise Undeliverable("Slack takes no empty files.")
        return await self._once(message, key, self._found_file, self._share, file, key)

    async def _share(self, message: OutboundMessage, file: OutputFile, key: str) -> str:
        """Upload a file, and share it in the conversation."""
        name = file.name or "file"
        uploaded = self._progress.upload(key)
        if not uploaded:
            uploaded = await self._api.upload(name, file.content)
            await self._progress.note_upload(key, uploaded)
        try:
            await self._api.call(
                "files.completeUploadExternal",
                files=[{"id": uploaded, "title": name}],
                channel_id=message.chat,
                thread_ts=message.thread or None,
            )
        except SlackError as error:
            if error.code in ("file_not_found", "file_deleted"):  # so the next attempt uploads it anew
                await self._progress.note_upload(key, "")
            raise
        for pause in SHARE_PAUSES:
            if receipt := await self._found_file(message, file, key):
                return receipt
            await asyncio.sleep(pause)
        raise DeliveryUnknown("Slack took the file, but has not shown it yet.")

    async def _found_file(self, message: OutboundMessage, _: OutputFile, key: str) -> str:
        """Return the receipt of a file that was shared in the conversation, or ""."""
        uploaded = self._progress.upload(key)
        if not uploaded:
            return ""
        try:
            info = await self._api.call("files.info", file=uploaded)
        except SlackError as error:
            if error.code in ("file_not_found", "file_deleted"):
                return ""
            raise
        for shares in ((info.get("file") or {}).get("shares") or {}).values():
            for share in shares.get(message.chat) or ():
                return message_id(message.chat, str(share.get("ts", uploaded)))
        return ""

"""Posts of the bot: each exactly once, mentioning nobody."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from plugins.api.channel import Choice, OutboundMessage, Undeliverable
from plugins.channels.discord import discord_events as events
from plugins.channels.discord.discord_api import DiscordApi, Refused, undeliverable
from plugins.channels.discord.discord_markdown import MAX_LENGTH, escape, length, render
from plugins.channels.discord.discord_progress import Progress

MAX_FILE = 10 * 1024 * 1024
"""Bytes of the largest file that Discord takes from a bot."""

PAGE = 100
RECENT_PAGES = 5
"""Messages in a page, and pages that are searched for a post whose fate is unknown."""

SUPPRESS_EMBEDS = 1 << 2
"""The flag of a message whose links Discord shall not fetch: an address may carry what nobody else should learn."""


class Posts:
    """The posts of a bot."""

    def __init__(self, api: DiscordApi, progress: Progress) -> None:
        self._api = api
        self._progress = progress

    async def deliver(self, message: OutboundMessage, me: str) -> str:
        """Post a part of a reply, and return its id. `me` is the bot's id. The errors are those of `Channel.deliver`."""
        channel = message.thread or message.chat
        content = render(message.text)
        files = []
        for file in message.attachments:
            if len(file.content) > MAX_FILE:
                note = f"(The file {file.name} has {megabytes(len(file.content))}; Discord takes at most 10 MB from a bot.)"
                content = f"{content}\n{escape(note)}".strip()
            else:
                files.append((_file_name(file.name), file.media or "application/octet-stream", file.content))
        if not content and not files:
            raise Undeliverable("There is nothing in the text that Discord could show.")
        if length(content) > MAX_LENGTH:
            raise Undeliverable(f"The text is longer than the {MAX_LENGTH} characters that Discord allows.")
        if message.again and (found := await self._find_posted(channel, message, content, len(files), me)):
            return self._posted(channel, found)
        payload = payload_of(content, message.id, message.reply_to) | {"components": _rows(message.choices)}
        if files:
            payload["attachments"] = [{"id": number, "filename": name} for number, (name, _, _) in enumerate(files)]
        try:
            posted = await self._api.post(f"/channels/{channel}/messages", payload, tuple(files))
        except Refused as error:
            raise undeliverable(error) or error from error
        return self._posted(channel, str(posted["id"]))

    def _posted(self, channel: str, receipt: str) -> str:
        self._progress.sent(channel, int(receipt))
        return receipt

    async def _find_posted(self, channel: str, message: OutboundMessage, content: str, files: int, me: str) -> str:
        """Return the id of the post that an earlier attempt made; "" if there is none.

        Discord recognises the nonce of a post for a few minutes only. The post is looked for among those of the bot after
        its last one, and after the message that is answered.
        """
        answered = int(message.reply_to) if message.reply_to.isdigit() else 0
        after, nonce = max(answered, self._progress.posted.get(channel, 0)), _nonce(message.id)
        before: dict[str, str] = {}
        for _ in range(RECENT_PAGES):
            try:
                page = await self._api.get(f"/channels/{channel}/messages", limit=str(PAGE), **before)
            except Refused as error:
                raise undeliverable(error) or error from error
            found = msgspec.convert(page, list[events.Message])
            for each in found:
                same = _words(each.content or "") == _words(content) and len(each.attachments) == files
                mine = each.author.id == me and int(each.id) > after
                if mine and (each.nonce == nonce or (each.nonce is None and same)):
                    return each.id
            oldest = min((int(each.id) for each in found), default=0)
            if len(found) < PAGE or oldest <= after:
                break
            before = {"before": str(oldest)}
        return ""


def payload_of(content: str, identity: str, reply_to: str = "") -> dict[str, object]:
    """Return a message that mentions nobody, fetches nothing and is posted once however often it is sent."""
    payload: dict[str, object] = {
        "content": content,
        "nonce": _nonce(identity),
        "enforce_nonce": True,
        "allowed_mentions": {"parse": [], "replied_user": False},
        "flags": SUPPRESS_EMBEDS,
    }
    if reply_to.isdigit():
        payload["message_reference"] = {"message_id": reply_to, "fail_if_not_exists": False}
    return payload


def _nonce(identity: str) -> str:
    """Return a nonce of at most 25 characters for a message's id."""
    return blake2b(identity.encode(), digest_size=12).hexdigest()


def _rows(choices: Sequence[Choice]) -> list[dict[str, object]]:
    """Return the choices as rows of buttons: five of at most five."""
    buttons = [
        {"type": 2, "style": 2, "label": choice.label[:80] or choice.id, "custom_id": choice.id} for choice in choices[:25]
    ]
    return [{"type": 1, "components": buttons[start : start + 5]} for start in range(0, len(buttons), 5)]


def _words(text: str) -> list[str]:
    """Return the words of a text: Discord trims a post."""
    return text.split()


def _file_name(name: str) -> str:
    kept = "".join(character for character in name if character.isprintable() and character not in '/\\"<>:|?*')
    return kept.strip(". ")[-100:] or "file"


def megabytes(size: int) -> str:
    """Return a number of bytes for people."""
    return f"{size / 1_048_576:.1f} MB"

"""The events of Discord that concern the channel, and what they say as a message of the gateway."""

from __future__ import annotations

import re

import msgspec

from plugins.api.channel import InboundFile, InboundMessage

SPOKEN = frozenset({0, 19})
"""The types of messages that people write: ordinary ones and replies."""

THREADS = frozenset({10, 11, 12})
"""The types of channels that are threads, posts of forums among them."""

NOT_FETCHED = frozenset({4, 14, 15, 16})
"""The types of channels that have no messages of their own: categories, directories, forums and media channels."""

EPOCH = 1_420_070_400_000
"""The beginning of Discord's time in Unix milliseconds: an id has the milliseconds since then, and 22 further bits."""

COMPONENT = 3
"""The type of an interaction that is a press of a button."""

_MENTION = re.compile(r"<@!?(\w{1,30})>")
_ROLE_MENTION = re.compile(r"<@&(\w{1,30})>")
_EMOJI = re.compile(r"<a?(:\w{1,40}:)\d{1,30}>")


class User(msgspec.Struct):
    """A user, or a bot."""

    id: str
    username: str = ""
    global_name: str | None = None
    bot: bool | None = False

    @property
    def shown(self) -> str:
        return self.global_name or self.username


class Member(msgspec.Struct):
    """A user in a server."""

    user: User | None = None
    nick: str | None = None
    roles: list[str] = []


class Attachment(msgspec.Struct):
    """A file of a message."""

    id: str
    url: str
    size: int = 0
    filename: str = ""
    content_type: str | None = None


class Named(msgspec.Struct):
    """Something of which only the name is read, such as a sticker."""

    name: str | None = ""


class Text(msgspec.Struct):
    """A part of a poll."""

    text: str | None = ""


class Poll(msgspec.Struct):
    """A poll."""

    question: Text = msgspec.field(default_factory=Text)


class ForwardedMessage(msgspec.Struct):
    """The content of a forwarded message."""

    content: str | None = ""
    attachments: list[Attachment] = []


class Snapshot(msgspec.Struct):
    """A forwarded message."""

    message: ForwardedMessage


class Message(msgspec.Struct):
    """A message."""

    id: str
    channel_id: str
    author: User
    content: str | None = ""
    type: int = 0
    guild_id: str | None = None
    member: Member | None = None
    webhook_id: str | None = None
    edited_timestamp: str | None = None
    mentions: list[User] = []
    mention_roles: list[str] = []
    attachments: list[Attachment] = []
    sticker_items: list[Named] = []
    poll: Poll | None = None
    referenced_message: Message | None = None
    message_snapshots: list[Snapshot] = []
    nonce: str | int | None = None


class Deleted(msgspec.Struct):
    """A deleted message, or several."""

    channel_id: str
    id: str = ""
    ids: list[str] = []


class Emoji(msgspec.Struct):
    """An emoji; of a server's own ones the name alone."""

    name: str | None = ""


class Reaction(msgspec.Struct):
    """A reaction that was added to a message."""

    user_id: str
    channel_id: str
    message_id: str
    emoji: Emoji
    guild_id: str | None = None
    message_author_id: str | None = None


class Place(msgspec.Struct):
    """A channel or a thread."""

    id: str
    type: int = 0
    guild_id: str | None = None
    parent_id: str | None = None
    last_message_id: str | None = None

    def has_messages_after(self, message: int) -> bool:
        """Return True if there are messages with a larger id."""
        return self.type not in NOT_FETCHED and int(self.last_message_id or 0) > message


class RoleTags(msgspec.Struct):
    """Whose role it is."""

    bot_id: str | None = None


class Role(msgspec.Struct):
    """A role of a server."""

    id: str
    tags: RoleTags | None = None


class Guild(msgspec.Struct):
    """A server, as far as it is visible to the bot."""

    id: str
    unavailable: bool | None = False
    channels: list[Place] = []
    threads: list[Place] = []
    roles: list[Role] = []
    members: list[Member] = []


class MemberUpdate(msgspec.Struct):
    """A change of a member of a server."""

    guild_id: str
    user: User
    roles: list[str] = []


class Pressed(msgspec.Struct):
    """What was pressed."""

    custom_id: str = ""


class Interaction(msgspec.Struct):
    """A press of a button, or the use of a command."""

    id: str
    application_id: str
    token: str
    type: int
    channel_id: str = ""
    guild_id: str | None = None
    channel: Place | None = None
    member: Member | None = None
    user: User | None = None
    data: Pressed = msgspec.field(default_factory=Pressed)


class SessionStart(msgspec.Struct):
    """The first event of a session."""

    session_id: str
    resume_gateway_url: str
    guilds: list[Guild] = []


def is_addressed(message: Message, me: str, roles: frozenset[str]) -> bool:
    """Return True if a message is private, mentions the bot or one of its roles, or replies to the bot."""
    return (
        message.guild_id is None
        or any(user.id == me for user in message.mentions)
        or not roles.isdisjoint(message.mention_roles)
        or (message.referenced_message is not None and message.referenced_message.author.id == me)
    )


def text_of(message: Message, me: str, roles: frozenset[str]) -> str:
    """Return the text of a message: without the mention that addresses the bot, with the names of others, and with stickers
    and polls as text."""
    text = readable(message.content or "", message.mentions, me, roles)
    more = [f"[sticker: {sticker.name}]" for sticker in message.sticker_items]
    if message.poll is not None:
        more.append(f"[poll: {message.poll.question.text}]")
    return "\n".join(part for part in (text, *more) if part)


def readable(text: str, mentions: list[User], me: str, roles: frozenset[str]) -> str:
    """Return a text with names instead of numbers; the mention that addresses the bot at its beginning is left out."""
    names = {user.id: user.shown for user in mentions}
    while found := _MENTION.match(text) or _ROLE_MENTION.match(text):
        if found[1] != me and found[1] not in roles:
            break
        text = text[found.end() :].lstrip()
    text = _MENTION.sub(lambda found: f"@{names.get(found[1], found[1])}", text)
    return _EMOJI.sub(r"\1", text)


def quoted_text(message: Message, me: str) -> str:
    """Return the text that a message replies to, or forwards."""
    if (quoted := message.referenced_message) is not None:
        return readable(quoted.content or "", quoted.mentions, me, frozenset())
    return "\n".join(snapshot.message.content or "" for snapshot in message.message_snapshots)


def inbound(
    message: Message,
    *,
    me: str,
    roles: frozenset[str],
    parent: str,
    edited: bool = False,
    files: tuple[InboundFile, ...] = (),
    notes: tuple[str, ...] = (),
) -> InboundMessage:
    """Return a message as the gateway takes it.

    Args:
        message: The message.
        me: The bot's id.
        roles: The ids of its roles in the server.
        parent: The channel of the thread in which it was written; "" outside of threads.
        edited: It replaces an earlier version of itself.
        files: Its files.
        notes: What is to be said of files that could not be taken.
    """
    nick = message.member.nick if message.member else None
    return InboundMessage(
        id=f"{message.id}/{message.edited_timestamp}" if edited else message.id,
        edits=message.id if edited else "",
        sender=message.author.id,
        name=nick or message.author.shown,
        chat=parent or message.channel_id,
        thread=message.channel_id if parent else "",
        text="\n".join(part for part in (text_of(message, me, roles), *notes) if part),
        group=message.guild_id is not None,
        mentioned=is_addressed(message, me, roles),
        reply=quoted_text(message, me),
        attachments=files,
        at=0.0 if edited else ((int(message.id) >> 22) + EPOCH) / 1000,
    )

"""Updates of the Bot API: what a bot is told, as far as the channel reads it.

Fields that the channel does not know are ignored, so that new ones of Telegram do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

ALLOWED = ("message", "edited_message", "callback_query", "message_reaction")
"""The kinds of updates that are asked for."""


class User(msgspec.Struct):
    """A person or bot."""

    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""
    can_read_all_group_messages: bool = False


class Chat(msgspec.Struct):
    """A private chat, group, supergroup or channel."""

    id: int
    type: str = "private"
    title: str = ""
    first_name: str = ""


class MarkedRange(msgspec.Struct):
    """An entity of a text that somebody sent, in UTF-16 units."""

    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""
    user: User | None = None


class RemoteFile(msgspec.Struct):
    """A file of a message. `mime_type` and `file_name` are the sender's claims."""

    file_id: str
    file_size: int = 0
    mime_type: str = ""
    file_name: str = ""
    emoji: str = ""
    is_animated: bool = False
    is_video: bool = False


class Location(msgspec.Struct):
    """A place on a map."""

    latitude: float
    longitude: float


class Venue(msgspec.Struct):
    """A named place."""

    location: Location
    title: str = ""
    address: str = ""


class Contact(msgspec.Struct):
    """Somebody's phone number."""

    phone_number: str
    first_name: str = ""
    last_name: str = ""


class PollOption(msgspec.Struct):
    """An answer of a poll."""

    text: str


class Poll(msgspec.Struct):
    """A poll."""

    question: str
    options: list[PollOption] = []


class Dice(msgspec.Struct):
    """A die, or another game of chance."""

    emoji: str
    value: int


class Quote(msgspec.Struct):
    """The part of a message that another one quotes."""

    text: str


class Origin(msgspec.Struct):
    """Who wrote a message that was forwarded."""

    sender_user: User | None = None
    sender_user_name: str = ""
    sender_chat: Chat | None = None
    chat: Chat | None = None


class Message(msgspec.Struct):
    """A message of a chat."""

    message_id: int
    chat: Chat
    date: int = 0
    from_: User | None = msgspec.field(default=None, name="from")
    sender_chat: Chat | None = None
    message_thread_id: int = 0
    is_topic_message: bool = False
    forward_origin: Origin | None = None
    reply_to_message: Message | None = None
    quote: Quote | None = None
    media_group_id: str = ""
    text: str = ""
    entities: list[MarkedRange] = []
    caption: str = ""
    caption_entities: list[MarkedRange] = []
    photo: list[RemoteFile] = []
    document: RemoteFile | None = None
    voice: RemoteFile | None = None
    audio: RemoteFile | None = None
    video: RemoteFile | None = None
    video_note: RemoteFile | None = None
    animation: RemoteFile | None = None
    sticker: RemoteFile | None = None
    location: Location | None = None
    venue: Venue | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    dice: Dice | None = None
    migrate_to_chat_id: int = 0


class CallbackQuery(msgspec.Struct):
    """A press of a button."""

    id: str
    from_: User = msgspec.field(name="from")
    message: Message | None = None
    data: str = ""


class ReactionType(msgspec.Struct):
    """A reaction; only one of type `emoji` has an emoji."""

    type: str
    emoji: str = ""


class Reaction(msgspec.Struct):
    """A change of somebody's reactions to a message."""

    chat: Chat
    message_id: int
    user: User | None = None
    actor_chat: Chat | None = None
    old_reaction: list[ReactionType] = []
    new_reaction: list[ReactionType] = []


class Update(msgspec.Struct):
    """Something that happened."""

    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: CallbackQuery | None = None
    message_reaction: Reaction | None = None

    @property
    def chat(self) -> int:
        """The chat that it happened in; 0 if there is none."""
        pressed = self.callback_query.message if self.callback_query is not None else None
        for each in (self.message, self.edited_message, pressed, self.message_reaction):
            if each is not None:
                return each.chat.id
        return 0


def display_name(author: User | Chat | None) -> str:
    """Return what somebody calls themselves. It may be anything."""
    match author:
        case User():
            return " ".join(name for name in (author.first_name, author.last_name) if name)
        case Chat():
            return author.title or author.first_name
    return ""


def file_of(message: Message) -> tuple[RemoteFile, str, str] | None:
    """Return the file of a message, a name for it, and its media type as far as they are known."""
    if message.photo:
        largest = max(message.photo, key=lambda size: size.file_size)
        return largest, f"photo-{message.message_id}.jpg", "image/jpeg"
    sticker = message.sticker
    if sticker is not None:
        if sticker.is_animated:
            return sticker, f"sticker-{message.message_id}.tgs", "application/gzip"
        return sticker, *(
            (f"sticker-{message.message_id}.webm", "video/webm")
            if sticker.is_video
            else (f"sticker-{message.message_id}.webp", "image/webp")
        )
    # An animation comes as a document too.
    for kind, ending, media in (
        ("animation", "mp4", "video/mp4"),
        ("video", "mp4", "video/mp4"),
        ("video_note", "mp4", "video/mp4"),
        ("voice", "ogg", "audio/ogg"),
        ("audio", "mp3", "audio/mpeg"),
        ("document", "bin", ""),
    ):
        file: RemoteFile | None = getattr(message, kind)
        if file is not None:
            return file, file.file_name or f"{kind}-{message.message_id}.{ending}", file.mime_type or media
    return None


def text_of_message(message: Message) -> str:
    """Return the text of a message as Markdown, or what the message is if it has none, such as a place."""
    text, ranges = (message.text, message.entities) if message.text else (message.caption, message.caption_entities)
    parts = [_marked(text, ranges)] if text else []
    if message.venue is not None:
        parts.append(f"Location: {message.venue.title}, {message.venue.address} ({_place(message.venue.location)})")
    elif message.location is not None:
        parts.append(f"Location: {_place(message.location)}")
    if message.contact is not None:
        who = " ".join(name for name in (message.contact.first_name, message.contact.last_name) if name)
        parts.append(f"Contact: {who}, {message.contact.phone_number}")
    if message.poll is not None:
        parts.append("\n".join([f"Poll: {message.poll.question}", *(f"- {option.text}" for option in message.poll.options)]))
    if message.dice is not None:
        parts.append(f"{message.dice.emoji} {message.dice.value}")
    if message.sticker is not None and message.sticker.emoji:
        parts.append(f"Sticker: {message.sticker.emoji}")
    found = "\n".join(parts)
    if message.forward_origin is not None and (found or file_of(message)):
        return f"Forwarded from {_origin(message.forward_origin)}:\n{found}".rstrip()
    return found


def quoted_text(message: Message) -> str:
    """Return the text that a message quotes or replies to; "" if there is none."""
    if message.quote is not None:
        return message.quote.text
    replied = replied_message(message)
    return text_of_message(replied) if replied is not None else ""


def replied_message(message: Message) -> Message | None:
    """Return the message that a message replies to. A message of a topic that replies to nothing names the topic's first."""
    replied = message.reply_to_message
    if replied is None or (message.is_topic_message and replied.message_id == message.message_thread_id):
        return None
    return replied


def thread_of(message: Message) -> str:
    """Return the topic of a message; "" outside of topics. Replies in a group without topics have a thread id as well."""
    return str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else ""


def addresses_bot(message: Message, bot: User) -> bool:
    """Return True if a message of a group mentions the bot or replies to it, or is a command of no other bot."""
    text, ranges = (message.text, message.entities) if message.text else (message.caption, message.caption_entities)
    replied = replied_message(message)
    if replied is not None and replied.from_ is not None and replied.from_.id == bot.id:
        return not _names_another(text, ranges, bot)
    handle = f"@{bot.username}".lower()
    for each in ranges:
        shown = utf16_slice(text, each.offset, each.length).lower()
        if each.type == "mention" and shown == handle:
            return True
        if each.type == "text_mention" and each.user is not None and each.user.id == bot.id:
            return True
        if each.type == "bot_command" and each.offset == 0 and shown.partition("@")[2] in ("", bot.username.lower()):
            return True
    return False


def _names_another(text: str, ranges: Sequence[MarkedRange], bot: User) -> bool:
    """Return True if a text is a command of another bot."""
    first = next((each for each in ranges if each.type == "bot_command" and each.offset == 0), None)
    named = utf16_slice(text, 0, first.length).partition("@")[2].lower() if first is not None else ""
    return named not in ("", bot.username.lower())


def without_address(text: str, bot: User) -> str:
    """Return a text without the bot's name: `@bot hello` becomes `hello`, `/new@bot` becomes `/new`."""
    handle = f"@{bot.username}".lower()
    if len(handle) == 1:
        return text
    if text.lower().startswith(handle) and not text[len(handle) : len(handle) + 1].isalnum():
        text = text[len(handle) :].lstrip(" \t,:")
    first, *_ = text.split(maxsplit=1) or [""]
    if first.startswith("/") and first.lower().endswith(handle):
        return first[: -len(handle)] + text[len(first) :]
    return text


def utf16_slice(text: str, offset: int, length: int) -> str:
    """Return a range of a text that is given in UTF-16 units."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units[2 * max(offset, 0) : 2 * max(offset + length, 0)].decode("utf-16-le", "replace")


def _marked(text: str, ranges: Sequence[MarkedRange]) -> str:
    """Return a text with its code and links in Markdown: otherwise the fences and addresses would be lost."""
    units = text.encode("utf-16-le", "surrogatepass")
    written, at = b"", 0
    for each in sorted(ranges, key=lambda each: each.offset):
        start, end = 2 * each.offset, 2 * (each.offset + each.length)
        if each.type not in ("pre", "code", "text_link") or not at <= start < end <= len(units):
            continue
        inner = units[start:end].decode("utf-16-le", "replace")
        written += units[at:start] + _as_markdown(each, inner).encode("utf-16-le", "surrogatepass")
        at = end
    return (written + units[at:]).decode("utf-16-le", "replace")


def _as_markdown(marked: MarkedRange, inner: str) -> str:
    if marked.type == "text_link":
        return f"[{inner}]({marked.url})"
    fence = "`" * (_longest_run(inner) + 1)
    if marked.type == "code":
        return f"{fence}{inner}{fence}"
    fence, language = max(fence, "```", key=len), "".join(marked.language.split()[:1])
    return f"{fence}{language}\n{inner}\n{fence}"


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest


def _place(location: Location) -> str:
    return f"{location.latitude:.6f}, {location.longitude:.6f}"


def _origin(origin: Origin) -> str:
    named: Any = display_name(origin.sender_user or origin.sender_chat or origin.chat) or origin.sender_user_name
    return named or "somebody"

"""What a model sees of the files in a conversation: which pictures it is sent, and what it is told of the others.

A context carries references. `look` decides, from those and from what the model takes, what becomes of each; it reads no
file. So a request can be measured before a byte is loaded, and be decided upon again, the same, at any later time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from sessions.events.messages import Attachment, Message, UserMessage

PNG, JPEG, GIF, WEBP = "image/png", "image/jpeg", "image/gif", "image/webp"

TOTAL_BYTES = 14 * 1024 * 1024
"""Bytes of pictures in one request, unless a model takes less: in base64 it stays below 20 MB, the least of all vendors."""

TEXT_BYTES = 64 * 1024
"""Bytes of a text file that a model is shown; of a longer one its beginning and end."""


_CROWDED = "later pictures took its place"


class VisionSupport(msgspec.Struct, frozen=True, kw_only=True):
    """The pictures that a model takes: their media types, the most bytes of one and of all in a request, how many, the
    longest side in pixels (None for any), and what one of a width and height costs in tokens."""

    tokens: Callable[[int, int], int]
    media: tuple[str, ...] = (PNG, JPEG, GIF, WEBP)
    picture_bytes: int = TOTAL_BYTES
    total_bytes: int = TOTAL_BYTES
    count: int = 20
    side: int | None = None


Place: TypeAlias = tuple[int, int]
"""A message in a context, and an attachment of it, both from 0."""


class AttachmentVisibility(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of an attachment: sent as a `picture`, shown as `text`, or `named` only, with `why` as the end of a
    sentence. `tokens` is an estimate of what that costs."""

    at: Place
    attachment: Attachment
    form: Literal["picture", "text", "named"]
    tokens: int
    why: str = ""


def carrying(messages: Sequence[Message], first: int = 0) -> list[int]:
    """The indexes, from `first` on, of the messages that have attachments."""
    behind = enumerate(islice(messages, first, None), first)
    return [index for index, message in behind if isinstance(message, UserMessage) and message.attachments]


def look(
    messages: Sequence[Message], sight: VisionSupport | None, model: str, *, among: Iterable[int] | None = None
) -> list[AttachmentVisibility]:
    """What becomes of each attachment in a context, in order. `sight` is None for a model that sees nothing; `model` is
    its name for the sentences; `among` are the indexes of `carrying`, where they are known."""
    seen = [
        _alone((index, number), attachment, sight, model)
        for index in (carrying(messages) if among is None else among)
        if isinstance(message := messages[index], UserMessage)
        for number, attachment in enumerate(message.attachments)
    ]
    if sight is None:
        return seen
    sent = _newest([each for each in seen if each.form == "picture"], sight)
    return [each if each.form != "picture" or each.at in sent else _named(each, _CROWDED) for each in seen]


def said_of(seen: AttachmentVisibility) -> str:
    """The line that stands for an attachment in a message's text, where its content does not."""
    return f"[attached: {described(seen.attachment)}; not shown: {seen.why}]"


def described(attachment: Attachment) -> str:
    """An attachment in words: `report.pdf, application/pdf, 120 kB`."""
    size = attachment.bytes
    amount = f"{size} bytes" if size < 1000 else f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"
    pixels = f", {attachment.width}×{attachment.height}" if attachment.width else ""
    return f"{attachment.name or 'a file'}, {attachment.media}{pixels}, {amount}"


def with_names(text: str, attachments: Sequence[Attachment]) -> str:
    """A message for a reader: its text, and a line for each attachment that says where it is."""
    files = [f"[attached: {described(each)}: attachments/{each.sha256}]" for each in attachments]
    return "\n".join([*([text] if text else []), *files])


def _alone(at: Place, attachment: Attachment, sight: VisionSupport | None, model: str) -> AttachmentVisibility:
    """What becomes of an attachment if it were the only one."""
    if attachment.media.startswith("text/"):
        return AttachmentVisibility(at=at, attachment=attachment, form="text", tokens=min(attachment.bytes, TEXT_BYTES) // 3)
    named = AttachmentVisibility(at=at, attachment=attachment, form="named", tokens=0)
    if why := _refused(attachment, sight, model):
        return _named(named, why)
    assert sight is not None
    tokens = sight.tokens(attachment.width, attachment.height)
    return msgspec.structs.replace(named, form="picture", tokens=tokens)


def _refused(attachment: Attachment, sight: VisionSupport | None, model: str) -> str:
    """Why a model is not sent a file; empty if it is."""
    if not attachment.media.startswith("image/"):
        return "it is neither a picture nor a text"
    if sight is None:
        return f"{model} sees no pictures"
    longest = max(attachment.width, attachment.height)
    for why, holds in (
        ("it is not a whole picture", longest == 0),
        (f"{model} takes no {attachment.media}", attachment.media not in sight.media),
        (f"{model} takes pictures up to {sight.picture_bytes / 1e6:.1f} MB", attachment.bytes > sight.picture_bytes),
        (f"{model} takes pictures up to {sight.side} pixels a side", longest > (sight.side or longest)),
    ):
        if holds:
            return why
    return ""


def _named(seen: AttachmentVisibility, why: str) -> AttachmentVisibility:
    return msgspec.structs.replace(seen, form="named", tokens=0, why=why)


def _newest(pictures: Sequence[AttachmentVisibility], sight: VisionSupport) -> set[Place]:
    """The places of the pictures that are sent: the newest, as far as count and bytes allow.

    Once they are too many, half of them go at once. Every change of what was sent earlier spoils what the vendor has
    cached of the conversation, so there must be few; and as a fold over the pictures in their order it gives the same
    for the earlier ones whatever is added to the last request.
    """
    sent: deque[AttachmentVisibility] = deque()
    size = 0
    for picture in pictures:
        sent.append(picture)
        size += picture.attachment.bytes
        if len(sent) > sight.count or size > sight.total_bytes:
            while len(sent) > 1 and (len(sent) > max(1, sight.count // 2) or size > sight.total_bytes // 2):
                size -= sent.popleft().attachment.bytes
    return {picture.at for picture in sent}

"""Visibility of attachments: which pictures a model is sent, and how the other files are described to it.

A context carries references. `attachment_visibility` decides what happens to each of them, from the references and the
model's limits alone; it reads no file. So a request can be measured before a byte is loaded, and the same decision can be
computed again later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from sessions.events.messages import Attachment, Message, UserMessage

PNG, JPEG, GIF, WEBP = "image/png", "image/jpeg", "image/gif", "image/webp"

TOTAL_BYTES = 14 * 1024 * 1024
"""Bytes of pictures in one request, unless a model's limit is lower: base64 brings it just below 20 MB, the lowest limit of
all vendors."""

TEXT_BYTES = 64 * 1024
"""Bytes of a text file that are shown to a model; of a longer file, its beginning and end."""


Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]

_CROWDED = "newer pictures took its place"


class VisionSupport(msgspec.Struct, frozen=True, kw_only=True):
    """The pictures that a model accepts: their media types, the largest size in bytes of one (`picture_bytes`) and of all in
    a request (`total_bytes`), their number, the longest side in pixels (None for no limit), and `tokens`, which returns the
    tokens of a picture of a given width and height."""

    tokens: Callable[[int, int], int]
    media: tuple[str, ...] = (PNG, JPEG, GIF, WEBP)
    picture_bytes: Positive = TOTAL_BYTES
    total_bytes: Positive = TOTAL_BYTES
    count: Positive = 20
    side: Positive | None = None


Place: TypeAlias = tuple[int, int]
"""The index of a message in a context, and the index of an attachment in it."""


class AttachmentVisibility(msgspec.Struct, frozen=True, kw_only=True):
    """The form in which a model sees an attachment: as a `picture`, as `text`, or only `named`, with `why` as the end of a
    sentence. `tokens` is the estimated cost."""

    at: Place
    attachment: Attachment
    form: Literal["picture", "text", "named"]
    tokens: int
    why: str = ""


def indexes_with_attachments(messages: Sequence[Message], first: int = 0) -> list[int]:
    """Return the indexes, from `first` on, of the messages that have attachments."""
    found = enumerate(messages[first:], first)
    return [index for index, message in found if isinstance(message, UserMessage) and message.attachments]


def attachment_visibility(
    messages: Sequence[Message], vision: VisionSupport | None, model: str, *, among: Iterable[int] | None = None
) -> list[AttachmentVisibility]:
    """Return the visibility of each attachment in a context, in order.

    Args:
        messages: The messages of the context.
        vision: The model's picture support; None if it accepts no pictures.
        model: The model's name, for the explanations.
        among: The result of `indexes_with_attachments`, if it is already known.
    """
    seen = [
        _alone((index, number), attachment, vision, model)
        for index in (indexes_with_attachments(messages) if among is None else among)
        if isinstance(message := messages[index], UserMessage)
        for number, attachment in enumerate(message.attachments)
    ]
    if vision is None:
        return seen
    sent = _newest([each for each in seen if each.form == "picture"], vision)
    return [each if each.form != "picture" or each.at in sent else _named(each, _CROWDED) for each in seen]


def placeholder_line(seen: AttachmentVisibility) -> str:
    """Return the line that replaces an attachment in a message's text when its content is not shown."""
    return f"[attached: {describe_attachment(seen.attachment)}; not shown: {seen.why}]"


def describe_attachment(attachment: Attachment) -> str:
    """Return a description of an attachment, such as `report.pdf, application/pdf, 120 kB`."""
    size = attachment.bytes
    amount = f"{size} bytes" if size < 1000 else f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"
    pixels = f", {attachment.width}×{attachment.height}" if attachment.width else ""
    return f"{attachment.name or 'a file'}, {attachment.media}{pixels}, {amount}"


def text_with_attachments(text: str, attachments: Sequence[Attachment]) -> str:
    """Return a message's text followed by a line for each attachment with its location."""
    files = [f"[attached: {describe_attachment(each)}: attachments/{each.sha256}]" for each in attachments]
    return "\n".join([*([text] if text else []), *files])


def _alone(at: Place, attachment: Attachment, vision: VisionSupport | None, model: str) -> AttachmentVisibility:
    """Return the visibility of an attachment, ignoring the others."""
    if attachment.media.startswith("text/"):
        return AttachmentVisibility(at=at, attachment=attachment, form="text", tokens=min(attachment.bytes, TEXT_BYTES) // 3)
    named = AttachmentVisibility(at=at, attachment=attachment, form="named", tokens=0)
    if why := _refused(attachment, vision, model):
        return _named(named, why)
    assert vision is not None
    tokens = vision.tokens(attachment.width, attachment.height)
    return msgspec.structs.replace(named, form="picture", tokens=tokens)


def _refused(attachment: Attachment, vision: VisionSupport | None, model: str) -> str:
    """Return the reason why a model is not sent a file; empty if it is."""
    if not attachment.media.startswith("image/"):
        return "it is neither a picture nor text"
    if vision is None:
        return f"{model} does not accept pictures"
    longest = max(attachment.width, attachment.height)
    for why, holds in (
        ("the picture is incomplete", longest == 0),
        (f"{model} does not accept {attachment.media}", attachment.media not in vision.media),
        (f"{model} accepts pictures up to {vision.picture_bytes / 1e6:.1f} MB", attachment.bytes > vision.picture_bytes),
        (f"{model} accepts pictures up to {vision.side} pixels a side", longest > (vision.side or longest)),
    ):
        if holds:
            return why
    return ""


def _named(seen: AttachmentVisibility, why: str) -> AttachmentVisibility:
    return msgspec.structs.replace(seen, form="named", tokens=0, why=why)


def _newest(pictures: Sequence[AttachmentVisibility], vision: VisionSupport) -> set[Place]:
    """Return the places of the pictures that are sent: the newest, within the limits on number and bytes.

    When a limit is exceeded, half of the pictures are dropped at once. Every change to what was sent earlier invalidates the
    vendor's prompt cache, so changes must be rare. As a fold over the pictures in order, the result for the earlier ones
    does not depend on what is added to the last request.
    """
    sent: deque[AttachmentVisibility] = deque()
    size = 0
    for picture in pictures:
        sent.append(picture)
        size += picture.attachment.bytes
        if len(sent) > vision.count or size > vision.total_bytes:
            while len(sent) > 1 and (len(sent) > max(1, vision.count // 2) or size > vision.total_bytes // 2):
                size -= sent.popleft().attachment.bytes
    return {picture.at for picture in sent}

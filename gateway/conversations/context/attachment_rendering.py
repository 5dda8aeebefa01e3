"""Renders attachments: turns a context with references into one that a provider can send, with pictures loaded and files as
text.

`sessions.events.vision` decides which are shown. The bytes are read in a thread and cached up to a limit, so that a picture
is encoded once and not for each request.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from sessions.events.messages import UserMessage
from sessions.events.vision import TEXT_BYTES, AttachmentVisibility, describe_attachment, placeholder_line
from sessions.state.context import Context
from sessions.state.truncation import head_and_tail
from sessions.store.protocols import Blobs

KEPT_BYTES = 48 * 1024 * 1024
"""Bytes of encoded pictures and of texts that are cached for all sessions together."""

_TICKS = re.compile("`+")


class RenderedContext(msgspec.Struct, frozen=True):
    """A context as a provider sends it.

    Its messages refer only to pictures that are sent; `pictures` has their base64 by hash. `withheld` are the files that
    are only named, including those that cannot be read.
    """

    context: Context
    pictures: Mapping[str, bytes]
    withheld: Sequence[AttachmentVisibility]


class AttachmentRenderer:
    """Reads attachments for requests. One for the whole gateway."""

    def __init__(self, attachments: Blobs, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._attachments = attachments
        self._limit = kept_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self.size = 0
        """Cached bytes."""

    async def show(self, context: Context, seen: Sequence[AttachmentVisibility]) -> RenderedContext:
        """Return the context with each attachment as `seen` says. Never raises: a file that cannot be read is only
        named."""
        if not seen:
            return RenderedContext(context, {}, ())
        contents = await self._contents(seen)
        seen = [each if each.form == "named" or each.attachment.sha256 in contents else _lost(each) for each in seen]
        messages = list(context.messages)
        for index, of_message in groupby(seen, lambda each: each.at[0]):
            message = messages[index]
            assert isinstance(message, UserMessage)
            messages[index] = _shown(message, of_message, contents)
        return RenderedContext(
            msgspec.structs.replace(context, messages=tuple(messages)),
            {each.attachment.sha256: contents[each.attachment.sha256] for each in seen if each.form == "picture"},
            [each for each in seen if each.form == "named"],
        )

    async def _contents(self, seen: Sequence[AttachmentVisibility]) -> dict[str, bytes]:
        """Return the shown contents by hash, without those whose file cannot be read."""
        contents: dict[str, bytes] = {}
        for each in seen:
            digest = each.attachment.sha256
            if each.form != "named" and digest not in contents and (content := await self._content(each)) is not None:
                contents[digest] = content
        return contents

    async def _content(self, seen: AttachmentVisibility) -> bytes | None:
        """Return a picture in base64, or the shown part of a text; None if the file cannot be read."""
        digest = seen.attachment.sha256
        if (content := self._kept.get(digest)) is not None:
            self._kept.move_to_end(digest)
            return content
        try:
            content = await self._attachments.read(digest, _encode if seen.form == "picture" else _cut)
        except OSError:
            return None
        if digest not in self._kept:  # another request may have read it meanwhile
            self._kept[digest] = content
            self.size += len(content)
        while self.size > self._limit and self._kept:
            self.size -= len(self._kept.popitem(last=False)[1])
        return content


def _lost(seen: AttachmentVisibility) -> AttachmentVisibility:
    return msgspec.structs.replace(seen, form="named", why="its file cannot be read")


def _shown(message: UserMessage, seen: Iterable[AttachmentVisibility], contents: Mapping[str, bytes]) -> UserMessage:
    """Return a message with its pictures, and the other files after its text."""
    lines = [message.text] if message.text.strip() else []
    pictures = []
    for each in seen:
        match each.form:
            case "picture":
                pictures.append(each.attachment)
            case "text":
                lines.append(_fenced(each, contents[each.attachment.sha256].decode()))
            case "named":
                lines.append(placeholder_line(each))
    return UserMessage(text="\n\n".join(lines), attachments=tuple(pictures))


def _fenced(seen: AttachmentVisibility, text: str) -> str:
    """Return a text file between fences that are longer than any in it, so that it cannot close them."""
    fence = "`" * max(3, *(len(run) + 1 for run in _TICKS.findall(text)), 0)
    return f"[attached: {describe_attachment(seen.attachment)}]\n{fence}\n{text.rstrip()}\n{fence}"


def _encode(content: bytes) -> bytes:
    return b64encode(content)


def _cut(content: bytes) -> bytes:
    return head_and_tail(content.decode("utf-8", "replace"), TEXT_BYTES).encode()

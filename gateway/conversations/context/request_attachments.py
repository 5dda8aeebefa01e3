"""The attachments in model requests: turns a context with references into one that a provider can send, with pictures loaded
and files as text.

`sessions.events.vision` decides which are shown. The bytes are read in a thread and cached up to a limit, so that a picture
is encoded once and not for each request.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import groupby

import msgspec

from plugins.support.errors import ProviderError
from sessions.events.events import Withheld
from sessions.events.messages import Message, UserMessage
from sessions.events.vision import (
    TEXT_BYTES,
    AttachmentVisibility,
    VisionSupport,
    attachment_visibility,
    describe_attachment,
    indexes_with_attachments,
    placeholder_line,
)
from sessions.state.context import Context, starts_with
from sessions.state.truncation import head_and_tail
from sessions.store.protocols import Blobs

KEPT_BYTES = 48 * 1024 * 1024
"""Maximum bytes of encoded pictures and texts that are cached, for all sessions together."""

_TICKS = re.compile("`+")

_REFUSED = "refused it"


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

    async def render(self, context: Context, seen: Sequence[AttachmentVisibility]) -> RenderedContext:
        """Return the context with each attachment shown as `seen` says. Never raises: a file that cannot be read is only
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


class ConversationFiles:
    """The attachments of one session, and which pictures each model accepted or refused while this object lives.

    A provider may refuse a picture with a valid header, and with it every later request of the conversation. So after a
    refused request, the pictures that this model has not accepted before are suspects: the request is repeated without
    them, and if that succeeds they stay out.
    """

    def __init__(self, renderer: AttachmentRenderer) -> None:
        self._renderer = renderer
        self._accepted: set[tuple[str, str]] = set()
        self._refused: set[tuple[str, str]] = set()
        self._messages: Sequence[Message] = ()
        self._with_attachments: list[int] = []

    def visibility(self, context: Context, vision: VisionSupport | None, model: str) -> list[AttachmentVisibility]:
        """Return the visibility of each attachment of a context for a model."""
        known = len(self._messages) if starts_with(context.messages, self._messages) else 0
        # Only new messages are examined: a long conversation costs no more than a short one.
        self._with_attachments = [
            *(self._with_attachments if known else ()),
            *indexes_with_attachments(context.messages, known),
        ]
        self._messages = context.messages
        return [
            msgspec.structs.replace(each, form="named", tokens=0, why=f"{model} {_REFUSED}")
            if each.form == "picture" and (model, each.attachment.sha256) in self._refused
            else each
            for each in attachment_visibility(context.messages, vision, model, among=self._with_attachments)
        ]

    async def render(self, context: Context, visibility: Sequence[AttachmentVisibility]) -> RenderedContext:
        """Return the context as a provider sends it."""
        return await self._renderer.render(context, visibility)

    def unreported(self, model: str, rendered: RenderedContext, reported: Set[tuple[str, str]]) -> tuple[Withheld, ...]:
        """Return the withheld files that the person was not told about.

        `reported` has pairs of a model and a file's hash. Each pair is reported once, whatever the reason.
        """
        fresh = {
            each.attachment.sha256: each for each in rendered.withheld if (model, each.attachment.sha256) not in reported
        }
        return tuple(
            Withheld(sha256=digest, sentence=f"The model is not shown {describe_attachment(each.attachment)}: {each.why}.")
            for digest, each in fresh.items()
        )

    def record_accepted(self, model: str, rendered: RenderedContext) -> None:
        """Record that a request with these pictures was answered."""
        self._accepted.update((model, digest) for digest in rendered.pictures)

    def suspects(self, model: str, rendered: RenderedContext) -> set[tuple[str, str]]:
        """Return the pictures that may have caused a refusal: those that this model never accepted, else all."""
        sent = {(model, digest) for digest in rendered.pictures}
        return sent - self._accepted or sent

    @contextmanager
    def leaving_out(self, suspects: set[tuple[str, str]]) -> Iterator[None]:
        """Leave these pictures out while the block runs; if it fails too, they were not the cause."""
        self._refused |= suspects
        try:
            yield
        except ProviderError:
            self._refused -= suspects
            raise


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

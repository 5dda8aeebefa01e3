"""The attachments of one conversation on their way to models: which were refused, and what the person is told about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager

import msgspec

from gateway.conversations.context.attachment_rendering import AttachmentRenderer, RenderedContext
from plugins.support.errors import ProviderError
from sessions.events.events import Withheld
from sessions.events.messages import Message
from sessions.events.vision import (
    AttachmentVisibility,
    VisionSupport,
    attachment_visibility,
    describe_attachment,
    indexes_with_attachments,
)
from sessions.state.context import Context, starts_with

_REFUSED = "refused it"


class ConversationFiles:
    """The attachments of one session, and which pictures each model accepted or refused while this object lives.

    A provider may refuse a picture with a valid header, and with it every later request of the conversation. So after a
    refused request, the pictures that this model has not accepted before are suspects: the request is repeated without
    them, and if that succeeds they stay out.
    """

    def __init__(self, renderer: AttachmentRenderer) -> None:
        self._renderer = renderer
        self._taken: set[tuple[str, str]] = set()
        self._refused: set[tuple[str, str]] = set()
        self._messages: Sequence[Message] = ()
        self._carrying: list[int] = []

    def look(self, context: Context, vision: VisionSupport | None, model: str) -> list[AttachmentVisibility]:
        """Return the visibility of each attachment of a context for a model."""
        known = len(self._messages) if starts_with(context.messages, self._messages) else 0
        # Only new messages are examined: a long conversation costs no more than a short one.
        self._carrying = [*(self._carrying if known else ()), *indexes_with_attachments(context.messages, known)]
        self._messages = context.messages
        return [
            msgspec.structs.replace(each, form="named", tokens=0, why=f"{model} {_REFUSED}")
            if each.form == "picture" and (model, each.attachment.sha256) in self._refused
            else each
            for each in attachment_visibility(context.messages, vision, model, among=self._carrying)
        ]

    async def show(self, context: Context, seen: Sequence[AttachmentVisibility]) -> RenderedContext:
        """Return the context as a provider sends it."""
        return await self._renderer.show(context, seen)

    def news(self, model: str, shown: RenderedContext, reported: Set[tuple[str, str]]) -> tuple[Withheld, ...]:
        """Return the withheld files that the person was not told about.

        `reported` has pairs of a model and a file's hash. Each pair is reported once, whatever the reason.
        """
        fresh = {each.attachment.sha256: each for each in shown.withheld if (model, each.attachment.sha256) not in reported}
        return tuple(
            Withheld(sha256=digest, sentence=f"The model is not shown {describe_attachment(each.attachment)}: {each.why}.")
            for digest, each in fresh.items()
        )

    def took(self, model: str, shown: RenderedContext) -> None:
        """Record that a request with these pictures was answered."""
        self._taken.update((model, digest) for digest in shown.pictures)

    def suspects(self, model: str, shown: RenderedContext) -> set[tuple[str, str]]:
        """Return the pictures that may have caused a refusal: those that this model never accepted, else all."""
        sent = {(model, digest) for digest in shown.pictures}
        return sent - self._taken or sent

    @contextmanager
    def leaving_out(self, suspects: set[tuple[str, str]]) -> Iterator[None]:
        """Leave these pictures out while the block runs; if it fails too, they were not the cause."""
        self._refused |= suspects
        try:
            yield
        except ProviderError:
            self._refused -= suspects
            raise

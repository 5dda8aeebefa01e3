"""The files of one conversation, on their way to models: what was refused, and what the person has to be told of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager

import msgspec

from gateway.conversations.context.attachment_rendering import AttachmentRenderer, RenderedContext
from plugins.support.errors import ProviderError
from sessions.events.events import Withheld
from sessions.events.messages import Message
from sessions.events.vision import AttachmentVisibility, VisionSupport, carrying, described, look
from sessions.state.context import Context, continues

_REFUSED = "refused it"


class ConversationFiles:
    """Belongs to one turn-taker. It remembers, while it lives, which pictures a model took and which it did not.

    A vendor may refuse a picture whose header is whole, and with it every later request of a conversation that holds it.
    So after a refused request the pictures that this model has not taken before are under suspicion: the same is asked
    without them, and if that is answered they stay out.
    """

    def __init__(self, showing: AttachmentRenderer) -> None:
        self._showing = showing
        self._taken: set[tuple[str, str]] = set()
        self._refused: set[tuple[str, str]] = set()
        self._messages: Sequence[Message] = ()
        self._carrying: list[int] = []

    def look(self, context: Context, sight: VisionSupport | None, model: str) -> list[AttachmentVisibility]:
        """What becomes of each attachment of a context, if this model is asked."""
        known = len(self._messages) if continues(context.messages, self._messages) else 0
        # Only what is new is looked through: a long conversation costs no more than a short one.
        self._carrying = [*(self._carrying if known else ()), *carrying(context.messages, known)]
        self._messages = context.messages
        return [
            msgspec.structs.replace(each, form="named", tokens=0, why=f"{model} {_REFUSED}")
            if each.form == "picture" and (model, each.attachment.sha256) in self._refused
            else each
            for each in look(context.messages, sight, model, among=self._carrying)
        ]

    async def show(self, context: Context, seen: Sequence[AttachmentVisibility]) -> RenderedContext:
        """The context as a provider sends it."""
        return await self._showing.show(context, seen)

    def news(self, model: str, shown: RenderedContext, told: Set[tuple[str, str]]) -> tuple[Withheld, ...]:
        """Of the files that are not shown to this model, those of which the person has not been told: `told` are models with
        the hashes of their files. Once is enough, whatever else keeps the same file from the same model later."""
        fresh = {each.attachment.sha256: each for each in shown.withheld if (model, each.attachment.sha256) not in told}
        return tuple(
            Withheld(sha256=digest, sentence=f"The model is not shown {described(each.attachment)}: {each.why}.")
            for digest, each in fresh.items()
        )

    def took(self, model: str, shown: RenderedContext) -> None:
        """A request with these pictures was answered."""
        self._taken.update((model, digest) for digest in shown.pictures)

    def suspects(self, model: str, shown: RenderedContext) -> set[tuple[str, str]]:
        """The pictures for which a request may have been refused: those that this model never took, else all."""
        sent = {(model, digest) for digest in shown.pictures}
        return sent - self._taken or sent

    @contextmanager
    def leaving_out(self, suspects: set[tuple[str, str]]) -> Iterator[None]:
        """Ask without these pictures; they were not the cause if that fails too."""
        self._refused |= suspects
        try:
            yield
        except ProviderError:
            self._refused -= suspects
            raise

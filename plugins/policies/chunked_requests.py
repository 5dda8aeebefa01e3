"""Asking a model about a record that may be longer than what it takes in: piece by piece, and never without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from plugins.api.services import AskModel, ModelAnswer
from plugins.support.errors import ContextOverflow
from plugins.support.fencing import FencedEntry, divided, fenced
from sessions.events.messages import Usage
from sessions.events.tokens import estimate

MARGIN = 0.7
"""The share of the free window that is filled: estimates err, on digits and odd scripts by more than a quarter."""

HALVINGS = 4
"""How often the pieces are made half as large, when the provider says that one was too long after all."""

LEAST_ROOM = 64
"""Tokens of the record in a request, whatever the window."""

OVERHEAD = 32
"""Tokens of a request beside its texts."""


class ModelQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A request about each piece: `system` says who is asked, `about` what a record is, or nothing, `text`, which stands
    behind it, what is wanted. `limit` is how many tokens an answer may have, `window` how many the model takes in."""

    system: str
    about: str
    text: str
    limit: int
    window: int

    @property
    def room(self) -> int:
        """Estimated tokens of the record that one request may carry."""
        beside = self.limit + estimate(self.about) + estimate(self.system) + estimate(self.text) + OVERHEAD
        return max(LEAST_ROOM, int((self.window - beside) * MARGIN))


async def ask_in_pieces(record: Sequence[FencedEntry], question: ModelQuestion, ask: AskModel) -> AsyncIterator[ModelAnswer]:
    """One answer for each piece of the record, in order. Where a piece is too long for the provider, it and those behind it
    are divided anew, into smaller ones. Raises ProviderError; ContextOverflow when even the smallest is too long."""
    room, halvings = question.room, 0
    waiting = await asyncio.to_thread(divided, record, room)  # megabytes perhaps: not on the event loop
    while waiting:
        try:
            answer = await _ask(waiting[0], question, ask)
        except ContextOverflow:
            if halvings == HALVINGS:
                raise
            halvings, room = halvings + 1, max(LEAST_ROOM, room // 2)
            waiting = await asyncio.to_thread(divided, [entry for piece in waiting for entry in piece], room)
        else:
            del waiting[0]
            yield answer


def spent(answers: Sequence[ModelAnswer]) -> Usage | None:
    """What all the answers cost; None where the provider counted none of them."""
    counted = [answer.usage for answer in answers if answer.usage is not None]
    return sum(counted, Usage()) if counted else None


async def _ask(piece: Sequence[FencedEntry], question: ModelQuestion, ask: AskModel) -> ModelAnswer:
    text = f"{fenced(piece)}\n\n{question.text}"
    system = "\n\n".join(filter(None, (question.system, question.about)))
    return await ask(system=system, text=text, limit=question.limit)

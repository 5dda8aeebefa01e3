"""Model requests about a record that may exceed the context window, in chunks and with a bounded number of retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from plugins.api.plugin_services import AskModel, ModelAnswer
from plugins.support.errors import ContextOverflow
from plugins.support.fencing import FencedEntry, divided, fenced
from sessions.events.messages import Usage
from sessions.events.tokens import estimate

FILL_RATIO = 0.7
"""Share of the free window that is filled, since estimates err by more than a quarter on digits and rare scripts."""

HALVINGS = 4
"""The number of times that the chunks are halved when the provider reports one as too long."""

MIN_RECORD_TOKENS = 64
"""Minimum tokens of the record in a request, whatever the window."""

OVERHEAD_TOKENS = 32
"""Tokens of a request besides its texts."""


class ModelQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is repeated for each chunk of a record.

    `system` are the instructions, `about` explains what a record is, and `text` follows each chunk. `limit` is the maximum
    tokens of an answer and `window` the context window in tokens.
    """

    system: str
    about: str
    text: str
    limit: int
    window: int

    @property
    def record_tokens(self) -> int:
        """Estimated tokens of the record that one request may contain."""
        beside = self.limit + estimate(self.about) + estimate(self.system) + estimate(self.text) + OVERHEAD_TOKENS
        return max(MIN_RECORD_TOKENS, int((self.window - beside) * FILL_RATIO))


async def ask_in_pieces(record: Sequence[FencedEntry], question: ModelQuestion, ask: AskModel) -> AsyncIterator[ModelAnswer]:
    """Ask a model about each chunk of a record, in order.

    If the provider reports a chunk as too long, it and the following ones are split into smaller chunks.

    Args:
        record: The entries to ask about.
        question: The request for each chunk.
        ask: Sends a request to the model.

    Raises:
        ProviderError: A request failed.
        ContextOverflow: Even the smallest chunk is too long.
    """
    record_tokens, halvings = question.record_tokens, 0
    pending = await asyncio.to_thread(divided, record, record_tokens)  # may be megabytes
    while pending:
        try:
            answer = await _ask(pending[0], question, ask)
        except ContextOverflow:
            if halvings == HALVINGS:
                raise
            halvings, record_tokens = halvings + 1, max(MIN_RECORD_TOKENS, record_tokens // 2)
            pending = await asyncio.to_thread(divided, [entry for piece in pending for entry in piece], record_tokens)
        else:
            del pending[0]
            yield answer


def total_usage(answers: Sequence[ModelAnswer]) -> Usage | None:
    """Return the total usage of all answers, None if the provider reported none."""
    counted = [answer.usage for answer in answers if answer.usage is not None]
    return sum(counted, Usage()) if counted else None


async def _ask(piece: Sequence[FencedEntry], question: ModelQuestion, ask: AskModel) -> ModelAnswer:
    text = f"{fenced(piece)}\n\n{question.text}"
    system = "\n\n".join(filter(None, (question.system, question.about)))
    return await ask(system=system, text=text, limit=question.limit)

"""Texts of which no vector can be made: a model gives no numbers for one, or its server refuses it. Each is set aside, so
that it keeps no other from having a vector; it is found by its words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import structlog

from plugins.errors import BadAnswer, BadRequest
from plugins.services import Purpose

if TYPE_CHECKING:
    from plugins.memory.backend import Identity

log = structlog.get_logger("exuvia.memory")

Vectors: TypeAlias = Sequence[Sequence[float]]

PLAIN = "How long are the vectors?"
"""A text of which every model makes a vector, or none of any."""


class Unembeddable:
    """Asks by `embedded`, and remembers of what nothing came until the gateway ends: a text that changes is another one."""

    def __init__(self, embedded: Callable[[list[str], Purpose], Awaitable[tuple[Identity, Vectors]]]) -> None:
        self._embedded = embedded
        self._set_aside: dict[tuple[Identity, str], str] = {}

    def without(self, identity: Identity, texts: Mapping[str, str]) -> dict[str, str]:
        """The texts, by their digests, that were not set aside."""
        return {digest: text for digest, text in texts.items() if (identity, digest) not in self._set_aside}

    def told(self, identity: Identity) -> str:
        """How many were set aside, and why the last one was; empty if none was."""
        why = [reason for (of, _), reason in self._set_aside.items() if of == identity]
        return f"No vector can be made of {len(why)}, and of the last because: {why[-1]}" if why else ""

    async def vectors(self, batch: Mapping[str, str]) -> tuple[Identity, dict[str, Sequence[float]]]:
        """The vectors of texts by their digests, without those of which none can be made. Raises a ProviderError where the
        texts are not at fault."""
        try:
            made_by, vectors = await self._embedded(list(batch.values()), "note")
        except (BadRequest, BadAnswer):
            return await self._one_by_one(batch)
        return made_by, dict(zip(batch, vectors, strict=True))

    async def _one_by_one(self, batch: Mapping[str, str]) -> tuple[Identity, dict[str, Sequence[float]]]:
        made_by, _ = await self._embedded([PLAIN], "note")
        found: dict[str, Sequence[float]] = {}
        for digest, text in batch.items():
            try:
                made_by, (found[digest],) = await self._embedded([text], "note")
            except (BadRequest, BadAnswer) as error:
                self._set_aside[made_by, digest] = str(error)
                log.warning("text_without_vector", text=text.partition("\n")[0], reason=str(error))
        return made_by, found

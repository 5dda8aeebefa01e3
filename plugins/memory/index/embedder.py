"""The background embedder, which computes the vectors of chunks batch by batch, so that work done is kept.

Texts are split and counted here, since providers of third parties need not do that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import structlog

from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import Identity
from plugins.api.memory_settings import EmbeddingKeys
from plugins.api.plugin_services import IndexUnusable, Purpose
from plugins.memory.index.indexer import (
    LONGEST_PAUSE,
    PAUSE_SECONDS,
    TRIES,
    DamagedAgain,
    Indexer,
    IndexRebuilt,
    identity_of,
)
from plugins.providers.hosted.batch_limits import BatchLimits
from plugins.support.errors import BadAnswer, BadRequest, ContextOverflow, ProviderError, Unreachable
from plugins.support.untrusted import call_failure, error_text
from plugins.support.vector_checks import Vector
from sessions.events.tokens import estimate

BATCH, AHEAD = 16, 320
"""Chunks embedded before their vectors are stored, which a crash loses at most; and chunks looked up at once."""

REQUEST_TEXTS = 256
"""Maximum texts per request if `batch_size` is not set, the same as for `context.embed`."""

PLAIN = "How long are the vectors?"
"""A text that every working model can embed."""

SESSIONS = "sessions"
"""The source of conversations."""

log = structlog.get_logger("exuvia.memory")

Vectors: TypeAlias = Sequence[Sequence[float]]


class Embedder:
    """Computes the vectors of the chunks of one index.

    Args:
        indexer: The indexer of the index.
        provider: Returns the current embedding provider.
        in_use: Keeps providers open while entered.
        keys: Returns the embedding settings.
        counted: Called with the purpose, the provider and the estimated tokens of each embedding request.
    """

    def __init__(
        self,
        indexer: Indexer,
        provider: Callable[[], EmbeddingProvider | None],
        in_use: Callable[[], AbstractContextManager[None]],
        *,
        keys: Callable[[], EmbeddingKeys],
        counted: Callable[[Purpose, EmbeddingProvider, int], None],
    ) -> None:
        self._indexer = indexer
        self._provider = provider
        self._in_use = in_use
        self._keys = keys
        self._counted = counted
        self._embedding = asyncio.Lock()
        self._limits_of: tuple[EmbeddingProvider, int, int] | None = None
        self._limits = BatchLimits(most=REQUEST_TEXTS)
        self._failed_texts: dict[tuple[Identity, str], str] = {}
        """By identity and digest, why a text cannot be embedded. A changed text is a new one."""
        self.failing = ""
        """Why embedding fails for other reasons than the texts, "" if it does not."""
        self.not_stored = ""
        """Why vectors cannot be stored, "" if they can."""

    async def run(self) -> None:
        """Embed new chunks until cancelled."""
        pause = PAUSE_SECONDS
        while True:
            await self._indexer.stored.wait()
            self._indexer.stored.clear()
            try:
                if self._is_worth_a_model():
                    await self.embed_all()
                pause = PAUSE_SECONDS
            except ProviderError as error:
                self._indexer.report(vector_problem=reason_of(error))
                self._log_failure(reason_of(error))
                await self._pause(error.retry_after or pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except DamagedAgain as error:
                self.not_stored = str(error)
                log.warning("vectors_not_stored", reason=self.not_stored, seconds_until_next_try=pause)
                await asyncio.sleep(pause)  # also if notes change: each attempt is a rebuild
                pause = min(2 * pause, LONGEST_PAUSE)
                self._indexer.stored.set()
            except IndexUnusable as error:
                self._indexer.report(problem=str(error))
            except Exception as error:  # an error of the provider must not stop the embedder
                reason = str(call_failure(error))  # a traceback has no bound
                log.error("memory_not_embedded", reason=reason)
                self._indexer.report(vector_problem=reason)
                await self._pause(pause)

    def _is_worth_a_model(self) -> bool:
        """Return True if there is more than sessions, which are recalled by words: loading a model for them costs too much
        memory."""
        return any(count for name, count in self._indexer.state.by_source.items() if name != SESSIONS)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._indexer.stored.wait()
        except TimeoutError:
            self._indexer.stored.set()

    async def embed_all(self) -> None:
        """Embed all chunks without a vector. If the index is rebuilt meanwhile, index all documents again first.

        Raises:
            ProviderError: The provider failed.
            IndexUnusable: The index cannot be used.
        """
        async with self._embedding:
            for _ in range(TRIES):
                try:
                    return await self._embed_all()
                except IndexRebuilt as error:
                    last = error
                    await self._indexer.update()
            raise DamagedAgain(last)

    async def _embed_all(self) -> None:
        while await self._embed_some():
            pass
        provider, limit = self._provider(), self._keys().cache
        identity = identity_of(provider) if provider else None
        self._indexer.report(vector_problem=self._describe_failed_texts(identity))
        await self._indexer.write(lambda index: index.trim_cache(identity, limit))
        self.not_stored = ""

    async def _embed_some(self) -> bool:
        """Embed some chunks, the newest first; return False if there are none."""
        provider, write = self._provider(), self._indexer.write
        if provider is None or not await write(lambda index: index.searches_vectors):
            return False
        identity = identity_of(provider)
        await self._indexer.count()
        if not self._indexer.state.unembedded:
            return False
        unembedded = await write(lambda index: index.unembedded(identity, AHEAD))
        texts = {digest: text for digest, text in unembedded.items() if (identity, digest) not in self._failed_texts}
        if texts and not identity.dimensions:
            await self.embed([PLAIN], "query")  # determines the dimensions, which identify the vectors
            return True
        for batch in _batches(texts):
            await self._embed_batch(batch)
        return bool(texts)

    async def _embed_batch(self, batch: Mapping[str, str]) -> None:
        identity, vectors = await self._vectors_of(batch)
        await self._indexer.write(lambda index: index.store_vectors(identity, vectors))
        left = max(0, self._indexer.state.unembedded - len(vectors))
        self._indexer.report(unembedded=left, vector_problem=self._describe_failed_texts(identity))

    async def embed(self, texts: list[str], purpose: Purpose) -> tuple[Identity, Vectors]:
        """Embed texts with the current provider, and return its identity and the vectors.

        Raises:
            ProviderError: The provider failed; BadRequest if a text is too long however it is split, never ContextOverflow.
        """
        with self._in_use():
            if (provider := self._provider()) is None:
                raise Unreachable("There is no embedding provider any more.")
            try:
                vectors = await self._limits_for(provider).embed(texts, lambda some: _embed(provider, some, purpose))
            except (BadRequest, BadAnswer):
                raise  # may be caused by the texts
            except ProviderError as error:
                self._log_failure(reason_of(error))
                raise
            self._log_failure("")
            identity = identity_of(provider)
            self._counted(purpose, provider, sum(map(estimate, texts)))
            return identity, vectors

    def _limits_for(self, provider: EmbeddingProvider) -> BatchLimits:
        """Return the configured and observed limits of a provider."""
        keys = self._keys()
        of = (provider, keys.batch_size or REQUEST_TEXTS, keys.max_input_length or 0)
        if of != self._limits_of:
            self._limits_of = of
            self._limits = BatchLimits(most=of[1], characters=of[2], may_be_too_large=_is_too_large)
        return self._limits

    def _log_failure(self, failing: str) -> None:
        """Log once that embedding fails, and once that it works again."""
        if failing and failing != self.failing:
            log.warning("embedding_failed", reason=failing, until_then="no notes are compared by vectors")
        elif self.failing and not failing:
            log.info("embedding_works_again")
        self.failing = failing

    # --- texts that cannot be embedded --------------------------------------------------------------------------------

    async def _vectors_of(self, batch: Mapping[str, str]) -> tuple[Identity, dict[str, Sequence[float]]]:
        """Return vectors by digest, without texts that cannot be embedded.

        Raises:
            ProviderError: The provider failed for another reason than the texts.
        """
        try:
            identity, vectors = await self.embed(list(batch.values()), "note")
        except (BadRequest, BadAnswer):
            return await self._one_by_one(batch)
        return identity, dict(zip(batch, vectors, strict=True))

    async def _one_by_one(self, batch: Mapping[str, str]) -> tuple[Identity, dict[str, Sequence[float]]]:
        identity, _ = await self.embed([PLAIN], "note")
        found: dict[str, Sequence[float]] = {}
        for digest, text in batch.items():
            try:
                identity, (found[digest],) = await self.embed([text], "note")
            except (BadRequest, BadAnswer) as error:
                self._failed_texts[identity, digest] = reason_of(error)
                log.warning("text_without_vector", text=text.partition("\n")[0], reason=reason_of(error))
        return identity, found

    def _describe_failed_texts(self, identity: Identity | None) -> str:
        """Return how many texts failed and why the last one did, "" for none."""
        reasons = [reason for (of, _), reason in self._failed_texts.items() if of == identity]
        if not reasons:
            return ""
        return f"{len(reasons)} text{'s' * (len(reasons) > 1)} cannot be embedded, the last one because: {reasons[-1]}"


def reason_of(error: ProviderError) -> str:
    """Return the message of an error as one bounded line, since a third-party provider may write anything into it."""
    return error_text(error) or type(error).__name__


async def _embed(provider: EmbeddingProvider, texts: Sequence[str], purpose: Purpose) -> list[Vector]:
    vectors = await provider.embed(texts, purpose)
    if len(vectors) != len(texts):
        raise BadAnswer(f"{provider.name} gave {len(vectors)} vectors for {len(texts)} texts.")
    return [list(vector) for vector in vectors]


def _is_too_large(error: ProviderError) -> bool:
    # Built-in providers already retry with less if the reason is unclear.
    return isinstance(error, ContextOverflow)


def _batches(texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    left = list(texts.items())
    yield from (dict(left[at : at + BATCH]) for at in range(0, len(left), BATCH))

"""Conformance checks for embedding providers. Inherit a class in a test module, and set the provider:

    class TestMine(HostedEmbeddingConformance):
        provider = Mine
        server = MyServer

`EmbeddingProviderConformance` is for models that run in this process. `HostedEmbeddingConformance` adds checks for
hosted services; `server` is a fake of the service.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from operator import mul
from pathlib import Path
from typing import Any, ClassVar

from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory_settings import EmbeddingKeys
from plugins.host import validation
from plugins.http.client import Timeouts
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    NoSuchModel,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.secrets import Secret
from plugins.testing.checks import check, check_sentence, error_of
from plugins.testing.contexts import NORMAL, SHORT, make_provider_context
from plugins.testing.servers.embedding_server import EmbeddingBehavior, EmbeddingServer
from plugins.testing.servers.faulty_server import Fault

TEXTS = (
    "The door code is 4711.",
    "We fly to Lisbon on Friday.",
    "Die Krankenversicherungskarte liegt im Schrank.",
    "我们决定使用数据库分片",
    "tea, and nobody likes it with milk",
)

ODD = (
    "😀👩‍👩‍👧 e\u0301 \u202eabc",
    "two\nlines\tand a tab",
    "<script>'; DROP TABLE notes; --",
    "half of a pair: \ud83d",
    "\x00\x1b[31m",
    "word " * 1000,
)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine similarity of two vectors."""
    lengths = math.sqrt(sum(map(mul, one, one)) * sum(map(mul, other, other)))
    return float(sum(map(mul, one, other)) / lengths)


def _turned_round(answer: Any) -> Any:
    """Reverse every list of the answer whose entries have their index in a field."""
    match answer:
        case dict():
            return {name: _turned_round(inner) for name, inner in answer.items()}
        case [{**first}, {}, *_] if any(all(entry.get(name) == at for at, entry in enumerate(answer)) for name in first):
            return answer[::-1]
    return answer


class EmbeddingProviderConformance:
    """Checks for any embedding provider."""

    provider: ClassVar[type[EmbeddingProvider]]

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[EmbeddingProvider]:
        """Open the provider."""
        settings = EmbeddingKeys(provider=self.provider.name)
        async with make_provider_context(folder, settings) as context, self.provider(context) as provider:
            yield provider

    @check
    async def test_its_class_is_valid(self) -> None:
        """Fix what the message names: the class needs a `name` of lower-case letters, digits and _, and every method of
        `EmbeddingProvider`, async where it is async there."""
        assert validation.embedding_provider(self.provider) == self.provider.name

    @check
    async def test_it_reports_its_model(self, tmp_path: Path) -> None:
        """`model()` returns the model's name, or None if the provider is not available; `explain_default()` the end of a
        sentence, such as "ACME_API_KEY is set". Neither sends a request or reads a file: do that in `__aenter__`."""
        async with self.opened(tmp_path) as provider:
            assert isinstance(provider.model(), str), f"model() is {provider.model()!r} although the provider is available."
            check_sentence(provider.explain_default())

    @check
    async def test_vectors_are_in_the_order_of_texts(self, tmp_path: Path) -> None:
        """Return one vector for each text, in the order of the texts. If the server sends an index with each vector,
        sort by it."""
        async with self.opened(tmp_path) as provider:
            together = await provider.embed(TEXTS, "note")
            assert len(together) == len(TEXTS), f"{len(together)} vectors for {len(TEXTS)} texts."
            for text, vector in zip(TEXTS, together, strict=True):
                (alone,) = await provider.embed([text], "note")
                likeness = cosine(alone, vector)
                assert likeness > 0.98, (
                    f"The vector of {text!r} depends on the other texts of the request (cosine {likeness:.2f})."
                )

    @check
    async def test_vectors_are_finite_and_of_equal_length(self, tmp_path: Path) -> None:
        """All vectors have `dimensions()` numbers. Raise BadAnswer for vectors with NaN or infinity or with zeros only.
        `dimensions()` may be 0 before the first answer, but not after it."""
        async with self.opened(tmp_path) as provider:
            promised = provider.dimensions()
            vectors = [*await provider.embed(TEXTS, "note"), *await provider.embed(TEXTS[:1], "query")]
            assert promised in (0, provider.dimensions()), f"dimensions() was {promised}, and is {provider.dimensions()}."
            for vector in vectors:
                assert len(vector) == provider.dimensions(), f"{len(vector)} numbers, and dimensions() says otherwise."
                assert all(math.isfinite(number) for number in vector), "A number is not finite."
                assert any(vector), "A vector is all zeros."

    @check
    async def test_no_texts_return_no_vectors(self, tmp_path: Path) -> None:
        """Return an empty list for no texts, without a request."""
        async with self.opened(tmp_path) as provider:
            assert list(await provider.embed([], "note")) == []

    @check
    async def test_unusual_texts_are_embedded_or_refused(self, tmp_path: Path) -> None:
        """Notes contain anything: emoji, control characters, half of a surrogate pair, thousands of words in a row.
        Return a vector of the whole text or raise a ProviderError, and nothing else. Replace what JSON cannot encode:
        `text.encode("utf-8", "replace").decode()`."""
        async with self.opened(tmp_path) as provider:
            for text in ODD:
                try:
                    assert len(await provider.embed([text], "note")) == 1
                except ProviderError as error:
                    check_sentence(str(error))

    @check
    async def test_concurrent_requests_are_not_mixed_up(self, tmp_path: Path) -> None:
        """One provider serves everybody at the same time: keep nothing about a request on `self`."""
        async with self.opened(tmp_path) as provider:
            first, second = await asyncio.gather(provider.embed(TEXTS, "note"), provider.embed(TEXTS[::-1], "note"))
            for one, other in zip(first, reversed(second), strict=True):
                assert cosine(one, other) > 0.98, "Two simultaneous requests received each other's vectors."

    @check
    async def test_it_can_be_cancelled(self, tmp_path: Path) -> None:
        """`embed` may be cancelled at any await. Do not catch CancelledError, and leave the provider usable."""
        async with self.opened(tmp_path) as provider:
            for steps in (1, 2, 5, 20):
                asking = asyncio.create_task(provider.embed(TEXTS, "note"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                if asking.cancel():
                    await asyncio.wait([asking])
                    assert asking.cancelled(), "It continued after it was cancelled: something catches CancelledError."
                assert len(await provider.embed(TEXTS[:1], "query")) == 1


class HostedEmbeddingConformance(EmbeddingProviderConformance):
    """Checks for the provider of a hosted service.

    Attributes:
        server: A fake of the service.
        variable: The environment variable that holds the key; "" if there is none.
        shortens: The provider sends `memory.embedding.dimensions` to the service.
    """

    server: ClassVar[type[EmbeddingServer]] = EmbeddingServer
    variable: ClassVar[str] = ""
    shortens: ClassVar[bool] = False

    def settings(self, url: str, **more: Any) -> EmbeddingKeys:
        """Return `[memory.embedding]` for the service at this address."""
        said = {"provider": self.provider.name, "base_url": url, "api_key": Secret(self.server.KEY), **more}
        return EmbeddingKeys(**{"model": self.server.MODEL, **said})

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[EmbeddingProvider]:
        """Open the provider, with a fake that answers."""
        async with self.asking(folder) as (provider, _):
            yield provider

    @asynccontextmanager
    async def asking(
        self, folder: Path, *answers: Any, timeouts: Timeouts = NORMAL, **more: Any
    ) -> AsyncIterator[tuple[EmbeddingProvider, EmbeddingServer]]:
        """Open the provider, with further settings `more`, and a fake that gives these answers."""
        async with (
            self.server(*answers).serving() as server,
            make_provider_context(folder, self.settings(server.url, **more), timeouts=timeouts) as context,
            self.provider(context) as provider,
        ):
            yield provider, server

    @check
    async def test_opening_sends_no_request(self, tmp_path: Path) -> None:
        """Every provider is opened at each start, even if nobody uses it: send nothing before the first `embed`."""
        async with self.asking(tmp_path) as (provider, server):
            provider.model(), provider.explain_default(), provider.dimensions()
            assert not server.paths, "It asked the service before the first text."
            assert not server.asked_lists, "It asked for the list of models before the first text."

    @check
    async def test_a_missing_key_is_reported(self, tmp_path: Path) -> None:
        """Without a key and an address `model()` is None, and `explain_default()` names the missing variable or setting."""
        settings = EmbeddingKeys(provider="none")
        async with make_provider_context(tmp_path, settings) as context, self.provider(context) as provider:
            assert provider.model() is None, f"model() is {provider.model()!r} although nothing is configured."
            check_sentence(provider.explain_default())
            wanted = self.variable or "api_key"
            assert wanted in provider.explain_default(), (
                f"explain_default() does not name {wanted}: {provider.explain_default()!r}"
            )

    @check
    async def test_the_key_is_read_from_the_environment(self, tmp_path: Path) -> None:
        """Read the variable from `context.environment`, never from `os.environ`."""
        environment = {self.variable: self.server.KEY} if self.variable else {}
        async with (
            make_provider_context(tmp_path, EmbeddingKeys(), environment=environment) as context,
            self.provider(context) as provider,
        ):
            assert (provider.model() is not None) == bool(self.variable), f"{self.variable} makes no difference."

    @check
    async def test_an_invalid_key_is_reported_but_not_shown(self, tmp_path: Path) -> None:
        """Raise CredentialsRefused for 401 and 403. Its message names the setting that holds the key, not the key."""
        wrong = "a-wrong-key-9876543210"
        async with self.asking(tmp_path, api_key=Secret(wrong)) as (provider, _):
            await error_of(provider.embed(TEXTS, "note"), CredentialsRefused, secret=wrong)

    @check
    async def test_each_error_status_is_translated(self, tmp_path: Path) -> None:
        """`context.transport` raises StatusRefused with `status` and `body`: raise a specific error instead. 401 and 403
        are CredentialsRefused, 404 NoSuchModel, 429 RateLimited, 400 BadRequest (or ContextOverflow if too much was
        sent), 500 and above Unreachable."""
        for status, meant in (
            (400, (BadRequest, ContextOverflow)),
            (401, (CredentialsRefused,)),
            (403, (CredentialsRefused,)),
            (404, (NoSuchModel,)),
            (429, (RateLimited,)),
            (500, (Unreachable,)),
            (503, (Unreachable,)),
        ):
            async with self.asking(tmp_path) as (provider, server):
                server.now_says(Fault(status=status, body=server.refusal(status, "It is so.")))
                await error_of(provider.embed(TEXTS[:1], "note"), *meant, secret=server.KEY)

    @check
    async def test_retry_after_is_passed_on(self, tmp_path: Path) -> None:
        """Set `RateLimited.retry_after`, in seconds, to that of the StatusRefused."""
        async with self.asking(tmp_path, Fault(status=429, headers={"Retry-After": "3600"})) as (provider, _):
            error = await error_of(provider.embed(TEXTS, "note"), RateLimited)
            assert error.retry_after == 3600, f"retry_after is {error.retry_after}, and the service asked for 3600."

    @check
    async def test_invalid_vectors_are_rejected(self, tmp_path: Path) -> None:
        """Check the number of vectors and their values: too few or too many, different lengths, zeros only, NaN and null
        are a BadAnswer. A wrong vector would stay in the index for years."""
        changes = {
            "one too few": lambda vectors: vectors[:-1],
            "one too many": lambda vectors: [*vectors, vectors[0]],
            "none": lambda _: [],
            "zeros": lambda vectors: [*vectors[:-1], [0.0] * len(vectors[-1])],
            "another length": lambda vectors: [*vectors[:-1], [*vectors[-1], 0.5]],
            "not a number": lambda vectors: [*vectors[:-1], [float("nan")] * len(vectors[-1])],
            "null": lambda vectors: [*vectors[:-1], [None] * len(vectors[-1])],
            "text": lambda vectors: [*vectors[:-1], "AACAPwAAgD8="],
        }
        for what, change in changes.items():
            async with self.asking(tmp_path, EmbeddingBehavior(change)) as (provider, _):
                try:
                    await error_of(provider.embed(TEXTS[:3], "note"), BadAnswer)
                except AssertionError as failed:
                    raise AssertionError(f"Invalid vectors ({what}): {failed}") from failed

    @check
    async def test_vectors_are_sorted_by_index(self, tmp_path: Path) -> None:
        """If the service sends an index with each vector, sort by it: they may arrive in any order, and the vector of
        another text would stay in the index for years."""
        async with self.asking(tmp_path, EmbeddingBehavior(wrap=_turned_round)) as (provider, _):
            await self._are_own_vectors(provider, TEXTS, await provider.embed(TEXTS, "note"))

    @check
    async def test_the_purpose_is_sent(self, tmp_path: Path) -> None:
        """`embed` receives the purpose of its texts, "note" or "query": send the service's name for it. Queries that are
        embedded as notes find less."""
        if not self.server.PURPOSES:
            return
        async with self.asking(tmp_path) as (provider, server):
            for purpose in ("note", "query"):
                await provider.embed(TEXTS[:1], purpose)
                said, meant = server.purposes[-1], server.PURPOSES[purpose]
                assert said == meant, f"A {purpose} is sent as {said!r}, and the service calls it {meant!r}."

    @check
    async def test_the_configured_dimensions_are_requested(self, tmp_path: Path) -> None:
        """If `shortens` is set, send `context.settings.dimensions` to the service, unless it is None."""
        if not self.shortens:
            return
        async with self.asking(tmp_path, dimensions=64) as (provider, server):
            (vector,) = await provider.embed(TEXTS[:1], "note")
            asked = server.wanted(server.requests[-1])
            assert (asked, len(vector)) == (64, 64), f"{asked} dimensions were requested, but 64 are configured."

    @check
    async def test_an_html_page_is_a_bad_answer(self, tmp_path: Path) -> None:
        """Proxies and captive portals answer 200 with a page. Anything other than the service's JSON is a BadAnswer;
        `msgspec.json.decode(answer, type=...)` with `except msgspec.MsgspecError` detects it."""
        for media, body in (
            ("text/html", b"<html><h1>Sign in to this network</h1></html>"),
            ("application/json", b""),
            ("application/json", b"[" * 100_000),
            ("application/json", b'{"nothing": "of it"}'),
            ("application/json", b"\xff\xfe"),
        ):
            async with self.asking(tmp_path, Fault(media=media, body=body)) as (provider, _):
                await error_of(provider.embed(TEXTS[:1], "note"), BadAnswer)

    @check
    async def test_a_truncated_answer_is_rejected(self, tmp_path: Path) -> None:
        """A connection that closes early raises StreamCut; an incomplete answer is a BadAnswer. Do not repair it."""
        for end in ("cut", "reset", "hang"):
            async with self.asking(tmp_path, Fault(end=end, pieces=2), timeouts=SHORT) as (provider, _):
                await error_of(provider.embed(TEXTS, "note"), StreamCut, BadAnswer)

    @check
    async def test_an_unresponsive_service_is_unreachable(self, tmp_path: Path) -> None:
        """Use `context.transport`, which has timeouts, and do not catch its Unreachable."""
        async with self.asking(tmp_path, Fault(end="silence"), timeouts=SHORT) as (provider, server):
            await error_of(provider.embed(TEXTS[:1], "query"), Unreachable)
        async with make_provider_context(tmp_path, self.settings(server.url)) as context, self.provider(context) as provider:
            await error_of(provider.embed(TEXTS[:1], "query"), Unreachable)

    @check
    async def test_large_batches_are_split_or_refused(self, tmp_path: Path) -> None:
        """If the service accepts only few texts at once, send several requests, so that each text has its own vector. A
        ProviderError is allowed too; a missing text is not."""
        texts = [f"text number {number}" for number in range(20)]
        async with self.asking(tmp_path) as (provider, server):
            server.most = 7
            try:
                vectors = await provider.embed(texts, "note")
            except ProviderError as error:
                check_sentence(str(error))
                return
            assert len(vectors) == len(texts)
            await self._are_own_vectors(provider, texts, vectors)

    @check
    async def test_long_texts_are_not_truncated(self, tmp_path: Path) -> None:
        """Send a long text in pieces and combine their vectors, or raise the service's error. With a vector of only the
        beginning the rest would never be found. Disable truncation if the service does it."""
        text = " ".join(f"word{number}" for number in range(400))
        async with self.asking(tmp_path) as (provider, server):
            server.tokens = 200
            try:
                await provider.embed([text], "note")
            except ProviderError as error:
                check_sentence(str(error))
                return
            sent = "".join(piece for texts in server.taken for piece in texts).replace(" ", "")
            missing = [word for word in text.split() if word not in sent]
            assert not missing, f"{len(missing)} of 400 words were never sent, {missing[0]} first."

    async def _are_own_vectors(
        self, provider: EmbeddingProvider, texts: Sequence[str], vectors: Sequence[Sequence[float]]
    ) -> None:
        for place in (0, len(texts) // 2, len(texts) - 1):
            (alone,) = await provider.embed([texts[place]], "note")
            assert cosine(alone, vectors[place]) > 0.98, f"The vector of text {place + 1} of {len(texts)} is another's."

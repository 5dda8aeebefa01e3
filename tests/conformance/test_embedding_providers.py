"""The kit for embedding providers: the built-ins pass, and a provider that is broken in one way fails the check for it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from exuvia import EmbeddingProviderConformance, EmbeddingServer, HostedEmbeddingConformance, ProviderContext, Purpose
from plugins.providers.gemini.embeddings import GeminiEmbeddings
from plugins.providers.hosted.accounts import Account, find_account
from plugins.providers.local.embeddings import LocalEmbeddings
from plugins.providers.ollama.embeddings import OllamaEmbeddings
from plugins.providers.openai.embeddings import MistralEmbeddings, OpenAIEmbeddings, VoyageEmbeddings
from plugins.support.errors import BadAnswer, CredentialsRefused, ProviderError, StreamCut, Unreachable
from tests.conformance.biting import bites, checks_of
from tests.servers import embedding_vendors as vendors

# --- the built-ins ----------------------------------------------------------------------------------------------------


class TestLocal(EmbeddingProviderConformance):
    provider = LocalEmbeddings


class TestOpenAI(HostedEmbeddingConformance):
    provider = OpenAIEmbeddings
    server = vendors.OpenAIEmbeddingServer
    variable = "OPENAI_API_KEY"
    shortens = True


class TestVoyage(HostedEmbeddingConformance):
    provider = VoyageEmbeddings
    server = vendors.VoyageEmbeddingServer
    variable = "VOYAGE_API_KEY"


class TestMistral(HostedEmbeddingConformance):
    provider = MistralEmbeddings
    server = vendors.MistralEmbeddingServer
    variable = "MISTRAL_API_KEY"


class TestGemini(HostedEmbeddingConformance):
    provider = GeminiEmbeddings
    server = vendors.GeminiEmbeddingServer
    variable = "GEMINI_API_KEY"


class TestOllama(HostedEmbeddingConformance):
    provider = OllamaEmbeddings
    server = vendors.OllamaEmbeddingServer


# --- broken ones ------------------------------------------------------------------------------------------------------


class Sound(OpenAIEmbeddings):
    """A provider of a service like OpenAI, in which nothing is wrong."""

    name: ClassVar[str] = "sound"
    DEFAULT_MODEL: ClassVar[str] = "test-model"

    def account(self, context: ProviderContext) -> Account:
        return find_account(context, self.name, default="https://sound.example/v1", variable="SOUND_API_KEY")

    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        return {**super().body(model, texts, purpose, dimensions), "input_type": self.called(purpose)}

    def called(self, purpose: Purpose) -> str:
        return {"note": "document", "query": "query"}[purpose]


Vectors = Sequence[Sequence[float]]


class Misnamed(Sound):
    name: ClassVar[str] = "Sound, Inc."


class Wordy(Sound):
    def explain_default(self) -> str:
        return "the key is set\nand all is well"


class Backwards(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        return list(reversed(await super().embed(texts, purpose)))


class Vague(Sound):
    def dimensions(self) -> int:
        return 7


class Sure(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        texts[0]
        return await super().embed(texts, purpose)


class Strict(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        for text in texts:
            text.encode()
        return await super().embed(texts, purpose)


class Forgetful(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        self._texts = texts
        await asyncio.sleep(0)
        return await super().embed(self._texts, purpose)


class Stubborn(Sound):
    busy = False

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        if self.busy:
            raise Unreachable("It is busy.")
        self.busy = True
        vectors = await super().embed(texts, purpose)
        self.busy = False
        return vectors


class Curious(Sound):
    async def __aenter__(self) -> Self:
        await self._transport.get(f"{self._account.base}/models", headers=self._account.headers(self.header))
        return self


class Careless(Sound):
    def model(self) -> str | None:
        return self.DEFAULT_MODEL


class Worldly(Sound):
    def model(self) -> str | None:
        return self.DEFAULT_MODEL if os.environ.get("SOUND_API_KEY") else None


class Telling(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        try:
            return await super().embed(texts, purpose)
        except CredentialsRefused as error:
            raise CredentialsRefused(f"The key {self._account.key} is wrong.") from error


class Dull(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        try:
            return await super().embed(texts, purpose)
        except ProviderError as error:
            raise BadAnswer("It did not work.") from error


class Impatient(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        try:
            return await super().embed(texts, purpose)
        except ProviderError as error:
            error.retry_after = None
            raise


class Trusting(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        body = json.dumps({"model": self.DEFAULT_MODEL, "input": list(texts)}).encode()
        headers = self._account.headers(self.header)
        answer = await self._transport.post(self.url(self._account.base, self.DEFAULT_MODEL), headers=headers, body=body)
        return [entry["embedding"] for entry in json.loads(answer)["data"]]


class Hopeful(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        try:
            return await super().embed(texts, purpose)
        except StreamCut:
            return [[1.0] * 8 for _ in texts]


class Raw(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        try:
            return await super().embed(texts, purpose)
        except Unreachable as error:
            raise OSError("no route to host") from error


class Lazy(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        return await super().embed(texts[:7], purpose)


class Cutting(Sound):
    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        return await super().embed([text[:600] for text in texts], purpose)


class Unsorted(Sound):
    def vectors(self, answer: Any) -> list[list[float]]:
        return [entry.embedding for entry in answer.data]


class Wide(Sound):
    def requested_dimensions(self) -> int | None:
        return None


class Purposeless(Sound):
    def called(self, purpose: Purpose) -> str:
        return "document"


class SoundServer(EmbeddingServer):
    PURPOSES: ClassVar[dict[str, Any]] = {"note": "document", "query": "query"}


class SoundCase(HostedEmbeddingConformance):
    """Not collected: its name does not begin with Test."""

    server = SoundServer
    shortens = True
    variable = "SOUND_API_KEY"


BROKEN: dict[str, type[Sound]] = {
    "test_its_class_is_valid": Misnamed,
    "test_it_reports_its_model": Wordy,
    "test_vectors_are_in_the_order_of_texts": Backwards,
    "test_vectors_are_finite_and_of_equal_length": Vague,
    "test_no_texts_return_no_vectors": Sure,
    "test_unusual_texts_are_embedded_or_refused": Strict,
    "test_concurrent_requests_are_not_mixed_up": Forgetful,
    "test_it_can_be_cancelled": Stubborn,
    "test_opening_sends_no_request": Curious,
    "test_a_missing_key_is_reported": Careless,
    "test_the_key_is_read_from_the_environment": Worldly,
    "test_an_invalid_key_is_reported_but_not_shown": Telling,
    "test_each_error_status_is_translated": Dull,
    "test_retry_after_is_passed_on": Impatient,
    "test_invalid_vectors_are_rejected": Trusting,
    "test_vectors_are_sorted_by_index": Unsorted,
    "test_the_purpose_is_sent": Purposeless,
    "test_the_configured_dimensions_are_requested": Wide,
    "test_an_html_page_is_a_bad_answer": Trusting,
    "test_a_truncated_answer_is_rejected": Hopeful,
    "test_an_unresponsive_service_is_unreachable": Raw,
    "test_large_batches_are_split_or_refused": Lazy,
    "test_long_texts_are_not_truncated": Cutting,
}


def test_every_check_has_a_provider_that_fails_it() -> None:
    assert set(BROKEN) == checks_of(HostedEmbeddingConformance)


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_provider_fails_the_check_for_it_and_a_correct_one_does_not(check: str, tmp_path: Path) -> None:
    bites(SoundCase, check, {"provider": Sound}, {"provider": BROKEN[check]}, tmp_path)

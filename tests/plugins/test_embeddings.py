"""Embedding providers: whose key goes where, who is chosen, what is known of models, and how texts are laid out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.api.context import ProviderAccount, ProviderContext
from plugins.api.memory_settings import EmbeddingKeys, MemoryKeys
from plugins.host.loading import load_plugins
from plugins.memory.memory import Memory
from plugins.providers.hosted.batch_limits import MIN_PIECE, BatchLimits, batches, mean_vector, pieces
from plugins.providers.hosted.known_models import known_model
from plugins.support.errors import BadAnswer, BadRequest, ContextOverflow, CredentialsRefused
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret
from plugins.support.vector_checks import Vector, checked, in_order
from plugins.testing.contexts import ManualClock
from plugins.testing.servers.embedding_server import EmbeddingBehavior, vector_of
from sessions.events.tokens import estimate
from tests.plugins.embedding_vendors import GEMINI, MISTRAL, OLLAMA, OPENAI, VENDORS, VOYAGE, Vendor

VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "voyage": "VOYAGE_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "ollama": "OLLAMA_API_KEY",
}
ALL_KEYS = {variable: f"key-of-{name}" for name, variable in VARIABLES.items()}


def context(settings: EmbeddingKeys, environment: dict[str, str], account: ProviderAccount | None = None) -> ProviderContext:
    return ProviderContext(
        account=account or ProviderAccount(),
        settings=settings,
        folder=Path("unused"),
        workspace=Path("unused"),
        clock=ManualClock(),
        transport=cast(Any, None),
        environment=environment,
    )


def chosen(environment: dict[str, str], *, installed: bool = False, **settings: Any) -> str | None:
    """Who makes the vectors, as `provider:model`."""
    keys = EmbeddingKeys(**settings)
    kinds = load_plugins(()).embedding_providers()
    providers = {name: kind(context(keys.for_provider(name), environment)) for name, kind in kinds.items()}
    if not installed:
        del providers["local"]
    memory = Memory(
        Path("unused"),
        [],
        keys=lambda: MemoryKeys(embedding=keys),
        providers=providers,
        today=cast(Any, None),
    )
    found = memory.provider()
    return f"{found.name}:{found.model()}" if found else None


# --- who is chosen ----------------------------------------------------------------------------------------------------


def test_without_a_key_the_bundled_model_is_chosen_or_none() -> None:
    assert chosen({}) is None
    assert chosen({"OLLAMA_HOST": "127.0.0.1", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}) is None
    assert str(chosen(ALL_KEYS, installed=True)).startswith("local:")


def test_keys_are_tried_in_the_documented_order() -> None:
    keys = dict(ALL_KEYS)
    for name, model in [
        ("openai", "text-embedding-3-small"),
        ("gemini", "gemini-embedding-001"),
        ("voyage", "voyage-4-large"),
        ("mistral", "mistral-embed"),
    ]:
        assert chosen(keys) == f"{name}:{model}"
        del keys[VARIABLES[name]]
    assert chosen(keys) is None, "ollama is never chosen by itself"


def test_a_configured_provider_is_used_or_none() -> None:
    assert chosen(ALL_KEYS, provider="mistral") == "mistral:mistral-embed"
    assert chosen(ALL_KEYS, provider="voyage", model="voyage-4") == "voyage:voyage-4"
    assert chosen({}, provider="ollama") == "ollama:nomic-embed-text"
    assert chosen({"OPENAI_API_KEY": "k"}, provider="gemini") is None
    assert chosen(ALL_KEYS, provider="none") is None


def test_an_account_without_a_provider_is_openai_compatible() -> None:
    account = {"base_url": "http://127.0.0.1:9/v1", "model": "bge-m3"}
    assert chosen(ALL_KEYS, installed=True, **account) == "openai:bge-m3"
    assert chosen({}, api_key=Secret("k")) == "openai:text-embedding-3-small"


def test_the_explanation_names_the_key_or_what_is_missing() -> None:
    kinds = load_plugins(()).embedding_providers()
    for name, variable in VARIABLES.items():
        assert kinds[name](context(EmbeddingKeys(), ALL_KEYS)).explain_default() == f"{variable} is set"
        if name != "ollama":
            missing = kinds[name](context(EmbeddingKeys(provider=name), {})).explain_default()
            assert missing == f"neither {variable} nor memory.embedding.api_key is set"


# --- whose key goes where ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", [pytest.param(vendor, id=vendor.name) for vendor in VENDORS])
async def test_a_vendors_key_is_never_sent_to_another_address(vendor: Vendor) -> None:
    async with vendor.server().serving() as server:
        async with vendor.asking(server.url, api_key=None, environment=dict(ALL_KEYS)) as client:
            with pytest.raises(CredentialsRefused, match="A request without a key was refused"):
                await client.embed()
        (headers,) = server.headers
        assert not [value for value in headers.values() if "key-of-" in value]


@pytest.mark.parametrize(("vendor", "variable"), [(OPENAI, "OPENAI_BASE_URL"), (OLLAMA, "OLLAMA_HOST")])
async def test_an_address_in_the_environment_has_the_key_in_the_environment(vendor: Vendor, variable: str) -> None:
    async with vendor.server().serving() as server:
        environment = {variable: f"{server.url}/", VARIABLES[vendor.name]: vendor.server.KEY}
        async with vendor.asking(server.url, base_url=None, api_key=None, environment=environment) as client:
            assert len(await client.embed()) == 3


async def test_the_account_of_a_chat_provider_is_used_only_at_its_address() -> None:
    async with OPENAI.server().serving() as server, OPENAI.server().serving() as another:
        account = ProviderAccount(api_key=(Secret(server.KEY), Secret("second")), base_url=f"{server.url}/")
        async with OPENAI.asking("", base_url=None, api_key=None, account=account) as client:
            assert client.provider.explain_default() == "providers.openai.api_key is set"
            assert len(await client.embed()) == 3
        async with OPENAI.asking(another.url, api_key=None, account=account) as client:
            with pytest.raises(CredentialsRefused, match="A request without a key"):
                await client.embed()
        assert "Authorization" not in another.headers[0]


def test_the_key_of_the_vendor_itself_does_not_follow_a_chat_provider_to_another_address() -> None:
    elsewhere = ProviderAccount(base_url="https://openai.example.org/v1")
    provider = OPENAI.kind(context(EmbeddingKeys(), ALL_KEYS, elsewhere))
    assert (provider.model(), provider.explain_default()) == (None, "memory.embedding.api_key is not set")


async def test_a_provider_without_a_key_sends_no_request_to_its_vendor() -> None:
    for vendor in (OPENAI, GEMINI, VOYAGE, MISTRAL):
        async with vendor.asking("", base_url=None, api_key=None) as client:
            assert client.provider.model() is None
            with pytest.raises(CredentialsRefused, match=r"neither \w+_API_KEY nor memory\.embedding\.api_key is set"):
                await client.embed()


async def test_another_server_needs_no_key() -> None:
    async with OLLAMA.server().serving() as server, OLLAMA.asking(server.url, api_key=None) as client:
        setattr(server, "key_refused", lambda _: None)  # noqa: B010 - so that the types need no word
        assert len(await client.embed()) == 3
        assert "Authorization" not in server.headers[0]


# --- each vendor's own ------------------------------------------------------------------------------------------------


async def test_dimensions_have_each_vendors_name_and_are_sent_only_if_configured() -> None:
    for vendor, field in ((OPENAI, "dimensions"), (VOYAGE, "output_dimension"), (OLLAMA, "dimensions")):
        async with vendor.serving(dimensions=512) as (client, server):
            assert {len(vector) for vector in await client.embed()} == {512} == {client.provider.dimensions()}
            assert server.requests[0][field] == 512
        async with vendor.serving() as (client, server):
            await client.embed()
            assert field not in server.requests[0]


async def test_gemini_is_asked_for_shortened_vectors_which_are_normalized() -> None:
    async with GEMINI.serving() as (client, server):
        vectors = await client.embed()
        assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1.0] * 3)
        assert {len(vector) for vector in vectors} == {768}
        assert server.paths[0] == "/v1beta/models/gemini-embedding-001:batchEmbedContents"


async def test_geminis_second_generation_gets_the_purpose_as_a_prefix() -> None:
    async with GEMINI.serving(model="models/gemini-embedding-2") as (client, server):
        setattr(server, "MODEL", "gemini-embedding-2")  # noqa: B010 - so that the types need no word
        await client.embed("tea")
        await client.embed("tea?", purpose="query")
        assert server.purposes == [None, None]
        assert server.taken == [["title: none | text: tea"], ["task: search result | query: tea?"]]


async def test_texts_for_gemini_are_too_short_to_be_truncated() -> None:
    async with GEMINI.serving() as (client, server):
        await client.embed("é" * 20_000)
        assert max(estimate(text) for texts in server.taken for text in texts) < 0.6 * 2048


@pytest.mark.parametrize("vendor", [OPENAI, VOYAGE, MISTRAL], ids=lambda vendor: vendor.name)
async def test_vectors_are_sorted_by_their_index(vendor: Vendor) -> None:
    turned = EmbeddingBehavior(wrap=lambda answer: {**answer, "data": answer["data"][::-1]})
    async with vendor.serving(turned) as (client, _):
        assert list(await client.embed()) == [pytest.approx(vector_of(text, 8)) for text in ("one", "two", "three")]


@pytest.mark.parametrize("places", [[2, 1, 1], [0, 1, 3], [None, 1, 2], [-1, 0, 1]])
async def test_invalid_indexes_are_refused(places: list[int | None]) -> None:
    def moved(answer: dict[str, Any]) -> Any:
        return {"data": [{**entry, "index": place} for entry, place in zip(answer["data"], places, strict=True)]}

    async with OPENAI.serving(EmbeddingBehavior(wrap=moved)) as (client, _):
        with pytest.raises(BadAnswer, match="whose indexes do not match"):
            await client.embed()


async def test_without_indexes_the_order_of_the_vectors_is_kept() -> None:
    plain = EmbeddingBehavior(wrap=lambda answer: {"data": [{"embedding": entry["embedding"]} for entry in answer["data"]]})
    async with OPENAI.serving(plain) as (client, _):
        assert list(await client.embed()) == [pytest.approx(vector_of(text, 8)) for text in ("one", "two", "three")]


def test_known_models_are_found_under_the_names_of_servers() -> None:
    assert known_model("openai", "text-embedding-3-large").dimensions == 3072
    assert known_model("voyage", "voyage-4-large").total == 120_000
    assert known_model("voyage", "voyage-4-lite").total == 320_000
    nomic = known_model("openai", "nomic-ai/Nomic-Embed-Text-v1.5")
    assert (nomic.prefix("query"), nomic.prefix("note")) == ("search_query: ", "search_document: ")
    assert known_model("ollama", "embeddinggemma:latest").prefix("note") == "title: none | text: "
    assert known_model("openai", "something-else").dimensions == 0


async def test_a_change_of_the_model_during_two_requests_mixes_no_vectors() -> None:
    def shorter(vectors: list[Any]) -> list[Any]:
        return [vector[:3] for vector in vectors]

    slowly = EmbeddingBehavior(shorter)
    slowly.delay = 0.1
    async with OPENAI.serving(EmbeddingBehavior(), slowly, EmbeddingBehavior(shorter), batch_size=1) as (client, server):
        notes = asyncio.create_task(client.embed("one", "two"))
        while len(server.requests) < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(BadAnswer, match="vectors of 3 numbers instead of 8"):
            await client.embed("a question", purpose="query")
        with pytest.raises(BadAnswer, match="different lengths"):
            await notes


# --- how texts are laid out -------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=400)


@given(st.lists(TEXT, max_size=30), st.integers(1, 10), st.integers(0, 200))
def test_batches_contain_each_text_once_in_order_within_the_limits(texts: list[str], most: int, total: int) -> None:
    laid_out = list(batches(texts, most, total))
    assert [text for batch in laid_out for text in batch] == texts
    for batch in laid_out:
        assert 1 <= len(batch) <= most
        assert not total or len(batch) == 1 or sum(map(estimate, batch)) <= total


@given(TEXT, st.integers(1, 100))
def test_joined_pieces_are_the_text_and_each_fits_or_is_short(text: str, most: int) -> None:
    cut = pieces(text, lambda piece: len(piece) <= most)
    assert "".join(cut) == text
    assert all(len(piece) <= most or len(piece) < 2 * MIN_PIECE for piece in cut)


def test_texts_are_split_between_words() -> None:
    text = "the quick brown fox jumps over the lazy dog and then sleeps for a while under a tree"
    assert pieces(text, lambda piece: len(piece) <= 60) == [
        "the quick brown fox jumps over the lazy ",
        "dog and then sleeps for a while under a tree",
    ]


@given(st.lists(TEXT, max_size=12), st.integers(1, 8), st.integers(20, 200), st.integers(20, 300))
async def test_with_any_limits_each_text_gets_the_vector_of_its_whole_content(
    texts: list[str], most: int, longest: int, total: int
) -> None:
    seen: list[str] = []

    async def ask(asked: Sequence[str]) -> list[Vector]:
        if len(asked) > most:
            raise BadRequest("unknown words") from StatusRefused(400, b"unknown words")
        if max(map(len, asked)) > max(longest, 2 * MIN_PIECE) or (len(asked) > 1 and sum(map(len, asked)) > total):
            raise ContextOverflow("too much")
        seen.extend(asked)
        return [[1.0, float(len(text))] for text in asked]

    vectors = await BatchLimits(most=64).embed(texts, ask)
    assert len(vectors) == len(texts)
    assert "".join(seen) == "".join(texts)


def test_the_vector_of_a_split_text_is_the_mean_weighted_by_length() -> None:
    assert mean_vector([[1.0, 0.0], [0.0, 1.0]], ["a" * 30, "b" * 40]) == pytest.approx([0.6, 0.8])
    assert mean_vector([[0.0, 1.0]], ["all"]) == [0.0, 1.0]


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.lists(NUMBERS, max_size=4), max_size=4), st.integers(0, 4))
def test_checked_vectors_have_length_one_or_are_refused(vectors: list[Vector], count: int) -> None:
    try:
        kept = checked(vectors, count)
    except BadAnswer:
        return
    assert len(kept) == count
    assert [math.hypot(*vector) for vector in kept] == pytest.approx([1.0] * count, abs=2e-3)


@given(st.permutations(range(5)))
def test_vectors_are_put_in_order_by_any_permutation(places: list[int]) -> None:
    assert in_order([[float(place)] for place in places], places) == [[0.0], [1.0], [2.0], [3.0], [4.0]]

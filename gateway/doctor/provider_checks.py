"""Checks of models, providers, keys, the embedding provider, the memory backend and the search service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.config.keys import Config, check_embedding
from gateway.doctor.findings import DoctorContext, Finding, Level
from gateway.models.listings import Listing
from gateway.models.model_list_cache import read_model_lists
from gateway.models.providers import open_embeddings, open_temporarily, provider_contexts
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.plugin_runtime.plugin_loading import allowed_plugins
from gateway.support.errors import ConfigRefused, ModelUnknown, sentence_of
from plugins.api.chat import ChatProvider, ListsModels
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.memory_settings import NONE, SQLITE
from plugins.http.client import Timeouts, Transport
from plugins.memory.search.diagnostics import without_vectors
from plugins.support.errors import CredentialsRefused, NoSuchModel, ProviderError
from plugins.tools.web.search_services import SearchService
from plugins.tools.web.web_settings import SearchKeys
from sessions.catalog.sqlite import lacks_full_text

MISSING_FILE = "Put a model there, or remove memory.embedding.local_model_path; then restart the gateway."

BRIEF = Timeouts(connect=5.0, first=20.0, between=10.0, whole=30.0, attempts=1)
"""Short timeouts, since a person waits for the report."""


def models(context: DoctorContext) -> Iterator[Finding]:
    """Report problems of the model and of every configured provider.

    Unless offline, each provider is asked for its list of models, which is free.
    """
    if context.config is not None:
        yield from asyncio.run(_examine_models(context, context.config))


async def _examine_models(context: DoctorContext, config: Config) -> list[Finding]:
    reported, unusable = read_model_lists(context.home.models)
    async with open_temporarily(context.home, config, context.checked.kinds, context.environment, reported) as providers:
        models = ModelRegistry(providers, config.agent)
        findings = await check_models(providers, models, config, context.checked.kinds, offline=context.offline)
    notes = [Finding(unusable, "Run `exuvia models refresh` to rebuild it.", level="note")] if unusable else []
    return [*notes, *findings]


async def check_models(
    providers: Mapping[str, ChatProvider], models: ModelRegistry, config: Config, kinds: Iterable[str], *, offline: bool
) -> list[Finding]:
    """Return the problems of the open providers, of missing ones, and of the chosen models."""
    findings = [
        Finding(f"The provider {name} cannot be opened.", "See the log of the gateway's start.")
        for name in kinds
        if name not in providers
    ]
    used: list[ChosenModel] = []
    try:
        if not offline:
            await models.discover_models()
        chosen = models.choose()
        findings += _check_window(chosen, config)
        used = [chosen, *chosen.fallbacks]
    except ModelUnknown as error:
        findings.append(Finding("No model can answer.", str(error)))
    if not offline:
        asked = [
            _check_list(provider, about) for provider in providers.values() if (about := _models_to_check(provider, used))
        ]
        for answers in await asyncio.gather(*asked):
            findings += answers
    return findings


def _check_window(chosen: ChosenModel, config: Config) -> Iterator[Finding]:
    wanted, known = config.agent.context_window, chosen.limits.window
    if wanted is not None and known is not None and wanted > known:
        yield Finding(
            f"agent.context_window is {wanted:,} tokens, and {chosen.name} accepts {known:,}.",
            "Lower or remove it; otherwise long conversations are refused instead of compacted.",
        )


def _models_to_check(provider: ChatProvider, used: Sequence[ChosenModel]) -> Mapping[str, Level]:
    """Return the models to ask a provider about, with the level of a finding; empty if it has no list."""
    if not isinstance(provider, ListsModels):
        return {}
    default = provider.default_model()
    asked: dict[str, Level] = {} if default is None else {default: "note"}
    return {**asked, **{each.model: "wrong" for each in used if each.provider is provider}}


async def _check_list(provider: ChatProvider, models: Mapping[str, Level]) -> list[Finding]:
    """Compare a provider's list with the models that are used; report a refused key."""
    assert isinstance(provider, ListsModels)
    try:
        names = list((await provider.models()).models)
    except CredentialsRefused as error:
        mend = f"Set a valid key; this one is used because {provider.explain_default()}."
        return [Finding(sentence_of(error), mend)]
    except ProviderError as error:
        mend = f"Check the network and providers.{provider.name}.base_url, or remove the provider's settings."
        return [Finding(f"{provider.name} cannot list its models: {sentence_of(error)}", mend)]
    some = ", ".join(sorted(names)[:8]) or "none"
    mend = f"Set agent.model or providers.{provider.name}.default_model to one of its models: {some} …"
    return [
        Finding(f"{provider.name} has no model {model!r}.", mend, level=level)
        for model, level in models.items()
        if not Listing(tuple(names)).has(model)
    ]


def embedding(context: DoctorContext) -> Iterator[Finding]:
    """Report problems of the embedding provider. Unless offline, a question is embedded, which costs a few tokens."""
    if context.config is not None:
        yield from asyncio.run(_examine_embedding(context, context.config))


def backend(context: DoctorContext) -> Iterator[Finding]:
    """Report a memory backend that cannot be used."""
    if context.config is not None:
        yield from check_memory_backend(context.config, allowed_plugins(context.config).memory_backends())


def check_memory_backend(config: Config, kinds: Mapping[str, type[MemoryBackend]]) -> Iterator[Finding]:
    """Yield the problem of the configured backend."""
    meant = config.memory.backend_name
    if meant == SQLITE:
        if why := lacks_full_text():
            mend = "Use a Python whose SQLite has it; until then `local` is used, which keeps it in memory."
            yield Finding(f"The memory backend {SQLITE} cannot be used: {why}.", mend, level="note")
        return
    if why := kinds[meant].why_not() if meant in kinds else "":
        yield Finding(
            f"The memory backend {meant} cannot be used: {why}.",
            f'Install it, or set memory.backend = "auto"; until then {SQLITE} is used.',
        )


def web_search(context: DoctorContext) -> Iterator[Finding]:
    """Report a search service that cannot be used. Unless offline, it is asked once."""
    if context.config is not None:
        yield from asyncio.run(check_web_search(context.config.tools.search, context.environment, offline=context.offline))


async def check_web_search(keys: SearchKeys, environment: Mapping[str, str], *, offline: bool) -> list[Finding]:
    """Return the problem of the search service that `search` asks."""
    if keys.provider == "none":
        return []
    service = SearchService(keys, environment)
    if missing := service.missing():
        return [Finding("The tool search cannot be used: its service is not completely configured.", missing)]
    if offline:
        return []
    async with Transport() as transport:
        try:
            await service.search(transport, "weather")
        except ProviderError as error:
            mend = "Check the network, tools.search.base_url and tools.search.api_key, or set another tools.search.provider."
            return [Finding(f"The tool search cannot be used: {sentence_of(error)}", mend)]
    return []


async def _examine_embedding(context: DoctorContext, config: Config) -> list[Finding]:
    kinds = allowed_plugins(config).embedding_providers()
    try:
        check_embedding(config, kinds)
    except ConfigRefused:
        return []  # reported by the check of the configuration

    async with Transport(timeouts=BRIEF) as transport:
        provider_context = provider_contexts(context.home, config, transport, context.environment)
        async with open_embeddings(kinds, provider_context) as providers:
            await providers.reconfigure(config)
            return await check_embedding_provider(providers, config, offline=context.offline)


async def check_embedding_provider(
    providers: Mapping[str, EmbeddingProvider], config: Config, *, offline: bool
) -> list[Finding]:
    """Return the problems of the chosen embedding provider."""
    keys = config.memory.embedding
    consequence = without_vectors(by_words=config.memory.search.keywords)
    until_then = f"until then {consequence[0].lower()}{consequence[1:]}"
    chosen = keys.chosen(providers)
    if chosen is not None:
        notice = keys.fallback_notice(providers)
        missing = [Finding(notice, MISSING_FILE)] if notice else []
        return missing if offline else [*missing, *await _check_answer(chosen, until_then)]
    if keys.wanted in (None, NONE):
        return []
    why = providers[keys.wanted].explain_default() if keys.wanted in providers else "it could not be opened"
    mend = f"Set it, or set memory.embedding.provider to another one; {until_then}."
    return [Finding(f"The embedding provider {keys.wanted} cannot be used: {why}.", mend)]


async def _check_answer(provider: EmbeddingProvider, until_then: str) -> list[Finding]:
    """Request a vector, and return the problem if that fails."""
    try:
        await provider.embed(["A test of the connection."], "query")
    except ProviderError as error:
        return [Finding(sentence_of(error), _remedy(error, until_then))]
    return []


def _remedy(error: ProviderError, until_then: str) -> str:
    match error:
        case CredentialsRefused():
            how = "Set a valid key"
        case NoSuchModel():
            how = "Set memory.embedding.model to one of its models"
        case _:
            how = "Check the network, memory.embedding.base_url and your account with the vendor"
    return f"{how}; {until_then}."

"""Checks of the memory backend and the embedding provider."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.config.allowed_plugins import allowed_plugins
from gateway.config.keys import Config, check_embedding
from gateway.doctor.findings import DoctorContext, Finding
from gateway.models.providers import open_embeddings
from gateway.support.clock import SystemClock
from gateway.support.errors import ConfigRefused, sentence_of
from plugins.api.context import ProviderContext
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.memory_settings import NONE, SQLITE
from plugins.http.client import Timeouts, Transport
from plugins.memory.search.diagnostics import without_vectors
from plugins.support.errors import CredentialsRefused, NoSuchModel, ProviderError
from sessions.catalog.sqlite import lacks_full_text

NO_FILE = "Put a model there, or remove memory.embedding.local_model_path; then restart the gateway."

BRIEF = Timeouts(connect=5.0, first=20.0, between=10.0, whole=30.0, attempts=1)
"""Short timeouts, since a person waits for the report."""


def embedding(patient: DoctorContext) -> Iterator[Finding]:
    """Report problems of the embedding provider. Unless offline, a question is embedded, which costs a few tokens."""
    if patient.config is not None:
        yield from asyncio.run(_examined(patient, patient.config))


def backend(patient: DoctorContext) -> Iterator[Finding]:
    """Report a memory backend that cannot be used."""
    if patient.config is not None:
        yield from of_backend(patient.config, allowed_plugins(patient.config).memory_backends())


def of_backend(config: Config, kinds: Mapping[str, type[MemoryBackend]]) -> Iterator[Finding]:
    """Yield the problem of the configured backend."""
    meant = config.memory.resting
    if meant == SQLITE:
        if why := lacks_full_text():
            mend = "Use a Python whose SQLite has it; until then `local` is used, which keeps it in memory."
            yield Finding(level="note", what=f"The memory backend {SQLITE} cannot be used: {why}.", mend=mend)
        return
    if why := kinds[meant].why_not() if meant in kinds else "":
        yield Finding(
            what=f"The memory backend {meant} cannot be used: {why}.",
            mend=f'Install it, or set memory.backend = "auto"; until then {SQLITE} is used.',
        )


async def _examined(patient: DoctorContext, config: Config) -> list[Finding]:
    kinds = allowed_plugins(config).embedding_providers()
    try:
        check_embedding(config, kinds)
    except ConfigRefused:
        return []  # reported by the check of the configuration

    def context(name: str, settings: Any) -> ProviderContext:
        return ProviderContext(
            settings=settings,
            folder=patient.home.plugins / name,
            workspace=patient.home.workspace(config.agent.workspace),
            clock=SystemClock(),
            transport=transport,
            environment=patient.environment,
        )

    async with Transport(timeouts=BRIEF) as transport, open_embeddings(kinds, context) as providers:
        await providers.reconfigure(config)
        return await of_embedding(providers, config, offline=patient.offline)


async def of_embedding(providers: Mapping[str, EmbeddingProvider], config: Config, *, offline: bool) -> list[Finding]:
    """Return the problems of the chosen embedding provider."""
    keys = config.memory.embedding
    consequence = without_vectors(by_words=config.memory.search.keywords)
    until_then = f"until then {consequence[0].lower()}{consequence[1:]}"
    chosen = keys.chosen(providers)
    if chosen is not None:
        passed_over = keys.passed_over(providers)
        missing = [Finding(what=passed_over, mend=NO_FILE)] if passed_over else []
        return missing if offline else [*missing, *await _asked(chosen, until_then)]
    if keys.wanted in (None, NONE):
        return []
    why = providers[keys.wanted].explain_default() if keys.wanted in providers else "it could not be opened"
    mend = f"Set it, or set memory.embedding.provider to another one; {until_then}."
    return [Finding(what=f"The embedding provider {keys.wanted} cannot be used: {why}.", mend=mend)]


async def _asked(provider: EmbeddingProvider, until_then: str) -> list[Finding]:
    """Return the problem of requesting a vector."""
    try:
        await provider.embed(["Does anybody answer?"], "query")
    except ProviderError as error:
        return [Finding(what=sentence_of(error), mend=_mend(error, until_then))]
    return []


def _mend(error: ProviderError, until_then: str) -> str:
    match error:
        case CredentialsRefused():
            how = "Set a valid key"
        case NoSuchModel():
            how = "Set memory.embedding.model to one of its models"
        case _:
            how = "Check the network, memory.embedding.base_url and your account with the vendor"
    return f"{how}; {until_then}."

"""Whether the memory's index can rest where it is to, and whether whoever makes its vectors can, and does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from gateway.clock import SystemClock
from gateway.configuration.allowed_plugins import allowed_plugins
from gateway.configuration.keys import Config, check_embedding
from gateway.doctor.findings import Finding, Patient
from gateway.errors import ConfigRefused, sentence_of
from gateway.models.open_providers import open_embeddings
from plugins.contracts import House
from plugins.embedding import EmbeddingProvider
from plugins.errors import CredentialsRefused, NoSuchModel, ProviderError
from plugins.memory.settings import NONE, SQLITE
from plugins.transport import Patience, Transport

WORDS_ALONE = "until then notes are found by their words alone"

BRIEF = Patience(connect=5.0, first=20.0, between=10.0, whole=30.0, attempts=1)
"""Whoever examines is waiting."""


def embedding(patient: Patient) -> Iterator[Finding]:
    """Whoever is chosen to make vectors. Unless it is offline, a question is embedded, which costs a few tokens."""
    if patient.config is not None:
        yield from asyncio.run(_examined(patient, patient.config))


def backend(patient: Patient) -> Iterator[Finding]:
    """Whether the index can rest where it is to."""
    kinds = allowed_plugins(patient.config).memory_backends() if patient.config else {}
    meant = patient.config.memory.resting if patient.config else SQLITE
    if why := kinds[meant].why_not() if meant in kinds else "":
        yield Finding(
            what=f"The memory index cannot rest in {meant}: {why}.",
            mend=f'Install it, or set memory.backend = "auto"; until then the index rests in {SQLITE}.',
        )


async def _examined(patient: Patient, config: Config) -> list[Finding]:
    keys, kinds = config.memory.embedding, allowed_plugins(config).embedding_providers()
    try:
        check_embedding(config, kinds)
    except ConfigRefused:
        return []  # the check of the configuration says it

    def house(name: str, settings: Any) -> House:
        return House(
            settings=settings,
            folder=patient.home.plugins / name,
            workspace=patient.home.workspace(config.agent.workspace),
            clock=SystemClock(),
            transport=transport,
            environment=patient.environment,
        )

    async with Transport(patience=BRIEF) as transport, open_embeddings(kinds, house) as providers:
        await providers.fit(config)
        chosen = keys.chosen(providers)
        if chosen is not None:
            return [] if patient.offline else await _asked(chosen)
        if keys.wanted in (None, NONE):
            return []
        why = providers[keys.wanted].why() if keys.wanted in providers else "it could not be opened"
        mend = f"Set it, or name another in memory.embedding.provider; {WORDS_ALONE}."
        return [Finding(what=f"{keys.wanted} makes no vectors: {why}.", mend=mend)]


async def _asked(provider: EmbeddingProvider) -> list[Finding]:
    """What comes of asking for a vector."""
    try:
        await provider.embed(["Does anybody answer?"], "query")
    except ProviderError as error:
        return [Finding(what=sentence_of(error), mend=_mend(error))]
    return []


def _mend(error: ProviderError) -> str:
    match error:
        case CredentialsRefused():
            how = "Set a key that is valid"
        case NoSuchModel():
            how = "Name a model that it has in memory.embedding.model"
        case _:
            how = "Look at the network, at memory.embedding.base_url and at the account with the vendor"
    return f"{how}; {WORDS_ALONE}."

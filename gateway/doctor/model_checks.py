"""Checks of models: whether one can answer, whether the vendor accepts the key and has the model, and its window."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.config.keys import Config
from gateway.doctor.findings import DoctorContext, Finding, Level
from gateway.models.listings import Listing
from gateway.models.model_list_cache import read_model_lists
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.models.temporary_providers import make_registry, open_temporarily
from gateway.support.errors import ModelUnknown, sentence_of
from plugins.api.chat import ChatProvider, ListsModels
from plugins.support.errors import CredentialsRefused, ProviderError


def models(patient: DoctorContext) -> Iterator[Finding]:
    """Report problems of the model and of every configured provider.

    Unless offline, each provider is asked for its list of models, which is free.
    """
    if patient.config is not None:
        yield from asyncio.run(_examined(patient, patient.config))


async def _examined(patient: DoctorContext, config: Config) -> list[Finding]:
    told, unusable = read_model_lists(patient.home.models)
    async with open_temporarily(patient.home, config, patient.checked.kinds, patient.environment, told) as providers:
        models = make_registry(providers, config)
        findings = await of_models(providers, models, config, patient.checked.kinds, offline=patient.offline)
    notes = [Finding(level="note", what=unusable, mend="Run `exuvia models refresh` to rebuild it.")] if unusable else []
    return [*notes, *findings]


async def of_models(
    providers: Mapping[str, ChatProvider], models: ModelRegistry, config: Config, kinds: Iterable[str], *, offline: bool
) -> list[Finding]:
    """Return the problems of the open providers, of missing ones, and of the chosen models."""
    findings = [
        Finding(what=f"The provider {name} cannot be opened.", mend="See the log of the gateway's start.")
        for name in kinds
        if name not in providers
    ]
    used: list[ChosenModel] = []
    try:
        if not offline:
            await models.discover_models()
        chosen = models.choose()
        findings += _of_window(chosen, config)
        used = [chosen, *chosen.fallbacks]
    except ModelUnknown as error:
        findings.append(Finding(what="No model can answer.", mend=str(error)))
    if not offline:
        asked = [_asked(provider, about) for provider in providers.values() if (about := _of_provider(provider, used))]
        for answers in await asyncio.gather(*asked):
            findings += answers
    return findings


def _of_window(chosen: ChosenModel, config: Config) -> Iterator[Finding]:
    wanted, known = config.agent.context_window, chosen.provider.limits(chosen.model).window
    if wanted is not None and known is not None and wanted > known:
        yield Finding(
            what=f"agent.context_window is {wanted:,} tokens, and {chosen.name} accepts {known:,}.",
            mend="Lower or remove it; otherwise long conversations are refused instead of compacted.",
        )


def _of_provider(provider: ChatProvider, used: Sequence[ChosenModel]) -> Mapping[str, Level]:
    """Return the models to ask a provider about, with the level of a finding; empty if it has no list."""
    if not isinstance(provider, ListsModels):
        return {}
    default = provider.default_model()
    asked: dict[str, Level] = {} if default is None else {default: "note"}
    return {**asked, **{each.model: "wrong" for each in used if each.provider is provider}}


async def _asked(provider: ChatProvider, models: Mapping[str, Level]) -> list[Finding]:
    """Compare a provider's list with the models that are used; report a refused key."""
    assert isinstance(provider, ListsModels)
    try:
        names = list((await provider.models()).models)
    except CredentialsRefused as error:
        return [
            Finding(
                what=sentence_of(error),
                mend=f"Set a valid key; this one is used because {provider.explain_default()}.",
            )
        ]
    except ProviderError as error:
        return [
            Finding(
                what=f"{provider.name} cannot list its models: {sentence_of(error)}",
                mend=f"Check the network and providers.{provider.name}.base_url, or remove the provider's settings.",
            )
        ]
    some = ", ".join(sorted(names)[:8]) or "none"
    return [
        Finding(
            level=level,
            what=f"{provider.name} has no model {model!r}.",
            mend=f"Set agent.model or providers.{provider.name}.default_model to one of its models: {some} …",
        )
        for model, level in models.items()
        if not Listing(tuple(names)).has(model)
    ]

"""What to say of a model that its provider does not have: which ones it has, and how to choose one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from gateway.errors import sentence_of
from gateway.models.choosing import ChosenModel
from plugins.contracts import ListsModels
from plugins.errors import NoSuchModel
from plugins.strangers import ANYTHING

WITHIN = 5.0
"""Seconds that a provider may take to list its models."""

MOST, ROOM = 230, 150
"""Characters of the provider's own sentence, and of the names."""

log = structlog.get_logger("exuvia.models")


async def with_names(error: NoSuchModel, model: ChosenModel) -> NoSuchModel:
    """Return the error with the models that the provider has, as far as it says so, and with the way to choose one."""
    name = model.provider.name
    what, known = sentence_of(error)[:MOST].rstrip("."), _listed(await _names(model))
    how = f"with /model {name}:NAME, or for all conversations with agent.model"
    named = NoSuchModel(f"{what}. {f'It has {known}; choose' if known else 'Choose'} one {how}.")
    named.__cause__ = error.__cause__
    return named


async def _names(model: ChosenModel) -> Sequence[str]:
    if not isinstance(model.provider, ListsModels):
        return ()
    try:
        async with asyncio.timeout(WITHIN):
            return [str(name) for name in (await model.provider.models()).models]
    except ANYTHING as error:  # the error that is to be explained is the one that counts
        log.info("models_not_listed", provider=model.provider.name, reason=sentence_of(error))
        return ()


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are; empty if there are none."""
    shown: list[str] = []
    for name in names:
        if sum(map(len, shown)) + len(name) > ROOM:
            break
        shown.append(name)
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if shown and more else "")

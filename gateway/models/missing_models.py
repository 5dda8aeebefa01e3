"""What to say of a model that its provider does not have: which ones it has, and how to choose one."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.errors import sentence_of
from gateway.models.choosing import ChosenModel
from plugins.errors import NoSuchModel

MOST, ROOM = 230, 150
"""Characters of the provider's own sentence, and of the names."""


async def with_names(error: NoSuchModel, model: ChosenModel) -> NoSuchModel:
    """Return the error with the models that the provider lists and that answer, and with the way to choose one."""
    name = model.provider.name
    listing = await model.listings.without(name, model.model)
    what, known = sentence_of(error)[:MOST].rstrip("."), _listed(listing.chats if listing else ())
    how = f"with /model {name}:NAME, or for all conversations with agent.model"
    named = NoSuchModel(f"{what}. {f'It has {known}; choose' if known else 'Choose'} one {how}.")
    named.__cause__ = error.__cause__
    return named


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are; empty if there are none."""
    shown: list[str] = []
    for name in names:
        if sum(map(len, shown)) + len(name) > ROOM:
            break
        shown.append(name)
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if shown and more else "")

"""`exuvia models list|refresh`: which models there are, how much each takes in and says, and where that is known from. Each
function prints and returns an exit code: 0 well, 1 a vendor could not be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from gateway.cli.sessions.session_commands import WELL, WRONG, print_json
from gateway.config.keys import Config
from gateway.doctor.config_check import CheckedConfig, check
from gateway.models.model_list_cache import CachedModelList, CachedModelLists, cacheable, read_model_lists, write_model_lists
from gateway.models.registry import ModelRegistry
from gateway.models.temporary_providers import make_registry, open_temporarily
from gateway.support import logs
from gateway.support.clock import SystemClock
from gateway.support.errors import ConfigRefused, ModelUnknown, StartRefused, sentence_of
from gateway.support.home import Home
from gateway.support.printable import one_line
from plugins.api.chat import ChatProvider, ListsModels
from plugins.api.models import LimitSource, ModelList

ASK_SECONDS = 120.0
"""So long one vendor may take for everything; each of its answers has a deadline of its own."""


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A model, as `provider:model`; its window and output limit in tokens, None where they are not known, and where each is
    from. `answers` says that it is the one that a session gets."""

    model: str
    window: int | None
    window_from: LimitSource | None
    output: int | None
    output_from: LimitSource | None
    answers: bool


class ModelTable(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider offers. `told_at` is when its server told what a start knows of it, None where it never did; `note` is
    what is to be said of that, as a sentence."""

    provider: str
    models: tuple[ModelRow, ...]
    told_at: str | None
    note: str


class RefreshedProvider(msgspec.Struct, frozen=True, kw_only=True):
    """How it went with one provider: how many `models` it has, of how many its server `told` something, or why not."""

    provider: str
    models: int = 0
    told: int = 0
    error: str | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.provider} could not be asked: {self.error}"
        told = f"the limits of {self.told}" if self.told else "no limits, which are from the table or unknown"
        return f"{self.provider} has {self.models} {'model' if self.models == 1 else 'models'} and tells {told}."


def list_models(
    home: Home, config: Path, environment: Mapping[str, str], out: TextIO, *, offline: bool, as_json: bool
) -> int:
    """Print what each provider offers that is set up, by its own list unless `offline`, and the limits that a start would go
    by. ConfigRefused if it would refuse to."""
    return asyncio.run(_list(home, config, environment, out, offline=offline, as_json=as_json))


def refresh_models(home: Home, config: Path, environment: Mapping[str, str], out: TextIO, *, as_json: bool) -> int:
    """Ask the vendors, and keep what they tell in the home. What one told before stays where it cannot be asked. Raises
    ConfigRefused, StartRefused without a home, ModelUnknown where nobody can be asked, OSError."""
    if not home.root.is_dir():
        raise StartRefused(f"There is no home at {home.root}; `exuvia run` makes one.")
    return asyncio.run(_refresh(home, config, environment, out, as_json=as_json))


async def _list(
    home: Home, config: Path, environment: Mapping[str, str], out: TextIO, *, offline: bool, as_json: bool
) -> int:
    checked, settings = _usable(config, environment)
    told, unusable = read_model_lists(home.models)
    async with open_temporarily(home, settings, checked.kinds, environment, told) as providers:
        models = make_registry(providers, settings)
        used = await _set_up(providers, models, look=not offline)
        lists = await _lists({} if offline else used)
        offered = [_offered(provider, models, lists.get(name), told.get(name)) for name, provider in used.items()]
        notes = [*filter(None, [unusable]), *providers.problems()]
    if as_json:
        print_json(offered, out)
    else:
        out.writelines(f"{line}\n" for line in _table(offered))
        out.writelines(f"{one_line(line, 500)}\n" for line in (*notes, *_notes(offered, told)))
    return WRONG if any(isinstance(answer, str) for answer in lists.values()) else WELL


async def _refresh(home: Home, config: Path, environment: Mapping[str, str], out: TextIO, *, as_json: bool) -> int:
    checked, settings = _usable(config, environment)
    told, _ = read_model_lists(home.models)
    async with open_temporarily(home, settings, checked.kinds, environment, told) as providers:
        used = await _set_up(providers, make_registry(providers, settings), look=True)
        lists = await _lists(used)
        troubles = providers.problems()
    if not lists:
        raise ModelUnknown("No provider that is set up can be asked which models it has.")
    known, asked = _merged(told, lists)
    if any(each.error is None for each in asked):
        write_model_lists(home.models, known)
    if as_json:
        print_json(asked, out)
    else:
        out.writelines(f"{one_line(line, 500)}\n" for line in (*map(str, asked), *troubles))
        if any(each.error is None for each in asked):
            out.write(f"{home.models} is written; a gateway goes by it from its next start on.\n")
    return WRONG if troubles or any(each.error is not None for each in asked) else WELL


def _usable(config: Path, environment: Mapping[str, str]) -> tuple[CheckedConfig, Config]:
    logs.configure("error", "auto")
    checked = check(config, environment)
    if checked.faults or checked.config is None:
        raise ConfigRefused(" ".join(checked.faults))
    return checked, checked.config


def _merged(
    told: CachedModelLists, lists: Mapping[str, ModelList | str]
) -> tuple[CachedModelLists, list[RefreshedProvider]]:
    """What is known after some were asked, and how it went with each."""
    at = SystemClock().now().isoformat(timespec="seconds").replace("+00:00", "Z")
    known, asked = dict(told), []
    for name, answer in lists.items():
        if isinstance(answer, str):
            asked.append(RefreshedProvider(provider=name, error=answer))
            continue
        known.pop(name, None)
        if (kept := cacheable(answer, at)).models:
            known[name] = kept
        asked.append(RefreshedProvider(provider=name, models=len(answer.models), told=len(kept.models)))
    return known, asked


async def _set_up(providers: Mapping[str, ChatProvider], models: ModelRegistry, *, look: bool) -> dict[str, ChatProvider]:
    """The providers that are set up, or whose model answers or steps in."""
    if look:
        await models.discover_models()
    used = {name.partition(":")[0] for name in models.used()}
    return {name: provider for name, provider in providers.items() if name in used or provider.default_model()}


async def _lists(providers: Mapping[str, ChatProvider]) -> dict[str, ModelList | str]:
    """The list of each that can be asked, or why there is none; one that fails keeps no other from being asked."""
    asked = {name: provider for name, provider in providers.items() if isinstance(provider, ListsModels)}
    return dict(zip(asked, await asyncio.gather(*map(_listed, asked.values())), strict=True))


async def _listed(provider: ListsModels) -> ModelList | str:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            found = await provider.models()
    except TimeoutError:
        return f"It was not done after {ASK_SECONDS:g} s."
    except Exception as error:  # it may be a stranger's
        return sentence_of(error)
    return found if isinstance(found, ModelList) else "What it gives is no list of models."


def _offered(
    provider: ChatProvider, models: ModelRegistry, answer: ModelList | str | None, told: CachedModelList | None
) -> ModelTable:
    """The models of a provider by its list, else by what it told before, those that are used among them."""
    known = answer if isinstance(answer, ModelList) else told
    name, current = provider.name, models.configured() or ""
    used = [each.partition(":")[2] for each in models.used() if each.partition(":")[0] == name]
    names = dict.fromkeys([*filter(None, [provider.default_model()]), *used, *(known.models if known else ())])
    offers = []
    for model in names:
        limits, full = models.limits(name, model), f"{name}:{model}"
        offers.append(
            ModelRow(
                model=full,
                window=limits.window,
                window_from=limits.window_from,
                output=limits.output,
                output_from=limits.output_from,
                answers=full == current,
            )
        )
    at = None if told is None else told.at
    return ModelTable(provider=name, models=tuple(offers), told_at=at, note=_note(provider, answer, told))


def _note(provider: ChatProvider, answer: ModelList | str | None, told: CachedModelList | None) -> str:
    """What is to be said of how a provider's list was come by."""
    if not isinstance(provider, ListsModels):
        return ""
    before = "it never told of its models" if told is None else f"the list is what it told on {told.at}"
    if answer is None:
        return f"{provider.name} was not asked: {before}."
    if isinstance(answer, str):
        return f"{provider.name} could not be asked, and {before}: {answer}"
    fresh = cacheable(answer, "")
    known = {} if told is None or told.address != fresh.address else told.models
    news = sum(known.get(name) != limits for name, limits in fresh.models.items())
    return f"{provider.name} tells of {news} what a start does not know: `exuvia models refresh` keeps it." if news else ""


def _table(offered: Iterable[ModelTable]) -> Iterator[str]:
    rows = [("MODEL", "WINDOW", "FROM", "OUTPUT", "FROM", "")]
    for each in (model for provider in offered for model in provider.models):
        window, output = _cells(each.window, each.window_from), _cells(each.output, each.output_from)
        rows.append((one_line(each.model, 100), *window, *output, "answers" * each.answers))
    if len(rows) == 1:
        yield "No provider is set up by the configuration or by this terminal's environment."
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(_padded(row, widths)).rstrip()


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for column, (text, width) in enumerate(zip(row, widths, strict=True)):
        yield text.rjust(width) if column in (1, 3) else text.ljust(width)


def _cells(tokens: int | None, source: LimitSource | None) -> tuple[str, str]:
    return ("unknown", "") if tokens is None else (f"{tokens:,}", source or "provider")


def _notes(offered: Iterable[ModelTable], told: CachedModelLists) -> Iterator[str]:
    yield from filter(None, (each.note for each in offered))
    if not told:
        yield "No vendor was ever asked for its limits: `exuvia models refresh` does."

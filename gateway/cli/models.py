"""`exuvia models list|refresh`: the available models with their windows and output limits, and the source of each value.

Each function prints and returns an exit code: 0 success, 1 a vendor could not be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.config.keys import Config
from gateway.config.rendering import CheckedConfig
from gateway.doctor.config_check import check
from gateway.models.model_list_cache import CachedModelList, CachedModelLists, cacheable, read_model_lists, write_model_lists
from gateway.models.providers import open_temporarily
from gateway.models.registry import ModelRegistry
from gateway.support import logs
from gateway.support.clock import SystemClock
from gateway.support.errors import ConfigRefused, ModelUnknown, StartRefused, sentence_of
from gateway.support.printable import one_line
from gateway.support.session_status import count_of
from plugins.api.chat import ChatProvider, ListsModels
from plugins.api.models import LimitSource, ModelList

ASK_SECONDS = 120.0
"""The time limit for one vendor in seconds; each of its responses has its own limit."""


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A model, as `provider:model`, with its window and output limit in tokens, None if unknown, and their sources.

    `answers` marks the model that sessions use.
    """

    model: str
    window: int | None
    window_from: LimitSource | None
    output: int | None
    output_from: LimitSource | None
    answers: bool


class ModelTable(msgspec.Struct, frozen=True, kw_only=True):
    """The models of a provider.

    `told_at` is the time of the cached list, None if there is none; `note` is a sentence about the list.
    """

    provider: str
    models: tuple[ModelRow, ...]
    told_at: str | None
    note: str


class RefreshedProvider(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one provider: its number of `models`, how many have limits (`told`), or the error."""

    provider: str
    models: int = 0
    told: int = 0
    error: str | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.provider} could not be asked: {self.error}"
        limits = f"the limits of {self.told}" if self.told else "no limits"
        return f"{self.provider} has {self.models} {'model' if self.models == 1 else 'models'} and reports {limits}."


def list_models(call: Invocation, *, offline: bool) -> int:
    """Print the models of each configured provider with their limits, without asking vendors if `offline`.

    Raises:
        ConfigRefused: The configuration is invalid.
    """
    return asyncio.run(_list(call, offline=offline))


def refresh_models(call: Invocation) -> int:
    """Ask the vendors for their models and cache the result in the home; keep the old list of one that fails.

    Raises:
        ConfigRefused: The configuration is invalid.
        StartRefused: There is no home.
        ModelUnknown: No provider can be asked.
        OSError: The cache cannot be written.
    """
    if not call.home.root.is_dir():
        raise StartRefused(f"There is no home at {call.home.root}; `exuvia run` creates one.")
    return asyncio.run(_refresh(call))


async def _list(call: Invocation, *, offline: bool) -> int:
    home, environment, out = call.home, call.environment, call.out
    checked, settings = _usable(call)
    cached, unusable = read_model_lists(home.models)
    async with open_temporarily(home, settings, checked.kinds, environment, cached) as providers:
        models = ModelRegistry(providers, settings.agent)
        used = await _configured(providers, models, look=not offline)
        lists = await _lists({} if offline else used)
        offered = [_model_table(provider, models, lists.get(name), cached.get(name)) for name, provider in used.items()]
        notes = [*filter(None, [unusable]), *providers.problems()]
    if call.as_json:
        print_json(offered, out)
    else:
        out.writelines(f"{line}\n" for line in _table(offered))
        out.writelines(f"{one_line(line, 500)}\n" for line in (*notes, *_notes(offered, cached)))
    return PROBLEM if any(isinstance(answer, str) for answer in lists.values()) else SUCCESS


async def _refresh(call: Invocation) -> int:
    home, environment, out = call.home, call.environment, call.out
    checked, settings = _usable(call)
    cached, _ = read_model_lists(home.models)
    async with open_temporarily(home, settings, checked.kinds, environment, cached) as providers:
        used = await _configured(providers, ModelRegistry(providers, settings.agent), look=True)
        lists = await _lists(used)
        troubles = providers.problems()
    if not lists:
        raise ModelUnknown("No configured provider can list its models.")
    known, asked = _merged(cached, lists)
    if any(each.error is None for each in asked):
        write_model_lists(home.models, known)
    if call.as_json:
        print_json(asked, out)
    else:
        out.writelines(f"{one_line(line, 500)}\n" for line in (*map(str, asked), *troubles))
        if any(each.error is None for each in asked):
            out.write(f"{home.models} was written; a gateway uses it from its next start.\n")
    return PROBLEM if troubles or any(each.error is not None for each in asked) else SUCCESS


def _usable(call: Invocation) -> tuple[CheckedConfig, Config]:
    logs.configure("error", "auto")
    checked = check(call.file, call.environment)
    if checked.faults or checked.config is None:
        raise ConfigRefused(" ".join(checked.faults))
    return checked, checked.config


def _merged(
    cached: CachedModelLists, lists: Mapping[str, ModelList | str]
) -> tuple[CachedModelLists, list[RefreshedProvider]]:
    """Return the updated cache and the result for each provider."""
    at = SystemClock().now().isoformat(timespec="seconds").replace("+00:00", "Z")
    known, asked = dict(cached), []
    for name, answer in lists.items():
        if isinstance(answer, str):
            asked.append(RefreshedProvider(provider=name, error=answer))
            continue
        known.pop(name, None)
        if (kept := cacheable(answer, at)).models:
            known[name] = kept
        asked.append(RefreshedProvider(provider=name, models=len(answer.models), told=len(kept.models)))
    return known, asked


async def _configured(
    providers: Mapping[str, ChatProvider], models: ModelRegistry, *, look: bool
) -> dict[str, ChatProvider]:
    """Return the providers that are configured, or whose model is in use."""
    if look:
        await models.discover_models()
    used = {name.partition(":")[0] for name in models.used()}
    return {name: provider for name, provider in providers.items() if name in used or provider.default_model()}


async def _lists(providers: Mapping[str, ChatProvider]) -> dict[str, ModelList | str]:
    """Return the list of each provider that has one, or the reason for its failure."""
    asked = {name: provider for name, provider in providers.items() if isinstance(provider, ListsModels)}
    return dict(zip(asked, await asyncio.gather(*map(_listed, asked.values())), strict=True))


async def _listed(provider: ListsModels) -> ModelList | str:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            found = await provider.models()
    except TimeoutError:
        return f"No response within {ASK_SECONDS:g} s."
    except Exception as error:  # it may be a third-party plugin's
        return sentence_of(error)
    return found if isinstance(found, ModelList) else "The provider did not return a list of models."


def _model_table(
    provider: ChatProvider, models: ModelRegistry, answer: ModelList | str | None, cached: CachedModelList | None
) -> ModelTable:
    """Return the models of a provider from its list, else from the cache, including those in use."""
    known = answer if isinstance(answer, ModelList) else cached
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
    at = None if cached is None else cached.at
    return ModelTable(provider=name, models=tuple(offers), told_at=at, note=_note(provider, answer, cached))


def _note(provider: ChatProvider, answer: ModelList | str | None, cached: CachedModelList | None) -> str:
    """Describe where a provider's list is from."""
    if not isinstance(provider, ListsModels):
        return ""
    before = "its models were never requested" if cached is None else f"the list of {cached.at} is shown"
    if answer is None:
        return f"{provider.name} was not asked: {before}."
    if isinstance(answer, str):
        return f"{provider.name} could not be asked, and {before}: {answer}"
    fresh = cacheable(answer, "")
    known = {} if cached is None or cached.address != fresh.address else cached.models
    news = sum(known.get(name) != limits for name, limits in fresh.models.items())
    return f"{provider.name} reports {count_of(news, 'new limit')}: `exuvia models refresh` stores them." if news else ""


def _table(offered: Iterable[ModelTable]) -> Iterator[str]:
    rows = [("MODEL", "WINDOW", "FROM", "OUTPUT", "FROM", "")]
    for each in (model for provider in offered for model in provider.models):
        window, output = _cells(each.window, each.window_from), _cells(each.output, each.output_from)
        rows.append((one_line(each.model, 100), *window, *output, "in use" * each.answers))
    if len(rows) == 1:
        yield "No provider is configured, neither in the file nor in this terminal's environment."
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(_padded(row, widths)).rstrip()


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for column, (text, width) in enumerate(zip(row, widths, strict=True)):
        yield text.rjust(width) if column in (1, 3) else text.ljust(width)


def _cells(tokens: int | None, source: LimitSource | None) -> tuple[str, str]:
    return ("unknown", "") if tokens is None else (f"{tokens:,}", source or "provider")


def _notes(offered: Iterable[ModelTable], cached: CachedModelLists) -> Iterator[str]:
    yield from filter(None, (each.note for each in offered))
    if not cached:
        yield "The vendors have not been asked for limits yet; `exuvia models refresh` does that."

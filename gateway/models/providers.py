"""The open providers, each with its own settings. A provider whose settings change is replaced without stopping turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec
import structlog

from gateway.config.keys import Config, fit_provider, provider_settings
from gateway.models.guarded_providers import guard_provider
from gateway.models.model_list_cache import CachedModelLists
from gateway.support.clock import SystemClock
from gateway.support.errors import sentence_of
from gateway.support.home import Home
from plugins.api.chat import ChatProvider
from plugins.api.context import Clock, ProviderAccount, ProviderContext
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory_settings import EmbeddingKeys
from plugins.http.client import Transport
from plugins.support.untrusted import reraise_cancellation

OPEN_SECONDS, CLOSE_SECONDS = 10.0, 5.0
"""Timeouts in seconds to open and to close a provider."""

LAST_SECONDS = 1.0
"""Seconds that a cancelled provider has to end at shutdown."""

log = structlog.get_logger("exuvia")


class Closable(Protocol):
    """An asynchronous context manager."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any: ...


P = TypeVar("P", bound=Closable)


class OpenFailed(Exception):
    """A provider could not be opened; the text says why."""


class _Opened(msgspec.Struct, Generic[P], frozen=True, eq=False):
    """One open provider. Setting `done` closes it, in the task that opened it."""

    name: str
    kind: object
    provider: P
    settings: Any
    done: asyncio.Event
    task: asyncio.Task[None]


class OpenProviders(Mapping[str, P]):
    """The open providers by name, in the order of `kinds`; a live view.

    Use as an async context manager, which closes all of them. `kinds` may change before a `reconfigure`; `settings` returns
    the part of a configuration that concerns one provider. A turn holds `in_use` while it runs: a provider that is replaced
    meanwhile stays open until every turn that began before has ended.
    """

    def __init__(
        self,
        kinds: Mapping[str, Callable[[ProviderContext], P]],
        context: Callable[[str, Any], ProviderContext],
        settings: Callable[[Config, str], Any],
    ) -> None:
        self._kinds = kinds
        self._context = context
        self._settings = settings
        self._open: dict[str, _Opened[P]] = {}
        self._generation = 0
        self._users: Counter[int] = Counter()
        self._replaced: list[tuple[int, _Opened[P]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._problems: dict[str, str] = {}
        self._failed_calls: dict[tuple[str, str], str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (*(replaced for _, replaced in self._replaced), *self._open.values()):
            self._close(each)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS + LAST_SECONDS)

    def problems(self) -> list[str]:
        """Return the problems as sentences: providers that could not be opened or closed, and calls that failed."""
        return [*self._problems.values(), *self._failed_calls.values()]

    def __getitem__(self, name: str) -> P:
        return self._open[name].provider

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    async def reconfigure(self, config: Config) -> list[str]:
        """Open each provider whose settings changed, replacing the open one, and return the names.

        A provider that cannot be opened is logged and listed in `problems`, and the previous one stays open. Raises
        ConfigRefused before anything changes.
        """
        wanted = {name: self._settings(config, name) for name in self._kinds}
        changed = [name for name in wanted if not self._is_open(name, wanted[name])]
        self._problems.clear()
        self._failed_calls = {call: each for call, each in self._failed_calls.items() if call[0] not in changed}
        found = await asyncio.gather(*(self._opened(name, wanted[name]) for name in changed))
        opened = {each.name: each for each in found if each is not None}
        retired = [each for name, each in self._open.items() if name in opened or name not in wanted]
        standing = self._open | opened
        self._open = {name: standing[name] for name in wanted if name in standing}
        self._replaced += [(self._generation, each) for each in retired]
        self._generation += 1
        self._close_unused()
        return list(opened)

    def _is_open(self, name: str, settings: Any) -> bool:
        opened = self._open.get(name)
        return opened is not None and opened.settings == settings and opened.kind is self._kinds[name]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep all providers that are open now open while the block runs."""
        generation = self._generation
        self._users[generation] += 1
        try:
            yield
        finally:
            self._users[generation] -= 1
            self._close_unused()

    def _close_unused(self) -> None:
        """Close the replaced providers that no turn uses any more."""
        self._users = +self._users
        oldest = min(self._users, default=self._generation)
        for generation, each in self._replaced:
            if generation < oldest:
                self._close(each)
        self._replaced = [(generation, each) for generation, each in self._replaced if not each.task.done()]

    async def _opened(self, name: str, settings: Any) -> _Opened[P] | None:
        ready, done = asyncio.get_running_loop().create_future(), asyncio.Event()
        kind = self._kinds[name]
        task = asyncio.create_task(self._keep_open(kind, name, settings, ready, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return _Opened(name, kind, await ready, settings, done, task)
        except OpenFailed as error:
            self._report("provider_not_opened", name, str(error))
        except TimeoutError:
            task.cancel()
            self._report("provider_not_opened", name, f"It did not open within {OPEN_SECONDS:g} s.")
        except asyncio.CancelledError:
            task.cancel()
            raise
        return None

    async def _keep_open(
        self, kind: Callable[[ProviderContext], P], name: str, settings: Any, ready: asyncio.Future[P], done: asyncio.Event
    ) -> None:
        """Open a provider, report it, and close it when `done` is set.

        All of it runs in one task, as a provider with its own task group requires. A SystemExit of the provider ends only
        this task.
        """
        try:
            provider = guard_provider(kind, partial(self._report_call, name))(self._context(name, settings))
            async with provider:
                if ready.done():  # the caller gave up
                    return
                ready.set_result(provider)
                await done.wait()
        except BaseException as error:
            reraise_cancellation(error)
            if not ready.done():
                cancelled = isinstance(error, asyncio.CancelledError)
                ready.set_exception(OpenFailed("It cancelled itself." if cancelled else sentence_of(error)))
            elif not ready.cancelled():
                self._report("provider_not_closed", name, sentence_of(error))
        finally:
            if not ready.done():
                ready.set_exception(OpenFailed("It was cancelled."))

    def _close(self, each: _Opened[P]) -> None:
        """Begin to close a provider, and cancel it after `CLOSE_SECONDS`."""
        if not each.done.is_set():
            each.done.set()
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._give_up, each)

    def _give_up(self, each: _Opened[P]) -> None:
        if not each.task.done():
            self._report("provider_not_closed", each.name, f"It did not close within {CLOSE_SECONDS:g} s.")
            each.task.cancel()

    def _report_call(self, name: str, method: str, reason: str) -> None:
        """Record the outcome of a call of a third-party provider; `reason` is empty if it succeeded."""
        if not reason:
            self._failed_calls.pop((name, method), None)
            return
        sentence = f"The provider {name} failed in {method}: {reason}"
        if self._failed_calls.get((name, method)) != sentence:
            self._failed_calls[name, method] = sentence
            log.error("provider_failed", provider=name, method=method, reason=reason)

    def _report(self, event: str, name: str, reason: str) -> None:
        log.error(event, provider=name, reason=reason)
        verb = "opened" if event == "provider_not_opened" else "closed"
        self._problems[name] = f"The provider {name} could not be {verb}: {reason}"


def provider_contexts(
    home: Home,
    config: Config,
    transport: Transport,
    environment: Mapping[str, str],
    *,
    clock: Clock | None = None,
    reported: CachedModelLists | None = None,
) -> Callable[[str, Any], ProviderContext]:
    """Return a function that returns the context of a provider for its name and settings."""
    workspace, clock, lists = home.workspace(config.agent.workspace), clock or SystemClock(), reported or {}

    def context(name: str, settings: Any) -> ProviderContext:
        return ProviderContext(
            settings=settings,
            folder=home.plugins / name,
            workspace=workspace,
            clock=clock,
            transport=transport,
            environment=environment,
            reported_models=lists.get(name),
        )

    return context


def open_chats(
    kinds: Mapping[str, type[ChatProvider]], context: Callable[[str, Any], ProviderContext]
) -> OpenProviders[ChatProvider]:
    """Return the chat providers, each with its own table of the configuration."""

    def settings(config: Config, name: str) -> Any:
        return provider_settings(config, name, kinds[name].Settings)

    return OpenProviders(kinds, context, settings)


def open_embeddings(
    kinds: Mapping[str, type[EmbeddingProvider]], context: Callable[[str, Any], ProviderContext]
) -> OpenProviders[EmbeddingProvider]:
    """Return the embedding providers, each with `[memory.embedding]` and the account of the chat provider of the same
    name."""

    def settings(config: Config, name: str) -> tuple[EmbeddingKeys, ProviderAccount]:
        return config.memory.embedding.for_provider(name), fit_provider(config, name, ProviderAccount)[0]

    def of_embedding(name: str, known: tuple[EmbeddingKeys, ProviderAccount]) -> ProviderContext:
        return msgspec.structs.replace(context(f"embedding-{name}", known[0]), account=known[1])

    return OpenProviders(kinds, of_embedding, settings)


@asynccontextmanager
async def open_temporarily(
    home: Home,
    config: Config,
    kinds: Mapping[str, type[ChatProvider]],
    environment: Mapping[str, str],
    reported: CachedModelLists,
) -> AsyncIterator[OpenProviders[ChatProvider]]:
    """Open the providers while the block runs, with the settings that the gateway would use."""
    async with Transport() as transport:
        context = provider_contexts(home, config, transport, environment, reported=reported)
        async with open_chats(kinds, context) as providers:
            await providers.reconfigure(config)
            yield providers

"""The chat providers that are open, each on its own settings; one whose settings change is opened anew while turns run."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog

from gateway.configuration.keys import Config, provider_settings
from gateway.errors import sentence_of
from plugins.contracts import ChatProvider, House

log = structlog.get_logger("exuvia")


class _Opened(msgspec.Struct, frozen=True, eq=False):
    """One open provider. Setting `done` closes it, in the task that opened it."""

    provider: ChatProvider
    settings: Any
    done: asyncio.Event
    task: asyncio.Task[None]


class OpenProviders(Mapping[str, ChatProvider]):
    """The providers by name, in the order of `kinds`; a live view. Use as an async context manager, which closes all.

    A turn holds `in_use` while it runs: a provider that is replaced meanwhile stays open until every turn that began
    before has ended.
    """

    def __init__(self, kinds: Mapping[str, type[ChatProvider]], house: Callable[[str, Any], House]) -> None:
        self._kinds = kinds
        self._house = house
        self._open: dict[str, _Opened] = {}
        self._generation = 0
        self._users: Counter[int] = Counter()
        self._replaced: list[tuple[int, _Opened]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened = [*(opened for _, opened in self._replaced), *self._open.values()]
        for each in opened:
            each.done.set()
        await asyncio.gather(*(each.task for each in opened))

    def __getitem__(self, name: str) -> ChatProvider:
        return self._open[name].provider

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    async def fit(self, config: Config) -> list[str]:
        """Open what is not open with the settings that the configuration has for it, in the place of what is; returns the
        names. One that cannot be opened is named in the log, and what was open before stays. Raises ConfigRefused before
        anything is changed."""
        wanted: dict[str, Any] = {name: provider_settings(config, name, kind.Settings) for name, kind in self._kinds.items()}
        changed = [name for name in wanted if name not in self._open or self._open[name].settings != wanted[name]]
        opened = {name: each for name in changed if (each := await self._opened(name, wanted[name])) is not None}
        retired = [self._open[name] for name in opened if name in self._open]
        found = self._open | opened
        self._open = {name: found[name] for name in self._kinds if name in found}
        self._replaced += [(self._generation, each) for each in retired]
        self._generation += 1
        self._let_go()
        return list(opened)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """While the block runs, nothing is closed that was open when it began."""
        generation = self._generation
        self._users[generation] += 1
        try:
            yield
        finally:
            self._users[generation] -= 1
            self._let_go()

    def _let_go(self) -> None:
        """Close what was replaced and is used by nobody any more."""
        self._users = +self._users
        oldest = min(self._users, default=self._generation)
        for generation, each in self._replaced:
            if generation < oldest:
                each.done.set()
        self._replaced = [(generation, each) for generation, each in self._replaced if not each.task.done()]

    async def _opened(self, name: str, settings: Any) -> _Opened | None:
        try:
            provider = self._kinds[name](self._house(name, settings))
        except Exception as error:
            log.error("provider_not_opened", provider=name, reason=sentence_of(error))
            return None
        ready, done = asyncio.get_running_loop().create_future(), asyncio.Event()
        task = asyncio.create_task(_keep_open(name, provider, ready, done))
        try:
            return _Opened(provider, settings, done, task) if await ready else None
        except asyncio.CancelledError:
            task.cancel()
            raise


async def _keep_open(name: str, provider: ChatProvider, ready: asyncio.Future[bool], done: asyncio.Event) -> None:
    """Open, tell whether that went well, wait, close: in one task, as a provider with a task group of its own needs."""
    try:
        async with provider:
            if not ready.cancelled():
                ready.set_result(True)
            await done.wait()
    except Exception as error:
        log.error("provider_not_closed" if ready.done() else "provider_not_opened", provider=name, reason=sentence_of(error))
    finally:
        if not ready.done():
            ready.set_result(False)

"""Providers that are reopened while turns run: the old ones close when the last turn that may use them has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import pytest

from benchmarks.stage import Model
from gateway.config.keys import Config, load_config
from gateway.models import providers as open_providers
from gateway.models.providers import OpenProviders, open_chats
from gateway.support.clock import SystemClock
from plugins.api.chat import ChatProvider
from plugins.api.context import ProviderContext
from plugins.http.client import Transport
from tests.waiting import deadline


class Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a provider; with `broken` it cannot be opened."""

    key: str = ""
    broken: bool = False


class Notes(Model):
    """A provider that records when it is opened and closed."""

    name: ClassVar[str] = "notes"
    Settings: ClassVar[type] = Keys
    said: ClassVar[list[str]] = []

    def __init__(self, context: ProviderContext) -> None:
        super().__init__()
        self.key = context.settings.key
        self.broken = context.settings.broken

    async def __aenter__(self) -> Self:
        self._group = asyncio.TaskGroup()  # which must be left in the task that entered it
        await self._group.__aenter__()
        if self.broken:
            await self._group.__aexit__(None, None, None)
            raise OSError("it does not open")
        self.said.append(f"opened {self.name} {self.key}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._group.__aexit__(None, None, None)
        self.said.append(f"closed {self.name} {self.key}")


class Others(Notes):
    """Another provider."""

    name: ClassVar[str] = "others"


def config(**tables: Any) -> Config:
    return load_config(None, environment={}, overrides={"providers": tables})


def context(name: str, settings: Any) -> ProviderContext:
    here = Path("unused")
    return ProviderContext(
        settings=settings, folder=here, workspace=here, clock=SystemClock(), transport=Transport(), environment={}
    )


def pool() -> OpenProviders[ChatProvider]:
    Notes.said.clear()
    kinds: dict[str, type[ChatProvider]] = {"notes": Notes, "others": Others}
    return open_chats(kinds, context)


async def heard() -> list[str]:
    """Return the records since the last call."""
    for _ in range(5):
        await asyncio.sleep(0)
    said, Notes.said[:] = list(Notes.said), []
    return said


async def test_only_a_provider_whose_settings_changed_is_reopened_and_keeps_its_place() -> None:
    async with pool() as providers:
        assert await providers.reconfigure(config(notes={"key": "1"})) == ["notes", "others"]
        assert await heard() == ["opened notes 1", "opened others "]
        assert await providers.reconfigure(config(notes={"key": "1"})) == []
        assert await providers.reconfigure(config(notes={"key": "2"})) == ["notes"]
        assert await heard() == ["opened notes 2", "closed notes 1"]
        assert list(providers) == ["notes", "others"]
    assert await heard() == ["closed notes 2", "closed others "]


async def test_a_replaced_provider_is_closed_when_the_last_turn_that_may_use_it_ends() -> None:
    async with pool() as providers:
        await providers.reconfigure(config(notes={"key": "1"}))
        await heard()
        with providers.in_use():
            held = providers["notes"]
            with providers.in_use():
                await providers.reconfigure(config(notes={"key": "2"}))
                with providers.in_use():
                    await providers.reconfigure(config(notes={"key": "3"}))
                assert await heard() == ["opened notes 2", "opened notes 3"]
            assert await heard() == []
            assert isinstance(held, Notes)
            assert held.key == "1"
        assert sorted(await heard()) == ["closed notes 1", "closed notes 2"]


async def test_a_provider_that_fails_to_open_leaves_the_open_one_in_place() -> None:
    async with pool() as providers:
        assert await providers.reconfigure(config(others={"broken": True})) == ["notes"]
        assert list(providers) == ["notes"]
        assert await providers.reconfigure(config(notes={"key": "1", "broken": True})) == ["others"]
        assert list(providers) == ["notes", "others"]
        assert isinstance(providers["notes"], Notes)
        assert providers["notes"].key == ""
        await heard()
    assert sorted(await heard()) == ["closed notes ", "closed others "]


async def test_providers_in_use_when_the_gateway_ends_are_closed() -> None:
    async with pool() as providers:
        await providers.reconfigure(config(notes={"key": "1"}))
        with providers.in_use():
            await providers.reconfigure(config(notes={"key": "2"}))
            await heard()
            await providers.__aexit__(None, None, None)
            assert sorted(await heard()) == ["closed notes 1", "closed notes 2", "closed others "]


class Stubborn(Notes):
    """A third-party provider that ends or hangs as its key says."""

    name: ClassVar[str] = "stubborn"

    def __init__(self, context: ProviderContext) -> None:
        super().__init__(context)
        if self.key == "exits when made":
            raise SystemExit("a library is missing")

    async def __aenter__(self) -> Self:
        if self.key == "exits":
            raise SystemExit("a library is missing")
        if self.key == "cancels":
            raise asyncio.CancelledError
        if self.key == "never opens":
            await asyncio.Event().wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.key == "never closes":
            await asyncio.Event().wait()
        if self.key == "exits at its end":
            raise SystemExit("enough")


def stubborn() -> OpenProviders[ChatProvider]:
    kinds: dict[str, type[ChatProvider]] = {"stubborn": Stubborn, "notes": Notes}
    return open_chats(kinds, context)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("exits when made", "a library is missing"),
        ("exits", "a library is missing"),
        ("cancels", "It cancelled itself."),
        ("never opens", "It did not open within 0.1 s."),
    ],
)
async def test_a_provider_that_exits_or_hangs_as_it_is_opened_is_named_and_left_out(
    key: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_providers, "OPEN_SECONDS", 0.1)
    async with deadline(), stubborn() as providers:
        assert await providers.reconfigure(config(stubborn={"key": key})) == ["notes"]
        assert providers.problems() == [f"The provider stubborn could not be opened: {reason}"]
        assert await providers.reconfigure(config(stubborn={"key": "well"})) == ["stubborn"]
        assert (list(providers), providers.problems()) == (["stubborn", "notes"], [])


@pytest.mark.parametrize("key", ["never closes", "exits at its end"])
async def test_a_provider_that_exits_or_hangs_as_it_is_closed_keeps_nobody_from_ending(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_providers, "CLOSE_SECONDS", 0.1)
    async with deadline():
        async with stubborn() as providers:
            await providers.reconfigure(config(stubborn={"key": key}))
            await providers.reconfigure(config(stubborn={"key": "well"}))  # one that is replaced, too
            while not providers.problems():
                await asyncio.sleep(0.01)
            await providers.reconfigure(config(stubborn={"key": key}))
        [sentence] = providers.problems()
    assert sentence.startswith("The provider stubborn could not be closed: ")
    assert len(asyncio.all_tasks()) == 1

"""Several keys of a provider: which one is used, when the next one is, and the messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from plugins.api.chat import Delta, Reply
from plugins.providers.hosted.keys import MAX_PAUSE, RATE_LIMITED_PAUSE, REFUSED_PAUSE, ApiKeys
from plugins.support.errors import CredentialsRefused, NoSuchModel, PluginError, RateLimited, Unreachable
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret
from plugins.testing.contexts import ManualClock
from plugins.testing.servers.faulty_server import Fault, FaultyServer
from tests.plugins.provider_harness import ProviderClient, question
from tests.plugins.vendors import VENDORS, Vendor

ONE, TWO, THREE = THE_KEYS = ("first-key-of-three", "second-key-of-three", "third-key-of-three")

of_each_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)


# --- over the wire ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def keyed(
    vendor: Vendor, *answers: Any, accepted: tuple[str, ...] = THE_KEYS
) -> AsyncIterator[tuple[ProviderClient, list[str]]]:
    """The provider with three keys, its fake, which takes those that are `accepted`, and the keys that were sent."""
    server: FaultyServer[Any] = vendor.server(*answers)
    sent: list[str] = []
    refuse = server.key_refused

    def key_refused(request: Any) -> Any:
        sent.append(next(key for key in THE_KEYS if any(key in value for value in request.headers.values())))
        return None if sent[-1] in accepted else refuse(request)

    server.key_refused = key_refused  # type: ignore[method-assign]
    async with server.serving(), vendor.asking(server.url, api_key=tuple(map(Secret, THE_KEYS))) as client:
        yield client, sent


@of_each_vendor
async def test_a_rate_limited_key_is_paused_and_the_next_one_stays_in_use(vendor: Vendor) -> None:
    limited = Fault(status=429, body=vendor.refusal(429, "slow down"), headers={"Retry-After": "20"})
    async with keyed(vendor, limited, vendor.says("hello")) as (client, sent):
        assert (await client.ask()).text == "hello"
        assert (await client.ask()).text == "hello"

    assert sent == [ONE, TWO, TWO]
    assert client.slept == []


@of_each_vendor
async def test_a_refused_key_is_paused(vendor: Vendor) -> None:
    async with keyed(vendor, vendor.says("hello"), accepted=(THREE,)) as (client, sent):
        assert (await client.ask()).text == "hello"
        assert (await client.ask()).text == "hello"

    assert sent == [ONE, TWO, THREE, THREE]


@of_each_vendor
async def test_a_key_without_access_to_one_model_stays_in_use_for_others(vendor: Vendor) -> None:
    barred = Fault(status=403, body=vendor.refusal(403, "You do not have access to the model."))
    async with keyed(vendor, barred, vendor.says("hello")) as (client, sent):
        with pytest.raises(NoSuchModel):
            await client.ask()
        assert (await client.ask()).text == "hello"

    assert sent == [ONE, ONE]


@of_each_vendor
async def test_if_all_keys_are_refused_one_is_named_by_its_position_and_never_shown(vendor: Vendor) -> None:
    async with keyed(vendor, accepted=()) as (client, sent):
        with pytest.raises(CredentialsRefused) as refused:
            await client.ask()

    assert sent == [ONE, TWO, THREE]
    assert f"All 3 keys of providers.{vendor.kind.name}.api_key are paused; providers.{vendor.kind.name}.api_key[0]" in str(
        refused.value
    )
    assert not any(key in str(refused.value) for key in THE_KEYS)


@of_each_vendor
async def test_a_long_pause_is_not_observed_if_a_fallback_is_available(vendor: Vendor) -> None:
    limited = Fault(status=429, body=vendor.refusal(429, "slow down"), headers={"Retry-After": "20"})
    async with vendor.serving(limited, vendor.says("hello")) as (client, server):
        with pytest.raises(RateLimited):
            await client.ask(msgspec.structs.replace(question(model=vendor.model), has_fallback=True))
        assert (await client.ask()).text == "hello"

    assert client.slept == []
    assert len(server.requests) == 2


# --- in itself --------------------------------------------------------------------------------------------------------


class Lock:
    """Keys, and a door that each of them opens or not."""

    def __init__(self, *texts: str) -> None:
        self.clock = ManualClock()
        self.keys = ApiKeys(tuple(map(Secret, texts)), "providers.x.api_key", {}, "X_API_KEY", self.clock.monotonic)
        self.refuses: dict[str, PluginError] = {}
        self.tried: list[str] = []
        self.begins = False

    async def door(self, key: str) -> AsyncGenerator[Delta | Reply, None]:
        self.tried.append(key)
        if self.begins:
            yield Delta("hel")
        if key in self.refuses:
            raise self.refuses[key]
        yield Reply(text="hello", model="m", stop="end")

    async def open(self) -> list[str]:
        """The keys that were tried until one opened the door."""
        self.tried = []
        async for _ in self.keys.answer(self.door):
            pass
        return self.tried


async def test_a_key_is_paused_for_as_long_as_the_server_asks() -> None:
    lock = Lock("a", "b")
    lock.refuses = {"a": RateLimited("slow down", retry_after=30.0)}
    assert await lock.open() == ["a", "b"]
    lock.refuses = {"b": RateLimited("slow down")}
    lock.clock.move(29)
    with pytest.raises(RateLimited) as limited:
        await lock.open()
    assert limited.value.retry_after == pytest.approx(1)

    lock.clock.move(1)
    assert await lock.open() == ["a"]
    lock.clock.move(RATE_LIMITED_PAUSE)
    assert await lock.open() == ["a"], "a key that works stays in use"


async def test_the_next_key_stays_in_use_after_the_pause_of_the_first() -> None:
    lock = Lock("a", "b")
    lock.refuses = {"a": RateLimited("slow down", retry_after=30.0)}
    await lock.open()
    lock.clock.move(31)
    assert await lock.open() == ["b"]


async def test_a_refused_key_is_tried_again_after_an_hour() -> None:
    lock = Lock("a", "b")
    lock.refuses = {"a": CredentialsRefused("no"), "b": CredentialsRefused("no")}
    with pytest.raises(CredentialsRefused):
        await lock.open()
    assert lock.tried == ["a", "b"]
    with pytest.raises(CredentialsRefused):
        await lock.open()
    assert lock.tried == []

    lock.refuses = {}
    lock.clock.move(REFUSED_PAUSE)
    assert len(await lock.open()) == 1


async def test_a_pause_of_years_ends_after_an_hour() -> None:
    lock = Lock("a", "b")
    lock.refuses = {key: RateLimited("slow down", retry_after=9e8) for key in "ab"}
    with pytest.raises(RateLimited):
        await lock.open()

    lock.refuses = {}
    lock.clock.move(MAX_PAUSE)
    assert len(await lock.open()) == 1


async def test_a_reply_that_has_begun_is_not_retried_with_another_key() -> None:
    lock = Lock("a", "b")
    lock.begins, lock.refuses = True, {"a": RateLimited("slow down")}
    with pytest.raises(RateLimited):
        await lock.open()
    assert lock.tried == ["a"]
    assert await lock.open() == ["b"]


async def test_other_errors_do_not_change_the_key() -> None:
    lock = Lock("a", "b")
    lock.refuses = {"a": Unreachable("away")}
    with pytest.raises(Unreachable):
        await lock.open()
    assert lock.tried == ["a"]


async def test_a_single_key_is_never_paused() -> None:
    lock = Lock("a")
    lock.refuses = {"a": RateLimited("slow down", retry_after=30.0)}
    for _ in range(2):
        with pytest.raises(RateLimited, match="slow down"):
            await lock.open()
        assert lock.tried == ["a"]


async def test_a_key_with_invalid_characters_is_skipped() -> None:
    assert await Lock("one\ntwo", "b").open() == ["b"]


def test_a_refusal_is_retried_only_without_a_faster_alternative() -> None:
    limited, short = (StatusRefused(429, b"", retry_after=wait) for wait in (20.0, 1.0))
    alone, hurried = False, True

    def worth(lock: Lock, has_fallback: bool, refused: StatusRefused) -> bool:
        return lock.keys.retry_policy(lambda _: True, has_fallback=has_fallback)(refused)

    assert worth(Lock("a"), alone, limited)
    assert not worth(Lock("a", "b"), alone, limited)
    assert not worth(Lock("a"), hurried, limited)
    assert worth(Lock("a"), hurried, short)
    assert worth(Lock("a", "b"), alone, StatusRefused(500, b""))

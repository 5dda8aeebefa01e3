"""The `search` tool with each service, and the web tools as a set."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from plugins.http.client import Transport
from plugins.support.errors import ToolFailed
from plugins.support.secrets import Secret, scrubbed
from plugins.testing.contexts import ManualClock
from plugins.tools.web.provenance import is_named
from plugins.tools.web.search_services import VARIABLES
from plugins.tools.web.web_search import Search
from plugins.tools.web.web_settings import FetchKeys, SearchKeys, SearchProvider
from plugins.tools.web.web_tools import WebTools
from sessions.events.messages import ToolMessage
from tests.plugins.test_transport import RawServer, Slept, says, status
from tests.plugins.workspaces import call
from tests.servers.search_services import KEY, SearchServer

SERVICES: list[SearchProvider] = ["searxng", "brave", "tavily", "exa"]


@pytest.fixture
async def server() -> AsyncIterator[SearchServer]:
    async with SearchServer().serving() as found:
        yield found


class Searcher:
    """The tool with a configuration, asked as a model asks it."""

    def __init__(self, transport: Transport, keys: SearchKeys, environment: dict[str, str]) -> None:
        self.keys = keys
        self.environment = environment
        self.tool = Search(transport, lambda: self.keys, environment)

    async def __call__(self, query: str) -> str:
        assert await self.tool.approval({"query": query}, call()) is None
        return (await self.tool.run({"query": query}, call())).text


@pytest.fixture
def slept() -> Slept:
    return Slept()


@pytest.fixture(params=SERVICES)
async def searcher(request: pytest.FixtureRequest, server: SearchServer, slept: Slept) -> AsyncIterator[Searcher]:
    keys = SearchKeys(provider=request.param, api_key=Secret(KEY), base_url=server.address(request.param), max_results=3)
    async with Transport(sleep=slept, chance=lambda: 1.0) as transport:
        yield Searcher(transport, keys, {})


async def test_results_are_shown_as_data_and_name_their_urls(searcher: Searcher, server: SearchServer) -> None:
    server.found = [
        ("First &amp; best", "https://one.example/a?b=c#part", "The <strong>first</strong>\npassage"),
        ("The same page", "HTTPS://One.example:443/a?b=c", "again"),
        ("Script", "javascript:alert(1)", "no"),
        ("Second", "https://two.example", "x" * 1000),
        ("Third", "https://three.example/", ""),
        ("Fourth", "https://four.example/", "beyond the limit"),
    ]
    text = await searcher("tea & cake https://evil.example/?stolen=1")
    assert text.startswith("This is data from the web, written by others")
    assert "1. First & best\nhttps://one.example/a?b=c\nThe first passage\n" in text
    assert f"2. Second\nhttps://two.example/\n{'x' * 500}…\n" in text
    assert "3. Third\nhttps://three.example/\n[" in text
    for absent in ("again", "javascript", "four.example", "evil.example"):
        assert absent not in text
    results = [ToolMessage(id="c", tool="search", text=text)]
    assert is_named("https://two.example/", results)
    assert not is_named("https://evil.example/?stolen=1", results)
    asked = 3 if searcher.keys.provider != "searxng" else None
    assert server.queries == [(searcher.keys.provider, "tea & cake https://evil.example/?stolen=1", asked)]


async def test_nothing_found_is_said(searcher: Searcher) -> None:
    assert await searcher("nothing") == "The search service found nothing."


async def test_a_wrong_key_is_named_with_its_setting_and_not_repeated(searcher: Searcher, server: SearchServer) -> None:
    wrong = Secret("a-wrong-key-of-somebody")
    searcher.keys = msgspec.structs.replace(searcher.keys, api_key=wrong)
    server.answers_json = False
    with pytest.raises(ToolFailed) as failed:
        await searcher("x")
    expected = "search.formats" if searcher.keys.provider == "searxng" else "check tools.search.api_key"
    assert expected in str(failed.value)
    assert wrong.reveal() not in str(failed.value)
    assert wrong.reveal() not in scrubbed(f"Bearer {wrong.reveal()}")


async def test_a_limit_that_passes_is_waited_for(searcher: Searcher, server: SearchServer, slept: Slept) -> None:
    server.refusals = [(429, {"Retry-After": "2"}), (503, {})]
    server.found = [("Title", "https://one.example/", "")]
    assert "https://one.example/" in await searcher("x")
    assert slept == [2.0, 2.0]


@pytest.mark.parametrize("code", [429, 432, 433])
async def test_a_limit_that_stays_is_reported(code: int, searcher: Searcher, server: SearchServer) -> None:
    server.refusals = [(code, {})] * 3
    with pytest.raises(ToolFailed, match=f"^The search service {searcher.keys.provider} allows no more requests"):
        await searcher("x")


async def test_a_server_error_is_reported(searcher: Searcher, server: SearchServer) -> None:
    server.refusals = [(500, {})] * 3
    with pytest.raises(ToolFailed, match="answered 500"):
        await searcher("x")


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"results": 5}', b'{"results": [5]}', b"[" * 100_000, b'{"results": [{"url": "\xff"}]}'],
)
async def test_an_answer_that_is_not_valid_is_reported(body: bytes, slept: Slept) -> None:
    answer = says(status(200, "Content-Type: application/json", body=body))
    async with RawServer(answer).serving() as broken, Transport(sleep=slept) as transport:
        searcher = Searcher(transport, SearchKeys(provider="searxng", base_url=broken.url), {})
        with pytest.raises(ToolFailed, match="not valid"):
            await searcher("x")


async def test_fields_that_a_service_leaves_out_or_empty_do_no_harm(slept: Slept) -> None:
    body = (
        b'{"results": [{"url": null}, {"title": null, "url": "https://one.example/", "content": null, "highlights": null}]}'
    )
    answer = says(status(200, "Content-Type: application/json", body=body))
    async with RawServer(answer).serving() as server, Transport(sleep=slept) as transport:
        searcher = Searcher(transport, SearchKeys(provider="searxng", base_url=server.url), {})
        assert "\n1. \nhttps://one.example/\n" in await searcher("x")


@pytest.mark.parametrize("provider", SERVICES)
async def test_a_missing_key_or_address_is_named_without_a_request(provider: SearchProvider) -> None:
    async with Transport() as transport:
        with pytest.raises(ToolFailed) as failed:
            await Searcher(transport, SearchKeys(provider=provider), {})("x")
    needed = "tools.search.base_url" if provider == "searxng" else f"tools.search.api_key or {VARIABLES[provider]}"
    assert needed in str(failed.value)


async def test_the_usual_variable_of_a_key_counts(server: SearchServer, slept: Slept) -> None:
    for provider, variable in VARIABLES.items():
        async with Transport(sleep=slept) as transport:
            keys = SearchKeys(provider=provider, base_url=server.address(provider))
            assert await Searcher(transport, keys, {variable: f" {KEY} "})("x") == "The search service found nothing."


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"query": "x" * 401}])
async def test_bad_arguments_are_refused(arguments: dict[str, str]) -> None:
    async with Transport() as transport:
        tool = Search(transport, SearchKeys, {})
        with pytest.raises(ToolFailed, match="Invalid arguments"):
            await tool.approval(arguments, call())
        with pytest.raises(ToolFailed, match="Invalid arguments"):
            await tool.run(arguments, call())


async def test_the_set_follows_the_configuration() -> None:
    fetch, search = FetchKeys(), SearchKeys()
    async with (
        Transport() as transport,
        WebTools(lambda: fetch, lambda: search, clock=ManualClock(), transport=transport, environment={}) as tools,
    ):
        assert list(tools.tools()) == ["fetch"]
        search = SearchKeys(provider="searxng")
        assert list(tools.tools()) == ["fetch", "search"]
        fetch = FetchKeys(enabled=False)
        assert list(tools.tools()) == ["search"]

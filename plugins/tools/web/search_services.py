"""Search services: SearXNG, Brave, Tavily and Exa, each by its documented JSON interface."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import msgspec

from plugins.http.client import Timeouts, Transport
from plugins.http.web_urls import UrlRefused, canonical_url
from plugins.support.errors import BadAnswer, CredentialsRefused, ProviderError, RateLimited
from plugins.support.http_errors import StatusRefused
from plugins.support.secrets import Secret, hide
from plugins.tools.web.web_settings import SearchKeys, SearchProvider

TIMEOUTS = Timeouts(connect=5.0, first=20.0, between=10.0, whole=30.0, attempts=3, trying=30.0)
PASSAGE = 500
"""The maximum length of a passage in characters."""
TITLE = 200

ADDRESSES: Mapping[SearchProvider, str] = {
    "brave": "https://api.search.brave.com",
    "tavily": "https://api.tavily.com",
    "exa": "https://api.exa.ai",
}
VARIABLES: Mapping[SearchProvider, str] = {"brave": "BRAVE_API_KEY", "tavily": "TAVILY_API_KEY", "exa": "EXA_API_KEY"}
"""The usual variables of keys."""

_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,100}>")
_LIMITED = (429, 432, 433)
"""432 and 433 are limits of a plan at Tavily."""


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result: the title, the canonical URL, and a passage of the page, which may be empty."""

    title: str
    url: str
    passage: str


class _Found(msgspec.Struct, frozen=True):
    url: str | None = None
    title: str | None = None
    content: str | None = None
    description: str | None = None
    highlights: list[str] | None = None


class _Results(msgspec.Struct, frozen=True):
    results: list[_Found]


class _Answer(msgspec.Struct, frozen=True):
    """An answer of a service; Brave's results of the web are an object inside."""

    results: list[_Found] = []
    web: _Results | None = None


class SearchService:
    """The configured service.

    Args:
        keys: The section `[tools.search]`.
        environment: Where the usual variables of keys are.
    """

    def __init__(self, keys: SearchKeys, environment: Mapping[str, str]) -> None:
        self._keys = keys
        self._base = (keys.base_url or ADDRESSES.get(keys.provider, "")).rstrip("/")
        self._key = keys.api_key or Secret(environment.get(VARIABLES.get(keys.provider, ""), "").strip())
        hide(self._key)

    def missing(self) -> str:
        """Return what has to be configured, as a sentence; "" if nothing is missing."""
        provider = self._keys.provider
        if not self._base:
            return f'tools.search.provider is "{provider}": set tools.search.base_url to the address of a server.'
        if provider in VARIABLES and not self._key:
            return f'tools.search.provider is "{provider}": set tools.search.api_key or {VARIABLES[provider]}.'
        return ""

    async def search(self, transport: Transport, text: str) -> list[SearchResult]:
        """Return the results for a query, best first.

        Raises:
            ProviderError: The service did not answer, refused the key, or asks for fewer requests.
        """
        try:
            answer = await self._ask(transport, text)
            found = msgspec.json.decode(answer, type=_Answer)
        except StatusRefused as error:
            raise self._explain(error) from error
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise BadAnswer("The search service sent an answer that is not valid.") from error
        unique: dict[str, SearchResult] = {}
        for each in found.web.results if found.web else found.results:
            with suppress(UrlRefused):
                url = canonical_url(each.url or "")
                unique.setdefault(url, _result(each, url))
        return list(unique.values())[: self._keys.max_results]

    async def _ask(self, transport: Transport, text: str) -> bytes:
        key, most = self._key.reveal(), self._keys.max_results
        match self._keys.provider:
            case "brave":
                query = {"q": text, "count": most, "text_decorations": "false"}
                return await self._get(transport, "/res/v1/web/search", query, {"X-Subscription-Token": key})
            case "tavily":
                headers = {"Authorization": f"Bearer {key}"}
                return await self._post(transport, {"query": text, "max_results": most}, headers)
            case "exa":
                wanted = {"query": text, "numResults": most, "contents": {"highlights": True}}
                return await self._post(transport, wanted, {"x-api-key": key})
            case _:
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                return await self._get(transport, "/search", {"q": text, "format": "json"}, headers)

    async def _get(self, transport: Transport, path: str, query: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        url = f"{self._base}{path}?{urlencode(query)}"
        return await transport.get(url, headers={"Accept": "application/json", **headers}, timeouts=TIMEOUTS)

    async def _post(self, transport: Transport, body: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        return await transport.post(
            f"{self._base}/search", headers=headers, body=msgspec.json.encode(body), timeouts=TIMEOUTS
        )

    def _explain(self, error: StatusRefused) -> ProviderError:
        if error.status == 403 and self._keys.provider == "searxng":
            return CredentialsRefused("SearXNG does not answer in JSON: add json to search.formats in its settings.yml.")
        if error.status in (401, 403) or (error.status == 422 and b"SUBSCRIPTION_TOKEN_INVALID" in error.body):
            return CredentialsRefused(
                f"The search service {self._keys.provider} refused the key; check tools.search.api_key."
            )
        if error.status in _LIMITED:
            return RateLimited(
                f"The search service {self._keys.provider} allows no more requests at the moment.",
                retry_after=error.retry_after,
            )
        return error


def _result(found: _Found, url: str) -> SearchResult:
    passage = found.content or found.description or " … ".join(found.highlights or [])
    return SearchResult(title=_plain(found.title or "", TITLE), url=url, passage=_plain(passage, PASSAGE))


def _plain(text: str, most: int) -> str:
    """Return a text of a result on one line, without tags, of limited length."""
    words = " ".join(html.unescape(_TAG.sub("", text)).split())
    return words if len(words) <= most else f"{words[:most]}…"

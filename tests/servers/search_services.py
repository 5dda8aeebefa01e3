"""Fakes of the search services: the JSON interfaces of SearXNG, Brave, Tavily and Exa as documented, with their errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

KEY = "a-key-for-the-search-service"

Found = list[tuple[str, str, str]]
"""Results as title, URL and passage."""


class SearchServer:
    """All four services at one address. `refusals` are answered first: pairs of a status and headers."""

    def __init__(self) -> None:
        self.url = ""
        self.found: Found = []
        self.refusals: list[tuple[int, dict[str, str]]] = []
        self.queries: list[tuple[str, str, int | None]] = []
        """What was asked: the service, the query, the number of results."""
        self.answers_json = True

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[SearchServer]:
        app = web.Application()
        app.router.add_get("/search", self._searxng)
        app.router.add_get("/res/v1/web/search", self._brave)
        app.router.add_post("/tavily/search", self._tavily)
        app.router.add_post("/exa/search", self._exa)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def address(self, provider: str) -> str:
        return f"{self.url}/{provider}" if provider in ("tavily", "exa") else self.url

    async def _searxng(self, request: web.Request) -> web.Response:
        if refused := self._refused({"error": "Too Many Requests"}):
            return refused
        if request.query.get("format") != "json" or not self.answers_json:
            return web.Response(status=403, text="<!doctype html><title>403 Forbidden</title>", content_type="text/html")
        self.queries.append(("searxng", request.query["q"], None))
        results = [
            {"url": url, "title": title, "content": passage, "engine": "x", "score": 1.0, "category": "general"}
            for title, url, passage in self.found
        ]
        body = {"query": request.query["q"], "number_of_results": 0, "results": results, "answers": [], "suggestions": []}
        return web.json_response({**body, "corrections": [], "infoboxes": [], "unresponsive_engines": [["y", "timeout"]]})

    async def _brave(self, request: web.Request) -> web.Response:
        limited = {"status": 429, "code": "RATE_LIMITED", "detail": "Request rate limit exceeded for plan."}
        if refused := self._refused({"type": "ErrorResponse", "error": limited}):
            return refused
        if request.headers.get("X-Subscription-Token") != KEY:
            error = {"id": "1", "status": 422, "code": "SUBSCRIPTION_TOKEN_INVALID", "detail": "The token is invalid."}
            return web.json_response({"type": "ErrorResponse", "error": error, "time": 1}, status=422)
        if not 1 <= int(request.query["count"]) <= 20 or len(request.query["q"]) > 400:
            return web.json_response({"type": "ErrorResponse", "error": {"status": 422, "code": "VALIDATION"}}, status=422)
        self.queries.append(("brave", request.query["q"], int(request.query["count"])))
        results = [
            {"type": "search_result", "title": title, "url": url, "description": passage, "age": "1 day ago"}
            for title, url, passage in self.found
        ]
        query = {"original": request.query["q"], "more_results_available": False}
        found = {"web": {"type": "search", "results": results}} if results else {}
        return web.json_response({"type": "search", "query": query, "mixed": {"type": "mixed"}, **found})

    async def _tavily(self, request: web.Request) -> web.Response:
        if refused := self._refused({"detail": {"error": "Your request has been blocked due to excessive requests."}}):
            return refused
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"detail": {"error": "Unauthorized: missing or invalid API key."}}, status=401)
        asked = await request.json()
        self.queries.append(("tavily", asked["query"], asked["max_results"]))
        results = [
            {"title": title, "url": url, "content": passage, "score": 0.9, "raw_content": None}
            for title, url, passage in self.found
        ]
        body = {"query": asked["query"], "answer": None, "images": [], "results": results, "response_time": 0.5}
        return web.json_response(body)

    async def _exa(self, request: web.Request) -> web.Response:
        if refused := self._refused({"error": "Rate limit exceeded", "requestId": "1"}):
            return refused
        if request.headers.get("x-api-key") != KEY:
            return web.json_response({"requestId": "1", "error": "Invalid API key", "tag": "INVALID_API_KEY"}, status=401)
        asked = await request.json()
        assert asked["contents"] == {"highlights": True}
        self.queries.append(("exa", asked["query"], asked["numResults"]))
        results = [
            {"id": url, "title": title, "url": url, "publishedDate": None, "highlights": [passage], "highlightScores": [0.5]}
            for title, url, passage in self.found
        ]
        return web.json_response({"requestId": "1", "results": results, "costDollars": {"total": 0.005}})

    def _refused(self, body: dict[str, Any]) -> web.Response | None:
        if not self.refusals:
            return None
        status, headers = self.refusals.pop(0)
        return web.json_response(body, status=status, headers=headers)

"""Servers that are addresses: sessions, bounds, logins, and where a server sends its client."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from plugins.mcp import http_transport
from plugins.mcp.definitions import MESSAGE_BYTES
from plugins.mcp.mcp_settings import ServerKeys
from plugins.mcp.oauth import OAuthFlow, authorization_result
from plugins.support.errors import ToolFailed
from plugins.support.secrets import Secret, scrubbed
from tests.mcp.mcp_stage import opened, report, run
from tests.waiting import until

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse | None]]

TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]


class HttpServer:
    """A server of 2025-11-25 over HTTP. `answer` may answer a request itself."""

    def __init__(self) -> None:
        self.url = ""
        self.sessions = 0
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Answer | None = None
        self.unknown_session: tuple[int, str, str] = (404, "", "text/plain")

    async def handle(self, request: web.Request) -> web.StreamResponse:  # noqa: PLR0911 - one for each request
        self.requests.append((request.method, request.path))
        self.headers.append(dict(request.headers))
        message = json.loads(await request.text()) if request.method == "POST" and request.path == "/mcp" else {}
        if self.answer is not None and (own := await self.answer(request, message)) is not None:
            return own
        if request.method != "POST" or request.path != "/mcp":
            return web.Response(status=405 if request.path == "/mcp" else 404)
        known = request.headers.get("Mcp-Session-Id") == f"session-{self.sessions}"
        match message.get("method"):
            case "initialize":
                self.sessions += 1
                info = {"name": "http", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                return self.result(message, result, {"Mcp-Session-Id": f"session-{self.sessions}"})
            case "tools/list" if known:
                return self.result(message, {"tools": TOOLS})
            case "tools/call" if known:
                text = str(message["params"]["arguments"].get("text"))
                return self.result(message, {"content": [{"type": "text", "text": text}]})
            case method if method is not None and method.startswith("notifications/"):
                return web.Response(status=202)
            case "server/discover":
                error = {"code": -32601, "message": "Method not found"}
                return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        status, text, content_type = self.unknown_session
        return web.Response(status=status, text=text, content_type=content_type)

    def result(self, message: dict[str, Any], result: Any, headers: dict[str, str] | None = None) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)


@asynccontextmanager
async def serving() -> AsyncIterator[HttpServer]:
    server = HttpServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        yield server
    finally:
        await runner.cleanup()


async def test_the_tools_of_an_address_are_called_with_its_headers_and_within_a_session(tmp_path: Path) -> None:
    async with serving() as server:
        keys = ServerKeys(url=server.url, headers={"Authorization": Secret("Bearer a-token-of-the-operator")})
        async with opened(tmp_path, far=keys) as source:
            assert report(source, "far").tools == ("far_echo",)
            assert (await run(source, "far_echo", text="hi")).text == "hi"
        assert {each.get("Authorization") for each in server.headers} == {"Bearer a-token-of-the-operator"}
        assert server.requests[-1] == ("DELETE", "/mcp")


def rpc_error(identifier: str | None, code: int, message: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message}})


NOT_FOUND = [
    ("", "text/plain"),
    ("<h1>Not Found</h1>", "text/html"),
    (rpc_error(None, -32001, "Session not found"), "application/json"),
    (rpc_error("server-error", -32600, "Session not found"), "application/json"),
]


@pytest.mark.parametrize(("text", "content_type"), NOT_FOUND)
async def test_a_server_that_forgot_the_session_is_connected_to_again_and_the_call_repeated(
    tmp_path: Path, text: str, content_type: str
) -> None:
    async with serving() as server, opened(tmp_path, far=ServerKeys(url=server.url)) as source:
        server.unknown_session = 404, text, content_type
        server.sessions += 1  # as after a restart of the server
        assert (await run(source, "far_echo", text="again")).text == "again"


@pytest.mark.parametrize(
    ("text", "content_type"),
    [
        (rpc_error(None, -32000, "Bad Request: No valid session ID provided"), "application/json"),
        (rpc_error(None, -32000, "Bad Request: Server not initialized"), "application/json"),
        ("Bad Request: No valid session ID provided", "text/plain"),
    ],
)
async def test_a_server_that_calls_a_forgotten_session_a_bad_request_is_connected_to_again(
    tmp_path: Path, text: str, content_type: str
) -> None:
    async with serving() as server, opened(tmp_path, far=ServerKeys(url=server.url)) as source:
        server.unknown_session = 400, text, content_type
        server.sessions += 1
        with pytest.raises(ToolFailed, match="no longer knows the session"):
            await run(source, "far_echo", text="lost")
        assert (await run(source, "far_echo", text="next")).text == "next"


async def test_another_bad_request_is_told_and_does_not_end_the_connection(tmp_path: Path) -> None:
    async def bad(_: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message.get("method") != "tools/call" or message["params"]["arguments"]["text"] != "bad":
            return None
        return web.Response(status=400, text=rpc_error(None, -32602, "No such text"), content_type="application/json")

    async with serving() as server, opened(tmp_path, far=ServerKeys(url=server.url)) as source:
        server.answer = bad
        with pytest.raises(ToolFailed, match="No such text"):
            await run(source, "far_echo", text="bad")
        assert (await run(source, "far_echo", text="next")).text == "next"
        assert report(source, "far").starts == 1


@pytest.mark.parametrize(("text", "content_type"), NOT_FOUND)
async def test_a_server_that_forgets_each_session_fails_the_call(tmp_path: Path, text: str, content_type: str) -> None:
    calls = 0

    async def forget(_: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        nonlocal calls
        if message.get("method") != "tools/call":
            return None
        calls += 1
        return web.Response(status=404, text=text, content_type=content_type)

    async with serving() as server, opened(tmp_path, far=ServerKeys(url=server.url)) as source:
        server.answer = forget
        with pytest.raises(ToolFailed, match="no longer knows the session"):
            await run(source, "far_echo", text="x")
        assert calls == 2
        server.answer = None
        assert (await run(source, "far_echo", text="next")).text == "next"


@pytest.mark.parametrize("message", ["Session terminated", "Session not found"])
async def test_a_call_that_a_server_answers_with_such_an_error_is_not_repeated(tmp_path: Path, message: str) -> None:
    calls = 0

    async def failing(_: web.Request, sent: dict[str, Any]) -> web.StreamResponse | None:
        nonlocal calls
        if sent.get("method") != "tools/call":
            return None
        calls += 1
        return web.Response(text=rpc_error(sent["id"], -32600, message), content_type="application/json")

    async with serving() as server, opened(tmp_path, far=ServerKeys(url=server.url)) as source:
        server.answer = failing
        with pytest.raises(ToolFailed, match=message):
            await run(source, "far_echo", text="x")
        assert calls == 1


async def test_a_server_that_is_away_for_one_call_serves_the_next(tmp_path: Path) -> None:
    async def cut(request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message.get("method") == "tools/call" and message["params"]["arguments"]["text"] == "cut":
            assert request.transport is not None
            request.transport.abort()
        return None

    async with serving() as server, opened(tmp_path, far=ServerKeys(url=server.url)) as source:
        server.answer = cut
        with pytest.raises(ToolFailed, match="The server cannot be reached"):
            await run(source, "far_echo", text="cut")
        assert report(source, "far").starts == 1
        assert (await run(source, "far_echo", text="next")).text == "next"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_without_an_end_fails_in_bounded_memory(tmp_path: Path, *, stream: bool) -> None:
    sent = 0

    async def endless(request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        nonlocal sent
        if message.get("method") != "tools/call" or message["params"]["arguments"]["text"] != "endless":
            return None
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream" if stream else "application/json"})
        await response.prepare(request)
        await response.write(b'data: {"jsonrpc":"2.0","result":"' if stream else b'{"jsonrpc":"2.0","result":"')
        while True:
            await response.write(b"x" * 65536)
            sent += 65536

    async with serving() as server, opened(tmp_path, far=ServerKeys(url=server.url)) as source:
        server.answer = endless
        with pytest.raises(ToolFailed):
            await run(source, "far_echo", text="endless")
        assert sent < 4 * MESSAGE_BYTES
        assert (await run(source, "far_echo", text="next")).text == "next"


async def test_an_answer_of_very_many_values_fails_and_does_not_hold_up_the_gateway(tmp_path: Path) -> None:
    async def dense(request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message.get("method") != "tools/call" or message["params"]["arguments"]["text"] != "dense":
            return None
        return server.result(message, {"content": [], "structuredContent": {"x": [[]] * 1_000_000}})

    async with serving() as server, opened(tmp_path, far=ServerKeys(url=server.url)) as source:
        server.answer = dense
        with pytest.raises(ToolFailed, match="50,000 values"):
            await run(source, "far_echo", text="dense")
        assert (await run(source, "far_echo", text="next")).text == "next"


async def test_a_compressed_answer_is_refused(tmp_path: Path) -> None:
    async def compressed(_: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message.get("method") != "tools/call":
            return None
        response = web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})
        response.enable_compression(web.ContentCoding.gzip)
        response.headers["Content-Encoding"] = "gzip"
        return response

    async with serving() as server, opened(tmp_path, far=ServerKeys(url=server.url)) as source:
        server.answer = compressed
        with pytest.raises(ToolFailed, match="compressed"):
            await run(source, "far_echo", text="x")
        assert "gzip" not in server.headers[-1]["Accept-Encoding"]


# --- where it leads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["http://169.254.169.254/latest", "http://localhost:1/mcp", "//[fe80::1]/mcp"])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_elsewhere_is_not_followed(tmp_path: Path, location: str, status: int) -> None:
    async def elsewhere(*_: Any) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": location})

    async with serving() as server:
        server.answer = elsewhere
        async with opened(tmp_path, far=ServerKeys(url=server.url)) as source:
            assert not report(source, "far").ready
            assert "not followed" in report(source, "far").problem


def guarded(url: str) -> http_transport.GuardedTransport:
    return http_transport.GuardedTransport(httpx2.URL(url), http_transport.trusted_certificates())


@pytest.mark.parametrize(
    ("server", "target"),
    [
        ("https://mcp.example.com/mcp", "http://169.254.169.254/latest"),
        ("https://mcp.example.com/mcp", "http://127.0.0.1/token"),
        ("https://mcp.example.com/mcp", "http://10.0.0.5/token"),
        ("https://mcp.example.com/mcp", "http://[::ffff:169.254.169.254]/"),
        ("https://mcp.example.com/mcp", "https://rebound.example.com/token"),
        ("https://mcp.example.com/mcp", "https://linked.example.com/token"),
        ("http://127.0.0.1:1/mcp", "http://169.254.169.254/latest"),
        ("http://127.0.0.1:1/mcp", "https://linked.example.com/token"),
        ("https://linked.example.com/mcp", "https://linked.example.com/mcp"),
    ],
)
async def test_no_name_leads_to_an_address_that_the_operator_did_not_mean(
    monkeypatch: pytest.MonkeyPatch, server: str, target: str
) -> None:
    names = {
        "mcp.example.com": "8.8.8.8",
        "rebound.example.com": "192.168.1.1",
        "linked.example.com": "169.254.10.10",
    }

    async def lookup(host: str, port: int, **_: Any) -> list[Any]:
        return [(0, 0, 0, "", (names.get(host, host), port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup)
    transport = guarded(server)
    request = httpx2.Request("GET", target)
    with pytest.raises(httpx2.ConnectError, match=r"not public|never connected to"):
        await transport.handle_async_request(request)
    await transport.aclose()


# --- logins -----------------------------------------------------------------------------------------------------------


class AuthorizationServer:
    """An authorization server beside an MCP server, that answers as `HttpServer.answer`."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.origin = server.url.removesuffix("/mcp")
        self.issuer = self.origin
        self.grants: list[str] = []
        self.tokens = 0
        self.lifetime = 3600
        self.redirect: Callable[[str, str], str] = lambda redirect, state: f"{redirect}?code=the-code&state={state}"

    async def answer(  # noqa: PLR0911 - one for each page
        self, request: web.Request, _: dict[str, Any]
    ) -> web.StreamResponse | None:
        match request.path:
            case "/.well-known/oauth-protected-resource/mcp":
                return web.json_response({"resource": self.server.url, "authorization_servers": [self.origin]})
            case "/.well-known/oauth-authorization-server":
                ends = {f"{name}_endpoint": f"{self.origin}/{name}" for name in ("authorization", "token", "registration")}
                methods = {"code_challenge_methods_supported": ["S256"]}
                return web.json_response({"issuer": self.issuer, **ends, **methods})
            case "/registration":
                registered = await request.json()
                return web.json_response(
                    {**registered, "client_id": "registered", "client_secret": "the-client-secret"}, status=201
                )
            case "/authorization":
                target = self.redirect(request.query["redirect_uri"], request.query["state"])
                return web.Response(status=302, headers={"Location": target})
            case "/token":
                form = await request.post()
                self.grants.append(str(form["grant_type"]))
                self.tokens += 1
                fresh = {"access_token": f"access-token-{self.tokens}", "refresh_token": "the-refresh-token"}
                return web.json_response({**fresh, "token_type": "Bearer", "expires_in": self.lifetime})
        if request.headers.get("Authorization") == f"Bearer access-token-{self.tokens}" and self.tokens:
            return None
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})


def at_once(flow: OAuthFlow) -> None:
    """Log in as a person would whose browser does it at once."""
    arrived: list[str] = []

    async def show(url: str) -> None:
        async with httpx2.AsyncClient() as browser:
            arrived.append((await browser.get(url)).headers["Location"])

    async def answer() -> Any:
        return authorization_result(arrived[-1])

    flow.interactive(show, answer, "http://127.0.0.1:8765/callback")


async def test_a_login_is_kept_privately_and_used_and_renewed_after_a_restart(tmp_path: Path) -> None:
    async with serving() as server:
        login = AuthorizationServer(server)
        server.answer = login.answer
        keys = ServerKeys(url=server.url)
        async with opened(tmp_path, far=keys) as source:
            assert report(source, "far").problem == "it asks for a login: `/mcp login far` or `exuvia mcp login far`"
            assert login.grants == []
            assert not [path for _, path in server.requests if path == "/registration"]
        async with opened(tmp_path, prepare_login=at_once, far=keys) as source:
            assert (await run(source, "far_echo", text="in")).text == "in"
        file = tmp_path / "logins" / "far.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert scrubbed("the-refresh-token the-client-secret") == "(hidden) (hidden)"
        async with opened(tmp_path, far=keys) as source:
            assert (await run(source, "far_echo", text="again")).text == "again"
        assert login.grants == ["authorization_code"]
        kept = json.loads(file.read_text())
        file.write_text(json.dumps({**kept, "expires_at": 1.0}))
        async with opened(tmp_path, far=keys) as source:
            assert (await run(source, "far_echo", text="renewed")).text == "renewed"
        assert login.grants == ["authorization_code", "refresh_token"]


async def test_a_login_begins_in_a_chat_and_ends_with_the_address_that_the_browser_was_sent_to(tmp_path: Path) -> None:
    async with serving() as server:
        login = AuthorizationServer(server)
        server.answer = login.answer
        async with opened(tmp_path, far=ServerKeys(url=server.url)) as source:
            with pytest.raises(ToolFailed, match="No login to far was begun"):
                await source.finish_login("far", "http://127.0.0.1/callback?code=x")
            await source.begin_login("far")
            address = await source.begin_login("far")  # the earlier one ends
            async with httpx2.AsyncClient() as browser:
                returned = (await browser.get(address)).headers["Location"]
            with pytest.raises(ToolFailed, match="State"):
                await source.finish_login("far", returned.replace("state=", "state=x"))
            address = await source.begin_login("far")
            async with httpx2.AsyncClient() as browser:
                returned = (await browser.get(address)).headers["Location"]
            await source.finish_login("far", returned)
            await until(lambda: report(source, "far").ready)
            assert (await run(source, "far_echo", text="in")).text == "in"
            assert await source.begin_login("far") == ""


async def test_a_browser_on_this_machine_ends_a_login_by_itself(tmp_path: Path) -> None:
    async with serving() as server:
        login = AuthorizationServer(server)
        server.answer = login.answer
        async with opened(tmp_path, far=ServerKeys(url=server.url)) as source:
            address = await source.begin_login("far")
            async with httpx2.AsyncClient(follow_redirects=True) as browser:
                assert "You can close this window" in (await browser.get(address)).text
            await until(lambda: report(source, "far").ready)


async def test_a_waiting_server_notices_a_login_of_another_process(tmp_path: Path) -> None:
    async with serving() as server:
        login = AuthorizationServer(server)
        server.answer = login.answer
        keys = ServerKeys(url=server.url)
        async with opened(tmp_path, far=keys) as source:
            async with opened(tmp_path, prepare_login=at_once, far=keys):
                pass
            await until(lambda: report(source, "far").ready)


async def test_a_server_whose_login_cannot_be_looked_at_is_connected_to_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()
    changed = OAuthFlow.changed

    async def changed_after_a_failure(flow: OAuthFlow) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("can't start new thread")
        await changed(flow)

    monkeypatch.setattr(OAuthFlow, "changed", changed_after_a_failure)
    async with serving() as server:
        login = AuthorizationServer(server)
        server.answer = login.answer
        keys = ServerKeys(url=server.url)
        async with opened(tmp_path, far=keys) as source:
            await failed.wait()
            async with opened(tmp_path, prepare_login=at_once, far=keys):
                pass
            await until(lambda: report(source, "far").ready)


async def test_a_login_is_for_the_configured_address_alone(tmp_path: Path) -> None:
    async with serving() as server, serving() as other:
        login = AuthorizationServer(server)
        server.answer = login.answer
        async with opened(tmp_path, prepare_login=at_once, far=ServerKeys(url=server.url)):
            pass
        async with opened(tmp_path, far=ServerKeys(url=other.url)):
            pass
        assert not any("Authorization" in headers for headers in other.headers)


async def test_metadata_of_another_issuer_and_answers_of_another_issuer_or_state_are_refused(tmp_path: Path) -> None:
    async with serving() as server:
        login = AuthorizationServer(server)
        server.answer = login.answer
        keys = ServerKeys(url=server.url)

        async def refused(*words: str) -> None:
            async with opened(tmp_path, prepare_login=at_once, far=keys) as source:
                assert not report(source, "far").ready
                assert any(word in report(source, "far").problem for word in words), report(source, "far").problem
            assert login.grants == []

        login.issuer = "https://login.example.org"
        await refused("issuer")
        login.issuer = login.origin
        login.redirect = lambda redirect, state: f"{redirect}?code=c&state={state}&iss=https://evil.example.org"
        await refused("iss")
        login.redirect = lambda redirect, state: f"{redirect}?code=c&state=of-another"
        await refused("tate")
        login.redirect = lambda redirect, state: f"{redirect}?error=access_denied&state={state}"
        await refused("access_denied")

"""Attacks on the HTTP server itself: broken requests are refused with one sentence and leave no traceback, and no answer
names the software beneath the gateway."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from gateway.http.web import application
from sessions.events.errors import StorageFailed
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.waiting import deadline

SOFTWARE = re.compile(rb"aiohttp|python|traceback|\b3\.\d+\.\d+|got itself in trouble|b'", re.IGNORECASE)
"""What only an answer of aiohttp's own says."""

HOST = "Host: 127.0.0.1:{port}\r\n"
PAGE = HOST + "Origin: http://127.0.0.1:{port}\r\n"

BROKEN = {
    "TLS": "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "a method with odd characters": "G@T / HTTP/1.1\r\n" + HOST + "\r\n",
    "a version that there is not": "GET / HTTP/9\r\n\r\n",
    "a path of 20,000 characters": "GET /" + "a" * 20_000 + " HTTP/1.1\r\n" + HOST + "\r\n",
    "a header of 20,000 characters": "GET / HTTP/1.1\r\n" + HOST + "X: " + "a" * 20_000 + "\r\n\r\n",
    "a NUL in a header": "GET / HTTP/1.1\r\n" + HOST + "X\x00: a\r\n\r\n",
    "a control character in a cookie": "GET / HTTP/1.1\r\n" + HOST + "Cookie: a\x01=b\r\n\r\n",
    "a line that is continued": "GET / HTTP/1.1\r\n" + HOST + "X: a\r\n b\r\nno colon\r\n\r\n",
    "two lengths": "POST /api/sign-in HTTP/1.1\r\n" + PAGE + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length and chunks": "POST / HTTP/1.1\r\n" + PAGE + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative length": "POST /api/sign-in HTTP/1.1\r\n" + PAGE + "Content-Length: -5\r\n\r\n",
    "a chunk without a size": "POST /api/sign-in HTTP/1.1\r\n" + PAGE + "Transfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n",
    "an address that is none": "GET http://[::1 HTTP/1.1\r\n" + HOST + "\r\n",
}

ODD = {
    "no such path": ("GET /nope", "", 404),
    "a path that is not UTF-8": ("GET /%ff%fe", "", 404),
    "a method that the path does not take": ("DELETE /", "", 405),
    "every path": ("OPTIONS *", "", 404),
    "a tunnel": ("CONNECT evil.example:80", "", 404),
    "an expectation that nobody knows": ("GET /", "Expect: 200-maybe\r\n", 417),
    "a websocket without an upgrade": ("GET /ws", "Authorization: Bearer " + TOKEN + "\r\n", 400),
    "a page": ("GET /", "", 200),
    "a wrong token": ("GET /metrics", "Authorization: Bearer wrong\r\n", 401),
    "another host": ("GET /", "X-Forwarded-Host: a\r\nHost: evil.example\r\n", 400),
}

SIGN_INS = {
    "malformed": (b"{nope", 400),
    "nothing but brackets": (b"[" * 15_000, 400),
    "objects in objects": (b'{"token":' * 1700, 400),
    "a number": (b'{"token": 5}', 400),
    "a list": (b"[1]", 400),
    "null": (b"null", 400),
    "an unknown field": (b'{"admin": true}', 400),
    "a string that is not UTF-8": (b'{"token": "\xff\xfe"}', 400),
    "a name that is not UTF-8": (b'{"\xff": 1}', 400),
    "bytes that are no text": (b"\xff\xfe", 400),
    "half of a surrogate pair": (b'{"token": "\\ud800"}', 400),
    "two halves the wrong way round": (b'{"link": "\\udc00\\ud800"}', 400),
    "a NUL": (b'{"token": "\\u0000"}', 401),
    "a link with a time beyond all numbers": (b'{"link": "owner.%s.a.b"}' % (b"9" * 6000), 401),
    "a link in another script": ('{"link": "öwner.١٢.a.b"}'.encode(), 401),
    "more than a token can be": (b"{" + b" " * 20_000 + b"}", 413),
}


async def answered(g: Gateway, request: bytes, *, cut: bool = False) -> bytes:
    """Return all that the gateway answers before it closes the connection; with `cut`, this side ends it first."""
    assert g.daemon.address is not None
    reader, writer = await asyncio.open_connection(*g.daemon.address)
    try:
        writer.write(request.replace(b"{port}", str(g.daemon.address[1]).encode()))
        if cut:
            writer.write_eof()
        async with deadline():
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def logged(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> str:
    written = capsys.readouterr()
    return "\n".join([caplog.text, written.out, written.err])


@pytest.mark.parametrize("name", BROKEN)
async def test_invalid_http_is_refused_with_a_sentence(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway(tmp_path) as g:
        answer = await answered(g, BROKEN[name].encode("latin-1"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split(b" ", 2)[1] == b"400"
        assert json.loads(body)["code"] == "bad_request"
        assert SOFTWARE.search(answer) is None, answer
        async with g.http.get(f"{g.url}/healthz") as response:
            assert response.status == 200
    assert "Traceback" not in logged(caplog, capsys)


@pytest.mark.parametrize("name", ODD)
async def test_no_response_names_the_software_and_each_has_the_common_headers(name: str, tmp_path: Path) -> None:
    line, headers, status = ODD[name]
    async with gateway(tmp_path) as g:
        answer = await answered(g, f"{line} HTTP/1.1\r\n{HOST}Connection: close\r\n{headers}\r\n".encode())
    assert answer.split(b" ", 2)[1] == str(status).encode()
    assert SOFTWARE.search(answer) is None, answer
    assert b"\r\nServer: exuvia\r\n" in answer
    assert b"\r\nX-Content-Type-Options: nosniff\r\n" in answer


@pytest.mark.parametrize("name", SIGN_INS)
async def test_an_invalid_sign_in_leaves_no_traceback(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    body, status = SIGN_INS[name]
    async with gateway(tmp_path) as g, g.http.post(f"{g.url}/api/sign-in", data=body, headers={"Origin": g.url}) as response:
        assert response.status == status
        assert {"code", "message"} == (await response.json()).keys()
    assert "Traceback" not in logged(caplog, capsys)


@pytest.mark.parametrize("path", ["/api/sign-in", "/api/notes/memory/a.md", "/v1/chat/completions", "/attachments"])
@pytest.mark.parametrize("body", ["Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n5\r\n{"])
async def test_a_truncated_body_leaves_no_traceback(
    path: str, body: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    method = "PUT" if "notes" in path else "POST"
    headers = f"{PAGE}Authorization: Bearer {TOKEN}\r\nIf-None-Match: *\r\n"
    with caplog.at_level(logging.DEBUG):
        async with gateway(tmp_path) as g:
            await answered(g, f"{method} {path} HTTP/1.1\r\n{headers}{body}".encode(), cut=True)
            async with g.http.get(f"{g.url}/healthz") as response:
                assert response.status == 200
        # The gateway has stopped, so what it did with the request is over.
    assert "Traceback" not in logged(caplog, capsys)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ValueError("a secret detail"), 500, "internal"),
        (TimeoutError(), 504, "internal"),
        (MemoryError(), 503, "busy"),
        (RuntimeError("can't start new thread"), 503, "busy"),
        (StorageFailed("the database is away"), 503, "storage_failed"),
    ],
)
async def test_an_internal_error_is_a_sentence_for_the_client_and_is_logged(
    error: Exception, status: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: web.Request) -> web.StreamResponse:
        raise error

    def with_a_fault(*arguments: Any, **named: Any) -> web.Application:
        app = application(*arguments, **named)
        app.router.add_get("/fails", fails)
        return app

    monkeypatch.setattr("gateway.wiring.daemon.application", with_a_fault)
    async with gateway(tmp_path) as g:
        with capture_logs() as logs:
            async with g.http.get(f"{g.url}/fails", headers={"Accept": "text/html"}) as response:
                answer = await response.read()
        assert (response.status, json.loads(answer)["code"]) == (status, code)
        assert response.headers["Server"] == "exuvia"
    assert b"secret detail" not in answer
    events = ("request_failed", "resources_exhausted", "storage_not_usable")
    assert [entry["path"] for entry in logs if entry["event"] in events] == ["/fails"]

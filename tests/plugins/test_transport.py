"""The transport against servers that are written byte by byte, since an honest library would not let them be this bad."""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from time import process_time, time
from typing import Any

import msgspec
import pytest
from aiohttp import WSMsgType, web
from hypothesis import given
from hypothesis import strategies as st

from plugins.http.client import AT_ONCE, Limits, Timeouts, Transport
from plugins.http.connection_pools import CertificateError
from plugins.http.sse import EventStream, EventTooLong, ServerSentEvent
from plugins.http.web_client import WebClient, WebFailed
from plugins.support.errors import BadAnswer, BadRequest, ProviderError, RateLimited, StreamCut, Unreachable
from plugins.support.http_errors import StatusRefused, error_message, retry_after
from tests.waiting import deadline

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
ONE = b"data: one\n\n"

Writes = Callable[[asyncio.StreamWriter], Awaitable[None]]


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


class RawServer:
    """Reads whole requests and answers each with `write`; knows the heads and the number of connections it had."""

    def __init__(self, write: Writes, *, read_bodies: bool = True, tls: ssl.SSLContext | None = None) -> None:
        self._write = write
        self._tls = tls
        self._read_bodies = read_bodies
        self.heads: list[bytes] = []
        self.connections = 0
        self.lost = asyncio.Event()
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[RawServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                if self._read_bodies and (length := re.search(rb"content-length: (\d+)", head, re.IGNORECASE)):
                    await reader.readexactly(int(length[1]))
                self.heads.append(head)
                await self._write(writer)
        self.lost.set()
        writer.close()


def says(*pieces: bytes, pause: float = 0, close: bool = False, abort: bool = False) -> Writes:
    async def write(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        if abort:
            await asyncio.sleep(0.05)  # what was written leaves before the connection is reset
            writer.transport.abort()
        if close:
            writer.close()

    return write


class Meeting:
    """Waits until a number of participants have joined."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self._complete = asyncio.Event()

    async def join(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._complete.set()
        await self._complete.wait()


def status(code: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Slept(list[float]):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@asynccontextmanager
async def against(
    write: Writes, *, timeouts: Timeouts | None = None, limits: Limits | None = None, read_bodies: bool = True
) -> AsyncIterator[tuple[Transport, RawServer, Slept]]:
    slept = Slept()
    async with (
        RawServer(write, read_bodies=read_bodies).serving() as server,
        Transport(timeouts=timeouts, limits=limits, sleep=slept, chance=lambda: 1.0) as transport,
    ):
        yield transport, server, slept


async def told(
    transport: Transport, url: str, *, headers: dict[str, str] | None = None, body: bytes = b"{}", last: bytes = b"?"
) -> list[bytes]:
    """The events of an answer, up to the last."""
    seen: list[bytes] = []
    events = transport.stream_events(url, headers=headers or {}, body=body, until=lambda: seen[-1] == last)
    async for event in events:
        seen.append(event.data)
    return seen


# --- cut streams ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(says(CHUNKED + chunk(ONE) + b"5\r\nzz", close=True), id="inside a chunk"),
        pytest.param(says(CHUNKED + chunk(ONE), close=True), id="before the last chunk"),
        pytest.param(says(CHUNKED + chunk(ONE) + b"0\r\n", close=True), id="inside the last chunk"),
        pytest.param(says(CHUNKED + chunk(ONE), abort=True), id="reset"),
        pytest.param(says(HEAD + b"Content-Length: 999\r\n\r\n" + ONE, close=True), id="before the announced length"),
    ],
)
async def test_an_interruption_is_raised_after_the_events_before_it(write: Writes) -> None:
    async with against(write) as (transport, server, _):
        events = transport.stream_events(server.url, headers={}, body=b"{}")
        assert (await anext(events)).data == b"one"
        with pytest.raises(StreamCut, match="connection was lost"):
            await anext(events)


async def test_a_body_without_length_ends_where_it_is_cut_which_is_why_protocols_need_a_terminator() -> None:
    async with against(says(HEAD + b"Connection: close\r\n\r\n" + ONE, close=True)) as (transport, server, _):
        assert await told(transport, server.url) == [b"one"]


# --- deadlines --------------------------------------------------------------------------------------------------------

SHORT = Timeouts(first=0.5, between=0.1, attempts=1)


@pytest.mark.parametrize("pieces", [(b"", CHUNKED + chunk(ONE) + LAST_CHUNK), (CHUNKED, chunk(ONE) + LAST_CHUNK)])
async def test_the_timeout_before_the_first_byte_is_longer_than_between_two(pieces: tuple[bytes, ...]) -> None:
    async with against(says(*pieces, pause=0.25), timeouts=SHORT) as (transport, server, _):
        assert await told(transport, server.url) == [b"one"]


async def test_missing_headers_are_a_timeout() -> None:
    async with against(says(b"", pause=3600), timeouts=SHORT) as (transport, server, _):
        with pytest.raises(Unreachable, match="did not answer within"):
            await told(transport, server.url)


@pytest.mark.parametrize("content", [b"", chunk(ONE)])
async def test_a_stalled_body_is_a_timeout(content: bytes) -> None:
    async with against(says(CHUNKED + content, pause=3600), timeouts=SHORT) as (transport, server, _):
        with pytest.raises(StreamCut, match="no content"):
            await told(transport, server.url)


async def test_garbage_between_two_chunks_is_a_timeout() -> None:
    nonsense = says(CHUNKED + chunk(ONE), b"no length\r\n", pause=0.02, close=True)
    async with against(nonsense, timeouts=SHORT) as (transport, server, _):
        with pytest.raises(StreamCut):
            await told(transport, server.url)


async def test_a_slow_response_ends_at_its_time_limit() -> None:
    drips = says(CHUNKED, *[chunk(b": still here\n\n")] * 100_000, pause=0.02)
    timeouts = Timeouts(first=5, between=5, whole=0.3)
    async with against(drips, timeouts=timeouts) as (transport, server, _), deadline():
        with pytest.raises(StreamCut, match="not complete within"):
            await told(transport, server.url)


async def test_a_slow_consumer_is_not_interrupted() -> None:
    async with against(says(CHUNKED + chunk(ONE), chunk(ONE) + LAST_CHUNK), timeouts=SHORT) as (transport, server, _):
        seen = 0
        async for _ in transport.stream_events(server.url, headers={}, body=b"{}"):
            await asyncio.sleep(0.3)
            seen += 1
        assert seen == 2


# --- sending again ----------------------------------------------------------------------------------------------------


async def test_a_failing_server_gets_four_requests_with_growing_pauses() -> None:
    async with against(says(status(503, body=b'{"error": {"message": "busy"}}'))) as (transport, server, slept):
        with pytest.raises(StatusRefused, match="503: busy"):
            await told(transport, server.url)
        assert slept == [1.0, 2.0, 4.0]
        assert len(server.heads) == 4


async def test_no_attempt_begins_after_the_time_for_all_attempts() -> None:
    refuses = says(status(503, "Retry-After: 20"))
    async with against(refuses, timeouts=Timeouts(trying=10)) as (transport, server, slept):
        with pytest.raises(StatusRefused):
            await told(transport, server.url)
        assert (slept, len(server.heads)) == ([], 1)


async def test_a_retry_date_is_observed() -> None:
    date = format_datetime(datetime.fromtimestamp(time() + 30, UTC), usegmt=True)
    async with against(says(status(429, f"Retry-After: {date}"))) as (transport, server, slept):
        with pytest.raises(StatusRefused):
            await told(transport, server.url)
        assert 25 < slept[0] <= 30


async def test_a_long_pause_is_reported_and_not_made() -> None:
    async with against(says(status(429, "Retry-After: 61"))) as (transport, server, slept):
        with pytest.raises(RateLimited) as raised:
            await told(transport, server.url)
        assert (raised.value.retry_after, slept) == (61, [])


@pytest.mark.parametrize(
    ("header", "millis", "seconds"),
    [
        ("7", None, 7.0),
        ("7", "1500", 1.5),
        ("Thu, 01 Jan 1970 00:01:40 GMT", None, 60.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", None, 0.0),
        ("-1", None, None),
        ("nan", None, None),
        ("inf", None, None),
        ("soon", None, None),
        (None, None, None),
    ],
)
def test_the_requested_pause_is_parsed(header: str | None, millis: str | None, seconds: float | None) -> None:
    assert retry_after(header, millis, 40.0) == seconds


@pytest.mark.parametrize("body", [b"{}", b" " * (AT_ONCE + 1)])
async def test_a_request_that_was_sent_and_not_answered_in_time_is_not_repeated(body: bytes) -> None:
    """The server may have done it, and charge for it."""
    async with against(says(b"", pause=3600), timeouts=Timeouts(first=1.0)) as (transport, server, slept), deadline():
        with pytest.raises(Unreachable, match="did not answer within") as caught:
            await told(transport, server.url, body=body)
        assert (len(server.heads), slept, caught.value.unanswered) == (1, [], True)


async def test_a_request_that_changes_nothing_is_repeated_without_an_answer() -> None:
    async with (
        against(says(b"", pause=3600), timeouts=Timeouts(first=1.0, attempts=2)) as (transport, server, _),
        deadline(),
    ):
        with pytest.raises(Unreachable, match="did not answer within"):
            await transport.get(server.url, headers={})
        assert len(server.heads) == 2


async def test_a_request_that_could_not_be_sent_whole_in_time_is_repeated() -> None:
    stalls = says(b"", pause=3600)
    timeouts = Timeouts(first=0.5, attempts=2)
    async with against(stalls, timeouts=timeouts, read_bodies=False) as (transport, server, slept), deadline():
        with pytest.raises(Unreachable, match="did not answer within") as raised:
            await told(transport, server.url, body=b" " * 20_000_000)
        assert (type(raised.value), len(slept), server.connections) == (Unreachable, 1, 2)


async def test_a_dropped_connection_is_opened_again() -> None:
    answer = says(CHUNKED + chunk(ONE) + LAST_CHUNK, close=True)
    async with against(answer) as (transport, server, _):
        assert [await told(transport, server.url) for _ in range(3)] == [[b"one"]] * 3


async def test_a_connection_is_reused_although_the_end_arrives_in_a_separate_packet() -> None:
    answer = says(CHUNKED + chunk(ONE + b"data: [DONE]\n\n"), LAST_CHUNK, pause=0.01)
    async with against(answer) as (transport, server, _):
        for _ in range(5):
            assert await told(transport, server.url, last=b"[DONE]") == [b"one", b"[DONE]"]
            await asyncio.sleep(0.02)
        assert (len(server.heads), server.connections) == (5, 1)


async def test_the_wait_after_the_last_event_is_short() -> None:
    async with against(says(CHUNKED + chunk(b"data: [DONE]\n\n"), pause=3600)) as (transport, server, _), deadline():
        assert await told(transport, server.url, last=b"[DONE]") == [b"[DONE]"]


# --- what must not travel ---------------------------------------------------------------------------------------------

KEY = "sk-secret-0123456789"


async def test_a_redirect_is_a_refusal_and_does_not_leak_the_key() -> None:
    async with (
        RawServer(says(status(200))).serving() as elsewhere,
        against(says(status(307, f"Location: {elsewhere.url}"))) as (transport, server, _),
    ):
        with pytest.raises(StatusRefused) as raised:
            await told(transport, server.url, headers={"Authorization": f"Bearer {KEY}"})
        assert (raised.value.status, elsewhere.heads) == (307, [])


async def test_cookies_are_not_kept() -> None:
    answer = says(HEAD + b"Set-Cookie: a=b\r\nContent-Length: 11\r\n\r\n" + ONE)
    async with against(answer) as (transport, server, _):
        for _ in range(2):
            await told(transport, server.url.replace("127.0.0.1", "localhost"))  # a number never gets a cookie
        assert not any(b"cookie" in head.lower() for head in server.heads)


@pytest.mark.parametrize("value", [f"Bearer {KEY}\r\nX: y", f"Bearer {KEY}…", f"Bearer {KEY}\0"])
async def test_a_header_that_http_does_not_allow_is_refused_at_once_and_not_shown(value: str) -> None:
    async with against(says(status(200))) as (transport, server, slept):
        with pytest.raises(BadRequest) as raised:
            await told(transport, server.url, headers={"Authorization": value})
        assert KEY not in str(raised.value)
        assert (server.heads, slept) == ([], [])


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        f"user:{KEY}@host/v1",
        "http://",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "/v1",
        "",
    ],
)
async def test_an_address_that_is_not_of_http_is_refused_at_once_and_not_shown(url: str) -> None:
    slept = Slept()
    async with Transport(sleep=slept) as transport:
        with pytest.raises(BadRequest, match="must begin with http:// or https://") as raised:
            await told(transport, url)
    assert slept == []
    assert KEY not in str(raised.value)


async def test_the_proxy_of_the_environment_is_used_except_for_excluded_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    # A password for the host in ~/.netrc, which aiohttp would put beside the key if it looked for proxies by itself.
    netrc = tmp_path / "netrc"
    netrc.write_text("machine model.invalid login somebody password something\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    answer = says(HEAD + b"Content-Length: 11\r\n\r\n" + ONE)
    async with RawServer(answer).serving() as proxy, RawServer(answer).serving() as server:
        monkeypatch.setenv("http_proxy", proxy.url.removeprefix("http://").removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with Transport() as transport:
            await told(transport, "http://model.invalid/v1", headers={"Authorization": f"Bearer {KEY}"})
            await told(transport, server.url)
        assert [head.split(b"\r\n")[0] for head in proxy.heads] == [b"POST http://model.invalid/v1 HTTP/1.1"]
        assert f"Authorization: Bearer {KEY}".lower().encode() in proxy.heads[0].lower()
        assert [head.split(b"\r\n")[0] for head in server.heads] == [b"POST /v1 HTTP/1.1"]


async def test_a_server_behind_a_proxy_that_refuses_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(says(status(407)), read_bodies=False).serving() as proxy:
        monkeypatch.setenv("https_proxy", proxy.url.removesuffix("/v1"))
        async with Transport(timeouts=Timeouts(attempts=1)) as transport:
            with pytest.raises(Unreachable, match=r"^model\.invalid cannot be reached: 407"):
                await told(transport, "https://model.invalid/v1")


# --- certificates -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `ca.pem`, which nobody knows, and `server.pem`, the certificate and key that it signed for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("the command openssl makes the certificates of this test, and is not here")
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1")
    new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    for command in (
        f"{new} -x509 -days 2 -subj /CN=nobody -keyout ca.key -out ca.pem",
        f"{new} -subj /CN=server -keyout key.pem -out server.csr",
        "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 2 -extfile san -out cert.pem",
    ):
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    (folder / "server.pem").write_bytes((folder / "cert.pem").read_bytes() + (folder / "key.pem").read_bytes())
    return folder


@asynccontextmanager
async def behind_tls(certificate: Path, **options: Any) -> AsyncIterator[tuple[Transport, RawServer, Slept]]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "server.pem")
    slept = Slept()
    async with (
        RawServer(says(CHUNKED + chunk(ONE) + LAST_CHUNK), tls=tls).serving() as server,
        Transport(sleep=slept, chance=lambda: 1.0, **options) as transport,
    ):
        yield transport, server, slept


async def test_a_certificate_that_the_operator_trusts_is_accepted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "ca.pem"))
    async with behind_tls(certificate) as (transport, server, _):
        assert [await told(transport, server.url) for _ in range(2)] == [[b"one"]] * 2
        assert server.connections == 1
        with pytest.raises(CertificateError, match="localhost"):
            await told(transport, server.url.replace("127.0.0.1", "localhost"))  # it was made out to a number


async def test_an_untrusted_certificate_is_refused_at_once_and_nothing_is_sent(certificate: Path) -> None:
    async with behind_tls(certificate) as (transport, server, slept):
        with pytest.raises(CertificateError, match=r"certificate of 127\.0\.0\.1 is not valid.*unable to get") as raised:
            await told(transport, server.url, headers={"Authorization": f"Bearer {KEY}"})
        assert not raised.value.retryable
        assert (server.heads, slept) == ([], [])


async def test_a_page_of_the_web_is_read_only_with_a_trusted_certificate(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_tls(certificate) as (_, server, _):
        with pytest.raises(WebFailed, match=r"^The certificate of 127\.0\.0\.1 is not valid: unable to get"):
            await WebClient().get(server.url, private_hosts=["127.0.0.1"])
        assert server.heads == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "ca.pem"))
        assert (await WebClient().get(server.url, private_hosts=["127.0.0.1"])).url == server.url


async def test_unreadable_certificates_are_reported_and_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("/nowhere/ca.pem", __file__):
        monkeypatch.setenv("SSL_CERT_FILE", missing)
        slept = Slept()
        async with Transport(sleep=slept) as transport:
            with pytest.raises(CertificateError, match="SSL_CERT_FILE"):
                await told(transport, "https://127.0.0.1:9/v1")
        assert slept == []


async def test_a_server_without_tls_is_unreachable() -> None:
    async with against(says(b"hello", close=True), timeouts=Timeouts(connect=1, attempts=1)) as (transport, server, _):
        with pytest.raises(Unreachable):
            await told(transport, server.url.replace("http://", "https://"))


# --- servers that mean no good ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\xff what is this\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    ],
)
async def test_a_response_that_is_not_http_is_a_bad_answer(content: bytes) -> None:
    async with against(says(content, close=True)) as (transport, server, _):
        with pytest.raises(BadAnswer, match="not HTTP"):
            await told(transport, server.url)


async def test_a_connection_closed_without_a_response_is_unreachable() -> None:
    async with against(says(close=True)) as (transport, server, slept):
        with pytest.raises(Unreachable):
            await told(transport, server.url)
        assert len(slept) == 3


@pytest.mark.parametrize("code", [200, 500])
async def test_a_compressed_response_is_refused(code: int) -> None:
    bomb = gzip.compress(b"x" * 30_000_000)
    answer = says(status(code, "Content-Encoding: gzip", "Content-Type: text/event-stream", body=bomb), close=True)
    async with against(answer, timeouts=Timeouts(attempts=1)) as (transport, server, _):
        with pytest.raises(ProviderError) as raised:
            await told(transport, server.url)
        assert len(str(raised.value)) < 100


async def test_an_endless_refusal_is_reported() -> None:
    endless = says(b"HTTP/1.1 400 X\r\nTransfer-Encoding: chunked\r\n\r\n", *[chunk(b"no " * 3000)] * 100)
    async with against(endless) as (transport, server, _), deadline():
        with pytest.raises(StatusRefused, match="400: no no") as raised:
            await told(transport, server.url)
        assert len(raised.value.body) == Limits().error
        assert len(str(raised.value)) < 400


async def test_a_refusal_before_a_large_request_was_read_is_reported() -> None:
    refuses = says(status(413, body=b"too large"), pause=0.1, close=True)
    async with against(refuses, read_bodies=False) as (transport, server, _), deadline():
        with pytest.raises((StatusRefused, Unreachable)):
            await told(transport, server.url, body=b" " * 20_000_000)


async def test_closing_the_events_early_closes_the_connection() -> None:
    async with against(says(CHUNKED, *[chunk(ONE)] * 100_000, pause=0.01)) as (transport, server, _):
        events = transport.stream_events(server.url, headers={}, body=b"{}")
        await anext(events)
        await events.aclose()
        async with deadline():
            await server.lost.wait()


async def test_cancellation_closes_the_connection() -> None:
    async with against(says(b"", pause=3600)) as (transport, server, _):
        asking = asyncio.create_task(told(transport, server.url))
        while not server.heads:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_a_hundred_requests_run_at_once() -> None:
    together = Meeting(100)

    async def answer(writer: asyncio.StreamWriter) -> None:
        await together.join()  # no request is answered before all of them have arrived
        writer.write(CHUNKED + chunk(ONE) + LAST_CHUNK)

    async with against(answer) as (transport, server, _), deadline():
        assert await asyncio.gather(*(told(transport, server.url) for _ in range(100))) == [[b"one"]] * 100
        assert server.connections == 100


async def test_post_returns_the_whole_body() -> None:
    async with against(says(status(200, body=b'{"a": 1}'))) as (transport, server, _):
        assert await transport.post(server.url, headers={}, body=b"{}") == b'{"a": 1}'


async def test_any_method_and_body_can_be_sent() -> None:
    async with against(says(status(200, body=b"{}"))) as (transport, server, _):
        sent = await transport.send("PUT", server.url, headers={"Content-Type": "image/png"}, body=b"\x89PNG")
    head = server.heads[0].lower()
    assert (sent, head[:7]) == (b"{}", b"put /v1")
    assert b"content-type: image/png\r\n" in head
    assert b"content-length: 4\r\n" in head


def test_importing_the_transport_imports_no_http_client() -> None:
    program = "import sys, plugins.http.client; sys.exit(bool({'httpx', 'aiohttp'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# --- events -----------------------------------------------------------------------------------------------------------


def events_of(*chunks: bytes, limit: int = 1000) -> list[ServerSentEvent]:
    stream = EventStream(limit)
    return [event for piece in chunks for event in stream.feed(piece)]


STREAM = (
    b"\xef\xbb\xbf: hello\nevent: x\ndata: one\ndata:two\nid: 7\nretry: 5\n\n"
    b'data\n\nevent: y\n\ndata: a\xe2\x80\xa8b "{}"\n\n'
)
MEANT = [
    ServerSentEvent(b"one\ntwo", "x"),
    ServerSentEvent(b""),
    ServerSentEvent(b'a\xe2\x80\xa8b "{}"'),
]


@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, len(STREAM) + 20), max_size=12))
def test_events_do_not_depend_on_line_ends_and_chunks(end: bytes, cuts: list[int]) -> None:
    content = STREAM.replace(b"\n", end)
    places = sorted(min(cut, len(content)) for cut in cuts)
    pieces = [content[a:b] for a, b in zip([0, *places], [*places, len(content)], strict=True)]
    assert events_of(*pieces) == MEANT


def test_text_after_the_last_blank_line_is_no_event() -> None:
    assert events_of(b"data: one\n\ndata: tw") == [ServerSentEvent(b"one")]


def test_a_long_line_and_a_long_event_are_refused() -> None:
    for pieces in ([b"data: " + b"x" * 300] * 4, [b"data: " + b"x" * 300 + b"\n"] * 4):
        with pytest.raises(EventTooLong):
            events_of(*pieces)


def test_a_long_line_in_tiny_chunks_takes_linear_time() -> None:
    stream = EventStream(8_000_000)
    began = process_time()
    for _ in range(200_000):
        list(stream.feed(b"x" * 20))
    assert process_time() - began < 5  # copied anew for each chunk this takes minutes


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "No\\n\\u001b[31m way"}}', "No [31m way"),
        (b'[{"error": {"message": "in a list"}}]', "in a list"),
        (b'{"error": "text"}', "text"),
        (b'{"message": "bare"}', "bare"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"error": {"message": 7}}', '{"error": {"message": 7}}'),
        (b"<html>\n<b>busy</b>", "<html> <b>busy</b>"),
        (b"\xff\x00", "\ufffd"),
        (b"", "nothing"),
        (b"[" * 100_000, "[" * 300),
        (b"[]", "[]"),
    ],
)
def test_the_message_of_a_body_is_one_short_line(body: bytes, words: str) -> None:
    assert error_message(body) == words


@given(st.binary(max_size=2000) | st.recursive(st.text() | st.none(), st.lists).map(msgspec.json.encode))
def test_messages_are_printable_and_short(body: bytes) -> None:
    words = error_message(body)
    assert words.isprintable()
    assert 0 < len(words) <= 300


# --- websockets ---------------------------------------------------------------------------------------------------------


async def test_a_websocket_is_opened_and_pinged() -> None:
    pinged = asyncio.Event()

    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        async for frame in socket:
            if frame.type == WSMsgType.PING:
                pinged.set()
            elif frame.type == WSMsgType.TEXT:
                await socket.send_str(frame.data)
        return socket

    async with served(echo) as url, Transport() as transport, deadline():
        socket = await transport.websocket(url.replace("http", "ws"), heartbeat=0.05)
        await socket.send_str("tea")
        assert await socket.receive_str() == "tea"
        await pinged.wait()
        assert (await socket.receive()).type == WSMsgType.ERROR  # no pong came
        await socket.close()


async def test_a_refused_websocket_says_so() -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=403)

    async with served(refuse) as url, Transport() as transport:
        with pytest.raises(BadAnswer, match=r"127\.0\.0\.1 refused the websocket connection with the status 403"):
            await transport.websocket(url.replace("http", "ws"), heartbeat=30)
    async with Transport() as transport:
        with pytest.raises(Unreachable):
            await transport.websocket(url.replace("http", "ws"), heartbeat=30)


@asynccontextmanager
async def served(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


def test_a_connection_loads_no_library_that_draws_on_terminals() -> None:
    program = "import sys, plugins.http.connection_pools, httpx; print({'click', 'pygments', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

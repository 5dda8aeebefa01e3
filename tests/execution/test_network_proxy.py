"""The proxy of commands: what it lets through to whom, with the clients that people use."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from plugins.http.public_addresses import AddressRefused, resolve_public
from plugins.tools.execution.network_proxy import MAX_CONNECTIONS, NetworkProxy, is_allowed, requested_name
from tests.waiting import deadline


@pytest.mark.parametrize(
    ("host", "port", "listed", "allowed"),
    [
        ("pypi.org", 443, "pypi.org", True),
        ("PyPI.org.", 80, "pypi.org", True),
        ("pypi.org", 443, "PYPI.ORG", True),
        ("pypi.org", 8443, "pypi.org", False),
        ("pypi.org", 8443, "pypi.org:8443", True),
        ("pypi.org", 443, "pypi.org:8443", False),
        ("files.pypi.org", 443, "pypi.org", False),
        ("files.pypi.org", 443, "*.pypi.org", True),
        ("a.b.pypi.org", 443, "*.pypi.org", True),
        ("pypi.org", 443, "*.pypi.org", False),
        ("evilpypi.org", 443, "*.pypi.org", False),
        ("pypi.org.evil.com", 443, "pypi.org", False),
        ("pypi.org.evil.com", 443, "*.pypi.org", False),
    ],
)
def test_only_listed_hosts_and_ports_are_allowed(host: str, port: int, listed: str, allowed: bool) -> None:
    assert is_allowed(host, port, ["other.example", listed]) is allowed


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `ca.pem`, and `server.pem` with the certificate and key that it signed for `files.example.org`."""
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "san").write_text("subjectAltName=DNS:files.example.org")
    new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    for command in (
        f"{new} -x509 -days 2 -subj /CN=nobody -keyout ca.key -out ca.pem",
        f"{new} -subj /CN=server -keyout key.pem -out server.csr",
        "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 2 -extfile san -out cert.pem",
    ):
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    (folder / "server.pem").write_bytes((folder / "cert.pem").read_bytes() + (folder / "key.pem").read_bytes())
    return folder


class Origin:
    """A server that echoes requests over http and https, and knows what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.files: dict[str, tuple[bytes, str]] = {}
        self.headers: dict[str, str] = {}
        self.http = self.https = 0

    @contextlib.asynccontextmanager
    async def serving(self, certificate: Path) -> AsyncIterator[Origin]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate / "server.pem")
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            for context in (None, tls):
                await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            self.http, self.https = (address[1] for address in runner.addresses)
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.headers = dict(request.headers)
        body = await request.text()
        self.requests.append((request.method, f"{request.scheme}://{request.host}{request.path_qs}", body))
        if request.path in self.files:
            content, media = self.files[request.path]
            return web.Response(body=content, content_type=media)
        return web.Response(text=f"{request.method} {request.path_qs} {body}")


class Proxied:
    """A proxy that finds the origin under every name, and runs clients that use it."""

    def __init__(self, hosts: Sequence[str], origin: Origin, certificate: Path) -> None:
        self.resolved: list[str] = []
        self.proxy = NetworkProxy(lambda: hosts, "20261121-120000-aaaaaa", self._resolve)
        self._certificate = certificate

    async def _resolve(self, host: str, port: int) -> list[str]:
        self.resolved.append(host)
        if host == "inside.example.org":
            raise AddressRefused(f"{host!r} has the address 10.0.0.1, which is not public.")
        return ["127.0.0.1"]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Proxied]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            async with self.proxy.serving(listener):
                yield self

    async def run(self, *argv: str, **environment: str) -> tuple[int | None, str]:
        """Run a client; return its exit code and its output."""
        ca = str(self._certificate / "ca.pem")
        trust = {"SSL_CERT_FILE": ca, "CURL_CA_BUNDLE": ca, "PIP_CERT": ca, "PATH": "/usr/bin:/bin", **environment}
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**dict.fromkeys(VARIABLES, f"http://127.0.0.1:{self.port}"), **trust},
        )
        async with deadline():
            output, _ = await process.communicate()
        return process.returncode, output.decode()

    async def raw(self, request: bytes) -> bytes:
        """Send bytes to the proxy and return all that it answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        async with deadline():
            answer = await reader.read()
        writer.close()
        return answer


@contextlib.asynccontextmanager
async def proxied(certificate: Path, *hosts: str) -> AsyncIterator[tuple[Proxied, Origin]]:
    async with Origin().serving(certificate) as origin:
        listed = [each.replace("HTTPS", str(origin.https)).replace("HTTP", str(origin.http)) for each in hosts]
        async with Proxied(listed, origin, certificate).serving() as client:
            yield client, origin


VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")

LISTED = ("files.example.org:HTTPS", "files.example.org:HTTP", "inside.example.org:HTTP")

PYTHON = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], sys.argv[2].encode() or None).read().decode())"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_curl_and_python_reach_a_listed_host(certificate: Path, scheme: str) -> None:
    async with proxied(certificate, *LISTED) as (client, origin):
        url = f"{scheme}://files.example.org:{getattr(origin, scheme)}/a?b=c"
        assert await client.run("curl", "-sS", url) == (0, "GET /a?b=c ")
        assert await client.run("curl", "-sS", "-d", "x" * 100_000, url) == (0, f"POST /a?b=c {'x' * 100_000}")
        assert await client.run(sys.executable, "-c", PYTHON, url, "") == (0, "GET /a?b=c \n")
        assert await client.run(sys.executable, "-c", PYTHON, url, "body") == (0, "POST /a?b=c body\n")
        assert {each[1] for each in origin.requests} == {url}
        assert client.proxy.refusals == {}


async def test_headers_of_the_connection_to_the_proxy_are_not_passed_on(certificate: Path) -> None:
    async with proxied(certificate, *LISTED) as (client, origin):
        url = f"http://files.example.org:{origin.http}/"
        headers = ("-H", "Tea: green", "-H", "TE: trailers", "-H", "Proxy-Tea: black", "-H", "Upgrade: x")
        assert (await client.run("curl", "-sS", *headers, url))[0] == 0
        assert origin.headers["Tea"] == "green"
        assert origin.headers["Connection"] == "close"
        assert {"TE", "Proxy-Tea", "Proxy-Connection", "Upgrade"} & set(origin.headers) == set()


async def test_pip_installs_from_a_listed_index(certificate: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    async with proxied(certificate, *LISTED) as (client, origin):
        origin.files = {
            "/simple/tiny/": (b'<a href="/tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>', "text/html"),
            "/tiny-1.0-py3-none-any.whl": (wheel.read_bytes(), "application/zip"),
        }
        index = f"https://files.example.org:{origin.https}/simple"
        options = ("--index-url", index, "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--retries", "0")
        code, output = await client.run(
            sys.executable,
            "-m",
            "pip",
            "download",
            *options,
            "--dest",
            str(tmp_path / "got"),
            "tiny",
            PIP_CONFIG_FILE="/dev/null",
        )
        assert code == 0, output
        assert (tmp_path / "got" / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("https://other.example.org/", "other.example.org:443 is not in sandbox.network."),
        ("https://files.example.org/", "files.example.org:443 is not in sandbox.network."),
        ("http://127.0.0.1:{http}/", "127.0.0.1:{http} is not in sandbox.network."),
        ("http://[::1]:{http}/", "::1:{http} is not in sandbox.network."),
        ("http://inside.example.org:{http}/", "'inside.example.org' has the address 10.0.0.1, which is not public."),
    ],
)
async def test_what_is_not_listed_or_not_public_is_refused_and_said(certificate: Path, url: str, sentence: str) -> None:
    async with proxied(certificate, *LISTED) as (client, origin):
        url, sentence = url.replace("{http}", str(origin.http)), sentence.replace("{http}", str(origin.http))
        code, output = await client.run("curl", "-sSv", "--fail", url)
        assert code != 0
        assert sentence in output
        assert list(client.proxy.refusals) == [sentence]
        assert origin.requests == []


async def test_a_name_is_resolved_once_and_that_address_is_used(certificate: Path) -> None:
    async with proxied(certificate, *LISTED) as (client, origin):
        await client.run("curl", "-sS", f"https://files.example.org:{origin.https}/")
        assert client.resolved == ["files.example.org"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: files.example.org\r\n\r\n", 400),
        (b"GET https://files.example.org/ HTTP/1.1\r\n\r\n", 400),
        (b"GET ftp://files.example.org/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http:///path HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT \x1b[2J.example.org:443 HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT " + b"x" * 300 + b".example.org:443 HTTP/1.1\r\n\r\n", 400),
        (b"GET http://files.example.org:99999/ HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT files.example.org HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT [::1 HTTP/1.1\r\n\r\n", 400),
        (b"POST http://files.example.org:PORT/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST http://files.example.org:PORT/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 411),
        (b"POST http://files.example.org:PORT/ HTTP/1.1\r\nContent-Length: -1\r\n\r\nab", 411),
        (b"GET http://files.example.org:PORT/ HTTP/1.1\r\nX: a\nY: b\r\n\r\n", 400),
        (b"GET http://files.example.org:PORT/" + b"x" * 70_000, 431),
    ],
)
async def test_what_is_no_plain_request_is_refused(certificate: Path, request_: bytes, status: int) -> None:
    async with proxied(certificate, *LISTED) as (client, origin):
        answer = await client.raw(request_.replace(b"PORT", str(origin.http).encode()))
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert origin.requests == []


async def test_one_connection_serves_one_request_for_the_host_that_was_checked(certificate: Path) -> None:
    async with proxied(certificate, *LISTED) as (client, origin):
        where = f"http://files.example.org:{origin.http}"
        headers = "Host: other.example.org\r\nConnection: keep-alive\r\nProxy-Authorization: x\r\n\r\n"
        one, two = (f"GET {where}/{name} HTTP/1.1\r\n{headers}" for name in ("one", "two"))
        answer = await client.raw((one + two).encode())
        assert answer.count(b"HTTP/1.1 200 OK") == 1
        assert origin.requests == [("GET", f"{where}/one", "")]


async def test_connections_are_bounded_and_end_with_the_command(certificate: Path) -> None:
    async with proxied(certificate, *LISTED) as (client, _):
        opened = [await asyncio.open_connection("127.0.0.1", client.port) for _ in range(MAX_CONNECTIONS + 1)]
        async with deadline():
            assert await opened[-1][0].read() == b""
    async with deadline():
        assert [await reader.read() for reader, _ in opened] == [b""] * len(opened)
    for _, writer in opened:
        writer.close()


# --- names in TLS -----------------------------------------------------------------------------------------------------


def first_message(host: str | None) -> bytes:
    """The first record of a real TLS client."""
    sent = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=host).do_handshake()
    return sent.read()


def test_the_name_that_a_client_asks_for_is_read_from_its_first_message() -> None:
    message = first_message("Files.Example.ORG")
    assert requested_name(message) == "files.example.org"
    assert requested_name(first_message(None)) == ""
    assert [requested_name(message[:size]) for size in range(len(message))] == [""] * len(message)


@given(st.binary(max_size=400) | st.binary(max_size=200).map(lambda more: first_message("a.example")[:-100] + more))
def test_any_bytes_have_at_most_a_name(data: bytes) -> None:
    assert requested_name(data) in ("", "a.example")


async def test_a_client_that_asks_a_listed_server_for_another_host_is_refused(certificate: Path) -> None:
    async with proxied(certificate, *LISTED) as (client, origin):
        through = f"files.example.org:{origin.https}"
        code, _ = await client.run(
            *("curl", "-sSk", "--connect-to", f"hidden.example.org:443:{through}", "https://hidden.example.org/")
        )
        assert code != 0
        assert origin.requests == []
        assert list(client.proxy.refusals) == [
            "The TLS client of a connection to files.example.org asks for hidden.example.org, which is refused."
        ]


async def test_a_tunnel_carries_other_protocols_than_tls(certificate: Path) -> None:
    async with proxied(certificate, *LISTED) as (client, origin):
        request = f"CONNECT files.example.org:{origin.http} HTTP/1.1\r\n\r\nGET /tunnel HTTP/1.0\r\nHost: a\r\n\r\n"
        assert (await client.raw(request.encode())).endswith(b"GET /tunnel ")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_listing_this_machine_opens_nothing(certificate: Path, host: str) -> None:
    async with Origin().serving(certificate) as origin:
        proxied = Proxied([f"{host}:{origin.http}"], origin, certificate)
        proxied.proxy = NetworkProxy(lambda: [f"{host}:{origin.http}"], "20261121-120000-aaaaaa", resolve_public)
        async with proxied.serving() as client:
            code, output = await client.run("curl", "-sS", "--fail", f"http://{host}:{origin.http}/", no_proxy="")
            assert code != 0, output
            assert "which is not public" in next(iter(client.proxy.refusals))
            assert origin.requests == []

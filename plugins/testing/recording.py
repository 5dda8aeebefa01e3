"""A pytest plugin that records the responses of a real service once and replays them in later runs, without a key or
network.

Set `addopts = "-p plugins.testing.recording"` in pyproject.toml, and use the fixture `recorded` in a test:

    @check
    async def test_the_service_itself(recorded, tmp_path):
        key = os.environ.get("STELLA_API_KEY", "replayed")
        async with recorded("https://api.stella.example/v2", key) as url:
            ...  # the provider, with `url` as its address

`pytest --record` sends the requests to the service and writes `recordings/<file>.<test>.json` next to the test; without
the option the file is replayed. It contains the method, path and body of each request, and the status, content type and
body of each response, but no headers and no secrets.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest
from aiohttp import web

HIDDEN = "[hidden]"
"""The replacement of a secret."""

NOT_RECORDED = 599
"""The status for a request that is not in the recording."""

_OWN = frozenset({"host", "content-length", "connection", "transfer-encoding", "accept-encoding"})
"""Headers of a single connection, which are not passed on."""

Call: TypeAlias = dict[str, Any]
Recorded: TypeAlias = Callable[..., AbstractAsyncContextManager[str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--record`."""
    parser.addoption("--record", action="store_true", help="Ask the services themselves and record what they answer.")


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """Return a function that takes the service's address and its secrets, and serves this test's recording in a `with`
    block, which receives the URL to use."""
    name = f"{request.path.stem}.{request.node.name}".replace("/", "_")
    file = request.path.parent / "recordings" / f"{name}.json"
    record = bool(request.config.getoption("--record"))

    def served(upstream: str, *secrets: str) -> AbstractAsyncContextManager[str]:
        return recording(file, upstream, [secret for secret in secrets if secret]) if record else replaying(file)

    return served


@asynccontextmanager
async def recording(file: Path, upstream: str, secrets: list[str]) -> AsyncIterator[str]:
    """Pass each request on to the service, and write the recording if the block succeeds."""
    calls: list[Call] = []
    async with aiohttp.ClientSession(auto_decompress=True) as session:

        async def pass_on(request: web.Request) -> web.Response:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN}
            body, address = await request.read(), upstream.rstrip("/") + request.path_qs
            async with session.request(request.method, address, headers=headers, data=body, allow_redirects=False) as answer:
                given = await answer.read()
            kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if name in answer.headers}
            said = {"method": request.method, "path": request.path_qs, "body": _text(body)}
            calls.append({**said, "status": answer.status, "headers": kept, "answer": given.decode("utf-8", "replace")})
            return web.Response(status=answer.status, body=given, headers=kept)

        async with _serving(pass_on) as url:
            yield url
    _write(file, calls, secrets)


@asynccontextmanager
async def replaying(file: Path) -> AsyncIterator[str]:
    """Answer each request with its recorded response, identical requests in their original order."""
    calls = _read(file)

    async def replay(request: web.Request) -> web.Response:
        body = _text(await request.read())
        for index, call in enumerate(calls):
            if (call["method"], call["path"], _value(call["body"])) == (request.method, request.path_qs, _value(body)):
                del calls[index]
                return web.Response(status=call["status"], text=call["answer"], headers=_headers(call["headers"]))
        words = f"{file.name} has no {request.method} {request.path_qs} with this body; `pytest --record` records it anew."
        return web.Response(status=NOT_RECORDED, text=words)

    async with _serving(replay) as url:
        yield url


@asynccontextmanager
async def _serving(answer: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _write(file: Path, calls: list[Call], secrets: list[str]) -> None:
    text = json.dumps(calls, indent=1, ensure_ascii=False)
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], HIDDEN)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")


def _read(file: Path) -> list[Call]:
    assert file.exists(), f"There is no recording {file}; `pytest --record` makes it, with a key of the service."
    calls: list[Call] = json.loads(file.read_text(encoding="utf-8"))
    return calls


def _headers(kept: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a replayed response, whose text is UTF-8."""
    media = kept.get("Content-Type", "application/json").partition(";")[0]
    return {**kept, "Content-Type": f"{media}; charset=utf-8"}


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def _value(body: str) -> Any:
    """Parse a body as JSON if possible, so that formatting does not matter."""
    try:
        return json.loads(body)
    except ValueError:
        return body

"""Real calls of a service, recorded once and replayed in every later run of the tests, without a key and without a network.

A plugin of pytest: `addopts = "-p plugins.testing.recording"` in an author's pyproject.toml. A test then asks for the
fixture `recorded`:

    @check
    async def test_the_service_itself(recorded, tmp_path):
        key = os.environ.get("STELLA_API_KEY", "replayed")
        async with recorded("https://api.stella.example/v2", key) as url:
            ...  # the provider, with `url` as its address

`pytest --record` asks the service and writes `recordings/<file>.<test>.json` beside the test; without it the file answers.
What is kept of a call is its method, path and body, and the answer's status, kind and body: no header, and of each secret
nothing."""

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
"""What stands in the place of a key."""

NOT_RECORDED = 599
"""The status of an answer that no recording has."""

_OWN = frozenset({"host", "content-length", "connection", "transfer-encoding", "accept-encoding"})
"""Headers that belong to one connection and are not passed on."""

Call: TypeAlias = dict[str, Any]
Recorded: TypeAlias = Callable[..., AbstractAsyncContextManager[str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--record`."""
    parser.addoption("--record", action="store_true", help="Ask the services themselves and record what they answer.")


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """Called with the service's address and its secrets, it serves the recording of this test while the block runs; the
    address to ask is what the block is given."""
    name = f"{request.path.stem}.{request.node.name}".replace("/", "_")
    file = request.path.parent / "recordings" / f"{name}.json"
    record = bool(request.config.getoption("--record"))

    def served(upstream: str, *secrets: str) -> AbstractAsyncContextManager[str]:
        return recording(file, upstream, [secret for secret in secrets if secret]) if record else replaying(file)

    return served


@asynccontextmanager
async def recording(file: Path, upstream: str, secrets: list[str]) -> AsyncIterator[str]:
    """Pass each request on to a service, and write what was said into a file when the block ends well."""
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
    """Answer each request as it was answered when it was recorded, in the order in which it was."""
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
    """The headers of a replayed answer: its text is UTF-8, whatever it was."""
    media = kept.get("Content-Type", "application/json").partition(";")[0]
    return {**kept, "Content-Type": f"{media}; charset=utf-8"}


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def _value(body: str) -> Any:
    """What a body says: JSON that is written otherwise says the same."""
    try:
        return json.loads(body)
    except ValueError:
        return body

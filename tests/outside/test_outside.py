"""A package from outside, as its author ships it: built as a wheel, installed by pip, allowed by name, used by a gateway."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from tests.faults.gateway_process import gateway_process

ROOT = Path(__file__).parents[2]
TIDES = Path(__file__).parent / "tides"
KEY = "the-key-of-the-tides"


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a program of this Python; returns what it prints."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package's `source`, and with `site`, which pip made of its wheel."""
    folder = tmp_path_factory.mktemp("outside")
    copied = folder / "source"
    for file in TIDES.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            target = copied / file.relative_to(TIDES)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    pip = ("-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, copied, cwd=folder)
    (wheel,) = folder.glob("exuvia_tides-2.1.0-*.whl")
    run(*pip, "install", "-q", "--no-compile", "--no-deps", "--no-index", "--target", folder / "site", wheel, cwd=folder)
    return folder


async def test_a_wheel_from_outside_is_used_by_a_gateway_that_allows_it(
    built: Path, tmp_path: Path, aiohttp_server: AiohttpServer
) -> None:
    asked: list[str] = []

    async def today(request: web.Request) -> web.Response:
        """Who knows the tides."""
        if request.headers["X-Key"] != KEY:
            return web.Response(status=401)
        asked.append((await request.json())["harbour"])
        return web.json_response({"high": "14:07", "low": "20:19"})

    app = web.Application()
    app.router.add_post("/v1/today", today)
    address = (await aiohttp_server(app)).make_url("/v1")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    story: list[dict[str, Any]] = [{"text": "", "calls": [{"tool": "tide", "arguments": {}}]}, {"text": "Go at two."}]
    environment = {"TIDES_KEY": KEY, "PYTHONPATH": os.pathsep.join((str(ROOT), str(built / "site")))}
    async with aiohttp.ClientSession() as http:
        tides = f'address = "{address}"\napi_key = "env:TIDES_KEY"\nharbour = "Porto"\n'
        (home / "config.toml").write_text(f'[plugins]\nallow = ["tides"]\n\n[plugins.tides]\n{tides}')
        async with gateway_process(home, script=story, settings=environment) as running:
            await running.ready(http)
            client = await running.connect(http)
            await client.send("When can we sail?")
            returned = await client.until_event("tool_returned")
            assert returned["output"] == "High at 14:07, low at 20:19."
            assert (await client.until_event("turn_ended"))["outcome"] == "replied"
            await client.send("/tides")
            assert (await client.until_event("command_answered"))["answer"] == "The tides are those of **Porto**."
    assert asked == ["Porto"]


def test_its_own_tests_pass_where_it_is_installed(built: Path, tmp_path: Path) -> None:
    path = os.pathsep.join((str(built / "site"), str(ROOT)))
    environment = {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    told = run("-m", "pytest", "-q", "-p", "no:cacheprovider", built / "source" / "tests", cwd=tmp_path, **environment)
    assert "passed" in told

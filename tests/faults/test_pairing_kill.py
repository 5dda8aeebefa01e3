"""Kill -9 while an address is paired or removed: afterwards it counts or not, and what was confirmed counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.attacks.test_strangers import CODE
from tests.faults.gateway_process import ROOT, GatewayProcess, gateway_process
from tests.faults.test_approval_kill import DYING, until_dead
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import TOKEN

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
POINTS = ("before", "appended", "durable", "confirmed")


def install(shelf: Path, home: Path, port: int) -> dict[str, str]:
    """Lay the plugin where an import finds it; returns the environment of the gateway."""
    info = shelf / "lines-1.0.dist-info"
    info.mkdir(parents=True)
    (shelf / "exuvia_lines.py").write_text(DYING + LINES)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lines\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[exuvia]\nlines = exuvia_lines\n")
    home.mkdir()
    (home / "config.toml").write_text(f'[plugins]\nallow = ["lines"]\n[plugins.lines]\nport = {port}\n')
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(shelf)])}


async def is_known(elsewhere: Elsewhere, id_: str) -> bool:
    await elsewhere.say("hello", id_=id_)
    while True:
        line = await elsewhere.hear()
        if id_ in (line.get("ok"), line.get("no")):
            return "ok" in line


async def pair(elsewhere: Elsewhere, gateway: GatewayProcess, http: aiohttp.ClientSession) -> None:
    """Pair the sender; the gateway may die meanwhile."""
    await elsewhere.say("hello", id_="stranger")
    (code,) = CODE.findall((await elsewhere.until_heard(no="stranger"))["why"])
    await request(http, "POST", gateway, json={"code": code, "person": "owner"})


async def request(http: aiohttp.ClientSession, method: str, gateway: GatewayProcess, **options: Any) -> None:
    place = "" if method == "POST" else "/lines:ana"
    url = f"http://127.0.0.1:{gateway.port}/api/pairings{place}"
    async with http.request(method, url, headers=HEADERS, **options) as response:
        assert response.status == 200


def killing(environment: Mapping[str, str], point: str, kind: str) -> dict[str, str]:
    return {**environment, **({} if point == "confirmed" else {"KILL_AT": f"{point}:{kind}"})}


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_a_pairing_that_was_confirmed_counts(tmp_path: Path, point: str) -> None:
    elsewhere, home = Elsewhere(), tmp_path / "home"
    await elsewhere.open()
    environment = install(tmp_path / "shelf", home, elsewhere.port)
    async with aiohttp.ClientSession() as http:
        async with gateway_process(home, settings=killing(environment, point, "address_linked")) as gateway:
            if point == "confirmed":
                await pair(elsewhere, gateway, http)
                await gateway.kill()
            else:
                with pytest.raises(aiohttp.ClientError):
                    await pair(elsewhere, gateway, http)
                await until_dead(gateway)
        elsewhere.hang_up()
        async with gateway_process(home, settings=environment) as gateway:
            known = await is_known(elsewhere, "after")
            assert known or point in ("before", "appended")
            assert not known or point != "before"
            if not known:
                await pair_again(elsewhere, gateway, http)
            assert await is_known(elsewhere, "last")
            assert await gateway.stop() == 0
    elsewhere.close()


async def pair_again(elsewhere: Elsewhere, gateway: GatewayProcess, http: aiohttp.ClientSession) -> None:
    """Pair the sender with the code that the first message after the start brought, which is listed for the owner."""
    async with http.get(f"http://127.0.0.1:{gateway.port}/api/pairings", headers=HEADERS) as response:
        (entry,) = (await response.json())["codes"]
    await request(http, "POST", gateway, json={"code": entry["code"], "person": "owner"})


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_an_address_whose_removal_was_confirmed_is_a_stranger(tmp_path: Path, point: str) -> None:
    elsewhere, home = Elsewhere(), tmp_path / "home"
    await elsewhere.open()
    environment = install(tmp_path / "shelf", home, elsewhere.port)
    async with aiohttp.ClientSession() as http:
        async with gateway_process(home, settings=killing(environment, point, "address_unlinked")) as gateway:
            await pair(elsewhere, gateway, http)
            assert await is_known(elsewhere, "paired")
            if point == "confirmed":
                await request(http, "DELETE", gateway)
                await gateway.kill()
            else:
                with pytest.raises(aiohttp.ClientError):
                    await request(http, "DELETE", gateway)
                await until_dead(gateway)
        elsewhere.hang_up()
        async with gateway_process(home, settings=environment) as gateway:
            known = await is_known(elsewhere, "after")
            assert not known or point in ("before", "appended")
            assert known or point != "before"
            assert await gateway.stop() == 0
    elsewhere.close()

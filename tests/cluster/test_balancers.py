"""Balancers by the configurations of the page: the real programs accept them, and the death of a gateway loses nothing."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.cluster.balancer import OwnBalancer
from benchmarks.cluster.checker import check
from benchmarks.cluster.gateways import DATABASE, Cluster
from benchmarks.cluster.history import History
from benchmarks.cluster.persons import Person
from benchmarks.cluster.postgres_pair import PostgresPair
from benchmarks.cluster.run import collect, script
from benchmarks.ports import free_port
from benchmarks.process import ROOT
from tests.waiting import deadline

ADDRESSES = ("10.0.0.11:7117", "10.0.0.12:7117", "10.0.0.13:7117")
NGINX = "daemon off;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{block}\n}}\n"
CADDY = "{{\n\tadmin off\n}}\n\n{block}"


def block(program: str) -> str:
    """The page's configuration of a program."""
    found = re.search(rf"```{program}\n(.*?)```", (ROOT / "docs" / "cluster.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def configured(program: str, folder: Path, text: str) -> tuple[list[str], list[str]]:
    """Write a configuration; return the commands that check it and run it."""
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if path is None:
        pytest.skip(f"{program} is not installed; `apt-get install {program}` brings it")
    file = folder / f"{program}.conf"
    if program == "haproxy":
        file.write_text(text)
        return [path, "-c", "-f", str(file)], [path, "-db", "-f", str(file)]
    if program == "nginx":
        file.write_text(NGINX.format(folder=folder, block=text))
        return [path, "-t", "-c", str(file)], [path, "-c", str(file)]
    file.write_text(CADDY.format(block=text.replace(" " * 4, "\t")))
    options = ["--adapter", "caddyfile", "--config", str(file)]
    return [path, "validate", *options], [path, "run", *options]


PROGRAMS = ("haproxy", "nginx", "caddy")


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_real_program_accepts_the_configuration_of_the_page(program: str, tmp_path: Path) -> None:
    checking, _ = configured(program, tmp_path, block(program))
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(checking, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert not re.search("warn", done.stderr, re.IGNORECASE), done.stderr


@asynccontextmanager
async def balancing(program: str, folder: Path, port: int, gateways: list[int]) -> AsyncIterator[None]:
    """Run a balancer by the page's configuration, with other addresses; or our own."""
    if program == "own":
        async with OwnBalancer(port, gateways):
            yield
        return
    text = re.sub(r"bind :80\b", f"bind 127.0.0.1:{port}", block(program))
    text = re.sub(r"listen 80;", f"listen 127.0.0.1:{port};", text).replace("chat.example.org", f"http://127.0.0.1:{port}")
    for address, gateway in zip(ADDRESSES, gateways, strict=True):
        assert address in text
        text = text.replace(address, f"127.0.0.1:{gateway}")
    _, command = configured(program, folder, text)
    environment = {**os.environ, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}
    with (folder / "balancer.log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("program", [*PROGRAMS, "own"])
async def test_a_person_behind_a_balancer_loses_nothing_when_a_gateway_is_killed(program: str, tmp_path: Path) -> None:
    port = free_port()
    with PostgresPair(durable=False) as pair:
        pair.create_database(DATABASE)
        cluster = Cluster(pair, tmp_path, 3, script=script(20), address=f"127.0.0.1:{port}")
        async with cluster, balancing(program, tmp_path, port, [gateway.port for gateway in cluster.gateways]):
            history = History()
            persons = [Person(f"p{n}", f"k{n}", [port], history, random.Random(n)) for n in range(3)]
            async with deadline():
                await asyncio.gather(*(person.say(0, "Hello.") for person in persons))
                await cluster.gateways[0].kill()
                await asyncio.gather(*(person.say(1, "Are you there?") for person in persons))
            await cluster.stop()
        assert check(history, collect(history, cluster)) == []
        assert all(len(person.answered) == 2 for person in persons)
        assert any(person.reader.connects > 1 for person in persons)

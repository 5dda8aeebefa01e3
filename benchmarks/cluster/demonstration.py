"""`make cluster`: a database with a synchronous standby, gateways and a balancer on this machine, until Ctrl-C.

Whatever is killed is started again, as a service manager does. If the primary ends, the standby is promoted, as Patroni
does. Nothing is left behind: all files are in one temporary folder, and all processes end with this one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import tempfile
from pathlib import Path

from benchmarks.cluster.balancer import HaproxyBalancer, balancer
from benchmarks.cluster.gateways import DATABASE, Cluster, Gateway
from benchmarks.cluster.postgres_pair import PostgresPair
from benchmarks.gateway_process import TOKEN
from benchmarks.ports import free_port

WATCH_SECONDS = 0.2
RESTART_SECONDS = 1.0
_LINK = re.compile(r"http://127\.0\.0\.1:\d+/(#link=\w+\.(\d+)\.\S+)")


class Demonstration:
    """The supervisor of a cluster that has started."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self._cluster = cluster
        self._address = address

    def describe(self) -> str:
        """Return what there is, and how to reach it."""
        links = [found for each in self._cluster.gateways if (found := _LINK.search(each.log.read_text()))]
        link = max(links, key=lambda found: found[2])  # a gateway takes no link from before its start: the newest suits all
        return (
            f"\nOpen the console (the link works once, for 10 minutes):\n\n  http://{self._address}/{link[1]}\n\n"
            f"or sign in with the token {TOKEN} (also after your gateway was killed)\n\n"
            f"{self._processes()}\n\n"
            "Kill what you like (kill -9 PID, kill -STOP PID): it is started again. Ctrl-C ends everything.\n"
        )

    async def watch(self) -> None:
        """Start what ends again, until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_database())
            for gateway in self._cluster.gateways:
                group.create_task(self._watch_gateway(gateway))

    def _processes(self) -> str:
        pair = self._cluster.pair
        rows = [(gateway.name, gateway.pid, "gateway") for gateway in self._cluster.gateways]
        rows += [(f"postgres {name}", pair.server(name).pid, role) for name, role in
                 ((pair.primary, "primary"), (pair.standby, "standby"))]  # fmt: skip
        return "\n".join(f"  {name:<12} {pid:>8}  {role}" for name, pid, role in rows)

    async def _watch_gateway(self, gateway: Gateway) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if not gateway.running:
                print(f"{gateway.name} has ended: the others take over its conversations.", flush=True)
                await asyncio.sleep(RESTART_SECONDS)
                await self._cluster.start(gateway)
                await gateway.ready()
                print(f"{gateway.name} runs again, as process {gateway.pid}.", flush=True)

    async def _watch_database(self) -> None:
        pair = self._cluster.pair
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if not pair.server(pair.primary).running:
                print(f"The primary {pair.primary} has ended: {pair.standby} is promoted.", flush=True)
                await asyncio.to_thread(pair.fail_over)
            elif pair.server(pair.standby).running:
                continue
            else:
                print(f"The standby {pair.standby} has ended; commits wait until it follows again.", flush=True)
            await asyncio.to_thread(pair.join)
            print(f"The standby is {pair.standby} now.\n{self._processes()}", flush=True)


async def run(pair: PostgresPair, folder: Path, *, count: int, port: int, model: str) -> None:
    """Run the demonstration until the task is cancelled."""
    address = f"127.0.0.1:{port}"
    settings = {"EXUVIA__AGENT__MODEL": f'"{model}"', "EXUVIA__PROVIDERS__SCRIPTED__DELAY_MS": "150"}
    if not model.startswith("scripted:"):
        settings = {name: value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_BASE_URL"))} | settings
    cluster = Cluster(pair, folder, count, script=[{"text": "Hello."}], settings=settings, address=address)
    async with cluster, balancer(folder, port, [gateway.port for gateway in cluster.gateways]) as front:
        demonstration = Demonstration(cluster, address)
        name = "HAProxy" if isinstance(front, HaproxyBalancer) else "a small balancer, since HAProxy is not installed,"
        print(f"{count} gateways behind {name} at {address}.\n{demonstration.describe()}", flush=True)
        try:
            await demonstration.watch()
        finally:
            print("Stopping.", flush=True)
            await cluster.stop()


def main() -> int:
    """Run the demonstration of the command line."""
    parser = argparse.ArgumentParser(prog="make cluster", description="Several gateways on one database, to be killed.")
    parser.add_argument("--gateways", type=int, default=3, choices=range(1, 10), metavar="N", help="1 to 9 (default: 3)")
    parser.add_argument("--port", type=int, default=0, help="the balancer's port (default: a free one)")
    parser.add_argument("--model", default="scripted:echo", help="the model, as provider:model (default: scripted:echo)")
    given = parser.parse_args()
    print("Starting a database with a synchronous standby …", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="exuvia-cluster-") as folder,
        PostgresPair() as pair,
    ):
        pair.create_database(DATABASE)
        port = given.port or free_port()
        asyncio.run(run(pair, Path(folder), count=given.gateways, port=port, model=given.model))
    return 0

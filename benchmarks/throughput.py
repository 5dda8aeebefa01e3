"""How many turns a second many sessions reach together, each on a connection of its own with one message under way."""

from __future__ import annotations

import asyncio
import os
import time

import msgspec

from benchmarks.client import Client, Times
from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import TOKEN, GatewayProcess, gateway, new_home
from benchmarks.process import cpu_seconds, serving
from benchmarks.setting import Setting

BAR = 450.0
WARM_TURNS = 2


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """One run: all turns, the seconds they took together, and the processor seconds of each process meanwhile."""

    turns: list[Times]
    seconds: float
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        """Turns a second."""
        return len(self.turns) / self.seconds


def run(setting: Setting) -> list[Figure]:
    """A new gateway for each run; the first turns of each session, which create it, are not counted."""
    crowds = [_run(setting) for _ in range(max(1, setting.runs // 2))]
    ended = [times.ended * 1000 for crowd in crowds for times in crowd.turns]
    name = f"{setting.sessions} sessions"
    lines = [
        figure("throughput", name, "turns/s", [crowd.rate for crowd in crowds], against="bar", reference=BAR),
        figure("throughput", f"{name}: sent → turn_ended", "ms", ended),
    ]
    for process in crowds[0].cpu:
        spent = [crowd.cpu[process] / len(crowd.turns) * 1000 for crowd in crowds]
        lines.append(figure("throughput", f"{name}: processor time of the {process}, a turn", "ms", spent))
    return lines


def _run(setting: Setting) -> Crowd:
    with (
        serving("model_server") as (model, model_port),
        new_home(setting.folder) as home,
        gateway(home, model_port) as process,
    ):
        return asyncio.run(_talk(setting, process, model))


async def _talk(setting: Setting, process: GatewayProcess, model: int) -> Crowd:
    pids = {"gateway": process.pid, "fake model": model, "client": os.getpid()}
    clients = [await Client.open(process.port, TOKEN, f"crowd-{n}") for n in range(setting.sessions)]
    await asyncio.gather(*(_turns(client, WARM_TURNS) for client in clients))
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    began = time.perf_counter()
    done = await asyncio.gather(*(_turns(client, setting.each) for client in clients))
    seconds = time.perf_counter() - began
    cpu = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    for client in clients:
        client.close()
    return Crowd(turns=[times for each in done for times in each], seconds=seconds, cpu=cpu)


async def _turns(client: Client, count: int) -> list[Times]:
    return [await client.turn() for _ in range(count)]

"""The throughput of concurrent sessions, each with a separate connection and one message in progress."""

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


class ConcurrentRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run: all turns, the elapsed seconds, and the processor seconds of each process."""

    turns: list[Times]
    seconds: float
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        """Turns per second."""
        return len(self.turns) / self.seconds


def run(setting: Setting) -> list[Figure]:
    """Measure each run on a new gateway. The first turns of each session, which create it, are not counted."""
    measured = [_run(setting) for _ in range(max(1, setting.runs // 2))]
    ended = [times.ended * 1000 for each in measured for times in each.turns]
    name = f"{setting.sessions} sessions"
    lines = [
        figure("throughput", name, "turns/s", [each.rate for each in measured], against="bar", reference=BAR),
        figure("throughput", f"{name}: sent → turn_ended", "ms", ended),
    ]
    for process in measured[0].cpu:
        spent = [each.cpu[process] / len(each.turns) * 1000 for each in measured]
        lines.append(figure("throughput", f"{name}: processor time of the {process} per turn", "ms", spent))
    return lines


def _run(setting: Setting) -> ConcurrentRun:
    with (
        serving("model_server") as (model, model_port),
        new_home(setting.folder) as home,
        gateway(home, model_port) as process,
    ):
        return asyncio.run(_talk(setting, process, model))


async def _talk(setting: Setting, process: GatewayProcess, model: int) -> ConcurrentRun:
    pids = {"gateway": process.pid, "fake model": model, "client": os.getpid()}
    clients = [await Client.open(process.port, TOKEN, f"session-{n}") for n in range(setting.sessions)]
    await asyncio.gather(*(_turns(client, WARM_TURNS) for client in clients))
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    began = time.perf_counter()
    done = await asyncio.gather(*(_turns(client, setting.each) for client in clients))
    seconds = time.perf_counter() - began
    cpu = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    for client in clients:
        client.close()
    return ConcurrentRun(turns=[times for each in done for times in each], seconds=seconds, cpu=cpu)


async def _turns(client: Client, count: int) -> list[Times]:
    return [await client.turn() for _ in range(count)]

"""Memory of the gateway without a local model: at rest after the start, and after a hundred turns."""

from __future__ import annotations

import asyncio

from benchmarks.client import Client
from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import TOKEN, GatewayProcess, gateway, new_home
from benchmarks.process import await_rest, resident_mb, serving
from benchmarks.setting import Setting

BAR_MB = 70.0
TURNS = 100


def run(setting: Setting) -> list[Figure]:
    """Measure VmRSS of the idle process and its descendants."""
    runs = max(1, setting.runs // 2)
    turns = min(TURNS, setting.turns)
    with serving("model_server") as (_, model_port):
        samples = [_grow(setting, model_port, turns) for _ in range(runs)]
    with serving("echo_server") as (pid, _):
        bare = resident_mb(pid)
    rest, after = ([sample[n] for sample in samples] for n in (0, 1))
    return [
        figure("memory", "at rest after the start", "MB", rest, against="bar", reference=BAR_MB),
        figure("memory", f"after {turns} turns", "MB", after, against="bar", reference=BAR_MB),
        figure("memory", "at rest after the start", "MB", rest, against="bare aiohttp server", reference=bare),
    ]


def _grow(setting: Setting, model_port: int, turns: int) -> tuple[float, float]:
    with new_home(setting.folder) as home, gateway(home, model_port) as process:
        await_rest(process.pid)
        rest = resident_mb(process.pid)
        asyncio.run(_talk(process, turns))
        await_rest(process.pid)
        return rest, resident_mb(process.pid)


async def _talk(process: GatewayProcess, turns: int) -> None:
    client = await Client.open(process.port, TOKEN, "memory")
    for _ in range(turns):
        await client.turn()
    client.close()

"""The start time of the gateway on a new home, until the first 200 of `/readyz`."""

from __future__ import annotations

import statistics
import time

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import gateway, new_home
from benchmarks.process import serving
from benchmarks.setting import Setting

BAR_SECONDS = 0.6


def run(setting: Setting) -> list[Figure]:
    """Measure starts, each on a new home. The first one, which may compile bytecode, is not counted."""
    with serving("model_server") as (_, model_port):
        starts = [_start(setting, model_port) for _ in range(setting.runs + 1)][1:]
    bare = statistics.median([_bare() for _ in range(setting.runs + 1)][1:])
    seconds, processor = [start[0] for start in starts], [start[1] for start in starts]
    return [
        figure("start", "process started → ready", "s", seconds, against="bar", reference=BAR_SECONDS),
        figure("start", "process started → ready", "s", seconds, against="bare aiohttp server", reference=bare),
        figure("start", "processor time until ready", "s", processor, against="wall", reference=statistics.median(seconds)),
    ]


def _start(setting: Setting, model_port: int) -> tuple[float, float]:
    with new_home(setting.folder) as home, gateway(home, model_port) as process:
        return process.seconds_to_ready, process.cpu_to_ready


def _bare() -> float:
    began = time.perf_counter()
    with serving("echo_server"):
        return time.perf_counter() - began

"""How long the gateway takes to be ready, on a new home: from the start of the process to the first 200 of `/readyz`."""

from __future__ import annotations

import time

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import gateway, new_home
from benchmarks.process import serving
from benchmarks.setting import Setting

BAR_SECONDS = 0.7


def run(setting: Setting) -> list[Figure]:
    """Each start is of a new process on a new home. The first, which may have to compile Python, is not counted."""
    with serving("model_server") as (_, model_port):
        seconds = [_start(setting, model_port) for _ in range(setting.runs + 1)][1:]
    bare = [_bare() for _ in range(setting.runs + 1)][1:]
    floor = figure("start", "bare aiohttp server listens", "s", bare)
    return [
        figure("start", "process started → ready", "s", seconds, against="bar", reference=BAR_SECONDS),
        figure("start", "the same", "s", seconds, against="bare aiohttp server", reference=floor.median),
    ]


def _start(setting: Setting, model_port: int) -> float:
    with new_home(setting.folder) as home, gateway(home, model_port) as process:
        return process.seconds_to_ready


def _bare() -> float:
    began = time.perf_counter()
    with serving("echo_server"):
        return time.perf_counter() - began

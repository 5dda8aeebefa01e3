"""The start time on a home with thousands of journals, with the catalog and after its deletion."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import gateway, new_home
from benchmarks.journals import EVENTS_A_TURN, write_journal
from benchmarks.process import await_rest, serving
from benchmarks.setting import Setting

TURNS = 10

Start = tuple[float, float]
"""Elapsed and processor seconds until ready."""


def run(setting: Setting) -> list[Figure]:
    """Measure starts on an empty home, with a catalog and without one. All journals are intact and settled.

    The first start on the empty home and the first start with journals, which builds the catalog, are not counted.
    """
    with serving("model_server") as (_, model_port), new_home(setting.folder) as home:

        def start(prepare: Callable[[], None] = lambda: None) -> list[Start]:
            return [_start(home, model_port, prepare) for _ in range(setting.runs)]

        _start_and_rest(home, model_port)
        empty = start()
        _fill(home, setting.journals)
        _start_and_rest(home, model_port)
        with_catalog = start()
        without_catalog = start(lambda: _delete_catalog(home))
    name = f"{setting.journals} journals of {2 + TURNS * EVENTS_A_TURN} events"
    return [*_figures(name, with_catalog, empty), *_figures(f"{name}, catalog deleted", without_catalog, empty)]


def _figures(name: str, starts: list[Start], empty: list[Start]) -> list[Figure]:
    """Return elapsed and processor time, each compared with an empty home."""
    return [
        figure(
            "restart",
            f"{name}: {measure}",
            "s",
            [each[n] for each in starts],
            against="empty home",
            reference=statistics.median(each[n] for each in empty),
        )
        for n, measure in enumerate(("process started → ready", "processor time until ready"))
    ]


def _fill(home: Path, journals: int) -> None:
    sessions = home / "sessions"
    sessions.mkdir(mode=0o700, exist_ok=True)
    for n in range(journals):
        write_journal(sessions, f"20261121-031241-{n:06d}", key=f"key-{n}", turns=TURNS)


def _start_and_rest(home: Path, model_port: int) -> None:
    with gateway(home, model_port) as process:
        await_rest(process.pid)


def _start(home: Path, model_port: int, prepare: Callable[[], None]) -> Start:
    prepare()
    with gateway(home, model_port) as process:
        return process.seconds_to_ready, process.cpu_to_ready


def _delete_catalog(home: Path) -> None:
    for path in home.glob("catalog.sqlite*"):
        path.unlink()

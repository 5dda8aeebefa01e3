"""How long a start takes on a home with thousands of journals: with its catalog, and after the catalog was deleted."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import gateway, new_home
from benchmarks.journals import EVENTS_A_TURN, write_journal
from benchmarks.process import serving
from benchmarks.setting import Setting

BAR_SECONDS = 0.7
TURNS = 10


def run(setting: Setting) -> list[Figure]:
    """All journals are whole and settled. The first start on the home, which makes the catalog, is not counted."""
    with serving("model_server") as (_, model_port), new_home(setting.folder) as home:
        empty = _start(home, model_port)
        _fill(home, setting.journals)
        _start(home, model_port)
        kept = [_start(home, model_port) for _ in range(setting.runs)]
        rebuilt = [_start_without_catalog(home, model_port) for _ in range(setting.runs)]
    name = f"{setting.journals} journals of {2 + TURNS * EVENTS_A_TURN} events"
    return [
        figure("restart", name, "s", kept, against="bar of a start", reference=BAR_SECONDS),
        figure("restart", name, "s", kept, against="empty home", reference=empty),
        figure("restart", f"{name}, catalog deleted", "s", rebuilt, against="empty home", reference=empty),
    ]


def _fill(home: Path, journals: int) -> None:
    for n in range(journals):
        write_journal(home / "sessions", f"20261121-031241-{n:06d}", key=f"key-{n}", turns=TURNS)


def _start(home: Path, model_port: int) -> float:
    with gateway(home, model_port) as process:
        return process.seconds_to_ready


def _start_without_catalog(home: Path, model_port: int) -> float:
    for path in home.glob("catalog.sqlite*"):
        path.unlink()
    return _start(home, model_port)

"""A cluster without faults: the time to `accepted`, direct and relayed, and the throughput of one and of three gateways."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cluster.gateways import DATABASE, Cluster
from benchmarks.cluster.history import History
from benchmarks.cluster.persons import Person
from benchmarks.cluster.postgres_pair import PostgresPair
from benchmarks.figures import Figure, figure, percentile_95
from benchmarks.process import cpu_seconds, descendants
from benchmarks.setting import Setting

GATEWAYS = 3
"""Gateways of a cluster here."""
TURNS = 10
"""Turns of each person."""

PAUSE_SECONDS = 1.0
"""Between two messages of a person where the time to `accepted` is measured, as people pause; 50 do so at once."""

QUICK = [{"text": "A short answer."}]
DIRECT_BAR, RELAYED_BAR = 10.0, 15.0
"""Milliseconds within which 95 % of the messages must be accepted."""


async def latency(folder: Path, setting: Setting) -> list[Figure]:
    """Measure the time to `accepted` of persons whose conversations the gateway has, and of the same through another one."""
    with PostgresPair() as pair:
        pair.create_database(DATABASE)
        async with Cluster(pair, folder, GATEWAYS, script=QUICK) as cluster:
            ports = [gateway.port for gateway in cluster.gateways]
            await _talk("w", ports[:1], setting, 1)
            direct = await _talk("d", ports[:1], setting, TURNS, PAUSE_SECONDS)
            relayed = await _talk("r", ports[1:2], setting, TURNS, PAUSE_SECONDS)
            crowded = await _talk("c", ports[:1], setting, TURNS)
    name = f"{setting.cluster_persons} persons: sent → accepted"
    return [
        _accepted(f"{name}, at the owner", direct, DIRECT_BAR),
        _accepted(f"{name}, relayed", relayed, RELAYED_BAR),
        _accepted(f"{name}, at the owner, without pauses", crowded, None),
    ]


async def throughput(folder: Path, setting: Setting) -> list[Figure]:
    """Measure turns per second of persons that do not pause, each at one of the gateways: of one gateway, and of three."""
    places = [folder / "one", folder / "three"]
    for place in places:
        place.mkdir()
    one = await _throughput(places[0], setting, 1)
    return one + await _throughput(places[1], setting, GATEWAYS, reference=one[0].median)


async def _throughput(folder: Path, setting: Setting, count: int, reference: float | None = None) -> list[Figure]:
    with PostgresPair() as pair:
        pair.create_database(DATABASE)
        async with Cluster(pair, folder, count, script=QUICK) as cluster:
            servers = [pair.server(name).pid for name in ("a", "b")]
            gateways = [gateway.pid for gateway in cluster.gateways]
            ports = [gateway.port for gateway in cluster.gateways]
            await _talk("w", ports, setting, 1)
            before, begun = [_cpu(servers), _cpu(gateways), _cpu([os.getpid()], alone=True)], time.perf_counter()
            persons = await _talk("t", ports, setting, TURNS)
            seconds = time.perf_counter() - begun
            after = [_cpu(servers), _cpu(gateways), _cpu([os.getpid()], alone=True)]
    turns = sum(len(person.answered) for person in persons)
    database, of_gateways, clients = ((end - start) / turns * 1000 for start, end in zip(before, after, strict=True))
    name = f"{count} gateway{'s' if count > 1 else ''}"
    against = "one gateway" if reference else ""
    return [
        figure("cluster", f"{name}: throughput", "turns/s", [turns / seconds], against=against, reference=reference),
        figure("cluster", f"{name}: processor time of the database with its standby per turn", "ms", [database]),
        figure("cluster", f"{name}: processor time of the gateways per turn", "ms", [of_gateways]),
        figure("cluster", f"{name}: processor time of clients and links per turn", "ms", [clients]),
    ]


async def _talk(prefix: str, ports: Sequence[int], setting: Setting, turns: int, pause: float = 0.0) -> list[Person]:
    """Have persons talk at the same time, each in a conversation of its own that depends on its number alone."""
    history = History()
    count = setting.cluster_persons
    persons = [Person(f"{prefix}{n}", f"k{n}", [ports[n % len(ports)]], history, random.Random(n)) for n in range(count)]
    await asyncio.gather(*(_turns(person, turns, pause, pause * n / count) for n, person in enumerate(persons)))
    return persons


async def _turns(person: Person, count: int, pause: float, after: float) -> None:
    await person.reader.connect()
    await asyncio.sleep(after)
    for number in range(count):
        await person.say(number, f"Message {number}.")
        await asyncio.sleep(pause)
    person.reader.disconnect("done")


def _accepted(measure: str, persons: list[Person], bar: float | None) -> Figure:
    taken = [seconds * 1000 for person in persons for _, seconds, _ in person.accepted]
    holds = bar is None or percentile_95(taken) <= bar
    return figure("cluster", measure, "ms", taken, against="p95 at most" if bar else "", reference=bar, holds=holds)


def _cpu(pids: Sequence[int], *, alone: bool = False) -> float:
    """Return the processor seconds of processes, with those that they have started unless `alone`."""
    return sum(cpu_seconds(each) for pid in pids for each in [pid, *([] if alone else descendants(pid))])

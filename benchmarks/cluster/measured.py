"""The benchmark `cluster`: a long history with faults, the time to `accepted`, and throughput."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.cluster.gateways import DATABASE, Cluster
from benchmarks.cluster.history import History
from benchmarks.cluster.namespaces import refuse_default_route
from benchmarks.cluster.persons import Person
from benchmarks.cluster.postgres_pair import PostgresPair
from benchmarks.cluster.run import Outcome, Plan, Run, script
from benchmarks.figures import Figure, figure
from benchmarks.process import cpu_seconds, descendants
from benchmarks.setting import Setting

KINDS = ("kill", "freeze", "database", "link", "failover", "restart", "door")
GATEWAYS = 3
TURNS = 10
"""Turns of each person in the measurements without faults."""

QUICK = [{"text": "A short answer."}]
TAKEOVER_BAR, RECOVERY_BAR, DIRECT_BAR, RELAYED_BAR = 3.2, 3.0, 10.0, 15.0
"""Seconds and milliseconds that are required."""


def run(setting: Setting) -> list[Figure]:
    """Run the history, then the measurements without faults, each on servers of its own."""
    refuse_default_route()
    with tempfile.TemporaryDirectory(prefix="exuvia-cluster-", dir=setting.folder) as folder:
        places = [Path(folder) / name for name in ("history", "latency", "one", "three")]
        for place in places:
            place.mkdir()
        outcome = asyncio.run(_history(places[0], setting))
        for finding in outcome.findings:
            print(finding, file=sys.stderr)
        figures = _history_figures(outcome)
        figures += asyncio.run(_latency(places[1], setting))
        one = asyncio.run(_throughput(places[2], setting, 1))
        return figures + one + asyncio.run(_throughput(places[3], setting, GATEWAYS, reference=one[0].median))


async def _history(folder: Path, setting: Setting) -> Outcome:
    with PostgresPair() as pair:
        pair.create_database(DATABASE)
        turns = setting.cluster_messages // setting.cluster_persons * 2
        async with Cluster(pair, folder, GATEWAYS, script=script(turns)) as cluster:
            plan = Plan(
                messages=setting.cluster_messages,
                seconds=setting.cluster_seconds,
                persons=setting.cluster_persons,
                faults=setting.cluster_faults,
                kinds=KINDS,
            )
            return await Run(cluster, plan).run()


def _history_figures(outcome: Outcome) -> list[Figure]:
    kinds = Counter(fault.kind for fault in outcome.faults)
    found = len(outcome.findings)
    figures = [
        figure("cluster", f"history of {outcome.seconds:.0f} s: answered messages", "", [outcome.messages]),
        figure(
            "cluster", f"faults: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}", "", [len(outcome.faults)]
        ),
        figure("cluster", "broken promises", "", [found], against="bar", reference=0, holds=not found),
        figure("cluster", "turns that did not reply", "", [outcome.outcomes.total() - outcome.outcomes["replied"]]),
        figure("cluster", "events in the logs", "", [sum(log.head for log in outcome.logs)]),
    ]
    if outcome.takeovers:
        figures.append(
            figure(
                "cluster", "fault → turn resumed elsewhere", "s", outcome.takeovers, against="bar", reference=TAKEOVER_BAR
            )
        )
        figures.append(figure("cluster", "the longest of them", "s", [max(outcome.takeovers)]))
    if outcome.recoveries:
        figures.append(
            figure("cluster", "promotion → next answer", "s", outcome.recoveries, against="bar", reference=RECOVERY_BAR)
        )
    return figures


async def _latency(folder: Path, setting: Setting) -> list[Figure]:
    """Measure the time to `accepted` of persons whose conversations the gateway has, and of the same through another one."""
    with PostgresPair() as pair:
        pair.create_database(DATABASE)
        async with Cluster(pair, folder, GATEWAYS, script=QUICK) as cluster:
            ports = [gateway.port for gateway in cluster.gateways]
            await _talk("w", ports[0], setting, 1)
            direct = await _talk("d", ports[0], setting, TURNS)
            relayed = await _talk("r", ports[1], setting, TURNS)
    name = f"{setting.cluster_persons} persons: sent → accepted"
    return [
        figure("cluster", f"{name}, at the owner", "ms", _accepted_ms(direct), against="bar p95", reference=DIRECT_BAR),
        figure("cluster", f"{name}, relayed", "ms", _accepted_ms(relayed), against="bar p95", reference=RELAYED_BAR),
    ]


async def _throughput(folder: Path, setting: Setting, count: int, reference: float | None = None) -> list[Figure]:
    """Measure turns per second of persons that do not pause, each at one of the gateways."""
    with PostgresPair() as pair:
        pair.create_database(DATABASE)
        async with Cluster(pair, folder, count, script=QUICK) as cluster:
            servers = [pid for name in ("a", "b") for pid in (pair.server(name).pid,)]
            ports = [gateway.port for gateway in cluster.gateways]
            await _talk("w", ports, setting, 1)
            before, begun = _cpu(servers), time.perf_counter()
            persons = await _talk("t", ports, setting, TURNS)
            seconds, cpu = time.perf_counter() - begun, _cpu(servers) - before
    turns = sum(len(person.answered) for person in persons)
    name = f"{count} gateway{'s' if count > 1 else ''}"
    against = "one gateway" if reference else ""
    return [
        figure("cluster", f"{name}: throughput", "turns/s", [turns / seconds], against=against, reference=reference),
        figure("cluster", f"{name}: processor time of the database per turn", "ms", [cpu / turns * 1000]),
    ]


async def _talk(prefix: str, ports: int | list[int], setting: Setting, turns: int) -> list[Person]:
    """Have persons talk at the same time, each in a conversation of its own that depends on its number alone."""
    given = [ports] if isinstance(ports, int) else ports
    history = History()
    persons = [
        Person(f"{prefix}{n}", f"k{n}", [given[n % len(given)]], history, random.Random(n))
        for n in range(setting.cluster_persons)
    ]
    await asyncio.gather(*(_turns(person, turns) for person in persons))
    return persons


async def _turns(person: Person, count: int) -> None:
    for number in range(count):
        await person.say(number, f"Message {number}.")
    person.reader.disconnect("done")


def _accepted_ms(persons: list[Person]) -> list[float]:
    return [seconds * 1000 for person in persons for _, seconds, _ in person.accepted]


def _cpu(pids: list[int]) -> float:
    return sum(cpu_seconds(each) for pid in pids for each in [pid, *descendants(pid)])

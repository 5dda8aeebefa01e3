"""The benchmark `cluster`, in parts: a long history with faults, single faults many times, and a cluster without faults."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from benchmarks.cluster.cluster_speed import GATEWAYS, latency, throughput
from benchmarks.cluster.gateways import DATABASE, Cluster
from benchmarks.cluster.history import deaths, late_lines
from benchmarks.cluster.namespaces import refuse_default_route
from benchmarks.cluster.postgres_pair import PostgresPair
from benchmarks.cluster.run import Outcome, Plan, Run, script
from benchmarks.figures import Figure, figure, table
from benchmarks.process import ROOT
from benchmarks.setting import Setting

KINDS = ("kill", "freeze", "database", "link", "failover", "restart", "door")
TAKEOVER_BAR, LONGEST_BAR, RECOVERY_BAR = 3.2, 5.0, 3.0
"""Seconds that are required."""

BEFORE = "1cf12864"
"""The newest commit with the tables of an earlier version whose turns work."""

PROGRESS_SECONDS = 30.0
"""Seconds between two lines about a run."""

TRIAL_PERSONS = 12
KILL_SECONDS, SLEEP_SECONDS, ROUND_SECONDS, UPGRADE_SECONDS = 7.0, 16.0, 25.0, 70.0
"""Seconds from one fault to the next, with the time in which all is as before."""


class _Bar(TypedDict):
    """The arguments of `figure` for a requirement."""

    against: str
    reference: float
    holds: bool


def run(setting: Setting) -> list[Figure]:
    """Run the parts, each on servers of its own. One that fails is told, and the next one runs."""
    refuse_default_route()
    figures = list[Figure]()
    note = _notes(setting.figures)
    for name in setting.cluster_parts or PARTS:
        note(f"{name} begins")
        with tempfile.TemporaryDirectory(prefix="exuvia-cluster-", dir=setting.folder) as folder:
            try:
                found = asyncio.run(PARTS[name](Path(folder), setting))
            except Exception:
                note(traceback.format_exc())
                found = [figure("cluster", f"{name} was not finished", "", [1], holds=False)]
        note(f"{name}\n\n{table(found)}\n")
        figures += found
    return figures


def _notes(file: Path | None) -> Callable[[str], None]:
    """Return a function that tells a line with the time and the machine's load, and adds it to a file."""

    def note(text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')}, load {os.getloadavg()[0]:.1f}: {text}\n"
        print(line, end="", file=sys.stderr, flush=True)
        if file is not None:
            with file.open("a", encoding="utf-8") as output:
                output.write(line)

    return note


async def history(folder: Path, setting: Setting) -> list[Figure]:
    """Run faults of all kinds in turn, among messages of many persons."""
    seconds = setting.minutes * 60 or setting.cluster_seconds
    share = seconds / setting.cluster_seconds
    plan = Plan(
        messages=round(setting.cluster_messages * share),
        seconds=seconds,
        persons=setting.cluster_persons,
        faults=round(setting.cluster_faults * share),
        kinds=KINDS,
    )
    outcome = await _run(folder, setting, plan)
    taken = outcome.takeovers
    return [
        *_figures("history", outcome),
        *([figure("cluster", "history: fault → turn resumed elsewhere", "s", taken)] if taken else []),
        *([figure("cluster", f"history: the longest of them ({outcome.slowest[1]})", "s", [max(taken)])] if taken else []),
        *_recoveries(outcome),
    ]


async def takeovers(folder: Path, setting: Setting) -> list[Figure]:
    """Kill the gateway with the most conversations again and again; others resume its turns."""
    outcome = await _run(folder, setting, _trial("kill", setting.cluster_takeovers, KILL_SECONDS))
    found = outcome.takeovers or [float("inf")]
    return [
        *_figures("takeovers", outcome),
        figure(
            "cluster", "killed → turn resumed elsewhere", "s", found, **_bar(TAKEOVER_BAR, sorted(found)[len(found) // 2])
        ),
        figure("cluster", "the longest of them", "s", [max(found)], **_bar(LONGEST_BAR, max(found))),
    ]


async def wakes(folder: Path, setting: Setting) -> list[Figure]:
    """Stop a gateway for 10 s and wake it up, again and again, and look for lines that it wrote although it was dead."""
    outcome = await _run(folder, setting, _trial("sleep", setting.cluster_wakes, SLEEP_SECONDS))
    late = outcome.late
    stale = sum(count for (store, _), count in late.items() if store == "sessions")
    stale += sum(finding.startswith("epoch") for finding in outcome.findings)
    others = ", ".join(f"{count} {kind} in {store}" for (store, kind), count in late.items() if store != "sessions")
    return [
        *_figures("wakes", outcome),
        figure("cluster", "gateways that were declared dead", "", [outcome.deaths - GATEWAYS]),
        figure("cluster", "lines of conversations by the old epoch", "", [stale], **_bar(0, stale)),
        figure(
            "cluster", f"lines of shared logs before the new incarnation: {others or 'none'}", "", [late.total() - stale]
        ),
    ]


async def rolling(folder: Path, setting: Setting) -> list[Figure]:
    """Restart all gateways one after the other, under load."""
    outcome = await _run(folder, setting, _trial("rolling", setting.cluster_rounds, ROUND_SECONDS))
    return _restart_figures("rolling restart", outcome)


async def upgrade(folder: Path, setting: Setting) -> list[Figure]:
    """Start gateways of the version before, and upgrade one after the other under load; the first migrates the tables."""
    before = version_before(ROOT, setting.before)
    root = folder / "before"
    with tarfile.open(fileobj=io.BytesIO(_git(ROOT, "archive", before))) as archive:
        archive.extractall(root, filter="data")
    outcome = await _run(folder, setting, _trial("upgrade", 1, UPGRADE_SECONDS), root)
    return _restart_figures(f"upgrade from {before}", outcome)


def version_before(repository: Path, commit: str = "") -> str:
    """Return the version that an upgrade begins with: a commit, else the newest tag, else the last commit before the tables
    of this version that works.

    Raises:
        LookupError: The repository does not have it, as a shallow copy does not.
    """
    with suppress(subprocess.CalledProcessError):
        commit = commit or _git(repository, "describe", "--tags", "--abbrev=0").decode().strip()
    commit = commit or BEFORE
    try:
        _git(repository, "rev-parse", "--verify", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError:
        raise LookupError(f"The repository has no commit {commit}: fetch its history, or name one with --before.") from None
    return commit


def _git(repository: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True).stdout


def _restart_figures(part: str, outcome: Outcome) -> list[Figure]:
    closed = sum(count for reason, count in outcome.closed.items() if reason.startswith("closed with 1012"))
    other = Counter({reason: count for reason, count in outcome.closed.items() if not reason.startswith("closed with 1012")})
    other.update(outcome.refused)
    other.update({reason: count for reason, count in outcome.unreached.items() if reason.startswith("subscribe")})
    told = ", ".join(f"{count} {reason}" for reason, count in other.items()) or "none"
    return [
        *_figures(part, outcome),
        figure("cluster", "connections closed with 1012 and resumed", "", [closed]),
        figure("cluster", f"other errors: {told}", "", [other.total()], **_bar(0, other.total())),
    ]


PARTS: dict[str, Callable[[Path, Setting], Coroutine[Any, Any, list[Figure]]]] = {
    "history": history,
    "takeovers": takeovers,
    "wakes": wakes,
    "rolling": rolling,
    "upgrade": upgrade,
    "latency": latency,
    "throughput": throughput,
}
"""The parts by the names of `--part`."""


def _trial(kind: str, count: int, seconds: float) -> Plan:
    """Return a plan with one kind of fault, in which each person sends a message every two seconds."""
    whole = count * seconds
    return Plan(messages=round(whole / 2) * TRIAL_PERSONS, seconds=whole, persons=TRIAL_PERSONS, faults=count, kinds=[kind])


async def _run(folder: Path, setting: Setting, plan: Plan, root: Path = ROOT) -> Outcome:
    """Run a plan; SIGINT and SIGTERM cut it short, and what was sent until then is checked."""
    note, loop = _notes(setting.figures), asyncio.get_running_loop()
    with PostgresPair() as pair:
        pair.create_database(DATABASE)
        lines = script(plan.messages // plan.persons * 2)
        async with Cluster(pair, folder, GATEWAYS, script=lines, root=root) as cluster:
            run = Run(cluster, plan)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, run.cut)
            telling = asyncio.create_task(_tell(run, note))
            try:
                outcome = await run.run()
                outcome.deaths = await asyncio.to_thread(deaths, cluster.url)
                for store, _, event in await asyncio.to_thread(lambda: list(late_lines(cluster.url))):
                    outcome.late[store, event["kind"]] += 1
            finally:
                telling.cancel()
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.remove_signal_handler(number)
    for finding in outcome.findings:
        note(finding)
    return outcome


async def _tell(run: Run, note: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        note(run.progress)


def _figures(part: str, outcome: Outcome) -> list[Figure]:
    kinds = Counter(fault.kind for fault in outcome.faults)
    faults = f"{part}: faults ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})"
    found = len(outcome.findings)
    return [
        figure("cluster", f"{part} of {outcome.seconds:.0f} s: answered messages", "", [outcome.messages]),
        figure("cluster", faults, "", [len(outcome.faults)]),
        figure("cluster", f"{part}: broken promises", "", [found], **_bar(0, found)),
        figure("cluster", f"{part}: turns that did not reply", "", [outcome.outcomes.total() - outcome.outcomes["replied"]]),
        figure("cluster", f"{part}: events in the logs", "", [sum(log.head for log in outcome.logs)]),
    ]


def _recoveries(outcome: Outcome) -> list[Figure]:
    found = outcome.recoveries
    if not found:
        return []
    return [figure("cluster", "promotion → next answer", "s", found, **_bar(RECOVERY_BAR, max(found), "longest at most"))]


def _bar(bar: float, reached: float, name: str = "at most") -> _Bar:
    return _Bar(against=name, reference=bar, holds=reached <= bar)

"""`python -m benchmarks [name…]`: run all or the named benchmarks and print one table in Markdown."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from benchmarks import (
    appending,
    backup,
    budgets,
    compacting,
    compaction,
    console,
    facts,
    imports,
    index,
    kinds,
    latency,
    long,
    many_sessions,
    memory,
    memory_month,
    misbehaving_plugins,
    opening,
    pruning,
    restart,
    retrieval,
    sandbox,
    schedules,
    searching,
    skills,
    start,
    throughput,
    tokens,
    web,
)
from benchmarks.cluster import measured as cluster
from benchmarks.figures import Figure, table
from benchmarks.process import file_system
from benchmarks.setting import Setting
from gateway.support import logs

BENCHMARKS: dict[str, Callable[[Setting], list[Figure]]] = {
    "start": start.run,
    "memory": memory.run,
    "memory-month": memory_month.run,
    "latency": latency.run,
    "throughput": throughput.run,
    "restart": restart.run,
    "appending": appending.run,
    "backup": backup.run,
    "budgets": budgets.run,
    "opening": opening.run,
    "tokens": tokens.run,
    "compaction": compaction.run,
    "compacting": compacting.run,
    "long": long.run,
    "pruning": pruning.run,
    "retrieval": retrieval.run,
    "kinds": kinds.run,
    "searching": searching.run,
    "schedules": schedules.run,
    "index": index.run,
    "imports": imports.run,
    "facts": facts.run,
    "skills": skills.run,
    "web": web.run,
    "misbehaving-plugins": misbehaving_plugins.run,
    "sandbox": sandbox.run,
    "console": console.run,
    "many-sessions": many_sessions.run,
    "cluster": cluster.run,
}


def main() -> int:
    """Run the selected benchmarks and return the exit code."""
    names, setting = _arguments()
    logs.configure("error", "text")
    figures = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        figures += BENCHMARKS[name](setting)
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores shared by gateway, fake model and client, ", end="")
    print(f"{file_system(setting.folder)}, load {load:.1f}.\n\n{table(figures)}")
    return code(figures)


def code(figures: Iterable[Figure]) -> int:
    """Return the exit code: 1 if a requirement is not met."""
    return 0 if all(each.holds for each in figures) else 1


def _arguments() -> tuple[list[str], Setting]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the gateway; print a table.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"one of {', '.join(BENCHMARKS)} (default: all but cluster, which takes half an hour)",
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="directory for temporary homes")
    parser.add_argument("--cache", type=Path, default=Setting(folder=Path()).cache, help="directory for cached vectors")
    parser.add_argument(
        "--part", action="append", choices=list(cluster.PARTS), dest="cluster_parts", help="a part of cluster (default: all)"
    )
    parser.add_argument("--before", default="", help="the commit that the part upgrade begins with")
    parser.add_argument("--figures", type=Path, help="a file to which cluster adds its progress and figures as it goes")
    for field in msgspec.structs.fields(Setting):
        if field.type == "int" or field.type is int:
            parser.add_argument(f"--{field.name}", type=int, default=field.default, help=f"default {field.default}")
    arguments = vars(parser.parse_args())
    arguments["cluster_parts"] = tuple(arguments["cluster_parts"] or ())
    names = arguments.pop("names") or [name for name in BENCHMARKS if name != "cluster"]
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    return names, Setting(**arguments)


if __name__ == "__main__":
    sys.exit(main())

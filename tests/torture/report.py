"""The report of a run: faults and operations by kind, and what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.torture.run import Run

SHOWN = 30
"""Findings that are printed."""


def report(run: Run, findings: list[str]) -> str:
    """Describe a run."""
    outcomes = Counter(attempt.outcome or "no answer" for attempt in run.history.attempts)
    seen = sum(len(stream.events) for stream in run.history.streams)
    kinds = Counter(finding.partition(":")[0] for finding in findings)
    lines = [
        f"{run.lives} gateways; their ends: {_counted(run.ends)}",
        f"faults: {_counted(run.faults.counts)}",
        f"faults of calls: {_counted(run.injected)}",
        f"operations: {_counted(run.history.operations)}",
        f"messages: {_counted(outcomes)}; events seen: {seen}; unrepeatable calls: {len(run.history.stamps)}; "
        f"forks: {len(run.history.forks)}; uploads: {len(run.history.uploads)}",
        f"lost: {kinds.pop('lost', 0)}; doubled: {kinds.pop('doubled', 0)}; wrong otherwise: {_counted(kinds) or 'nothing'}",
        *(f"  {finding}" for finding in findings[:SHOWN]),
    ]
    if len(findings) > SHOWN:
        lines.append(f"  and {len(findings) - SHOWN} more")
    return "\n".join(lines)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items(), key=lambda item: -item[1]) if count)

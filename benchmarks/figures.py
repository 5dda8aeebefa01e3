"""Benchmark results and their table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table. `median`, `p95` and `reference` are in `unit`; `runs` is the number of samples; `against`
    describes the reference. `holds` is False if a requirement is not met."""

    benchmark: str
    measure: str
    unit: str
    median: float
    p95: float | None = None
    runs: int = 1
    against: str = ""
    reference: float | None = None
    holds: bool = True

    @property
    def ratio(self) -> float | None:
        """The median divided by the reference, or None if the reference is missing or not positive."""
        return self.median / self.reference if self.reference is not None and self.reference > 0 else None


def figure(
    benchmark: str,
    measure: str,
    unit: str,
    samples: Sequence[float],
    *,
    against: str = "",
    reference: float | None = None,
    holds: bool = True,
) -> Figure:
    """Return the figure for one or more samples in `unit`."""
    return Figure(
        benchmark=benchmark,
        measure=measure,
        unit=unit,
        median=statistics.median(samples),
        p95=percentile_95(samples) if len(samples) > 1 else None,
        runs=len(samples),
        against=against,
        reference=reference,
        holds=holds,
    )


def percentile_95(samples: Sequence[float]) -> float:
    """Return the 95th percentile by the nearest-rank method: the largest sample if there are fewer than 20."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as a Markdown table."""
    head = "| benchmark | measure | median | p95 | runs | against | ratio |"
    return "\n".join([head, "|---|---|---:|---:|---:|---|---:|", *(_row(each) for each in figures)])


def _row(each: Figure) -> str:
    reference = f"{each.against} {_number(each.reference)}".strip() if each.reference is not None else each.against
    ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
    p95 = "" if each.p95 is None else _number(each.p95)
    measure = each.measure if each.holds else f"{each.measure}: **broken**"
    cells = (each.benchmark, measure, f"{_number(each.median)} {each.unit}".strip(), p95, str(each.runs), reference, ratio)
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    """Format a number with three significant digits below 1,000."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"

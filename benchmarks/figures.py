"""Figures, and the table that they make."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `median` and `p95` are in `unit`; `runs` is how many samples they come from. `against` says in
    words what it is compared with, and `reference` is that in the same unit. `holds` is False where a promise is broken."""

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
        """The median over the reference; None where there is none, or where noise made it negative."""
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
    """The figure of these samples, at least one, each in `unit`."""
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
    """The smallest sample that at least 95 % of them do not exceed (nearest rank); of fewer than 20 it is the largest."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]


def table(figures: Iterable[Figure]) -> str:
    """The figures as one Markdown table."""
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
    """Three digits that count, and no more."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"

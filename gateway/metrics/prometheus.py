"""Counters, histograms and Prometheus' text format.

Implemented here because prometheus-client takes 0.7 µs for an observation and 1.0 µs for a labelled count, against 0.1 and
0.2 µs here, and 8 ms of each start. It would save forty lines: the text format, version 0.0.4 of
https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
"""The label value that stands for those beyond a counter's limit."""

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Labels = tuple[str, ...]


class Counter:
    """Monotonic counts by the values of labels.

    Beyond `most` different values, further ones are counted as `other`. The values `known` of an only label begin at 0: a
    series that appears with its first count has no rate at first.
    """

    __slots__ = ("counts", "labels", "most")

    def __init__(self, *labels: str, most: int = 50, known: Iterable[str] = ()) -> None:
        self.labels = labels
        self.most = most
        self.counts: dict[Labels, int] = {(value,): 0 for value in known} if labels else {(): 0}

    def add(self, *values: str, by: int = 1) -> None:
        """Add `by` to the count of these values, one for each label."""
        counts = self.counts
        if values not in counts and len(counts) >= self.most:
            values = (OTHER,) * len(values)
        counts[values] = counts.get(values, 0) + by

    @property
    def total(self) -> int:
        """The sum over all label values."""
        return sum(self.counts.values())


class Histogram:
    """Counts of values by bucket, and their sum. `bounds` are ascending, in the unit of the metric's name."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """The arithmetic mean; None without values."""
        count = self.count
        return self.sum / count if count else None


class Sample(msgspec.Struct, frozen=True):
    """One line of the page; `suffix` follows the family's name."""

    suffix: str
    labels: Mapping[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of one metric; `help` is one line without backslashes."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[Sample]


def counter(name: str, help_: str, counted: Counter) -> Family:
    """Return the family of a counter; `name` ends in `_total`."""
    samples = [Sample("", dict(zip(counted.labels, values, strict=True)), n) for values, n in counted.counts.items()]
    return Family(name=name, kind="counter", help=help_, samples=samples)


def gauge(name: str, help_: str, value: float | None, **labels: str) -> Family:
    """Return the family of a gauge; without a sample if `value` is None."""
    samples = [] if value is None else [Sample("", labels, value)]
    return Family(name=name, kind="gauge", help=help_, samples=samples)


def histograms(name: str, help_: str, label: str, by_value: Mapping[str, Histogram]) -> Family:
    """Return one family of several histograms, distinguished by a label."""
    samples: list[Sample] = []
    for value, histogram in by_value.items():
        samples += _samples(histogram, {label: value})
    return Family(name=name, kind="histogram", help=help_, samples=samples)


def histogram(name: str, help_: str, observed: Histogram) -> Family:
    """Return the family of a histogram."""
    return Family(name=name, kind="histogram", help=help_, samples=_samples(observed, {}))


def _samples(observed: Histogram, labels: Mapping[str, str]) -> list[Sample]:
    samples, upto = [], 0
    for bound, count in zip((*observed.bounds, math.inf), observed.counts, strict=True):
        upto += count
        samples.append(Sample("_bucket", {**labels, "le": _number(bound)}, upto))
    return [*samples, Sample("_sum", labels, observed.sum), Sample("_count", labels, upto)]


def page(families: Iterable[Family]) -> str:
    """Return the text of all families; those without samples are left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines.append(f"# HELP {family.name} {family.help}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines += [f"{family.name}{_line(sample)}" for sample in family.samples]
    return "\n".join(lines) + "\n"


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels.items())
    return f"{sample.suffix}{{{labels}}} {_number(sample.value)}" if labels else f"{sample.suffix} {_number(sample.value)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))

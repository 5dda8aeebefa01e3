"""A strict parser of Prometheus' text format, written from its documentation.

https://prometheus.io/docs/instrumenting/exposition_formats/ and https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

import re
from itertools import pairwise

LabelSet = tuple[tuple[str, str], ...]
Samples = dict[str, dict[LabelSet, float]]

_HELP = re.compile(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ((?:[^\\\n]|\\\\|\\n)+)")
_TYPE = re.compile(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)")
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
_SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (\S+)")
_NUMBER = re.compile(r"[+-]Inf|NaN|-?\d+(\.\d+)?(e[+-]\d+)?")
_SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def read(text: str) -> Samples:
    """Return all samples by name and labels. Raises AssertionError if the page breaks a rule."""
    assert text.endswith("\n")
    samples: Samples = {}
    families: dict[str, str] = {}
    family = kind = ""
    for line in text[:-1].split("\n"):
        if match := _HELP.fullmatch(line):
            family, kind = match[1], ""
            assert family not in families, f"{family} stands twice"
        elif match := _TYPE.fullmatch(line):
            assert match[1] == family, f"TYPE of {match[1]} under HELP of {family}"
            kind = families[family] = match[2]
            assert (kind == "counter") == family.endswith("_total"), family
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, f"no line of the format: {line!r}"
            name, number = match[1], match[match.re.groups]
            assert name in [family + suffix for suffix in _SUFFIXES[kind]], f"{name} under {family}"
            assert _NUMBER.fullmatch(number), number
            labels = tuple(re.findall(_LABEL, match[2] or ""))
            assert len({label for label, _ in labels}) == len(labels), line
            of_name = samples.setdefault(name, {})
            assert labels not in of_name, f"{line} stands twice"
            of_name[labels] = float(number.replace("Inf", "inf"))
    for name, kind in families.items():
        assert any(name + suffix in samples for suffix in _SUFFIXES[kind]), f"{name} is empty"
        if kind == "histogram":
            _check_histogram(name, samples)
    return samples


def _check_histogram(name: str, samples: Samples) -> None:
    buckets: dict[LabelSet, list[tuple[float, float]]] = {}
    for labels, value in samples[f"{name}_bucket"].items():
        (bound,) = [text for label, text in labels if label == "le"]
        rest = tuple(pair for pair in labels if pair[0] != "le")
        buckets.setdefault(rest, []).append((float(bound.replace("Inf", "inf")), value))
    assert buckets.keys() == samples[f"{name}_count"].keys() == samples[f"{name}_sum"].keys()
    for labels, counted in buckets.items():
        assert counted[-1] == (float("inf"), samples[f"{name}_count"][labels])
        assert all(low[0] < high[0] and low[1] <= high[1] for low, high in pairwise(counted)), counted

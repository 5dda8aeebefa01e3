"""The short form of the long history (`python -m benchmarks cluster`): persons, three gateways, and a fault of each kind."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.cluster import persons
from benchmarks.cluster.cluster_speed import GATEWAYS
from benchmarks.cluster.gateways import DATABASE, Cluster
from benchmarks.cluster.measured import KINDS
from benchmarks.cluster.postgres_pair import PostgresPair
from benchmarks.cluster.run import Plan, Run, script

PLAN = Plan(messages=200, seconds=50, persons=10, faults=len(KINDS), kinds=KINDS, patience=math.inf)


async def test_no_promise_is_broken_by_a_fault_of_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persons, "LIMIT_SECONDS", 600.0)
    with PostgresPair(durable=False) as pair:
        pair.create_database(DATABASE)
        async with Cluster(pair, tmp_path, GATEWAYS, script=script(100)) as cluster:
            outcome = await Run(cluster, PLAN).run()
    assert outcome.findings == []
    assert Counter(fault.kind for fault in outcome.faults) == Counter(KINDS)
    assert outcome.outcomes == Counter(replied=PLAN.messages)
    assert outcome.messages == PLAN.messages
    watched = {stream.client for stream in outcome.history.streams if stream.client.startswith("w") and stream.events}
    assert len(watched) == PLAN.persons // 2
    assert 0 < sum(outcome.history.effects.values()) <= PLAN.messages // 2

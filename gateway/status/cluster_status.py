"""The state of a cluster: the gateways that share a database, for `GET /cluster` and `exuvia cluster status`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.support.session_status import count_of
from sessions.store.cluster import Cluster, GatewayRow

SILENT_MS = 2500
"""Milliseconds without a beat after which a gateway is reported; the others declare it dead about then."""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The gateways that are alive, in the order of their start; `gateway` is the one that answers, null if none does.
    `problems` are sentences about what an operator should look at."""

    gateway: str | None
    gateways: Sequence[GatewayRow]
    problems: Sequence[str]


def cluster_status(rows: Sequence[GatewayRow], own: str | None) -> ClusterStatus:
    """Return the state of a cluster with these gateways, as seen by one of them or from outside."""
    return ClusterStatus(gateway=own, gateways=rows, problems=_problems(rows))


def cluster_in_short(cluster: Cluster) -> str:
    """Return what `/status` says of the cluster of a gateway that has the conversation."""
    silent = cluster.silent_seconds
    contact = f"; no contact with the database for {silent:.0f} s" if silent * 1000 > SILENT_MS else ""
    return f"{count_of(cluster.alive, 'gateway')}; this conversation is on {cluster.id or 'one that begins again'}{contact}"


def describe_cluster(status: ClusterStatus) -> str:
    """Return the text of `exuvia cluster status`."""
    lines = [f"{count_of(len(status.gateways), 'gateway')} on this database."]
    for row in status.gateways:
        held = count_of(row.held, "conversation")
        state = ", stopping" if row.draining else ""
        lines.append(f"  {row.id}  {row.url or 'not listening yet'}  version {row.version}, since {row.began}{state}")
        lines.append(f"    {held}, highest epoch {row.epoch}; last beat {row.idle_ms / 1000:.1f} s ago")
    return "\n".join([*lines, *(f"! {each}" for each in status.problems)])


def _problems(rows: Sequence[GatewayRow]) -> list[str]:
    problems = []
    if not rows:
        problems.append("No gateway runs on this database; `exuvia run` starts one.")
    silent = [row.id for row in rows if row.idle_ms > SILENT_MS]
    if silent:
        problems.append(f"{', '.join(silent)} did not beat for more than {SILENT_MS / 1000:g} s.")
    if len({row.config_digest for row in rows}) > 1:
        problems.append("The configurations of the gateways differ; give all of them the same, except for [gateway].")
    if len({row.version for row in rows}) > 1:
        problems.append("The gateways have different versions; finish the upgrade.")
    return problems

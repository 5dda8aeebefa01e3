"""The overview of the gateway that `/status.json` and `exuvia status` show."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import msgspec

from gateway.status.channel_reports import ChannelReport, channel_in_short
from gateway.support.session_status import count_of, span

WIDTH = 80
"""The width of the output, in columns."""


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the storage: `pending` bytes not written yet, and the mean duration of all `syncs`, null before the
    first."""

    pending: int
    syncs: int
    sync_seconds: float | None
    failures: int


class ClusterPart(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway among those that share its database: its id, and the number of those that are alive."""

    gateway: str
    gateways: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the gateway at one moment.

    `since` is RFC 3339 in UTC, `uptime` seconds, `memory` bytes. `refuses` says why no message is taken, `troubles` lists
    all other problems. Counts begin with the process; `turns` are by outcome, `errors` by code.
    """

    version: str
    process: int
    since: str
    uptime: float
    home: str
    model: str
    refuses: str | None
    troubles: Sequence[str]
    sessions: int
    conversations: int
    websockets: int
    running_turns: int
    waiting_messages: int
    channels: Sequence[ChannelReport] = ()
    cluster: ClusterPart | None = None
    turns: dict[str, int]
    errors: dict[str, int]
    input_tokens: int
    output_tokens: int
    storage: Storage
    memory: int
    descriptors: int | None


def is_well(overview: Overview) -> bool:
    """Return True if nothing needs anybody's attention."""
    return overview.refuses is None and not overview.troubles


def describe_overview(o: Overview, address: str) -> str:
    """Return the text of `exuvia status`."""
    ended = sum(o.turns.values())
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in o.turns.items() if count)
    errors = ", ".join(f"{code} {count:,}" for code, count in sorted(o.errors.items(), key=lambda each: -each[1]))
    storage = o.storage
    syncs = f"{storage.syncs:,} syncs" + (
        "" if storage.sync_seconds is None else f" of {1000 * storage.sync_seconds:.1f} ms"
    )
    rows = {
        "Address": address,
        "Home": o.home,
        "Model": o.model,
        "Sessions": f"{o.sessions:,}, {o.conversations:,} in memory; {count_of(o.websockets, 'client')} connected",
        "Turns": f"{ended:,} ended{f' ({outcomes})' if outcomes else ''}; {o.running_turns:,} running,"
        f" {o.waiting_messages:,} waiting",
        **({"Channels": "; ".join(map(channel_in_short, o.channels))} if o.channels else {}),
        **({"Cluster": f"{count_of(o.cluster.gateways, 'gateway')}; this one is {o.cluster.gateway}"} if o.cluster else {}),
        "Errors": errors or "none",
        "Tokens": f"{o.input_tokens:,} in, {o.output_tokens:,} out",
        "Storage": f"{syncs}, {count_of(storage.failures, 'failure')}, {storage.pending:,} bytes pending",
        "Process": f"{o.process}, {o.memory / 2**20:.0f} MB"
        + ("" if o.descriptors is None else f", {count_of(o.descriptors, 'open file')}"),
    }
    lines = [f"Exuvia {o.version}, running since {o.since[:16].replace('T', ' ')} UTC ({span(o.uptime)})."]
    lines += [_folded(f"  {name:<9} {text}", 12) for name, text in rows.items()]
    wrong = [*([f"The gateway is not accepting messages: {o.refuses}"] if o.refuses else []), *o.troubles]
    lines += [_folded(f"! {sentence}", 2) for sentence in wrong] or ["No problems."]
    return "\n".join(lines)


def _folded(line: str, indent: int) -> str:
    """Wrap a line at WIDTH columns."""
    return textwrap.fill(
        line, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )

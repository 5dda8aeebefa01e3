"""The sources of `/metrics` and `/status.json`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import get_args

import msgspec

from gateway import VERSION
from gateway.config.keys import Config
from gateway.config.settings import Settings
from gateway.conversations.routing.switchboard import Switchboard
from gateway.metrics import process
from gateway.metrics.counters import Counters
from gateway.metrics.process import LoopLag
from gateway.metrics.prometheus import Family, Sample, gauge, page
from gateway.models.breaker import BreakerState
from gateway.models.registry import ModelRegistry
from gateway.status.channel_reports import ChannelReport
from gateway.status.overview import ClusterPart, Overview, Storage
from gateway.status.problems import Problems, Readiness
from gateway.support.errors import GatewayError
from gateway.support.home import Home
from plugins.api.context import Clock
from sessions.store.catalog import Catalog
from sessions.store.cluster import Cluster
from sessions.store.log_writer import stamp
from sessions.store.protocols import Store

MOST_CHANNELS = 50
"""Channels that have metrics of their own."""


class GatewayContext(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a gateway that exist before anything is opened. `began` is the start on the monotonic clock."""

    home: Home
    settings: Settings
    clock: Clock
    counters: Counters
    began: float

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.settings.current

    @property
    def workspace(self) -> Path:
        """The folder of the workspace, which is fixed at the start."""
        return self.home.workspace(self.config.agent.workspace)

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return self.clock.monotonic() - self.began


class Instruments(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a gateway that its metrics and status are read from, anew at each request."""

    context: GatewayContext
    lag: LoopLag
    problems: Problems
    readiness: Readiness
    store: Store
    catalog: Catalog
    cluster: Cluster | None
    switchboard: Switchboard
    models: ModelRegistry
    channels: Callable[[], Sequence[ChannelReport]]

    def metrics(self, websockets: int) -> str:
        """Return the page for Prometheus; `websockets` is the number of connected clients."""
        return page(
            [
                *self._now(websockets),
                self._breakers(),
                *self._channels(),
                *self._storage(),
                *self._cluster(),
                *self.context.counters.families(),
                *self._process(),
            ]
        )

    def overview(self, websockets: int) -> Overview:
        """Return the overview of this moment; `websockets` is the number of connected clients."""
        counters, load, uptime = self.context.counters, self.switchboard.load(), self.context.uptime
        refuses = self.readiness.refuses
        return Overview(
            version=VERSION,
            process=os.getpid(),
            since=stamp(self.context.clock.now() - timedelta(seconds=uptime)),
            uptime=uptime,
            home=str(self.context.home.root),
            model=self._model(),
            refuses=None if refuses is None else str(refuses),
            troubles=[*self.problems.sentences(), *self.context.settings.notes()],
            sessions=self.catalog.count,
            conversations=load.conversations,
            websockets=websockets,
            running_turns=load.running,
            waiting_messages=load.waiting,
            channels=self.channels(),
            cluster=None if self.cluster is None else ClusterPart(gateway=self.cluster.id, gateways=self.cluster.alive),
            turns={outcome: count for (outcome,), count in counters.turns.counts.items()},
            errors={code: count for (code,), count in counters.turn_errors.counts.items()},
            input_tokens=counters.tokens_of("input"),
            output_tokens=counters.tokens_of("output"),
            storage=Storage(
                pending=self.store.pending,
                syncs=self.store.commits,
                sync_seconds=counters.sync_seconds.mean,
                failures=counters.storage_failures.total,
            ),
            memory=process.memory(),
            descriptors=process.descriptors(),
        )

    def _model(self) -> str:
        try:
            return self.models.choose().why
        except GatewayError as error:
            return str(error)

    def _now(self, websockets: int) -> Iterator[Family]:
        python = platform.python_version()
        yield gauge("exuvia_build_info", "The version that runs.", 1, version=VERSION, python=python)
        yield gauge("exuvia_uptime_seconds", "Time since the gateway started.", self.context.uptime)
        yield gauge("exuvia_ready", "1 while messages are taken.", self.readiness.refuses is None)
        load = self.switchboard.load()
        yield gauge("exuvia_sessions", "Sessions that are known.", self.catalog.count)
        yield gauge("exuvia_open_conversations", "Sessions in memory.", load.conversations)
        yield gauge("exuvia_running_turns", "Turns that run.", load.running)
        yield gauge("exuvia_waiting_messages", "Messages and commands that wait, in all open sessions.", load.waiting)
        yield gauge("exuvia_websockets", "Connected clients.", websockets)
        yield gauge("exuvia_subscriptions", "Sessions that clients follow.", load.subscriptions)
        longest = self.lag.last_minute
        yield gauge("exuvia_event_loop_lag_max_seconds", "The longest lag of the last minute.", longest)

    def _breakers(self) -> Family:
        samples = [
            Sample("", {"provider": provider, "state": state}, breaker.state == state)
            for provider, breaker in self.models.breakers().items()
            for state in get_args(BreakerState)
        ]
        help_ = "1 for the state that a provider's circuit breaker is in."
        return Family(name="exuvia_circuit_breaker_state", kind="gauge", help=help_, samples=samples)

    def _channels(self) -> Iterator[Family]:
        reports = self.channels()[:MOST_CHANNELS]
        up = [Sample("", {"channel": each.name}, each.connection == "connected") for each in reports]
        yield Family(name="exuvia_channel_connected", kind="gauge", help="1 for a channel that is connected.", samples=up)
        waiting = [Sample("", {"channel": each.name}, each.waiting) for each in reports]
        help_ = "Replies that wait to be delivered."
        yield Family(name="exuvia_channel_waiting_replies", kind="gauge", help=help_, samples=waiting)

    def _storage(self) -> Iterator[Family]:
        failed = self.store.failure.done()
        yield gauge("exuvia_storage_failed", "1 once a sync has failed and nothing is taken any more.", failed)
        yield gauge("exuvia_pending_bytes", "Bytes that wait for the disk.", self.store.pending)
        failing = self.catalog.failure is not None
        yield gauge("exuvia_catalog_failing", "1 while the catalog cannot be written.", failing)
        yield gauge("exuvia_unreadable_journals", "Journals that could not be read.", len(self.catalog.unreadable))

    def _cluster(self) -> Iterator[Family]:
        if (cluster := self.cluster) is None:
            return
        yield gauge("exuvia_cluster_gateways", "Gateways of this database that are alive.", cluster.alive)
        silent = cluster.silent_seconds
        yield gauge("exuvia_cluster_contact_age_seconds", "Time since the last contact with the database.", silent)
        totals = {
            "exuvia_cluster_deaths_total": ("How often this gateway was declared dead.", cluster.deaths),
            "exuvia_cluster_declared_total": ("Other gateways that this one has declared dead.", cluster.declared),
            "exuvia_cluster_adopted_total": ("Conversations taken over from gateways that were gone.", cluster.adopted),
        }
        for name, (help_, count) in totals.items():
            yield Family(name=name, kind="counter", help=help_, samples=[Sample("", {}, count)])

    def _process(self) -> Iterator[Family]:
        """Yield the process metrics, under the names that common dashboards use."""
        yield gauge("process_resident_memory_bytes", "Resident memory.", process.memory())
        yield gauge("process_open_fds", "Open file descriptors.", process.descriptors())
        yield gauge("process_max_fds", "File descriptors that may be open.", process.most_descriptors())
        began = self.context.clock.now().timestamp() - self.context.uptime
        yield gauge("process_start_time_seconds", "When the gateway started, in seconds since 1970.", began)
        yield Family(
            name="process_cpu_seconds_total",
            kind="counter",
            help="Processor time.",
            samples=[Sample("", {}, time.process_time())],
        )

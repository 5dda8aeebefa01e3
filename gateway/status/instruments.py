"""The sources of `/metrics` and `/status.json`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import get_args

from gateway.config.settings import Settings
from gateway.conversations.routing.switchboard import Switchboard
from gateway.metrics import process
from gateway.metrics.counters import Counters
from gateway.metrics.process import LoopLag
from gateway.metrics.prometheus import Family, Sample, gauge, page
from gateway.models.breaker import BreakerState
from gateway.models.registry import ModelRegistry
from gateway.status.overview import Overview, Storage
from gateway.status.problems import Problems, Readiness
from gateway.support.errors import GatewayError
from gateway.support.home import Home
from plugins.api.context import Clock
from sessions.store.catalog import Catalog
from sessions.store.log_writer import stamp
from sessions.store.protocols import Store


class Instruments:
    """The parts of a gateway that its metrics and status are read from, anew at each request.

    `began` is the start of the gateway on the monotonic clock, in seconds.
    """

    def __init__(
        self,
        *,
        version: str,
        home: Home,
        clock: Clock,
        began: float,
        counters: Counters,
        lag: LoopLag,
        problems: Problems,
        settings: Settings,
        readiness: Readiness,
        store: Store,
        catalog: Catalog,
        switchboard: Switchboard,
        models: ModelRegistry,
    ) -> None:
        self._version = version
        self._home = home
        self._clock = clock
        self._began = began
        self._counters = counters
        self._lag = lag
        self._problems = problems
        self._settings = settings
        self._readiness = readiness
        self._store = store
        self._catalog = catalog
        self._switchboard = switchboard
        self._models = models

    def metrics(self, websockets: int) -> str:
        """Return the page for Prometheus; `websockets` is the number of connected clients."""
        return page(
            [*self._now(websockets), self._breakers(), *self._storage(), *self._counters.families(), *self._process()]
        )

    def overview(self, websockets: int) -> Overview:
        """Return the overview of this moment; `websockets` is the number of connected clients."""
        counters, load, uptime = self._counters, self._switchboard.load(), self._uptime()
        refuses = self._readiness.refuses
        return Overview(
            version=self._version,
            process=os.getpid(),
            since=stamp(self._clock.now() - timedelta(seconds=uptime)),
            uptime=uptime,
            home=str(self._home.root),
            model=self._model(),
            refuses=None if refuses is None else str(refuses),
            troubles=[*self._problems.sentences(), *self._settings.notes()],
            sessions=self._catalog.count,
            conversations=load.conversations,
            websockets=websockets,
            running_turns=load.running,
            waiting_messages=load.waiting,
            turns={outcome: count for (outcome,), count in counters.turns.counts.items()},
            errors={code: count for (code,), count in counters.turn_errors.counts.items()},
            input_tokens=counters.tokens_of("input"),
            output_tokens=counters.tokens_of("output"),
            storage=Storage(
                pending=self._store.pending,
                syncs=self._store.commits,
                sync_seconds=counters.sync_seconds.mean,
                failures=counters.storage_failures.total,
            ),
            memory=process.memory(),
            descriptors=process.descriptors(),
        )

    def _uptime(self) -> float:
        return self._clock.monotonic() - self._began

    def _model(self) -> str:
        try:
            return self._models.choose().why
        except GatewayError as error:
            return str(error)

    def _now(self, websockets: int) -> Iterator[Family]:
        python = platform.python_version()
        yield gauge("exuvia_build_info", "The version that runs.", 1, version=self._version, python=python)
        yield gauge("exuvia_uptime_seconds", "Time since the gateway started.", self._uptime())
        yield gauge("exuvia_ready", "1 while messages are taken.", self._readiness.refuses is None)
        load = self._switchboard.load()
        yield gauge("exuvia_sessions", "Sessions that are known.", self._catalog.count)
        yield gauge("exuvia_open_conversations", "Sessions in memory.", load.conversations)
        yield gauge("exuvia_running_turns", "Turns that run.", load.running)
        yield gauge("exuvia_waiting_messages", "Messages and commands that wait, in all open sessions.", load.waiting)
        yield gauge("exuvia_websockets", "Connected clients.", websockets)
        yield gauge("exuvia_subscriptions", "Sessions that clients follow.", load.subscriptions)
        longest = self._lag.last_minute
        yield gauge("exuvia_event_loop_lag_max_seconds", "The longest lag of the last minute.", longest)

    def _breakers(self) -> Family:
        samples = [
            Sample("", {"provider": provider, "state": state}, breaker.state == state)
            for provider, breaker in self._models.breakers().items()
            for state in get_args(BreakerState)
        ]
        help_ = "1 for the state that a provider's circuit breaker is in."
        return Family(name="exuvia_circuit_breaker_state", kind="gauge", help=help_, samples=samples)

    def _storage(self) -> Iterator[Family]:
        failed = self._store.failure.done()
        yield gauge("exuvia_storage_failed", "1 once a sync has failed and nothing is taken any more.", failed)
        yield gauge("exuvia_pending_bytes", "Bytes that wait for the disk.", self._store.pending)
        failing = self._catalog.failure is not None
        yield gauge("exuvia_catalog_failing", "1 while the catalog cannot be written.", failing)
        yield gauge("exuvia_unreadable_journals", "Journals that could not be read.", len(self._catalog.unreadable))

    def _process(self) -> Iterator[Family]:
        """Yield the process metrics, under the names that common dashboards use."""
        yield gauge("process_resident_memory_bytes", "Resident memory.", process.memory())
        yield gauge("process_open_fds", "Open file descriptors.", process.descriptors())
        yield gauge("process_max_fds", "File descriptors that may be open.", process.most_descriptors())
        began = self._clock.now().timestamp() - self._uptime()
        yield gauge("process_start_time_seconds", "When the gateway started, in seconds since 1970.", began)
        yield Family(
            name="process_cpu_seconds_total",
            kind="counter",
            help="Processor time.",
            samples=[Sample("", {}, time.process_time())],
        )

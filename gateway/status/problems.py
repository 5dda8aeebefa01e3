"""The readiness of the gateway to take messages, and its current problems, each as a sentence that says what it means or
what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter

from gateway.metrics import process
from gateway.metrics.counters import Counters
from gateway.metrics.process import LoopLag
from gateway.models.breaker import BreakerView
from gateway.support.errors import Busy
from gateway.support.session_status import count_of, span
from sessions.events.errors import StorageFailed
from sessions.store.catalog import Catalog

BLOCKED_SECONDS = 1.0
"""Seconds for which the event loop must be blocked to be reported: people notice such a delay."""

RECENT_SECONDS = 600.0
"""Seconds for which a failure of the disk or of a turn is reported, even if everything has worked since."""

MOST_DESCRIPTORS_SHARE = 0.8
"""The share of the allowed file descriptors above which the number of open ones is reported."""


REPEATED_FAILURES = 3
"""Consecutive failures of a provider that are reported although it is still in use."""

SEE_LOG = "see the log and that conversation's `/status`; `exuvia doctor` checks the providers."


class Readiness:
    """The state of the gateway: starting, ready, or stopped for a reason that operators and clients are shown."""

    def __init__(self) -> None:
        self._reason: Busy | StorageFailed | None = Busy("The gateway is starting.")
        self.lost_contact: Callable[[], bool] = lambda: False
        """Returns True while the database of a cluster does not answer."""

    def ready(self) -> None:
        """Take messages from now on."""
        self._reason = None

    def stop(self, reason: Busy | StorageFailed) -> None:
        """Take no messages from now on, for this reason."""
        self._reason = reason

    @property
    def refuses(self) -> Busy | StorageFailed | None:
        """The reason why messages are refused; None if they are taken."""
        if self._reason is None and self.lost_contact():
            return StorageFailed("The database does not answer; the gateway goes on when it does.")
        return self._reason


class Problems:
    """The current problems of the gateway. `clock` is that of the session meters."""

    def __init__(
        self,
        catalog: Catalog,
        counters: Counters,
        lag: LoopLag,
        breakers: Callable[[], Mapping[str, BreakerView]],
        *,
        unknown_fallbacks: Callable[[], Sequence[str]] = tuple,
        plugin_problems: Callable[[], Sequence[str]] = tuple,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._catalog = catalog
        self._counters = counters
        self._lag = lag
        self._breakers = breakers
        self._unknown_fallbacks = unknown_fallbacks
        self._plugin_problems = plugin_problems
        self._clock = clock
        self._failed_tasks = list[str]()

    def task_failed(self, task: str) -> None:
        """Report that a background task has ended because of a fault, until the next start."""
        self._failed_tasks.append(task)

    def sentences(self) -> list[str]:
        """Return all current problems, the worst first; empty if there are none."""
        return [*self._storage(), *self._providers(), *self._machine(), *self._turns()]

    def _turns(self) -> Iterator[str]:
        """Yield the turns that failed recently, in all sessions, and the newest one until a turn succeeds."""
        now, ended = self._clock(), self._counters.ended
        recent = [code for at, code in ended if now - at < RECENT_SECONDS]
        if failed := [code for code in recent if code]:
            codes = ", ".join(code for code, _ in Counter(failed).most_common())
            turns, time = f"{len(failed):,} of {count_of(len(recent), 'turn')}", span(RECENT_SECONDS)
            yield f"{turns} failed within the last {time} ({codes}): {SEE_LOG}"
        elif ended and ended[-1][1]:
            yield f"The last turn failed {span(now - ended[-1][0])} ago ({ended[-1][1]}): {SEE_LOG}"

    def _storage(self) -> Iterator[str]:
        if (failed := self._counters.storage_failed) is not None and (ago := self._clock() - failed[0]) < RECENT_SECONDS:
            yield (
                f"A write to the disk failed {span(ago)} ago ({failed[1].rstrip('.')}). Accepted messages are safe;"
                " send the others again. Check the free space."
            )
        if self._catalog.failure is not None:
            yield (
                f"{self._catalog.failure.rstrip('.')}. Nothing is lost, but the next start takes longer. Check the free"
                " space and the permissions of the home."
            )
        if count := len(self._catalog.unreadable):
            journals = "journal is" if count == 1 else "journals are"
            yield (
                f"{count} {journals} damaged, missing or unreadable, and no longer written; `/new` starts a new session."
                " `exuvia sessions verify` lists them with the reasons."
            )

    def _providers(self) -> Iterator[str]:
        yield from self._plugin_problems()
        yield from (f"{sentence}; correct or remove it." for sentence in self._unknown_fallbacks())
        for name, breaker in self._breakers().items():
            failed = f"{name} failed {breaker.failures} times in a row"
            if breaker.wait:
                yield f"{failed} and is tried again in {span(breaker.wait)}: {breaker.why}"
            elif breaker.state != "closed":
                yield f"{failed} and is being tried again: {breaker.why}"
            elif breaker.failures >= REPEATED_FAILURES:
                yield f"{failed}: {breaker.why}"

    def _machine(self) -> Iterator[str]:
        for task in self._failed_tasks:
            yield f"A background task has ended because of a fault ({task}): see the log, and restart the gateway."
        if (blocked := self._lag.last_minutes) >= BLOCKED_SECONDS:
            yield (
                f"The event loop was blocked for {blocked:.1f} s within the last five minutes. Too little memory or CPU"
                " causes this, or a plugin that computes outside a thread."
            )
        used, most = process.descriptors(), process.most_descriptors()
        if used is not None and most is not None and used > MOST_DESCRIPTORS_SHARE * most:
            yield f"{used:,} of {most:,} file descriptors are open; raise the limit (`LimitNOFILE=`, `ulimit -n`)."

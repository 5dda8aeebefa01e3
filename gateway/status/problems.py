"""What is not well with the gateway as a whole, each in a sentence that says what it means or what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter

from gateway.metrics import process
from gateway.metrics.counters import Counters
from gateway.metrics.loop_lag import LoopLag
from gateway.models.breaker import BreakerView
from gateway.support.session_status import count_of, span
from sessions.catalog.catalog import Catalog

HELD_UP = 1.0
"""Seconds of delay of the event loop that people notice."""

FRESH = 600.0
"""Seconds that a failure of the disk or of a turn is still told, though all goes well since."""

CROWDED = 0.8
"""The share of the file descriptors that may be open before it is told."""


NO_ACCIDENT = 3
"""Failures of a provider in a row that are told although it is still asked."""

WHY = "the log and that conversation's `/status` say why, and `exuvia doctor` asks the vendors."


class Problems:
    """Asked at any time. `clock` is that of the session meters."""

    def __init__(
        self,
        catalog: Catalog,
        figures: Counters,
        lag: LoopLag,
        breakers: Callable[[], Mapping[str, BreakerView]],
        *,
        misnamed: Callable[[], Sequence[str]] = tuple,
        unopened: Callable[[], Sequence[str]] = tuple,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._catalog = catalog
        self._figures = figures
        self._lag = lag
        self._breakers = breakers
        self._misnamed = misnamed
        self._unopened = unopened
        self._clock = clock

    def sentences(self) -> list[str]:
        """All that is wrong now, the worst first; empty where all is well."""
        return [*self._storage(), *self._providers(), *self._machine(), *self._turns()]

    def _turns(self) -> Iterator[str]:
        """The turns that failed lately, in all sessions; and the newest one until a turn goes well."""
        now, ended = self._clock(), self._figures.ended
        lately = [code for at, code in ended if now - at < FRESH]
        if failed := [code for code in lately if code]:
            codes = ", ".join(code for code, _ in Counter(failed).most_common())
            yield f"{len(failed):,} of {count_of(len(lately), 'turn')} failed within the last {span(FRESH)} ({codes}): {WHY}"
        elif ended and ended[-1][1]:
            yield f"The last turn failed {span(now - ended[-1][0])} ago ({ended[-1][1]}): {WHY}"

    def _storage(self) -> Iterator[str]:
        if (failed := self._figures.storage_failed) is not None and (ago := self._clock() - failed[0]) < FRESH:
            yield (
                f"The disk refused to take messages {span(ago)} ago ({failed[1].rstrip('.')}). What was accepted is safe;"
                " what was not must be sent again. Look at the free space."
            )
        if self._catalog.failure is not None:
            yield (
                f"{self._catalog.failure.rstrip('.')}. Nothing is lost, but the next start takes longer. Look at the free"
                " space and the rights of the home."
            )
        if count := len(self._catalog.unreadable):
            journals = "journal is" if count == 1 else "journals are"
            yield (
                f"{count} {journals} damaged, gone or unreadable: nothing more is written there, and `/new` goes on."
                " `exuvia sessions verify` says which and why."
            )

    def _providers(self) -> Iterator[str]:
        yield from self._unopened()
        yield from (f"{sentence}; correct it or take it out." for sentence in self._misnamed())
        for name, breaker in self._breakers().items():
            failed = f"{name} failed {breaker.failures} times in a row"
            if breaker.wait:
                yield f"{failed} and is asked again in {span(breaker.wait)}: {breaker.why}"
            elif breaker.state != "closed":
                yield f"{failed} and is being tried again: {breaker.why}"
            elif breaker.failures >= NO_ACCIDENT:
                yield f"{failed}: {breaker.why}"

    def _machine(self) -> Iterator[str]:
        if (held := self._lag.recent) >= HELD_UP:
            yield (
                f"Everything was held up for {held:.1f} s within the last minutes. A machine short of memory or processors"
                " does that, or a plugin that computes without a thread."
            )
        used, most = process.descriptors(), process.most_descriptors()
        if used is not None and most is not None and used > CROWDED * most:
            yield f"{used:,} of {most:,} file descriptors are open; raise the limit (`LimitNOFILE=`, `ulimit -n`)."

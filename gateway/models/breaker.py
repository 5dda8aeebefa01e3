"""Whether a provider is asked at all: after failures in a row it is left alone for a while, then tried with one request.

What counts is that the server was there. One that refuses a request, a key or a too long conversation was; a turn that is
cancelled says nothing. So no session can take a provider from the others by what it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import msgspec

from plugins.support.errors import BadAnswer, ProviderError, StreamCut, Unreachable
from plugins.support.http_errors import in_short

OPENS_AFTER = 5
"""Failures in a row: each is a whole request with its own retries, so five are no accident."""

WITHIN = 600.0
"""Seconds after which a failure is forgotten: five within a month are no outage."""

FIRST_PAUSE = 15.0
"""Seconds for which a provider is left alone at first; each probe that fails doubles them."""

LONGEST_PAUSE = 300.0
"""Seconds for which it is left alone at most: people notice by then that it is back."""

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands with a provider: `closed` is asked as usual, `open` is left alone for `wait` seconds, `half_open` has
    its one probe or is ready for it. `failures` were the last ones in a row, `why` says in a word or two what the
    newest was: every session is told it, and a server's own text may hold what another one said."""

    state: BreakerState
    failures: int
    wait: float
    why: str


class CircuitBreaker:
    """One provider's. `now` is a clock in seconds that never goes back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures = 0
        self._last = 0.0
        self._pause = 0.0
        self._until: float | None = None
        self._probing = False
        self._why = ""

    def view(self) -> BreakerView:
        """The state at this moment."""
        wait = 0.0 if self._until is None else max(0.0, self._until - self._now())
        state: BreakerState = "closed" if self._until is None else "open" if wait else "half_open"
        return BreakerView(state=state, failures=self._failures, wait=wait, why=self._why)

    def admits(self) -> bool:
        """Whether a request may be sent now; of those who ask while it is half open, the first."""
        return self._until is None or (self._now() >= self._until and not self._probing)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Around one request that was admitted: how it ends decides about the next ones."""
        probes, self._probing = self._until is not None, self._until is not None
        try:
            yield
        except (Unreachable, StreamCut) as error:
            self._failed(in_short(error))
            raise
        except BadAnswer:
            raise  # the server is there and speaks strangely, perhaps to this session only
        except ProviderError:
            self._answered()
            raise
        else:
            self._answered()
        finally:
            if probes:
                self._probing = False

    def _answered(self) -> None:
        self._failures, self._pause, self._until, self._why = 0, 0.0, None, ""

    def _failed(self, why: str) -> None:
        now = self._now()
        if now - self._last > WITHIN and self._until is None:
            self._failures = 0
        self._failures += 1
        self._last, self._why = now, why
        if self._until is not None and now < self._until:
            return  # one that was on its way when another opened it
        if self._until is not None or self._failures >= OPENS_AFTER:
            self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self._pause))
            self._until = now + self._pause

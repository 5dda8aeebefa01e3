"""A circuit breaker for each provider: after consecutive failures no request is sent for a while, then one as a probe.

Only an unreachable server counts as a failure. A server that refuses a request, a key or a conversation that is too long
has answered, and a cancelled turn says nothing; so no session can block a provider for the others by what it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import msgspec

from gateway.models.spending.budgets import RequestRefused
from plugins.support.errors import BadAnswer, ProviderError, StreamCut, Unreachable
from plugins.support.http_errors import short_reason

OPENS_AFTER = 5
"""Consecutive failures that open the breaker. Each is a whole request with its own retries."""

WITHIN = 600.0
"""Seconds after which a failure no longer counts as consecutive."""

FIRST_PAUSE = 15.0
"""Seconds of the first pause; each probe that fails doubles it."""

LONGEST_PAUSE = 300.0
"""Seconds of the longest pause."""

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a breaker.

    `closed` sends requests as usual, `open` sends none for `wait` seconds, `half_open` sends one probe. `failures` counts
    the consecutive failures, and `why` is the reason of the newest in a few words: every session may see it, so it never
    quotes the server, whose text may hold another session's content.
    """

    state: BreakerState
    failures: int
    wait: float
    why: str


class CircuitBreaker:
    """The circuit breaker of one provider. `now` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures = 0
        self._last = 0.0
        self._pause = 0.0
        self._until: float | None = None
        self._probing = False
        self._why = ""

    def view(self) -> BreakerView:
        wait = 0.0 if self._until is None else max(0.0, self._until - self._now())
        state: BreakerState = "closed" if self._until is None else "open" if wait else "half_open"
        return BreakerView(state=state, failures=self._failures, wait=wait, why=self._why)

    def allows(self) -> bool:
        """Return True if a request may be sent now; while half open, only the first may."""
        return self._until is None or (self._now() >= self._until and not self._probing)

    @contextmanager
    def track(self) -> Iterator[None]:
        """Track one allowed request: its outcome decides about the next ones."""
        probes, self._probing = self._until is not None, self._until is not None
        try:
            yield
        except (Unreachable, StreamCut) as error:
            self._failed(short_reason(error))
            raise
        except (BadAnswer, RequestRefused):
            raise  # the server answered, if wrongly, and perhaps only this session; or it was not asked
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
            return  # it was in flight when another failure opened the breaker
        if self._until is not None or self._failures >= OPENS_AFTER:
            self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self._pause))
            self._until = now + self._pause

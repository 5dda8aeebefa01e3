"""The API keys of a provider: one is used until it is refused, then the next.

Keys are not used in rotation: vendors cache a conversation per account, and a request with another account's key pays for
the whole conversation again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

from plugins.support.errors import CredentialsRefused, ProviderError, RateLimited
from plugins.support.http_errors import StatusRefused, short_reason
from plugins.support.secrets import Secret

T = TypeVar("T")

RATE_LIMITED_PAUSE = 60.0
"""Seconds for which a rate-limited key is not used if the server names no time."""

REFUSED_PAUSE = 3600.0
"""Seconds for which a refused key is not used. It is tried again, so that a change at the vendor needs no restart."""

MAX_PAUSE = 3600.0
"""The longest pause of a key in seconds, whatever the server asks for, for the same reason."""

SHORT_WAIT = 5.0
"""The longest wait in seconds for a model while another one is available."""


def check_copied(key: str, source: str) -> None:
    """Raise CredentialsRefused if the key contains a character that no key has. `source` is the setting or the environment
    variable that holds it."""
    if not (key.isascii() and key.isprintable()):
        raise CredentialsRefused(f"{source} holds a character that no key has; copy it again.")


def bearer(key: str) -> dict[str, str]:
    """Return the `Authorization` header for a key; empty if there is none."""
    return {"Authorization": f"Bearer {key}"} if key else {}


class ApiKeys:
    """The keys of the setting `setting`, or else the one of the environment variable `variable`. `now` is a monotonic clock
    in seconds. Messages identify a key by its position, never by its text."""

    def __init__(
        self,
        given: Secret | tuple[Secret, ...] | None,
        setting: str,
        environment: Mapping[str, str],
        variable: str,
        now: Callable[[], float],
    ) -> None:
        secrets = (given,) if isinstance(given, Secret) else given or ()
        texts = [secret.reveal().strip() for secret in secrets] or [environment.get(variable, "").strip()]
        several = len(texts) > 1
        named = [(text, f"{setting}[{index}]" if several else setting) for index, text in enumerate(texts)]
        self.source = setting if secrets else variable
        """The setting or the environment variable that holds the keys."""
        self._keys = [each for each in named if each[0]] if secrets else [(texts[0], variable)]
        self._keys = self._keys or [("", setting)]
        self._pauses: list[tuple[float, ProviderError | None]] = [(0.0, None) for _ in self._keys]
        self._current = 0
        self._now = now

    def __bool__(self) -> bool:
        return bool(self._keys[0][0])

    def current(self) -> str:
        """Return the key in use, empty if there is none. Raises CredentialsRefused as `check_copied` does."""
        return self._checked(self._current)

    def retry_policy(
        self, can_retry: Callable[[StatusRefused], bool], *, has_fallback: bool
    ) -> Callable[[StatusRefused], bool]:
        """Return the function that decides whether to retry with the same key: as `can_retry` does, unless another key or
        another model can answer sooner."""

        def decide(refused: StatusRefused) -> bool:
            if refused.status == 429 and (self._ready(other_than=self._current) is not None):
                return False
            long_wait = refused.retry_after is not None and refused.retry_after > SHORT_WAIT
            return not (has_fallback and long_wait) and can_retry(refused)

        return decide

    def answer(self, send: Callable[[str], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """Yield what `send` yields for a key. A refused key is paused, and the next one is tried unless something was
        yielded. Raises what `send` raises, or an error that names the pauses if all keys are paused."""
        return send(self.current()) if len(self._keys) == 1 else self._answer_with_several(send)

    async def _answer_with_several(self, send: Callable[[str], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        started = False
        while True:
            index = self._ready()
            if index is None:
                raise self._exhausted()
            self._current = index
            try:
                async with aclosing(send(self._checked(index))) as parts:
                    async for part in parts:
                        started = True
                        yield part
                return
            except (RateLimited, CredentialsRefused) as error:
                self._pause(index, error)
                if started:
                    raise

    def _checked(self, index: int) -> str:
        text, name = self._keys[index]
        check_copied(text, name)
        return text

    def _ready(self, other_than: int | None = None) -> int | None:
        """Return the index of the key to use: the current one, else the next that is not paused; None if all are."""
        count, now = len(self._keys), self._now()
        indices = ((self._current + step) % count for step in range(count))
        return next((index for index in indices if index != other_than and self._pauses[index][0] <= now), None)

    def _pause(self, index: int, error: ProviderError) -> None:
        default = RATE_LIMITED_PAUSE if isinstance(error, RateLimited) else REFUSED_PAUSE
        pause = default if error.retry_after is None else min(error.retry_after, MAX_PAUSE)
        self._pauses[index] = self._now() + pause, error

    def _exhausted(self) -> ProviderError:
        """Return the error if all keys are paused; it names the one that is used again first."""
        first = min(range(len(self._keys)), key=lambda each: self._pauses[each][0])
        until, error = self._pauses[first]
        wait = max(0.0, until - self._now())
        again = f"{self._keys[first][1]} is used again in {wait:.0f} s"
        reason = short_reason(error) if error is not None else ""
        sentence = f"All {len(self._keys)} keys of {self.source} are paused; {again}: {reason}."
        if isinstance(error, RateLimited):
            return RateLimited(sentence, retry_after=wait)
        return CredentialsRefused(sentence)

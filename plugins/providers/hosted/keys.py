"""A provider's keys: one is used until it is refused, then the next.

One key at a time, and not each in turn: vendors keep what they have read of a conversation by the account that the key
belongs to, and a request with another account's key pays for the whole conversation again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.support.errors import CredentialsRefused, ProviderError, RateLimited
from plugins.support.http_errors import StatusRefused, short_reason
from plugins.support.secrets import Secret

LIMITED_REST = 60.0
"""Seconds for which a key rests that was refused for too many requests without being told for how long."""

REFUSED_REST = 3600.0
"""Seconds for which a key is set aside that is not accepted: whoever mends it at the vendor need not restart the gateway."""

LONGEST_REST = 3600.0
"""Seconds for which a key rests at most, whatever a server asks for, for the same reason."""

SHORT_WAIT = 5.0
"""Seconds for which a model is waited for while another stands ready: what a person hardly notices."""


def check_copied(key: str, source: str) -> None:
    """Raises CredentialsRefused if the key holds a character that no key has. `source` is where it stands: the name of a
    setting or of a variable."""
    if not (key.isascii() and key.isprintable()):
        raise CredentialsRefused(f"{source} holds a character that no key has; copy it again.")


class ApiKeys:
    """The keys given in the configuration as `setting`, or else the one in the environment as `variable`. `now` is a clock
    in seconds that never goes back. A key is named by its place, never by its text."""

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
        named = [(text, f"{setting}[{place}]" if several else setting) for place, text in enumerate(texts)]
        self.source = setting if secrets else variable
        """Where the keys are set."""
        self._keys = [each for each in named if each[0]] if secrets else [(texts[0], variable)]
        self._keys = self._keys or [("", setting)]
        self._rests: list[tuple[float, ProviderError | None]] = [(0.0, None) for _ in self._keys]
        self._current = 0
        self._now = now

    def __bool__(self) -> bool:
        return bool(self._keys[0][0])

    def current(self) -> str:
        """The key in use; empty if there is none. CredentialsRefused if it holds a character that no key has."""
        return self._checked(self._current)

    def worth(self, request: ChatRequest, worth: Callable[[StatusRefused], bool]) -> Callable[[StatusRefused], bool]:
        """Which refusals are worth another attempt with the same key: those that `worth` says, unless there is a shorter
        way than waiting: another key, or a model that stands ready."""

        def decide(refused: StatusRefused) -> bool:
            if refused.status == 429 and (self._ready(besides=self._current) is not None):
                return False
            long = refused.retry_after is not None and refused.retry_after > SHORT_WAIT
            return not (request.has_fallback and long) and worth(refused)

        return decide

    async def answer(self, ask: Callable[[str], AsyncGenerator[Delta | Reply, None]]) -> AsyncGenerator[Delta | Reply, None]:
        """What `ask` yields with a key. A key that is refused rests, and what was not begun to be answered is asked again
        with the next one. Raises what `ask` raises; when all keys rest, so says the error."""
        if len(self._keys) == 1:
            async with aclosing(ask(self.current())) as parts:
                async for part in parts:
                    yield part
            return
        begun = False
        while True:
            place = self._ready()
            if place is None:
                raise self._exhausted()
            self._current = place
            try:
                async with aclosing(ask(self._checked(place))) as parts:
                    async for part in parts:
                        begun = True
                        yield part
                return
            except (RateLimited, CredentialsRefused) as error:
                self._rest(place, error)
                if begun:
                    raise

    def _checked(self, place: int) -> str:
        text, name = self._keys[place]
        check_copied(text, name)
        return text

    def _ready(self, besides: int | None = None) -> int | None:
        """The place of the key to be used: the current one, else the next that does not rest."""
        count, now = len(self._keys), self._now()
        places = ((self._current + step) % count for step in range(count))
        return next((place for place in places if place != besides and self._rests[place][0] <= now), None)

    def _rest(self, place: int, error: ProviderError) -> None:
        usual = LIMITED_REST if isinstance(error, RateLimited) else REFUSED_REST
        rest = usual if error.retry_after is None else min(error.retry_after, LONGEST_REST)
        self._rests[place] = self._now() + rest, error

    def _exhausted(self) -> ProviderError:
        """What is to be said when every key rests, of the one that is back first."""
        place = min(range(len(self._keys)), key=lambda each: self._rests[each][0])
        until, error = self._rests[place]
        wait = max(0.0, until - self._now())
        again = f"{self._keys[place][1]} is used again in {wait:.0f} s"
        why = short_reason(error) if error is not None else ""
        sentence = f"All {len(self._keys)} keys of {self.source} rest; {again}: {why}."
        if isinstance(error, RateLimited):
            return RateLimited(sentence, retry_after=wait)
        return CredentialsRefused(sentence)

"""Places: how many requests are answered at the same time, of one person and of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.openai_api.refusals import Refused

OF_ONE_PERSON, AT_ONCE = 32, 128


class Places:
    """Counts those who are inside."""

    def __init__(self) -> None:
        self._inside: Counter[str] = Counter()

    @contextmanager
    def one(self, person: str) -> Iterator[None]:
        """A place while the block runs. Raises Refused where there is none."""
        of_one = self._inside[person] >= OF_ONE_PERSON
        if of_one or self._inside.total() >= AT_ONCE:
            whose = "of yours" if of_one else "of all persons together"
            sentence = f"Too many requests {whose} are being answered; try again shortly."
            raise Refused(sentence, status=429, kind="rate_limit_error", code="busy", retry_after=1)
        self._inside[person] += 1
        try:
            yield
        finally:
            self._inside[person] -= 1
            self._inside = +self._inside

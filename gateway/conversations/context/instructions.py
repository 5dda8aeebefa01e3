"""The system instructions: the configured or the shipped text, and the date."""

from __future__ import annotations

from datetime import date, datetime
from functools import lru_cache

from plugins.languages.prompts import language

IN_SHORT = "You are a helpful AI assistant named Exuvia"
"""The default instructions of a small model, in the form that the bundled one was trained with."""


def standing_instructions(configured: str | None, code: str, now: datetime) -> str:
    """Return the configured text, or the shipped one of a language, followed by the date of `now` in its time zone.

    The hour is left out: the text would differ in every request, and no provider's cache would match it.
    """
    return _of_day(configured, code, now.date(), now.tzname() or f"{now:%z}")


@lru_cache(8)
def _of_day(configured: str | None, code: str, day: date, zone: str) -> str:
    texts = language(code)
    today = texts.today
    for name, value in {"{weekday}": f"{day:%A}", "{date}": f"{day:%Y-%m-%d}", "{zone}": zone}.items():
        today = today.replace(name, value)
    return f"{(configured or texts.instructions).rstrip()}\n\n{today}\n"

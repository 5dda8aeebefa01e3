"""The system instructions: the configured or the shipped text, and the date."""

from __future__ import annotations

from datetime import datetime

from plugins.languages.prompts import language

IN_SHORT = "You are a helpful AI assistant named Exuvia"
"""The default instructions of a small model, in the form that the bundled one was trained with."""


def standing_instructions(configured: str | None, code: str, now: datetime) -> str:
    """Return the configured text, or the shipped one of a language, followed by the date of `now` in its time zone.

    The hour is left out: the text would differ in every request, and no provider's cache would match it.
    """
    texts = language(code)
    values = {"{weekday}": f"{now:%A}", "{date}": f"{now:%Y-%m-%d}", "{zone}": now.tzname() or f"{now:%z}"}
    day = texts.today
    for name, value in values.items():
        day = day.replace(name, value)
    return f"{(configured or texts.instructions).rstrip()}\n\n{day}\n"

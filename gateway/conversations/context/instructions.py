"""The text that stands before every conversation: what the configuration says, or what is shipped; and the day."""

from __future__ import annotations

from datetime import datetime

from plugins.languages.prompts import language

IN_SHORT = "You are a helpful AI assistant named Exuvia"
"""What a small model is told, where nothing is configured: the form that the bundled one was trained with."""


def standing_instructions(configured: str | None, code: str, now: datetime) -> str:
    """The configured text, or the shipped one of the language with this code, and what day `now` is in its own time zone.
    The hour is not told: the text would be another in every request, and no provider's cache would know it again."""
    texts = language(code)
    told = {"{weekday}": f"{now:%A}", "{date}": f"{now:%Y-%m-%d}", "{zone}": now.tzname() or f"{now:%z}"}
    day = texts.today
    for name, value in told.items():
        day = day.replace(name, value)
    return f"{(configured or texts.instructions).rstrip()}\n\n{day}\n"

"""Which of OpenAI's models reason, by their names: the others refuse whatever has to do with it."""

from __future__ import annotations

_THOUGHTLESS = ("gpt-3", "gpt-4", "chatgpt-4", "gpt-5-chat", "gpt-5.1-chat", "gpt-5.2-chat", "gpt-5.3-chat")
"""By the beginning of their names, from OpenAI's model pages. All others reason, those to come among them."""


def reasons(model: str) -> bool:
    """Whether a model reasons, as far as its name tells."""
    return not model.removeprefix("ft:").startswith(_THOUGHTLESS)

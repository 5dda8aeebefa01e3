"""What Anthropic's models take in a request, by their names."""

from __future__ import annotations

from collections.abc import Mapping

from plugins.chat.limits import known_limits, longest
from plugins.contracts import ToldLimits

_SAMPLED = {
    "claude-3": True,
    "claude-haiku-4": True,
    "claude-opus-4": True,
    "claude-opus-4-7": False,
    "claude-opus-4-8": False,
    "claude-sonnet-4": True,
}
"""Which still take `temperature` and `top_p`, by the beginning of the name, from Anthropic's model pages: newer ones refuse
a request that sets them."""

_ANSWER = 8_192
"""Tokens of an answer where nothing is known of the model; the service demands a number."""


def takes_sampling(name: str) -> bool:
    """Whether a model takes `temperature` and `top_p`. One of Anthropic's that is too new for the list does not."""
    sampled = longest(_SAMPLED, name)
    return not name.startswith("claude-") if sampled is None else sampled


def answer_limit(name: str, wanted: int | None, told: Mapping[str, ToldLimits] | None = None) -> int:
    """How many tokens an answer may have: as many as wanted and possible. By default a twelfth of the window, because
    older models count these tokens as part of the conversation and refuse one that leaves no room for them. `told` is what
    the service said of its models."""
    limits = known_limits("anthropic", name, told)
    if limits.window is None or limits.output is None:
        return wanted or _ANSWER
    return min(wanted or limits.window // 12, limits.output)

"""What Anthropic's model pages say of its models."""

from __future__ import annotations

import msgspec


class Model(msgspec.Struct, frozen=True):
    """A model's limits in tokens, and whether it still takes `temperature` and `top_p`: newer ones refuse a request that
    sets them."""

    window: int
    output: int
    sampled: bool = False


_MILLION = Model(1_000_000, 128_000)

_MODELS = {
    "claude-fable-5": _MILLION,
    "claude-mythos-5": _MILLION,
    "claude-opus-5": _MILLION,
    "claude-sonnet-5": _MILLION,
    "claude-haiku-5": _MILLION,
    "claude-opus-4-8": _MILLION,
    "claude-opus-4-7": _MILLION,
    "claude-opus-4-6": Model(1_000_000, 128_000, sampled=True),
    "claude-sonnet-4-6": Model(1_000_000, 64_000, sampled=True),
    "claude-opus-4-5": Model(200_000, 64_000, sampled=True),
    "claude-opus-4": Model(200_000, 32_000, sampled=True),
    "claude-sonnet-4": Model(200_000, 64_000, sampled=True),
    "claude-haiku-4": Model(200_000, 64_000, sampled=True),
    "claude-3-7": Model(200_000, 64_000, sampled=True),
    "claude-3-5": Model(200_000, 8_192, sampled=True),
    "claude-3": Model(200_000, 4_096, sampled=True),
}
"""By the beginning of the name; of two that fit, the longer one stands first."""

_ANSWER = 8_192
"""Tokens of an answer where nothing is known of the model; the service demands a number."""


def known(name: str) -> Model | None:
    """The model of this name, or None if it is not in the list."""
    return next((model for beginning, model in _MODELS.items() if name.startswith(beginning)), None)


def takes_sampling(name: str) -> bool:
    """Whether a model takes `temperature` and `top_p`. One of Anthropic's that is too new for the list does not."""
    model = known(name)
    return model.sampled if model else not name.startswith("claude-")


def answer_limit(name: str, wanted: int | None) -> int:
    """How many tokens an answer may have: as many as wanted and possible. By default a twelfth of the window, because
    older models count these tokens as part of the conversation and refuse one that leaves no room for them."""
    model = known(name)
    if model is None:
        return wanted or _ANSWER
    return min(wanted or model.window // 12, model.output)

"""A plugin of somebody's as the house takes it in."""

from __future__ import annotations

from typing import Any

from plugins.hooks import Hooks


def as_stranger(plugin: Any, seconds: float) -> Hooks:
    """The hooks of a policy alone, which has so long for an answer. AssertionError, with the reason, where it is refused."""
    hooks = Hooks(seconds)
    hooks.register("policy", plugin)
    assert not hooks.refused, hooks.refused[0].sentence
    return hooks

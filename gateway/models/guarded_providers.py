"""Providers of plugins, whose questions about themselves are answered whatever the plugin's code does.

`default_model`, `limits` and the like are called at many places, some of them outside of any turn. Instead of a guard at
each place, a third-party class is opened as a subclass whose methods raise nothing but a ProviderError and return what the
API promises. Streams, `__aenter__` and `__aexit__` are guarded where they are used.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from gateway.support.errors import sentence_of
from plugins.api.models import ModelLimits
from plugins.support.errors import BadAnswer, ProviderError
from plugins.support.untrusted import is_our_class, reraise_cancellation

K = TypeVar("K", bound=Callable[..., Any])

OnFailure = Callable[[str, str], None]
"""Called with a method's name and a sentence after each call: what it raised, or an empty text if it returned well."""

_TEXT, _NAME = 1000, 100
"""Characters of a text that a provider says about itself, and of the name of a type."""

_DEFAULTS: Final[dict[str, tuple[Any, Any]]] = {
    "default_model": (str | None, None),
    "model": (str | None, None),
    "explain_default": (str, "it does not say why"),
    "address": (str, ""),
    "dimensions": (int, 0),
    "limits": (ModelLimits, ModelLimits()),
}
"""The type that each method returns, and what stands for it when the call fails: that nothing is known."""

_COROUTINES: Final = ("models", "discover", "discover_server", "embed")


def guard_provider(kind: K, on_failure: OnFailure) -> K:
    """Return a class of providers whose calls cannot harm the gateway.

    Args:
        kind: The class as its plugin registered it. One of the project's own is returned as it is.
        on_failure: Told how each call went, by the method's name.

    Returns:
        A subclass of `kind` of the same name.
    """
    if not isinstance(kind, type) or is_our_class(kind):
        return kind

    def fill(namespace: dict[str, Any]) -> None:
        namespace["__module__"], namespace["__qualname__"] = kind.__module__, kind.__qualname__
        for name, (promised, default) in _DEFAULTS.items():
            if hasattr(kind, name):
                namespace[name] = _guard(getattr(kind, name), name, promised, default, on_failure)
        for name in _COROUTINES:
            if hasattr(kind, name):
                namespace[name] = _guard_coroutine(getattr(kind, name), name, on_failure)

    guarded: Any = types.new_class(kind.__name__, (kind,), exec_body=fill)
    return cast(K, guarded)


def _guard(call: Callable[..., Any], name: str, promised: Any, default: Any, on_failure: OnFailure) -> Callable[..., Any]:
    def guarded(self: Any, *arguments: Any) -> Any:
        try:
            returned = call(self, *arguments)
            if not isinstance(returned, promised):
                raise TypeError(f"it returned {type(returned).__name__[:_NAME]}")
            returned = msgspec.convert(msgspec.to_builtins(returned), promised)
        except BaseException as error:
            reraise_cancellation(error)
            on_failure(name, sentence_of(error))
            return default
        on_failure(name, "")
        return returned[:_TEXT] if isinstance(returned, str) else returned

    return guarded


def _guard_coroutine(call: Callable[..., Any], name: str, on_failure: OnFailure) -> Callable[..., Any]:
    async def guarded(self: Any, *arguments: Any) -> Any:
        try:
            returned = await call(self, *arguments)
        except ProviderError:
            raise
        except BaseException as error:
            reraise_cancellation(error)
            on_failure(name, sentence_of(error))
            raise BadAnswer(f"The provider {self.name} failed in {name}: {sentence_of(error)}") from error
        on_failure(name, "")
        return returned

    return guarded

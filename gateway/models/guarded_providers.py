"""Providers of plugins, guarded so that asking them about themselves never fails.

`default_model`, `limits` and the like are called at many places, some of them outside of any turn. Instead of a guard at
each place, a third-party class is opened as a subclass whose methods raise nothing but a ProviderError and return what the
API promises: limits out of range are unknown, and an embedding is one vector of numbers for each text. Streams,
`__aenter__` and `__aexit__` are guarded where they are used.
"""

from __future__ import annotations

import asyncio
import types
from array import array
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Annotated, Any, Final, TypeAlias, TypeVar, cast

import msgspec

from gateway.support.errors import sentence_of
from plugins.api.models import ModelLimits, ModelList, ReportedLimits
from plugins.support.errors import BadAnswer, ProviderError
from plugins.support.untrusted import PluginCallFailed, attempt, is_own_class, reraise_cancellation
from plugins.support.vector_checks import Vector, checked
from sessions.events.vision import VisionSupport

K = TypeVar("K", bound=Callable[..., Any])
S = TypeVar("S", bound=msgspec.Struct)

OnFailure: TypeAlias = Callable[[str, str], None]
"""Called with a method's name and a sentence after each call: what it raised or returned, or an empty text if it was
valid."""

Check: TypeAlias = Callable[..., tuple[Any, str]]
"""Called with what a method returned and the method's arguments. Returns what is used of it, and what is wrong with the
rest ("" for nothing), or raises if none of it can be used."""

PICTURE_TOKENS = 1_600
"""The estimated tokens of a picture if the provider fails to say them."""

_TEXT, _NAME = 1000, 100
"""Characters of a text that a provider says about itself, and of the name of a type."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


def guard_provider(kind: K, on_failure: OnFailure) -> K:
    """Return a class of providers whose calls cannot harm the gateway.

    Args:
        kind: The class as its plugin registered it. One of the project's own is returned as it is.
        on_failure: Told how each call went, by the method's name.

    Returns:
        A subclass of `kind` of the same name.
    """
    if not isinstance(kind, type) or is_own_class(kind):
        return kind

    def fill(namespace: dict[str, Any]) -> None:
        namespace["__module__"], namespace["__qualname__"] = kind.__module__, kind.__qualname__
        for name, (check, default) in _METHODS.items():
            if hasattr(kind, name):
                namespace[name] = _guard(getattr(kind, name), name, check, default, on_failure)
        for name, check in _COROUTINES.items():
            if hasattr(kind, name):
                namespace[name] = _guard_coroutine(getattr(kind, name), name, check, on_failure)

    guarded: Any = types.new_class(kind.__name__, (kind,), exec_body=fill)
    return cast(K, guarded)


def _guard(call: Callable[..., Any], name: str, check: Check, default: Any, on_failure: OnFailure) -> Callable[..., Any]:
    def guarded(self: Any, *arguments: Any) -> Any:
        try:
            valid, wrong = check(call(self, *arguments), *arguments)
        except BaseException as error:
            reraise_cancellation(error)
            on_failure(name, sentence_of(error))
            return default
        on_failure(name, wrong)
        if isinstance(valid, ModelLimits) and valid.vision is not None:
            cost = _guard(valid.vision.tokens, name, _picture_tokens, PICTURE_TOKENS, on_failure)
            valid = msgspec.structs.replace(valid, vision=msgspec.structs.replace(valid.vision, tokens=cost))
        return valid

    return guarded


def _guard_coroutine(call: Callable[..., Any], name: str, check: Check, on_failure: OnFailure) -> Callable[..., Any]:
    async def guarded(self: Any, *arguments: Any) -> Any:
        try:
            returned = await call(self, *arguments)
            valid, wrong = await asyncio.to_thread(attempt, partial(check, returned, *arguments))  # it may be long
        except ProviderError:
            raise
        except BaseException as error:
            reraise_cancellation(error)
            on_failure(name, sentence_of(error))
            raise BadAnswer(f"The provider {self.name} failed in {name}: {sentence_of(error)}") from error
        on_failure(name, wrong)
        return valid

    return guarded


# --- checks -----------------------------------------------------------------------------------------------------------


def _has_type(promised: Any) -> Check:
    def check(returned: object, *_: object) -> tuple[Any, str]:
        valid = msgspec.convert(returned, promised)
        return str.__getitem__(valid, slice(_TEXT)) if isinstance(valid, str) else valid, ""

    return check


def _any(returned: object, *_: object) -> tuple[object, str]:
    return returned, ""


def _is(returned: object, kind: type[S]) -> S:
    if not isinstance(returned, kind):
        raise PluginCallFailed(f"it returned {type(returned).__name__[:_NAME]} instead of {kind.__name__}")
    return returned


def _valid_limits(returned: object, *_: object) -> tuple[ModelLimits, str]:
    return _valid(_is(returned, ModelLimits), ModelLimits)


def _valid(given: S, kind: type[S]) -> tuple[S, str]:
    """Return a struct without its invalid fields, and what is wrong with them."""
    valid, wrong = {}, []
    for field in msgspec.structs.fields(kind):
        value = getattr(given, field.name)
        try:
            # A Struct as a value would not be validated.
            plain = msgspec.structs.asdict(value) if isinstance(value, VisionSupport) else value
            valid[field.name] = msgspec.convert(plain, field.type)
        except msgspec.ValidationError as error:
            wrong.append(f"{field.name} is invalid and treated as unknown: {error}")
    return kind(**valid), "; ".join(wrong)


def _picture_tokens(returned: object, *_: object) -> tuple[int, str]:
    try:
        return msgspec.convert(returned, _Count), ""
    except msgspec.ValidationError as error:
        raise PluginCallFailed(f"the tokens of a picture are invalid: {error}") from error


def _valid_models(returned: object) -> tuple[ModelList, str]:
    listed, models, wrong = _is(returned, ModelList), {}, ""
    for name, limits in _is_mapping(listed.models).items():
        models[msgspec.convert(name, str)], complaint = _valid(_is(limits, ReportedLimits), ReportedLimits)
        wrong = f"{complaint} (model {name[:_NAME]!r})" if complaint else wrong
    return ModelList(address=msgspec.convert(listed.address, str), models=models), wrong


def _is_mapping(given: object) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise PluginCallFailed(f"its models are {type(given).__name__[:_NAME]} instead of a mapping")
    return given


def _valid_vectors(returned: object, texts: Sequence[str], *_: object) -> tuple[list[Vector], str]:
    """Return one list of numbers for each text, also if they are NumPy's."""
    try:
        vectors = [_numbers(vector) for vector in _listed(returned)]
    except (TypeError, ValueError, OverflowError) as error:
        raise PluginCallFailed(f"it did not return a list of vectors of numbers: {sentence_of(error)}") from error
    try:
        checked(vectors, len(texts))
    except BadAnswer as error:
        raise PluginCallFailed(str(error)) from error
    return vectors, ""


def _numbers(vector: object) -> Vector:
    return array("d", _listed(vector)).tolist()


def _listed(given: Any) -> Any:
    """Return what can be a list of vectors or of numbers; `array` would read bytes, and sets and mappings have no order."""
    if isinstance(given, str | bytes | bytearray | memoryview | Mapping | Set):
        raise TypeError(f"it has {type(given).__name__[:_NAME]} instead of a list")
    return given


_METHODS: Final[dict[str, tuple[Check, Any]]] = {
    "default_model": (_has_type(str | None), None),
    "model": (_has_type(str | None), None),
    "explain_default": (_has_type(str), "it does not say why"),
    "address": (_has_type(str), ""),
    "dimensions": (_has_type(_Count), 0),
    "limits": (_valid_limits, ModelLimits()),
}
"""The check of each method, and its result when it fails: that nothing is known."""

_COROUTINES: Final[dict[str, Check]] = {
    "models": _valid_models,
    "discover": _any,
    "discover_server": _any,
    "embed": _valid_vectors,
}

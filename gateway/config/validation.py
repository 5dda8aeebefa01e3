"""Validation against the schema of a Struct: types, secrets and durations; each fault is one sentence."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from gateway.config.secret_references import FORMS, References, is_reference
from gateway.config.sources import RawConfig, Sources, parse_switch
from gateway.support.errors import ConfigRefused
from gateway.support.printable import one_line
from plugins.support.addresses import FAULT
from plugins.support.secrets import Secret
from plugins.support.suggestions import did_you_mean

T = TypeVar("T")

SEVERAL = 3
"""Keys of other sections that are suggested at most for an unknown key."""

_LONGEST_DURATION = 3650 * 86400.0
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "list": "a list",
    "object": "a table",
    "null": "nothing",
}


class Seconds(float):
    """A duration in seconds, written `90s`, `5m`, `1h` or `2d`."""

    @classmethod
    def parse(cls, text: str) -> Seconds:
        """Return the duration; raise ValueError with part of a sentence if the text is none."""
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
        seconds = float(found[1]) * _UNITS[found[2]] if found else math.inf
        if seconds > _LONGEST_DURATION:
            raise ValueError(f"must be a duration such as 90s, 5m, 1h or 2d (at most ten years), not {text!r}")
        return cls(seconds)

    def written(self) -> str:
        """Return the text that `parse` accepts, in the largest unit without a fraction."""
        whole = (unit for unit in "dhms" if self % _UNITS[unit] == 0)
        unit = next(whole, "s")
        return f"{self / _UNITS[unit]:.3f}".rstrip("0").rstrip(".") + unit


class Timezone(str):
    """The name of a time zone known on this machine, such as `Europe/Berlin`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Timezone:
        """Return the time zone; raise ValueError with part of a sentence if it is unknown."""
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - most configurations name none

        try:
            ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"must be a time zone known to this machine, such as Europe/Berlin, not {text!r}") from None
        return cls(text)


class Validator:
    """One validation run; `warnings` collects sentences about values that are accepted and discouraged."""

    def __init__(self, sources: Sources, references: References) -> None:
        self._sources = sources
        self._references = references
        self.warnings: list[str] = []

    def fit(self, value: Any, form: type[T], key: str = "") -> T:
        """Convert a value to a Struct of the type `form`; `key` is its path.

        Raises:
            ConfigRefused: A value is invalid; the message names its key.
        """
        try:
            return msgspec.convert(self._settled(value, form, key), form, dec_hook=_decode)
        except msgspec.ValidationError as error:
            raise self._refusal(*_explain(str(error), form, key)) from error

    def _refusal(self, key: str, reason: str) -> ConfigRefused:
        sentence = f"{self._sources.place(key)}: {key} {reason}"
        return ConfigRefused(one_line(sentence if sentence.endswith("?") else f"{sentence}.", 500), key=key)

    def _settled(self, value: Any, form: Any, key: str) -> Any:
        """Return the value with environment texts typed and secrets resolved, as the schema requires."""
        forms = _alternatives(form)
        if any(_is_secrets(kind) for kind in forms) and not isinstance(value, dict):
            return self._secrets(value, key)
        if isinstance(value, RawConfig) and forms != {Any}:
            value = self._secret(value, key) if Secret in forms else _typed(value, forms)
        elif isinstance(value, str) and Secret in forms:
            value = self._secret(value, key)
        if isinstance(value, float) and not math.isfinite(value):
            raise self._refusal(key, "must be a finite number")
        if not isinstance(value, dict) and all(get_origin(kind) is dict for kind in forms):
            # msgspec would not say which entry of an outer table this is
            raise self._refusal(key, f"must be a table, not {_WORDS.get(type(value).__name__, 'something else')}")
        if isinstance(value, dict):
            return {name: self._settled(inner, _form_below(forms, name), _join(key, name)) for name, inner in value.items()}
        for place, text, kind in _texts(value, form):
            if reason := next(filter(None, (fault(text) for fault in _faults(kind))), ""):
                raise self._refusal(f"{key}{place}", reason)
        return value

    def _secrets(self, value: Any, key: str) -> list[Any]:
        """Resolve a list of secrets; a single one is accepted too."""
        if isinstance(value, RawConfig) and isinstance(several := _typed(value, {list}), list):
            value = [RawConfig(inner) if isinstance(inner, str) else inner for inner in several]
        if not isinstance(value, list):
            return [self._settled(value, Secret, key)]
        return [self._settled(inner, Secret, f"{key}[{place}]") for place, inner in enumerate(value)]

    def _secret(self, value: str, key: str) -> Secret:
        """Resolve a secret; warn about one written in the file itself."""
        text = _typed(value, {str}) if isinstance(value, RawConfig) else value
        try:
            secret = self._references.resolve(text)
        except ConfigRefused as error:
            raise self._refusal(key, f"cannot be resolved: {error}") from error
        if not isinstance(value, RawConfig) and not is_reference(text):
            self.warnings.append(
                f"{key} is stored as plain text in {self._sources.origin(key)}; use a reference instead: {FORMS}."
            )
        return secret


def _decode(form: type, value: Any) -> Any:
    """Decode a type that msgspec does not know."""
    if form is Timezone:
        if isinstance(value, str):
            return Timezone.parse(value)
        raise ValueError("must be the name of a time zone, such as Europe/Berlin")
    if form is Seconds:
        if isinstance(value, str):
            return Seconds.parse(value)
        raise ValueError("must be a duration in quotes, such as 90s, 5m, 1h or 2d")
    if isinstance(value, form):
        return value
    raise ValueError(f"must be text: {FORMS}" if form is Secret else f"must be a {form.__name__}")


def _typed(value: RawConfig, forms: set[Any]) -> Any:
    """Parse a variable's text as TOML if that gives a type allowed for the key; else return it as text.

    Booleans may be written as is usual in environments.
    """
    if bool in forms and (on := parse_switch(value)) is not None:
        return on
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return str(value)
    if set(parsed) != {"value"}:  # line feeds can smuggle more keys
        return str(value)
    plain = parsed["value"]
    wants_text = forms & {str, Seconds, Timezone} or any(get_origin(form) is Literal for form in forms)
    return plain if isinstance(plain, str) or not wants_text else str(value)


def typed_as(text: str, form: type, names: Sequence[str]) -> Any:
    """Parse a text as the value of the key with these names in a Struct, as for a variable."""
    inner: Any = form
    for name in names:
        inner = _form_below(_alternatives(inner), name)
    return _typed(RawConfig(text), _alternatives(inner))


def _is_secrets(form: Any) -> bool:
    return get_origin(form) is tuple and Secret in get_args(form)


def _alternatives(form: Any) -> set[Any]:
    """Return the types that a type annotation allows, without constraints."""
    if get_origin(form) is Annotated:
        return _alternatives(get_args(form)[0])
    if get_origin(form) in (Union, UnionType):
        return set().union(*map(_alternatives, get_args(form)))
    return {form}


def _texts(value: Any, form: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the texts of a value, each with its index in a list and its type."""
    if isinstance(value, str):
        yield "", value, form
    elif isinstance(value, list):
        of_lists = (get_args(kind)[0] for kind in _alternatives(form) if get_origin(kind) is tuple)
        inner = next(of_lists, Any)
        yield from ((f"[{place}]", text, inner) for place, text in enumerate(value) if isinstance(text, str))


def _faults(form: Any) -> Iterator[Callable[[str], str]]:
    """Yield the validators attached to a text type, as in `plugins.support.addresses`."""
    if get_origin(form) is Annotated:
        inner, *metas = get_args(form)
        yield from (meta.extra[FAULT] for meta in metas if isinstance(meta, msgspec.Meta) and meta.extra)
        yield from _faults(inner)
    elif get_origin(form) in (Union, UnionType):
        yield from (fault for kind in get_args(form) for fault in _faults(kind))


def _form_below(forms: set[Any], name: str) -> Any:
    """Return the type of a table's entry."""
    for form in forms:
        if isinstance(form, type) and issubclass(form, msgspec.Struct):
            return next((field.type for field in msgspec.structs.fields(form) if field.encode_name == name), Any)
        if get_origin(form) is dict:
            return get_args(form)[1]
    return Any


def _explain(error: str, form: Any, key: str) -> tuple[str, str]:
    """Return the key that a msgspec error is about, and the end of a sentence that describes the error."""
    root = form if not key else None
    reason, _, place = error.partition(" - at `$")
    names = re.findall(r"\.([^.`]+)", place.replace("[...]", ""))
    for name in names:
        form = _form_below(_alternatives(form), name.partition("[")[0])
    key = ".".join(filter(None, (key, *names)))
    if found := re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", reason, re.DOTALL):
        unknown = f"is not a known key{_guess(found[2], form, key) or _elsewhere(found[2], root)}"
        return _join(key, found[2]), "is missing" if found[1] == "missing required" else unknown
    if found := re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`", reason):
        wanted = " or ".join(_WORDS.get(word, word) for word in found[1].split(" | ") if word != "null")
        got = "a fraction" if found[2] == "float" else _WORDS.get(found[2], found[2])
        return key, f"must be {wanted}, not {got}"
    if reason.startswith("Invalid enum value"):
        return key, f"must be {_choices(form)}, not {reason.removeprefix('Invalid enum value ')}"
    if found := re.fullmatch(r"Expected `([^`]+)` ([<>]=?) (\S+)", reason):
        bounds = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
        return key, f"must be {bounds[found[2]]} {found[3]}"
    if reason == "Expected `str` of length >= 1":
        return key, "must not be empty"
    return key, reason if reason.startswith("must") else f"does not fit: {reason}"


def _choices(form: Any) -> str:
    allowed = [value for kind in _alternatives(form) if get_origin(kind) is Literal for value in get_args(kind)]
    return " or ".join(allowed)


def _guess(name: str, form: Any, key: str) -> str:
    known = [
        f.encode_name
        for kind in _alternatives(form)
        if hasattr(kind, "__struct_fields__")
        for f in msgspec.structs.fields(kind)
    ]
    return did_you_mean(name, known, before=f"{key}." if key else "")


def _elsewhere(name: str, root: Any) -> str:
    """Return a suggestion of keys with that name in other sections; empty if there are many."""
    found = [key for key in _keys(root) if key.endswith(f".{name}") or key.replace(".", "_") == name]
    return f"; did you mean {' or '.join(found)}?" if 0 < len(found) <= SEVERAL else ""


def _keys(form: Any, above: str = "") -> Iterator[str]:
    """Yield all keys of nested tables with their paths."""
    for field in msgspec.structs.fields(form) if hasattr(form, "__struct_fields__") else ():
        yield (key := _join(above, field.encode_name))
        yield from _keys(field.type, key)


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name

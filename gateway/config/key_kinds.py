"""The types of keys as data, for forms in which people enter values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import inspect

from gateway.config.validation import Seconds, Timezone
from plugins.support.secrets import Secret

KindName: TypeAlias = Literal[
    "boolean", "integer", "number", "text", "duration", "zone", "secret", "choice", "list", "table", "record", "any"
]

_OWN: dict[Any, KindName] = {Secret: "secret", Seconds: "duration", Timezone: "zone"}


class ValueKind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The values that a key accepts.

    `choices` are those of a choice, `least` and `most` the bounds of a number. `item` is the kind of the items of a list
    and of the values of a table, `fields` are the kinds of the keys of a record.
    """

    name: KindName
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    item: ValueKind | None = None
    fields: dict[str, ValueKind] = {}


class Field(msgspec.Struct, frozen=True):
    """A key of a table: its name, its kind, and its default, None if it has none."""

    name: str
    kind: ValueKind
    default: Any


def tables_of(form: type[msgspec.Struct], table: str) -> dict[str, list[Field]]:
    """Return the keys of a table and of the tables in it, by the paths of the tables, in the order of the schema."""
    tables: dict[str, list[Field]] = {table: []}
    for field in msgspec.structs.fields(form):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            tables |= tables_of(field.type, f"{table}.{field.encode_name}")
        else:
            kind = _kind(inspect.type_info(field.type))
            tables[table].append(Field(field.encode_name, kind, _default(field)))
    return tables


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def _kind(known: inspect.Type) -> ValueKind:  # noqa: PLR0911 - one for each kind
    match known:
        case inspect.UnionType():
            return _union(known.types)
        case inspect.Metadata():
            return _kind(known.type)
        case inspect.BoolType():
            return ValueKind(name="boolean")
        case inspect.IntType():
            return ValueKind(name="integer", least=known.ge, most=known.le)
        case inspect.FloatType():
            return ValueKind(name="number", least=known.ge, most=known.le)
        case inspect.LiteralType():
            return ValueKind(name="choice", choices=tuple(map(str, known.values)))
        case inspect.ListType() | inspect.VarTupleType():
            item = _kind(known.item_type)  # several secrets are entered as one
            return item if item.name == "secret" else ValueKind(name="list", item=item)
        case inspect.DictType():
            return ValueKind(name="table", item=_kind(known.value_type))
        case inspect.StructType():
            fields = {field.encode_name: _kind(field.type) for field in known.fields}
            return ValueKind(name="record", fields=fields)
        case inspect.StrType():
            return ValueKind(name="text")
    return ValueKind(name=_OWN.get(getattr(known, "cls", None), "any"))


def _union(types: Sequence[inspect.Type]) -> ValueKind:
    """Return the kind of a union: a secret or a list of them is entered as one."""
    kinds = [_kind(known) for known in types if not isinstance(known, inspect.NoneType)]
    return next((kind for kind in kinds if kind.name == "secret"), kinds[0])

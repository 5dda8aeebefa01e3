"""Definitions of tools as servers send them: names that every provider accepts, bounded descriptions and schemas, digests.

A definition is somebody else's text that the model reads. Nothing here follows a reference to another document. Pure
functions, without the SDK.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from sessions.events.messages import ToolDefinition

NAME_LENGTH = 64
"""Characters of a name that every provider accepts."""

OWN_NAME_LENGTH = 256
"""Characters of a server's own name of a tool."""

DESCRIPTION_LENGTH = 4_000
"""Characters of a description; the rest is cut."""

SCHEMA_BYTES = 64 * 1024
"""The largest schema of a tool, as JSON."""

SCHEMA_DEPTH = 64
"""The deepest nesting of a schema."""

EXPANDED_NODES = 100_000
"""Nodes of a schema whose references are replaced by what they name. More of them are an attack on whoever does that."""

MESSAGE_BYTES = 8 * 1024 * 1024
"""The largest message of a server."""

MESSAGE_VALUES = 50_000
"""Strings, lists and objects of a message. The SDK reads one of millions for seconds, on the event loop."""

TOOLS = 500
"""Tools of one server."""

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
# Control characters, marks that change the direction of text, invisible tags: a person who approves does not see them.
_UNSEEN = re.compile(
    "\x1b\\[[0-9;?]*[ -/]*[@-~]|"  # sequences that colour text in a terminal
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)


def values_in(message: bytes | bytearray) -> int:
    """Return about how many strings, lists and objects JSON has, at the speed of a search. Brackets in strings count too."""
    strings = (message.count(b'"') - message.count(b'\\"')) // 2
    return max(0, strings) + message.count(b"{") + message.count(b"[")


class DefinitionRefused(Exception):
    """A tool cannot be offered; `str(error)` is the end of a sentence."""


class ServerTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server.

    Attributes:
        name: The server's own name of the tool.
        definition: What the model is shown.
        digest: The SHA-256 of all that the server says about the tool.
        repeatable: The server says that a call has no effect, or the same effect when it is repeated.
    """

    name: str
    definition: ToolDefinition
    digest: str
    repeatable: bool


def server_tool(server: str, sent: dict[str, Any]) -> ServerTool:
    """Return a tool from an entry of `tools/list`, a JSON object.

    Args:
        server: The server's name in the configuration.
        sent: The entry as the server sent it.

    Raises:
        DefinitionRefused: It cannot be offered.
    """
    name, description, schema = sent.get("name"), sent.get("description") or "", sent.get("inputSchema")
    if not isinstance(name, str) or not isinstance(description, str) or not name.strip():
        raise DefinitionRefused("has no name, or a description that is not text")
    if len(name) > OWN_NAME_LENGTH:
        raise DefinitionRefused(f"has a name of more than {OWN_NAME_LENGTH} characters")
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise DefinitionRefused("has parameters that are not an object")
    encoded = _canonical(sent)
    if len(encoded) > 2 * SCHEMA_BYTES or len(_canonical(schema)) > SCHEMA_BYTES:
        raise DefinitionRefused(f"has a definition of more than {SCHEMA_BYTES // 1024} KiB")
    _check_schema(schema)
    hints = sent.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    return ServerTool(
        name=name,
        definition=ToolDefinition(
            name=offered_name(server, name),
            description=f"[MCP server {server}] {visible(description, DESCRIPTION_LENGTH)}".rstrip(),
            parameters=_without_other_documents({"type": "object", **schema}),
        ),
        digest=hashlib.sha256(encoded).hexdigest(),
        repeatable=hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True,
    )


def offered_name(server: str, tool: str) -> str:
    """Return `SERVER_TOOL`. A name that has to be changed gets part of a digest, so that no other tool has the same."""
    whole = f"{server}_{tool}"
    plain = _OTHER.sub("_", whole)
    if plain == whole and len(whole) <= NAME_LENGTH:
        return whole
    return f"{plain[: NAME_LENGTH - 9]}_{hashlib.sha256(whole.encode(errors='replace')).hexdigest()[:8]}"


def visible(text: str, limit: int) -> str:
    """Return a text without characters that cannot be seen, cut to `limit` characters."""
    text = _UNSEEN.sub("", text.replace("\r\n", "\n")).strip()
    return text if len(text) <= limit else f"{text[:limit]} [cut]"


def one_visible_line(text: str, limit: int) -> str:
    """Return a text as one line, without characters that cannot be seen, cut to `limit` characters."""
    return " ".join(visible(text, limit).split())


def _canonical(value: object) -> bytes:
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError, RecursionError) as error:
        raise DefinitionRefused("is not JSON, or nested too deeply") from error


# --- schemas ----------------------------------------------------------------------------------------------------------


def _check_schema(schema: dict[str, Any]) -> None:
    """Raise DefinitionRefused for a schema that is nested too deeply, or whose references make it too large."""
    if _depth(schema) > SCHEMA_DEPTH:
        raise DefinitionRefused("has parameters that are nested too deeply")
    sizes: dict[int, float] = {}
    if _expanded(schema, schema, sizes, ()) > EXPANDED_NODES:
        raise DefinitionRefused("has parameters whose references multiply without end")


def _depth(value: object) -> int:
    """Return the depth of a JSON value, level by level, without recursion."""
    level, depth = [value], 0
    while level and depth <= SCHEMA_DEPTH:
        level, depth = [inner for each in level for inner in _inner(each)], depth + 1
    return depth


def _inner(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _expanded(value: object, root: dict[str, Any], sizes: dict[int, float], way: tuple[int, ...]) -> float:
    """Return the number of nodes once references are replaced by what they name. A recursive one is counted once: it
    describes a tree, and everybody must stop somewhere."""
    if id(value) in sizes:
        return sizes[id(value)]
    if id(value) in way or len(way) > 8 * SCHEMA_DEPTH:
        return 1
    size = 1 + sum(_expanded(inner, root, sizes, (*way, id(value))) for inner in _inner(value))
    if isinstance(value, dict) and isinstance(reference := value.get("$ref"), str):
        named = _named(root, reference)
        size += _expanded(named, root, sizes, (*way, id(value))) if named is not None else 0
    sizes[id(value)] = size
    return size


def _named(root: dict[str, Any], reference: str) -> object | None:
    """Return what a reference within the document names, as a JSON Pointer or an anchor."""
    if not reference.startswith("#"):
        return None
    if not reference.startswith("#/"):
        return root if reference == "#" else next(_anchored(root, reference[1:]), None)
    found: object = root
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and len(name) < 9 and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def _anchored(value: object, anchor: str) -> Iterator[object]:
    if isinstance(value, dict) and value.get("$anchor") == anchor:
        yield value
    for inner in _inner(value):
        yield from _anchored(inner, anchor)


def _without_other_documents(value: Any) -> Any:
    """Return a schema in which a reference to another document allows any value: nobody shall fetch it."""
    if isinstance(value, list):
        return [_without_other_documents(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _without_other_documents(inner)
        for name, inner in value.items()
        if not (name in ("$ref", "$dynamicRef") and isinstance(inner, str) and not inner.startswith("#"))
    }

"""Reading `SKILL.md`: YAML front matter between two lines `---`, then the instructions in Markdown.

The front matter is untrusted: it is limited in size, depth and number of values, aliases are refused, tags mean nothing,
and every scalar is a string. PyYAML is imported when the first file is read.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from typing import Any, TypeAlias

import msgspec

from plugins.skills.skill_names import LONGEST, name_fault

NAME = "SKILL.md"
"""The file of a skill."""

FILE_BYTES = 256 * 1024
"""Maximum bytes of the file: what a tool's output may have in the log."""

FRONT_BYTES = 32 * 1024
"""Maximum bytes of the front matter."""

DEPTH, VALUES = 8, 1000
"""Maximum nesting and number of values of the front matter."""

DESCRIPTION, COMPATIBILITY = 1024, 500
"""Maximum characters of two fields."""

FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
"""The fields that the convention defines."""

_FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)(?:^|\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_KEY = re.compile(r"([A-Za-z][\w-]*):[ \t]+(?![\"'|>\[{&*!%@`#])(\S.*)")
_HEADING = re.compile(r"^#{1,6}[ \t](.*)$", re.MULTILINE)

_HIDING = re.compile("[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e0fff]")
"""Characters that reverse or hide a text; instructions have no use for them."""

Value: TypeAlias = "str | list[Value] | dict[str, Value]"


class SkillInvalid(Exception):
    """A skill cannot be used; `str(error)` is a sentence."""


class SkillText(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a `SKILL.md`.

    Attributes:
        fields: The front matter.
        body: The instructions.
        remark: A sentence if the front matter was not valid YAML and could be read nevertheless.
    """

    fields: dict[str, Any]
    body: str
    remark: str = ""

    @property
    def description(self) -> str:
        """The description on one line; "" if there is none."""
        value = self.fields.get("description", "")
        return " ".join(value.split()) if isinstance(value, str) else ""

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the instructions."""
        found = (heading.lstrip(" \t").rstrip(" \t#") for heading in _HEADING.findall(self.body))
        return tuple(heading for heading in found if heading)

    def usable_name(self, folder: str) -> str:
        """Return the name of a skill in a folder of this name: its own, or that of the folder if its own has a fault.

        Raises:
            SkillInvalid: Neither can be used.
        """
        given = self.fields.get("name")
        name = unicodedata.normalize("NFKC", given.strip()) if isinstance(given, str) else ""
        if name and not name_fault(name):
            return name
        if fault := name_fault(folder):
            raise SkillInvalid(f"The name {name or folder!r} {name_fault(name) if name else fault}.")
        return folder


def parse_skill(content: bytes) -> SkillText:
    """Return the parts of a file, which must be UTF-8.

    Raises:
        SkillInvalid: There is no front matter, it cannot be read, or there is no description.
    """
    if len(content) > FILE_BYTES:
        raise SkillInvalid(f"{NAME} has more than {FILE_BYTES >> 10} KiB.")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise SkillInvalid(f"{NAME} is not UTF-8 text.") from error
    found = _FRONT.match(text)
    if found is None:
        raise SkillInvalid(f"{NAME} does not begin with front matter between two lines `---`.")
    if len(found[1].encode()) > FRONT_BYTES:
        raise SkillInvalid(f"The front matter has more than {FRONT_BYTES >> 10} KiB.")
    remark, front = "", found[1].replace("\r\n", "\n")
    try:
        fields = _fields(front)
    except SkillInvalid as error:
        if (quoted := _with_quotes(front)) == front:
            raise
        try:
            fields = _fields(quoted)
        except SkillInvalid:
            raise error from None
        remark = f"{error} It was read as if the values with a colon were quoted."
    skill = SkillText(fields=fields, body=text[found.end() :].strip(), remark=remark)
    if not skill.description:
        raise SkillInvalid("The front matter has no description.")
    return skill


def findings(skill: SkillText, folder: str) -> list[str]:
    """Return what the convention does not allow in a skill of this folder, as sentences."""
    fields = skill.fields
    found = [skill.remark] if skill.remark else []
    unknown = sorted(fields.keys() - FIELDS)
    if unknown:
        found.append(f"The front matter has fields that the convention does not define: {', '.join(unknown)}.")
    found += _name_findings(fields.get("name"), folder)
    if hiding := sorted({f"U+{ord(character):04X}" for character in _HIDING.findall(f"{fields}{skill.body}")}):
        found.append(f"The text has characters that hide or reverse others: {', '.join(hiding[:5])}.")
    if not isinstance(fields.get("description"), str):
        found.append("The description is not a string.")
    elif len(fields["description"]) > DESCRIPTION:
        found.append(f"The description has {len(fields['description']):,} characters; {DESCRIPTION:,} are allowed.")
    if "license" in fields and not isinstance(fields["license"], str):
        found.append("The license is not a string.")
    compatibility = fields.get("compatibility", "-")
    if not isinstance(compatibility, str) or not 0 < len(compatibility) <= COMPATIBILITY:
        found.append(f"The compatibility is not a string of 1 to {COMPATIBILITY} characters.")
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        found.append("The metadata are not a map from strings to strings.")
    tools = fields.get("allowed-tools", "")
    if not isinstance(tools, str) and not (isinstance(tools, list) and all(isinstance(tool, str) for tool in tools)):
        found.append("The field allowed-tools is neither a string nor a list of strings.")
    return found


def _name_findings(name: Any, folder: str) -> list[str]:
    if not isinstance(name, str) or not name.strip():
        return ["The front matter has no name."]
    plain = unicodedata.normalize("NFKC", name.strip())
    if fault := name_fault(plain):
        return [f"The name {plain!r} {fault}."]
    if unicodedata.normalize("NFKC", folder) != plain:
        return [f"The name {plain!r} differs from that of the folder, {folder!r}."]
    return []


def _fields(front: str) -> dict[str, Any]:
    yaml: Any = import_module("yaml")  # 10 ms, only where there are skills
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        with closing(yaml.parse(front, Loader=loader)) as events:
            value = _Builder(events).document()
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 2}" if error.problem_mark else ""
        raise SkillInvalid(f"The front matter is not valid YAML{line}: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise SkillInvalid(
            "The front matter is not valid YAML: it contains a character that YAML does not allow."
        ) from error
    if not isinstance(value, dict):
        raise SkillInvalid("The front matter is not a list of fields with values.")
    return value


class _Builder:
    """Builds strings, lists and maps from the events of a YAML parser, within limits."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._left = VALUES

    def document(self) -> Value:
        """Return the value of the only document; "" if there is none."""
        documents: list[Value] = []
        for event in self._events:
            if type(event).__name__ == "DocumentStartEvent":
                if documents:
                    raise SkillInvalid("The front matter consists of several YAML documents.")
                documents.append(self._value(next(self._events), 0))
        return documents[0] if documents else ""

    def _value(self, event: Any, depth: int) -> Value:
        self._left -= 1
        if self._left < 0:
            raise SkillInvalid(f"The front matter has more than {VALUES:,} values.")
        match type(event).__name__:
            case "ScalarEvent":
                return str(event.value)
            case "AliasEvent":
                raise SkillInvalid("The front matter has a YAML alias, which is not allowed.")
        if depth == DEPTH:
            raise SkillInvalid(f"The front matter is nested more than {DEPTH} levels deep.")
        if type(event).__name__ == "SequenceStartEvent":
            return [self._value(item, depth + 1) for item in self._until("SequenceEndEvent")]
        fields: dict[str, Value] = {}
        for item in self._until("MappingEndEvent"):
            key = self._value(item, depth + 1)
            if not isinstance(key, str):
                raise SkillInvalid("The front matter has a field whose name is no text.")
            if key in fields:
                raise SkillInvalid(f"The front matter has the field {key[:LONGEST]!r} twice.")
            fields[key] = self._value(next(self._events), depth + 1)
        return fields

    def _until(self, end: str) -> Iterator[Any]:
        while type(event := next(self._events)).__name__ != end:
            yield event


def _with_quotes(front: str) -> str:
    """Quote plain values of fields that contain a colon, the most common fault of files that other agents accept."""
    fields: list[list[str]] = []
    for line in front.split("\n"):
        if fields and (line[:1] in (" ", "\t") or not line.strip()):
            fields[-1].append(line)
        else:
            fields.append([line])
    return "\n".join(map(_quoted, fields))


def _quoted(lines: list[str]) -> str:
    found = _KEY.fullmatch(lines[0].rstrip())
    value = " ".join(filter(None, (found[2].strip(), *(line.strip() for line in lines[1:])))) if found else ""
    return f"{found[1]}: {json.dumps(value, ensure_ascii=False)}" if found and ": " in f"{value} " else "\n".join(lines)

"""The tools `skill`, which loads a skill or one of its files, and `find_skill`; offered only where there are skills."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from plugins.api.tool import ApprovalRequest, Tool, ToolContext, ToolOutput
from plugins.skills.catalogue import FoundSkill
from plugins.skills.inventory import LoadedSkill, Skills
from plugins.skills.skill_file import NAME, SkillInvalid, parse_skill
from plugins.skills.skill_folder import text_of
from plugins.support.errors import ToolFailed
from plugins.support.fencing import harmless
from plugins.support.suggestions import did_you_mean
from plugins.support.workspace import OWNER
from plugins.tools.file_changes import convert
from sessions.events.messages import ToolDefinition

if TYPE_CHECKING:
    from plugins.api.plugin_services import EmbedTexts

RESULTS = 5
"""Skills that a search returns."""

FILES = 100
"""Maximum files of a skill that are listed."""


QUESTION = 60_000
"""Maximum characters of a question to a person."""


class SkillArguments(msgspec.Struct, frozen=True):
    """Arguments of the `skill` tool."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    file: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None


class FindArguments(msgspec.Struct, frozen=True):
    """Arguments of the `find_skill` tool."""

    query: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]


class LoadSkill:
    """The `skill` tool. A skill that is not admitted yet is admitted if the owner is asked and agrees."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="skill",
        description="Load the instructions of a skill, or the text of one of its files.",
        parameters={
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The name of the skill."},
                "file": {"type": "string", "description": "The path of a file, relative to the folder of the skill."},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, skills: Skills) -> None:
        self._skills = skills

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest | None:
        """Return None: reading an admitted skill needs no approval, and the admission of another one is asked by `run`."""
        return None

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Return the instructions, or a file.

        Raises:
            ToolFailed: There is no such skill or file, or the skill is not admitted.
        """
        request = convert(arguments, SkillArguments)
        try:
            skill = self._skills.get(request.name)
            if skill.state in ("new", "changed"):
                await self._ask(skill, call)
            text = await asyncio.to_thread(self._load, request)
        except SkillInvalid as error:
            near = did_you_mean(request.name, [skill.name for skill in self._skills.found if skill.admission])
            raise ToolFailed(f"{error}" if near == "" else f"{str(error).rstrip('.')}{near}") from error
        return ToolOutput(text=text)

    def _load(self, request: SkillArguments) -> str:
        loaded = self._skills.load(request.name)
        text = _body(loaded) if request.file is None else _file(loaded, request.file)
        self._skills.record_use(request.name)
        return text

    async def _ask(self, skill: FoundSkill, call: ToolContext) -> None:
        """Admit a skill if the owner agrees."""
        if call.person != OWNER or call.group:
            raise SkillInvalid(f"The skill {skill.name!r} is not admitted; only the owner can admit it.")
        preview = await asyncio.to_thread(self._skills.preview, skill.name)
        detail = preview.text(QUESTION)
        if len(detail) > QUESTION:
            raise SkillInvalid(f"The skill {skill.name!r} is too long for a question; `exuvia skills add` shows it.")
        question = ApprovalRequest(
            what=f"Admit the skill {preview.name} in {skill.place}",
            detail=detail,
            why="It has changed since it was admitted." if skill.state == "changed" else "It has not been admitted yet.",
            state=preview.files.digest,
            rememberable=False,
        )
        if not await call.ask(question):
            raise SkillInvalid(
                f"The skill {skill.name!r} was not admitted. `/skills show {skill.name}` shows how to admit it."
            )
        await asyncio.to_thread(self._skills.admit, preview, call.person)
        await self._skills.refresh()


class FindSkill:
    """The `find_skill` tool, which finds skills that the catalogue has no room for."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="find_skill",
        description="Find skills for a task. The result has their names and descriptions; `skill` loads one.",
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "The task, in a few words."}},
            "required": ["query"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, skills: Skills, embed: EmbedTexts | None) -> None:
        self._skills = skills
        self._embed = embed

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest | None:
        """Return None: a search needs no approval."""
        return None

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Return the names and descriptions of matching skills, best first."""
        request = convert(arguments, FindArguments)
        found = await self._skills.search(request.query, RESULTS, self._embed)
        return ToolOutput(text="\n".join(map(_line, found)) or "No skill matches.")


def made_tools(skills: Skills, embed: EmbedTexts | None) -> dict[str, Tool]:
    """Return the tools by name."""
    tools: tuple[Any, ...] = (LoadSkill(skills), FindSkill(skills, embed))
    return {tool.definition.name: tool for tool in tools}


def _body(loaded: LoadedSkill) -> str:
    """Return the instructions, with their origin and the list of the other files before them."""
    admission, skill = loaded.admission, loaded.skill
    others = [path for path in loaded.files.content if path != NAME]
    lines = [
        f"Skill {admission.name} from {admission.origin if admission.origin != skill.folder else skill.place},"
        f" admitted by {admission.by} on {admission.at[:10]}, digest {admission.digest[:12]}.",
    ]
    if others:
        lines.append(f"Its other files, which this tool returns with the argument `file`: {_names(others)}.")
        if skill.in_workspace:
            lines.append(f"In the workspace they are below {skill.place}.")
    return "\n".join([*lines, "", parse_skill(loaded.files.content[NAME]).body])


def _names(paths: list[str]) -> str:
    more = f" and {len(paths) - FILES:,} more" if len(paths) > FILES else ""
    return f"{', '.join(paths[:FILES])}{more}"


def _file(loaded: LoadedSkill, path: str) -> str:
    plain = path.removeprefix("./")
    content = loaded.files.content.get(plain)
    if content is None:
        near = did_you_mean(plain, loaded.files.content) or "."
        raise ToolFailed(f"The skill {loaded.admission.name!r} has no file {path[:200]!r}{near}")
    if (text := text_of(content)) is None:
        raise ToolFailed(f"{path[:200]!r} is not a text, or too long: it has {len(content):,} bytes.")
    return text


def _line(skill: FoundSkill) -> str:
    if skill.admission is None:
        return f"- {skill.name}: not admitted by a person yet, so its description is not shown; `skill` asks for that."
    return f"- {skill.name}: {harmless(skill.admission.description)}"

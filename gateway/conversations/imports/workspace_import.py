"""Writes imported notes and skills into a workspace. Nothing there is changed, except a note that has grown since."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from gateway.conversations.imports.readers.import_values import LeftOut, SourceNote, SourceSkill
from plugins.skills.installation import write_skill
from plugins.skills.skill_file import NAME, SkillInvalid, parse_skill
from plugins.skills.skill_folder import SkillFiles, check_names, read_folder
from plugins.support.safe_open import OutsideFolder
from plugins.support.workspace import OWNER, why_refused
from plugins.tools.file_target import FileChanged, FileTarget, open_target, plain_parts

Written: TypeAlias = Literal["new", "continued", "unchanged"]


class WorkspaceImport:
    """The workspace of a person.

    Args:
        workspace: Its folder.
        skills: The folder into which skills are copied.
        program: The program that the files come from, for the names of those whose place is taken.
        person: The person.
        dry_run: Only say what would be done.
    """

    def __init__(self, workspace: Path, skills: Path, program: str, person: str, *, dry_run: bool) -> None:
        self._workspace = workspace
        self._skills = skills
        self._program = program
        self._person = person
        self._dry_run = dry_run

    def note(self, note: SourceNote) -> Written | LeftOut:
        """Write a note to its path, or below `memory/PROGRAM/` if another note is there."""
        content = note.text.encode("utf-8", "replace")
        try:
            for path in (note.path, f"memory/{self._program}/{note.path}"):
                if (written := self._write(path, content)) is not None:
                    return written
        except OutsideFolder as error:
            return LeftOut(kind="notes", reason=str(error).rstrip("."), name=note.path)
        except FileChanged:
            return LeftOut(kind="notes", reason="it is being changed here", name=note.path)
        except OSError as error:
            return LeftOut(kind="notes", reason=error.strerror or str(error), name=note.path)
        return LeftOut(kind="notes", reason="another note has its name here", name=note.path)

    def _write(self, path: str, content: bytes) -> Written | None:
        """Write a note unless another one is there; then return None."""
        parts = plain_parts(self._workspace, path, self._person)
        if why := why_refused(parts, self._person, group=False, writes=True):
            raise OutsideFolder(why)
        if self._dry_run and not self._workspace.joinpath(*parts).exists():
            return "new"
        with open_target(self._workspace, parts, make=not self._dry_run) as place:
            return self._place(place, content)

    def _place(self, place: FileTarget, content: bytes) -> Written | None:
        there = place.content()
        if there == content:
            return "unchanged"
        if there is not None and not (there.strip() and content.startswith(there.rstrip())):
            return None
        if not self._dry_run:
            place.replace(content, lambda: None)
        return "new" if there is None else "continued"

    def skill(self, skill: SourceSkill) -> Written | LeftOut:
        """Copy a skill, which is not admitted by that: a person has to look at it first."""
        files = SkillFiles(content=dict(sorted(skill.files.items())))
        try:
            check_names(files.content)
            name = parse_skill(files.content[NAME]).usable_name(skill.name)
            target = self._skills / name
            if target.exists():
                same = read_folder(target).digest == files.digest
                return "unchanged" if same else LeftOut(kind="skills", reason="another one has its name here", name=name)
            if self._person != OWNER:
                return LeftOut(kind="skills", reason="only the owner's are imported", name=name)
            if not self._dry_run:
                write_skill(target, files)
        except SkillInvalid as error:
            return LeftOut(kind="skills", reason=str(error).rstrip("."), name=skill.name)
        except OSError as error:
            return LeftOut(kind="skills", reason=error.strerror or str(error), name=skill.name)
        return "new"

"""The skills as a gateway holds them: as long as there is no folder for skills, nothing is imported or read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from plugins.api.tool import Tool
from plugins.skills.skill_settings import SkillsKeys

if TYPE_CHECKING:
    from plugins.api.command import SkillsView
    from plugins.api.plugin_services import EmbedTexts
    from plugins.skills.inventory import Skills


class SkillLibrary:
    """The inventory of skills, opened when a folder for skills exists or somebody asks for it.

    Args:
        folder: The folder of the admissions in the home.
        workspace: The workspace.
        keys: Returns the configuration in force.
        now: Returns the time in UTC.
    """

    def __init__(
        self, folder: Path, workspace: Path, *, keys: Callable[[], SkillsKeys], now: Callable[[], datetime]
    ) -> None:
        self._folder = folder
        self._workspace = workspace
        self._keys = keys
        self._now = now
        self.opened: Skills | None = None
        """The inventory, once it is open."""

    async def refresh(self) -> None:
        """Look for new, changed and removed skills. Without any folder this is one look for each configured path."""
        if self.opened is None:
            if not any(map(os.path.isdir, self._keys().folders(self._workspace))):
                return
            await asyncio.to_thread(import_module, "plugins.skills.skill_tools")  # and all that it needs
        await self.open().refresh()

    def open(self) -> Skills:
        """Return the inventory."""
        if self.opened is None:
            from plugins.skills.inventory import Skills  # noqa: PLC0415 - only where there are skills

            self.opened = Skills(self._folder, self._workspace, keys=self._keys, now=self._now)
        return self.opened

    @property
    def version(self) -> int:
        """A number that changes with the skills."""
        return 0 if self.opened is None else self.opened.version

    def catalogue(self, window: int | None) -> str:
        """Return the catalogue for a model with this window (tokens; None if unknown); "" if there is none."""
        return "" if self.opened is None else self.opened.catalogue(window).text

    def problems(self) -> Sequence[str]:
        """Return what a person should know, as sentences."""
        return () if self.opened is None else self.opened.problems()

    def of_person(self, person: str, *, group: bool) -> SkillsView:
        """Return the skills as a person may see and admit them in one chat."""
        from plugins.skills.persons_skills import PersonsSkills  # noqa: PLC0415 - as above

        return PersonsSkills(self.open(), person, group=group)


class SkillTools:
    """The tools of the skills, as a `ToolSource`: none as long as there is no skill. `embed` may find more by meaning."""

    def __init__(self, library: SkillLibrary, embed: EmbedTexts | None) -> None:
        self._library = library
        self._embed = embed
        self._tools: dict[str, Tool] = {}

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by name."""
        skills = self._library.opened
        if skills is None or not skills.has_any:
            return {}
        if not self._tools:
            from plugins.skills.skill_tools import made_tools  # noqa: PLC0415 - as above

            self._tools = made_tools(skills, self._embed)
        return self._tools

"""The skills as one person may see and admit them in one chat: everybody sees the admitted ones, only the owner admits."""

from __future__ import annotations

import asyncio

from plugins.api.command import CommandFailed, ShownSkill, SkillEntry
from plugins.skills.inventory import Preview, Skills
from plugins.skills.skill_file import SkillInvalid
from plugins.support.workspace import OWNER

SHOWN = 50_000
"""Characters of a skill that are shown in a conversation; `SKILL.md` is always shown whole."""

SHORT_DIGEST = 12
"""The digits of a digest that a person types."""


class PersonsSkills:
    """A `SkillsView`, which documents the methods."""

    def __init__(self, skills: Skills, person: str, *, group: bool) -> None:
        self._skills = skills
        self._person = person
        self._owner = person == OWNER and not group

    async def listed(self) -> list[SkillEntry]:
        """Return the skills, for others than the owner only the admitted ones."""
        await self._skills.refresh()
        left_out = self._skills.left_out
        return [
            SkillEntry(
                name=skill.name,
                state=skill.state,
                description=skill.admission.description if skill.admission else "",
                place=skill.place,
                reason=skill.reason,
                in_catalogue=skill.admission is not None and skill.name not in left_out,
            )
            for skill in self._skills.found
            if self._owner or skill.admission is not None
        ]

    async def show(self, name: str) -> ShownSkill:
        """Return a skill as it is on disk."""
        preview = await self._preview(name)
        return ShownSkill(name=preview.name, text=preview.text(SHOWN), digest=preview.files.digest[:SHORT_DIGEST])

    async def admit(self, name: str, digest: str) -> str:
        """Admit a skill if its files still have this digest."""
        preview = await self._preview(name)
        if len(digest) < SHORT_DIGEST or not preview.files.digest.startswith(digest.lower()):
            raise CommandFailed(
                f"The files of {preview.name!r} have another digest; look at them with `/skills show {name}`."
            )
        try:
            await asyncio.to_thread(self._skills.admit, preview, self._person)
        except SkillInvalid as error:
            raise CommandFailed(str(error)) from error
        await self._skills.refresh()
        return preview.name

    async def revoke(self, name: str) -> None:
        """Admit a skill no more."""
        self._check_owner()
        try:
            await asyncio.to_thread(self._skills.revoke, name, self._person)
        except SkillInvalid as error:
            raise CommandFailed(str(error)) from error
        await self._skills.refresh()

    async def _preview(self, name: str) -> Preview:
        self._check_owner()
        await self._skills.refresh()
        try:
            return await asyncio.to_thread(self._skills.preview, name)
        except SkillInvalid as error:
            raise CommandFailed(str(error)) from error

    def _check_owner(self) -> None:
        if not self._owner:
            raise CommandFailed("Only the owner can show and admit skills, and only in a private chat.")

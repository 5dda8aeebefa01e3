"""Skills on disk for tests, and an inventory of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from plugins.skills.admissions import Admission
from plugins.skills.inventory import Skills
from plugins.skills.skill_settings import SkillsKeys
from plugins.testing.contexts import ManualClock

BODY = "# Steps\n\nDo it well.\n"


def front(name: str, description: str, **fields: str) -> str:
    lines = [f"name: {name}", f"description: {description}", *(f"{key}: {value}" for key, value in fields.items())]
    return "---\n" + "\n".join(lines) + "\n---\n"


def put(folder: Path, name: str, description: str = "Does a thing.", body: str = BODY, **files: str) -> Path:
    """Write a skill into a folder of skills. Further files are given as `scripts__run_py="…"`; return the skill's folder."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(front(name, description) + body)
    for path, text in files.items():
        file = place / path.replace("__", "/").replace("_py", ".py").replace("_md", ".md")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return place


class Shelf:
    """A workspace with skills, a home, and the inventory of both."""

    def __init__(self, folder: Path, **keys: Any) -> None:
        self.workspace, self.home = folder / "workspace", folder / "home"
        self.skills_folder = self.workspace / "skills"
        self.workspace.mkdir(exist_ok=True)
        self.keys = SkillsKeys(**keys)
        self.clock = ManualClock()
        self.skills = self.opened()

    def opened(self) -> Skills:
        """Return an inventory as a restarted gateway has it."""
        return Skills(self.home, self.workspace, keys=lambda: self.keys, now=self.clock.now)

    def configure(self, **keys: Any) -> None:
        self.keys = msgspec.structs.replace(self.keys, **keys)

    def put(self, name: str, description: str = "Does a thing.", body: str = BODY, **files: str) -> Path:
        return put(self.skills_folder, name, description, body, **files)

    def admit(self, *names: str) -> list[Admission]:
        """Admit skills as they are, by the owner."""
        self.skills.scan()
        admitted = [self.skills.admit(self.skills.preview(name), "owner") for name in names]
        self.skills.scan()
        return admitted

    def states(self) -> dict[str, str]:
        """Return the state of each skill after a look at the disk."""
        self.skills.scan()
        return {skill.name: skill.state for skill in self.skills.found}

    def reasons(self) -> dict[str, str]:
        self.skills.scan()
        return {skill.name: skill.reason for skill in self.skills.found if skill.reason}

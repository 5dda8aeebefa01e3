"""The `/skills` command, which lists, shows, admits and revokes skills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, SkillEntry
from plugins.commands.markdown import block_text, code, one_line

MAX_CHARACTERS = 160
"""Maximum characters of a description in the list."""

_STATES = {
    "new": "**not admitted yet**",
    "changed": "**changed since it was admitted, not used**",
    "refused": "**not usable**",
}


class SkillsCommand:
    """The `/skills` command. A skill is admitted by the digest that was shown with its content."""

    name: ClassVar[str] = "skills"
    usage: ClassVar[str] = "/skills [show NAME | admit NAME DIGEST | revoke NAME]"
    summary: ClassVar[str] = "List the skills, show one or its changes, and admit it or revoke that."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the list, or with what was done; raise CommandFailed if it cannot be done."""
        match argument.split():
            case []:
                return _listing(await conversation.skills.listed())
            case ["show", name] | ["admit", name]:
                shown = await conversation.skills.show(name)
                command = code(f"/skills admit {shown.name} {shown.digest}")
                return f"```\n{block_text(shown.text)}\n```\n\nTo admit exactly this: {command}"
            case ["admit", name, digest]:
                admitted = await conversation.skills.admit(name, digest)
                return f"The skill {code(admitted)} is admitted. Models see it from the next turn on."
            case ["revoke", name]:
                await conversation.skills.revoke(name)
                return f"The skill {code(name)} is not admitted any more."
        raise CommandFailed(f"Write {self.usage}.")


def _listing(skills: Sequence[SkillEntry]) -> str:
    if not skills:
        return "There are no skills. `exuvia skills add` adds some, or put folders with a `SKILL.md` into `skills/`."
    usable = sum(skill.state == "admitted" for skill in skills)
    lines = [f"**Skills**: {usable:,} of {len(skills):,} are admitted.", ""]
    for skill in skills:
        about = _STATES.get(skill.state) or one_line(skill.description, MAX_CHARACTERS)
        rest = f" {one_line(skill.reason, 2 * MAX_CHARACTERS)}" if skill.reason else ""
        if skill.state == "admitted" and not skill.in_catalogue:
            rest = " (found by a search only: the catalogue has no room for it)"
        lines.append(f"- {code(skill.name)} {about}{rest}")
    if any(skill.state in ("new", "changed") for skill in skills):
        lines += ["", "`/skills show NAME` shows one before you admit it."]
    return "\n".join(lines)

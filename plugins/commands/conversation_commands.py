"""The commands about whole conversations: `/sessions`, `/title`, `/archive` and `/delete`."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationEntry, ConversationView
from plugins.commands.markdown import code
from plugins.support.text.nesting import nested

LISTED = 20
"""The number of conversations that are listed."""


class Sessions:
    """The `/sessions` command, which lists the person's conversations."""

    name: ClassVar[str] = "sessions"
    usage: ClassVar[str] = "/sessions [words]"
    summary: ClassVar[str] = "List your conversations, or those whose names and titles have these words."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """List the newest conversations, pinned ones first, and subagents below the conversation that has started them.
        Archived ones are listed only if they are searched for."""
        words = argument.casefold().split()
        every = await conversation.conversations()
        found = [each for each in every if _has(each, words) if words or not each.archived]
        if not found:
            return "No conversation has these words." if words else "There are no conversations."
        newest = nested(sorted(found, key=lambda each: (each.pinned, each.at), reverse=True))
        lines = [f"{'  ' * depth}{_line(each, conversation)}" for depth, each in newest[:LISTED]]
        more = len(found) - len(lines)
        return "\n".join([*lines, *([f"- and {more:,} more"] if more else [])])


def _has(entry: ConversationEntry, words: list[str]) -> bool:
    text = f"{entry.key} {entry.title}".casefold()
    return all(word in text for word in words)


def _line(entry: ConversationEntry, conversation: ConversationView) -> str:
    notes = [name for name in ("pinned", "archived", "running") if getattr(entry, name)]
    here = ["this one"] if entry.key == conversation.key else []
    title = f" {code(entry.title)}" if entry.title else ""
    when = f"{conversation.local(entry.at):%Y-%m-%d %H:%M}"
    return f"- {code(entry.key)}{title}, {', '.join([when, *notes, *here])}"


class Title:
    """The `/title` command, which shows or sets the title of the conversation."""

    name: ClassVar[str] = "title"
    usage: ClassVar[str] = "/title [text|none]"
    summary: ClassVar[str] = "Show the title of the conversation, or set or remove it."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the title, after setting it to the argument, or removing it for `none`."""
        if argument:
            await conversation.rename("" if argument == "none" else argument)
        title = conversation.title()
        return f"The title is {code(title)}." if title else "This conversation has no title."


class Archive:
    """The `/archive` command, which takes the conversation out of the list, or puts it back."""

    name: ClassVar[str] = "archive"
    usage: ClassVar[str] = "/archive [off]"
    summary: ClassVar[str] = "Archive this conversation; `/archive off` brings it back."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer what was done."""
        if argument not in ("", "off"):
            raise CommandFailed("Write /archive or /archive off.")
        await conversation.archive(archived=not argument)
        return "It is in your list again." if argument else "Archived. `/archive off` brings it back."


class Delete:
    """The `/delete` command, which deletes the conversation after a question."""

    name: ClassVar[str] = "delete"
    usage: ClassVar[str] = "/delete [yes|yes facts]"
    summary: ClassVar[str] = "Delete this conversation for good, after a question."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Ask, or begin the deletion if the argument confirms it."""
        match argument.split():
            case []:
                return (
                    f"This deletes the conversation {code(conversation.key)} with all its sessions and files. Write"
                    " `/delete yes` to do it, or `/delete yes facts` to forget the facts that came from it too."
                )
            case ["yes"] | ["yes", "facts"] as words:
                await conversation.delete(facts=len(words) > 1)
                return "This conversation is deleted as soon as this answer is delivered."
            case _:
                raise CommandFailed("Write /delete, /delete yes or /delete yes facts.")

"""`/pin`, `/unpin`, `/forget`, `/clear`, `/distill` and `/why`: the small facts that are kept, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView
from plugins.api.facts.fact_errors import FactsError
from plugins.api.facts.fact_events import (
    DailyCleared,
    FactForgotten,
    FactHistory,
    FactPinned,
    FactsDistilled,
    FactsDropped,
    FactsExtracted,
    FactsWritten,
    LoggedFactEvent,
)
from plugins.api.facts.fact_values import Fact
from plugins.commands.markdown import code, one_line

LENGTH = 300
"""Characters of a fact that are shown."""


class Pin:
    """Keeps a fact whatever comes."""

    name: ClassVar[str] = "pin"
    usage: ClassVar[str] = "/pin ID"
    summary: ClassVar[str] = "Keep the fact ID whatever comes."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the fact; CommandFailed where there is none, or no more can be pinned."""
        with _refusals():
            return f"Pinned: {told(await conversation.facts.pin(_named(argument, self.usage)))}"


class Unpin:
    """Lets a fact age again."""

    name: ClassVar[str] = "unpin"
    usage: ClassVar[str] = "/unpin ID"
    summary: ClassVar[str] = "Let the fact ID fade like the others again."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the fact; CommandFailed where there is none."""
        with _refusals():
            return f"Unpinned: {told(await conversation.facts.pin(_named(argument, self.usage), pinned=False))}"


class Forget:
    """Takes a fact out of the memory, or lines out of a note."""

    name: ClassVar[str] = "forget"
    usage: ClassVar[str] = "/forget ID"
    summary: ClassVar[str] = "Forget the fact ID, or the lines of a note such as MEMORY.md#L3-L4."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with what is gone, so that it can be written down again; CommandFailed where nothing is meant by it."""
        named = _named(argument, self.usage)
        if "#L" in named:
            gone = await conversation.forget_lines(named)
            return f"These lines are gone from {code(named.partition('#')[0])}:\n\n```\n{gone.replace('```', '´´´')}\n```"
        with _refusals():
            fact = await conversation.facts.forget(named)
            left = [each for each in await conversation.facts.listed() if _is_left_of(each, fact)]
        return "\n".join([f"Forgotten: {told(fact)}", *(f"\nPinned, and so still there: {told(each)}" for each in left)])


class Clear:
    """Empties the daily log, after a question."""

    name: ClassVar[str] = "clear"
    usage: ClassVar[str] = "/clear [yes]"
    summary: ClassVar[str] = "Empty the daily log of facts, after a question; pins, what was distilled and all notes stay."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with what would be deleted, and delete it if `yes` follows the name; CommandFailed for anything else."""
        if argument.lower() not in ("", "yes"):
            raise CommandFailed("Type `/clear` or `/clear yes`; a single fact is forgotten with `/forget ID`.")
        with _refusals():
            daily = await conversation.facts.daily()
            pins, shared = sum(fact.pinned for fact in daily), len(await conversation.facts.listed("daily")) - len(daily)
            kept = [_count(pins, "pinned fact")] * bool(pins) + [f"{_count(shared)} of everybody's"] * bool(shared)
            if not argument or pins == len(daily):
                return _would_clear(len(daily) - pins, kept)
            count = await conversation.facts.clear()
        stays = f" {_stays(kept)}." if kept else ""
        return f"{_count(count)} {'were' if count != 1 else 'was'} deleted from the daily log.{stays}"


def _would_clear(count: int, kept: Sequence[str]) -> str:
    """What `/clear yes` would do. Elsewhere `/clear` begins a new conversation, so the command for that is named as well."""
    if not count:
        held = f"holds nothing else than {' and '.join(kept)}" if kept else "is empty"
        return f"The daily log {held}. To begin a new conversation, type `/new`."
    stays = f"{_stays(kept)}, as do" if kept else "What stays are"
    return (
        f"{_count(count)} of the daily log would be deleted. {stays} facts that are kept for long, and all notes."
        f" Type `/clear yes` to delete {'them' if count != 1 else 'it'}. To begin a new conversation instead, type `/new`."
    )


def _stays(kept: Sequence[str]) -> str:
    return f"{' and '.join(kept)} stay{'s' if len(kept) == 1 and kept[0].startswith('1 ') else ''}"


def _count(number: int, what: str = "fact") -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


class Distill:
    """Makes of the daily log what stays."""

    name: ClassVar[str] = "distill"
    usage: ClassVar[str] = "/distill"
    summary: ClassVar[str] = "Make of the daily log of facts the few that are kept for long."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with how many became how many; CommandFailed where no model could be asked."""
        if argument:
            raise CommandFailed("/distill takes nothing after it.")
        looked, made = await conversation.distill()
        if not looked:
            return "The daily log has nothing new."
        return f"{_count(looked, 'new fact')} became {made:,} that stay{'s' if made == 1 else ''}."


class Why:
    """Explains a fact."""

    name: ClassVar[str] = "why"
    usage: ClassVar[str] = "/why ID"
    summary: ClassVar[str] = "Show where the fact ID came from, and all that happened to it."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with its whole story; CommandFailed where there is none."""
        with _refusals():
            story = await conversation.facts.story(_named(argument, self.usage))
        lines = [told(story.fact) + ("" if story.there else " (no longer there)"), ""]
        if (origin := story.fact.origin) is not None:
            said = await conversation.message(origin.session, origin.seq)
            quote = f": “{one_line(said, LENGTH)}”" if said else ", which is no longer there or not yours"
            lines.append(f"- From message {origin.seq} of session {code(origin.session)}{quote}")
        lines += [
            f"- {happened.at[:16].replace('T', ' ')} {sentence_of_event(happened, story)}" for happened in story.happened
        ]
        if story.fact.used:
            lines.append(f"- Last recalled {story.fact.used[:16].replace('T', ' ')}")
        return "\n".join(lines)


def told(fact: Fact) -> str:
    """A fact on one line of Markdown: its id, its words, what it is."""
    pin = ", pinned" if fact.pinned else ""
    return f"{code(fact.id[:8])} {one_line(fact.content, LENGTH)} ({fact.type}, {fact.importance:.2f}{pin})"


@contextmanager
def _refusals() -> Iterator[None]:
    """What the facts refuse is told to the person who typed the command."""
    try:
        yield
    except FactsError as error:
        raise CommandFailed(str(error)) from error


def _named(argument: str, usage: str) -> str:
    if not argument or " " in argument:
        raise CommandFailed(f"Write {usage}; /memory shows the ids.")
    return argument


def _is_left_of(fact: Fact, gone: Fact) -> bool:
    """Return True if a fact that is there says what the forgotten one said, which only a pin explains."""
    return fact.id in gone.made_of or fact.made_of == (gone.id,)


def sentence_of_event(happened: LoggedFactEvent, story: FactHistory) -> str:  # noqa: PLR0911, PLR0912 - one for each kind
    """What an event did to the fact that the story tells of."""
    fact = story.fact
    match happened.event:
        case FactsExtracted() as event:
            return f"Extracted from {'what was to be remembered' if event.typed else f'turn {event.ordinal}'}."
        case FactsWritten() as event:
            return f"Written by {one_line(event.by, 100)}."
        case FactsDistilled(failed=reason) if reason:
            return f"Kept as it is, since it could not be distilled: {one_line(reason, LENGTH)}"
        case FactsDistilled() as event if any(entry.id == fact.id for entry in event.entries):
            return f"Distilled from {', '.join(code(each[:8]) for each in fact.made_of or event.taken) or 'the daily log'}."
        case FactsDistilled() as event if old := next((each for each in event.superseded if each.id == fact.id), None):
            return f"Superseded by {code(old.newer[:8])}; its importance is {old.importance:.2f} since."
        case FactsDistilled() as event:
            made = ", ".join(code(entry.id[:8]) for entry in event.entries if fact.id in entry.made_of)
            return f"Distilled into {made}." if made else "Looked through; nothing of it was kept for long."
        case FactPinned() as event:
            return f"{'Pinned' if event.pinned else 'Unpinned'} by {one_line(event.by, 100)}."
        case FactForgotten() as event:
            return f"Forgotten by {one_line(event.by, 100)}."
        case DailyCleared() as event:
            return f"Cleared with the daily log by {one_line(event.by, 100)}."
        case FactsDropped(why="duplicate") as event:
            kept = dict(zip(event.ids, event.kept, strict=False)).get(fact.id, "")
            return f"Dropped, since {code(kept[:8])} says the same."
        case FactsDropped(why="retention"):
            return "Dropped from the daily log, being too old."
        case FactsDropped():
            return "Dropped, being the least important of too many."
        case _:
            return "Something happened that this version does not know."

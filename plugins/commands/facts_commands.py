"""The commands `/pin`, `/unpin`, `/forget`, `/clear`, `/distill` and `/why`, which manage facts."""

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

MAX_CHARACTERS = 300
"""Maximum characters shown of a fact."""


class Pin:
    """The `/pin` command, which keeps a fact permanently."""

    name: ClassVar[str] = "pin"
    usage: ClassVar[str] = "/pin ID"
    summary: ClassVar[str] = "Keep the fact ID permanently."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the fact; raise CommandFailed if it does not exist or no more facts can be pinned."""
        with _facts_errors():
            return f"Pinned: {format_fact(await conversation.facts.pin(_require_id(argument, self.usage)))}"


class Unpin:
    """The `/unpin` command, which lets a fact age again."""

    name: ClassVar[str] = "unpin"
    usage: ClassVar[str] = "/unpin ID"
    summary: ClassVar[str] = "Let the fact ID age again like the others."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the fact; raise CommandFailed if it does not exist."""
        with _facts_errors():
            return f"Unpinned: {format_fact(await conversation.facts.pin(_require_id(argument, self.usage), pinned=False))}"


class Forget:
    """The `/forget` command, which deletes a fact, or lines of a note."""

    name: ClassVar[str] = "forget"
    usage: ClassVar[str] = "/forget ID"
    summary: ClassVar[str] = "Forget the fact ID, or the lines of a note such as MEMORY.md#L3-L4."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with what was deleted, so that it can be written again; raise CommandFailed if nothing matches."""
        named = _require_id(argument, self.usage)
        if "#L" in named:
            gone = await conversation.forget_lines(named)
            return f"Deleted from {code(named.partition('#')[0])}:\n\n```\n{gone.replace('```', '´´´')}\n```"
        with _facts_errors():
            fact = await conversation.facts.forget(named)
            left = [each for each in await conversation.facts.listed() if _derives_from(each, fact)]
        return "\n".join(
            [
                f"Forgotten: {format_fact(fact)}",
                *(f"\nStill kept, because it is pinned: {format_fact(each)}" for each in left),
            ]
        )


class Clear:
    """The `/clear` command, which empties the daily log of facts after a confirmation."""

    name: ClassVar[str] = "clear"
    usage: ClassVar[str] = "/clear [yes]"
    summary: ClassVar[str] = (
        "Empty the daily log of facts, after a confirmation. Pinned and long-term facts and all notes are kept."
    )
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with what would be deleted, or delete it if the argument is `yes`."""
        if argument.lower() not in ("", "yes"):
            raise CommandFailed("Type `/clear` or `/clear yes`; to delete a single fact, type `/forget ID`.")
        with _facts_errors():
            daily = await conversation.facts.daily()
            pins, shared = sum(fact.pinned for fact in daily), len(await conversation.facts.listed("daily")) - len(daily)
            kept = [_count(pins, "pinned fact")] * bool(pins) + [_count(shared, "shared fact")] * bool(shared)
            if not argument or pins == len(daily):
                return _preview_clear(len(daily) - pins, kept)
            count = await conversation.facts.clear()
        stays = f" {_kept_sentence(kept)}." if kept else ""
        return f"{_count(count)} {'were' if count != 1 else 'was'} deleted from the daily log.{stays}"


def _preview_clear(count: int, kept: Sequence[str]) -> str:
    """Say what `/clear yes` would delete. Name `/new` too, since `/clear` starts a new conversation in other programs."""
    if not count:
        held = f"contains only {' and '.join(kept)}" if kept else "is empty"
        return f"The daily log {held}. To start a new conversation, type `/new`."
    rest = f"{_kept_sentence(kept)}, and so are long-term" if kept else "Long-term"
    return (
        f"{_count(count)} of the daily log would be deleted. {rest} facts and all notes{'' if kept else ' are kept'}."
        f" Type `/clear yes` to delete {'them' if count != 1 else 'it'}. To start a new conversation instead, type `/new`."
    )


def _kept_sentence(kept: Sequence[str]) -> str:
    return f"{' and '.join(kept)} {'is' if len(kept) == 1 and kept[0].startswith('1 ') else 'are'} kept"


def _count(number: int, what: str = "fact") -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


class Distill:
    """The `/distill` command, which distils the daily log into long-term facts."""

    name: ClassVar[str] = "distill"
    usage: ClassVar[str] = "/distill"
    summary: ClassVar[str] = "Distil the daily log of facts into long-term facts."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the numbers of facts before and after; raise CommandFailed if no model could be asked."""
        if argument:
            raise CommandFailed("/distill takes no argument.")
        taken, made = await conversation.distill()
        if not taken:
            with _facts_errors():
                shared = sum(not fact.owner for fact in await conversation.facts.listed("daily"))
            if not shared:
                return "The daily log has no new facts."
            waiting = f"{_count(shared, 'shared fact')} {'are' if shared != 1 else 'is'}"
            return f"The daily log has no new facts of yours; its {waiting} distilled automatically."
        return f"Distilled {_count(taken, 'new fact')} into {_count(made, 'long-term fact')}."


class Why:
    """The `/why` command, which explains a fact."""

    name: ClassVar[str] = "why"
    usage: ClassVar[str] = "/why ID"
    summary: ClassVar[str] = "Show where the fact ID came from and its history."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the fact's history; raise CommandFailed if it does not exist."""
        with _facts_errors():
            story = await conversation.facts.story(_require_id(argument, self.usage))
        lines = [format_fact(story.fact) + ("" if story.there else " (deleted)"), ""]
        if (origin := story.fact.origin) is not None:
            said = await conversation.message(origin.session, origin.seq)
            quote = f": “{one_line(said, MAX_CHARACTERS)}”" if said else ", which no longer exists or is not yours"
            lines.append(f"- From message {origin.seq} of session {code(origin.session)}{quote}")
        lines += [f"- {happened.at[:16].replace('T', ' ')} {describe_event(happened, story)}" for happened in story.happened]
        if story.fact.used:
            lines.append(f"- Last recalled {story.fact.used[:16].replace('T', ' ')}")
        return "\n".join(lines)


def format_fact(fact: Fact) -> str:
    """Format a fact as one line of Markdown: its id, content, type and importance."""
    pin = ", pinned" if fact.pinned else ""
    return f"{code(fact.id[:8])} {one_line(fact.content, MAX_CHARACTERS)} ({fact.type}, {fact.importance:.2f}{pin})"


@contextmanager
def _facts_errors() -> Iterator[None]:
    """Turn errors of the facts into CommandFailed."""
    try:
        yield
    except FactsError as error:
        raise CommandFailed(str(error)) from error


def _require_id(argument: str, usage: str) -> str:
    if not argument or " " in argument:
        raise CommandFailed(f"Write {usage}; /memory shows the ids.")
    return argument


def _derives_from(fact: Fact, gone: Fact) -> bool:
    """Return True if a remaining fact repeats the content of the forgotten one, which only a pin explains."""
    return fact.id in gone.made_of or fact.made_of == (gone.id,)


def describe_event(happened: LoggedFactEvent, story: FactHistory) -> str:  # noqa: PLR0911, PLR0912 - one for each kind
    """Describe in a sentence what an event did to the fact of a history."""
    fact = story.fact
    match happened.event:
        case FactsExtracted() as event:
            return f"Extracted from {'`/remember`' if event.typed else f'turn {event.ordinal}'}."
        case FactsWritten() as event:
            return f"Written by {one_line(event.by, 100)}."
        case FactsDistilled(failed=reason) if reason:
            return f"Kept unchanged, since it could not be distilled: {one_line(reason, MAX_CHARACTERS)}"
        case FactsDistilled() as event if any(entry.id == fact.id for entry in event.entries):
            return f"Distilled from {', '.join(code(each[:8]) for each in fact.made_of or event.taken) or 'the daily log'}."
        case FactsDistilled() as event if old := next((each for each in event.superseded if each.id == fact.id), None):
            return f"Superseded by {code(old.newer[:8])}; its importance was lowered to {old.importance:.2f}."
        case FactsDistilled() as event:
            made = ", ".join(code(entry.id[:8]) for entry in event.entries if fact.id in entry.made_of)
            return f"Distilled into {made}." if made else "Distilled; no long-term fact was made from it."
        case FactPinned() as event:
            return f"{'Pinned' if event.pinned else 'Unpinned'} by {one_line(event.by, 100)}."
        case FactForgotten() as event:
            return f"Forgotten by {one_line(event.by, 100)}."
        case DailyCleared() as event:
            return f"Cleared with the daily log by {one_line(event.by, 100)}."
        case FactsDropped(why="duplicate") as event:
            kept = dict(zip(event.ids, event.kept, strict=False)).get(fact.id, "")
            return f"Dropped as a duplicate of {code(kept[:8])}."
        case FactsDropped(why="retention"):
            return "Dropped from the daily log because it was too old."
        case FactsDropped():
            return "Dropped as the least important, since the limit was reached."
        case _:
            return "Unknown event, recorded by another version."

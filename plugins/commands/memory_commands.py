"""The commands `/remember` and `/memory`, and about facts: `/pin`, `/unpin`, `/edit`, `/forget`, `/clear`, `/distill`,
`/why`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import ClassVar

import msgspec

from plugins.api.command import CommandFailed, CommandTime, ConversationView, MemoryReport
from plugins.api.fact_values import Fact, FactChange, FactHistoryEntry, FactsError
from plugins.commands.markdown import code, highlighted, one_line, quote
from plugins.support.workspace import parse_citation

MAX_FACTS = 12
"""Maximum facts listed per section."""

MAX_CHARACTERS = 300
"""Maximum characters shown of a fact or a search result."""

MAX_MESSAGE = 2_000
"""Maximum characters shown of a message in an opened result."""

_RECENT = 100
"""The number of last messages in which `/forget message` looks for yours, and `/memory NUMBER` for the last search."""

_NUMBER = re.compile(r"[1-9][0-9]?")
_SEARCH = re.compile(r"/memory[ \t\n]+(.*)", re.IGNORECASE | re.DOTALL)
_RESULT = re.compile(r"^([0-9]{1,2})\. `([^`\n]{1,210}#L[0-9L-]{1,20})`(?: \(`([^`\n]{1,210})`\))? ", re.MULTILINE)
"""A line of the answer to a search."""
_MESSAGE = re.compile(r"\n(?=\[[0-9]{1,15}\] [0-9]{4}-[0-9]{2}-[0-9]{2} )")
"""The place between two messages of an excerpt."""

_EVERYWHERE = "the notes, facts, summaries and copies that came of"
"""What is erased with a message."""


class Remember:
    """The `/remember` command, which writes to the notes."""

    name: ClassVar[str] = "remember"
    usage: ClassVar[str] = "/remember TEXT"
    summary: ClassVar[str] = "Write TEXT to the notes, where searches find it from now on."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the place of the new text; raise CommandFailed if it cannot be written."""
        if not argument:
            raise CommandFailed("Write /remember followed by what to remember.")
        return f"Remembered: {code(await conversation.remember(argument))}."


class Memory:
    """The `/memory` command, which shows or searches the memory."""

    name: ClassVar[str] = "memory"
    usage: ClassVar[str] = "/memory [QUERY|NUMBER]"
    summary: ClassVar[str] = (
        "Show what is remembered, search the memory for QUERY, or open the result with this NUMBER, or MEMORY.md#L3-L7."
    )
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the latest notes and facts, with search results, best first, or with the text of one of them."""
        if not argument:
            report = await conversation.memory()
            return "\n".join([_overview(report), *await _fact_sections(conversation, report.today)])
        if cited := parse_citation(argument):
            return await _passage(*cited, conversation)
        if _NUMBER.fullmatch(argument) and (result := await _last_result(int(argument), conversation)) is not None:
            return await _opened(result, conversation)
        found = await conversation.search_memory(argument)
        keys = (*found.conversations, *[""] * len(found.hits))
        lines = [
            f"{number}. {code(place)}{f' ({code(key)})' if key else ''}"
            f" {highlighted(one_line(text.lstrip('-*+ '), MAX_CHARACTERS), argument)}"
            for number, ((place, text), key) in enumerate(zip(found.hits, keys, strict=False), 1)
        ]
        return "\n".join([*(lines or ["Nothing found."]), *(f"\n{remark}" for remark in found.remarks)])


class _Result(msgspec.Struct, frozen=True):
    """A result of an earlier search: its citation, the key of its conversation or "", and the query."""

    place: str
    key: str
    query: str


async def _last_result(number: int, conversation: ConversationView) -> _Result | None:
    """Return a result of the last search in this conversation, which its answer has; None if there is none."""
    entries = await conversation.history(_RECENT, commands=True)
    for at in range(len(entries) - 1, -1, -1):
        if entries[at].who != "gateway" or not (found := _RESULT.findall(entries[at].text)):
            continue
        asked = (_SEARCH.match(each.text) for each in reversed(entries[:at]) if each.who == "person")
        query = next((each[1] for each in asked if each), "")
        return next((_Result(place, key, query) for which, place, key in found if int(which) == number), None)
    return None


async def _opened(result: _Result, conversation: ConversationView) -> str:
    """Show a result with the words of its query in bold; of a conversation the messages, one a line, and its name."""
    cited = parse_citation(result.place)
    text = await conversation.excerpt(cited[0], cited[1], max(1, cited[2] - cited[1] + 1)) if cited else ""
    if not text:
        raise CommandFailed(f"There is nothing at {result.place} any more.")
    if not result.key:
        return f"{code(result.place)}\n\n{quote(text, result.query)}"
    messages = (highlighted(one_line(each, MAX_MESSAGE), result.query) for each in _MESSAGE.split(text))
    here = result.key == conversation.key
    where = (
        "In this conversation"
        if here
        else f"In {code(result.key)}; {code(f'/switch {result.key}')} goes there in a terminal"
    )
    return "\n".join([code(result.place), "", *(f"- {each}" for each in messages), "", f"{where}."])


async def _passage(path: str, first: int, last: int, conversation: ConversationView) -> str:
    text = await conversation.excerpt(path, first, max(1, last - first + 1))
    if not text:
        raise CommandFailed(f"There is nothing at {path}#L{first}-L{last}.")
    return f"{code(f'{path}#L{first}-L{last}')}\n\n```\n{text.replace('```', '´´´')}\n```"


def _overview(report: MemoryReport) -> str:
    counts = _quantity(report.notes, "note"), _quantity(report.sessions, "session"), _quantity(report.chunks, "chunk")
    head = f"**Memory**: {', '.join(counts)}; found {report.how}."
    lines = [f"- {code(note.path)}, {note.bytes:,} bytes, changed {note.changed}" for note in report.latest]
    return "\n".join([head, *([""] if lines else []), *lines, *(f"\n{remark}" for remark in report.remarks)])


async def _fact_sections(conversation: ConversationView, today: date | None) -> list[str]:
    """Format the facts: today's, earlier ones of the daily log, and the long-term ones, pinned and important first.

    Daily facts that were already distilled into a long-term fact are left out.
    """
    try:
        found = await conversation.facts.listed()
    except FactsError as error:
        return ["", str(error)]
    distilled = {each for fact in found for each in fact.made_of}
    daily = [fact for fact in reversed(found) if fact.layer == "daily" and fact.id not in distilled]
    new = [fact for fact in daily if conversation.local(fact.created).date() == today]
    earlier = [fact for fact in daily if conversation.local(fact.created).date() != today]
    kept = sorted((fact for fact in found if fact.layer == "longterm"), key=lambda fact: (not fact.pinned, -fact.importance))
    parts = [("Today", new), ("Earlier in the daily log", earlier), ("Long-term", kept)]
    return [line for name, facts in parts if facts for line in _fact_list(name, facts)]


def _fact_list(name: str, facts: Sequence[Fact]) -> list[str]:
    more = [f"- … and {len(facts) - MAX_FACTS:,} more: `exuvia memory facts list`"] if len(facts) > MAX_FACTS else []
    return [
        "",
        f"**{name}** ({_quantity(len(facts), 'fact')})",
        *(f"- {format_fact(fact)}" for fact in facts[:MAX_FACTS]),
        *more,
    ]


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


class EditFact:
    """The `/edit` command, which replaces the text of a fact."""

    name: ClassVar[str] = "edit"
    usage: ClassVar[str] = "/edit ID TEXT"
    summary: ClassVar[str] = "Replace the text of the fact ID by TEXT; it is not merged with others any more."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the fact and its last text; raise CommandFailed if it cannot be edited."""
        named, _, text = argument.partition(" ")
        if not text.strip():
            raise CommandFailed(f"Write {self.usage}; /memory shows the ids.")
        with _facts_errors():
            fact = await conversation.facts.edit(named, FactChange(content=text))
            changes = (await conversation.facts.history(fact.id)).changes
        before = next((each.before for each in reversed(changes) if each.before is not None), fact)
        return f"Edited: {format_fact(fact)}\n\nBefore: {one_line(before.content, MAX_CHARACTERS)}"


class Forget:
    """The `/forget` command, which deletes a fact or lines of a note, or has a message or the conversation erased."""

    name: ClassVar[str] = "forget"
    usage: ClassVar[str] = "/forget ID, /forget message or /forget conversation"
    summary: ClassVar[str] = (
        "Forget the fact ID, the lines of a note such as MEMORY.md#L3-L4, or, after a question, your last message or this"
        " conversation with everything that came of it."
    )
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with what was deleted, so that it can be written again; raise CommandFailed if nothing matches."""
        kind, *confirmed = argument.lower().split() or [""]
        if kind == "message":
            return await _forget_message(confirmed, conversation)
        if kind == "conversation":
            return await _forget_conversation(confirmed, conversation)
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
                *(
                    f"\nStill kept, because it is {'pinned' if each.pinned else 'edited'}: {format_fact(each)}"
                    for each in left
                ),
            ]
        )


async def _forget_message(confirmed: Sequence[str], conversation: ConversationView) -> str:
    """Ask about the last message, or have the one erased whose number is confirmed.

    The question names its time and size but quotes nothing, since a part of a text would not be found by the erasure.
    """
    said = [each for each in await conversation.history(_RECENT, commands=False) if each.who == "person"]
    match confirmed:
        case [] if said:
            last = said[-1]
            return (
                f"This erases your message of {conversation.local(last.at):%Y-%m-%d %H:%M:%S %Z}"
                f" ({_quantity(len(last.text), 'character')}) with its answer, and {_EVERYWHERE} them. Write"
                f" `/forget message {last.seq} yes` to do it."
            )
        case []:
            return f"None of the last {_RECENT} messages is yours."
        case [number, "yes"] if (message := next((each for each in said if str(each.seq) == number), None)) is not None:
            await conversation.erase(message.seq)
            return "The message and its answer are erased as soon as this answer is delivered."
        case [number, "yes"] if number.isdecimal():
            raise CommandFailed(f"None of the last {_RECENT} messages is a message of yours with this number.")
        case _:
            raise CommandFailed("Write /forget message, then confirm with the number that it names.")


async def _forget_conversation(confirmed: Sequence[str], conversation: ConversationView) -> str:
    match confirmed:
        case []:
            return (
                f"This erases the conversation {code(conversation.key)} with all its sessions and files, and {_EVERYWHERE}"
                " it. Write `/forget conversation yes` to do it."
            )
        case ["yes"]:
            await conversation.erase()
            return "This conversation is erased as soon as this answer is delivered."
        case _:
            raise CommandFailed("Write /forget conversation or /forget conversation yes.")


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
            kept = [_quantity(pins, "pinned fact")] * bool(pins) + [_quantity(shared, "shared fact")] * bool(shared)
            if not argument or pins == len(daily):
                return _preview_clear(len(daily) - pins, kept)
            count = await conversation.facts.clear()
        stays = f" {_kept_sentence(kept)}." if kept else ""
        return f"{_quantity(count)} {'were' if count != 1 else 'was'} deleted from the daily log.{stays}"


def _preview_clear(count: int, kept: Sequence[str]) -> str:
    """Say what `/clear yes` would delete. Name `/new` too, since `/clear` starts a new conversation in other programs."""
    if not count:
        held = f"contains only {' and '.join(kept)}" if kept else "is empty"
        return f"The daily log {held}. To start a new conversation, type `/new`."
    rest = f"{_kept_sentence(kept)}, and so are long-term" if kept else "Long-term"
    return (
        f"{_quantity(count)} of the daily log would be deleted. {rest} facts and all notes{'' if kept else ' are kept'}."
        f" Type `/clear yes` to delete {'them' if count != 1 else 'it'}. To start a new conversation instead, type `/new`."
    )


def _kept_sentence(kept: Sequence[str]) -> str:
    return f"{' and '.join(kept)} {'is' if len(kept) == 1 and kept[0].startswith('1 ') else 'are'} kept"


def _quantity(number: int, what: str = "fact") -> str:
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
            waiting = f"{_quantity(shared, 'shared fact')} {'are' if shared != 1 else 'is'}"
            return f"The daily log has no new facts of yours; its {waiting} distilled automatically."
        return f"Distilled {_quantity(taken, 'new fact')} into {_quantity(made, 'long-term fact')}."


class Why:
    """The `/why` command, which explains a fact."""

    name: ClassVar[str] = "why"
    usage: ClassVar[str] = "/why ID"
    summary: ClassVar[str] = "Show where the fact ID came from and its history."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the fact's history; raise CommandFailed if it does not exist."""
        with _facts_errors():
            history = await conversation.facts.history(_require_id(argument, self.usage))
        fact = history.fact
        lines = [format_fact(fact) + ("" if history.exists else " (deleted)"), ""]
        if (origin := fact.origin) is not None:
            said = await conversation.message(origin.session, origin.seq)
            quote = f": “{one_line(said, MAX_CHARACTERS)}”" if said else ", which no longer exists or is not yours"
            lines.append(f"- From message {origin.seq} of session {code(origin.session)}{quote}")
        lines += [f"- {_minute(change.at)} {_change(change)}" for change in history.changes]
        if fact.used:
            lines.append(f"- Last recalled {_minute(fact.used)}")
        return "\n".join(lines)


def _change(change: FactHistoryEntry) -> str:
    before = f" Before: “{one_line(change.before.content, MAX_CHARACTERS)}”" if change.before else ""
    return one_line(change.sentence, 2 * MAX_CHARACTERS) + before


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


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
    """Return True if a remaining fact repeats the content of the forgotten one, which only a pin or an edit explains."""
    return fact.id in gone.made_of or fact.made_of == (gone.id,)

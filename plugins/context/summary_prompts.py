"""What a model is told when it is to write a summary, to merge several, or to mend one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from plugins.context.fencing import quoted
from plugins.context.sections import CONSTRAINTS, CONTEXT, DECISIONS, EMPTY, GOALS, IDENTIFIERS, NEXT, PROGRESS, STATES, TURN
from plugins.summaries import Leaving

FOCUS = 800
"""Characters of a person's wish for a summary that are passed on."""

SYSTEM = (
    "You write the working summary of a long conversation between a person and an assistant. The messages that you are shown"
    " will be taken away from the assistant, and your summary will stand in their place: it must be able to go on from it as"
    " if nothing were gone. You are not a part of the conversation and do not carry it on."
)

_FORM = {
    GOALS: "what the person wants, and what they asked last, in their own words where that is short",
    CONSTRAINTS: "requirements, rules, tastes and corrections of the person; a correction replaces what it corrects",
    PROGRESS: f"under the parts {', '.join(f'### {state}' for state in STATES)}",
    DECISIONS: "what was decided, each with its reason",
    NEXT: "what is to be done next, in order",
    CONTEXT: "facts, figures, file contents and error messages without which the work cannot go on",
}

_POLICIES = {
    "strict": "every path, name of code, address, number, version, date, ticket, hash and other identifier that may be"
    " needed again, letter by letter as it was written, one a line with a few words on what it is",
    "off": "the few identifiers without which the work cannot go on",
}


def question(leaving: Leaving) -> str:
    """What is asked behind the record of the messages."""
    earlier = (
        " The record begins with the summary of what came before it: bring it up to date. Keep what still holds, change what"
        " has changed, drop what is done with."
        if leaving.summary.strip()
        else ""
    )
    return f"Summarise the record above.{earlier}\n\n{_form(leaving)}"


def merging(leaving: Leaving) -> str:
    """What is asked behind the record of several summaries."""
    return (
        "The record above holds summaries of parts of one conversation that follow each other, the oldest first. Make one"
        f" summary of them. Where two of them disagree, the later one is right.\n\n{_form(leaving)}"
    )


def mending(asked: str, summary: str, faults: Sequence[str]) -> str:
    """What is asked when the summary that came of the question `asked` had these faults."""
    told = "\n".join(f"- {fault}" for fault in faults)
    return (
        f"{asked}\n\nThis was tried before:\n\n{quoted(summary, 'the earlier try')}\n\nIt cannot be taken, because of the"
        f" following. Answer with the whole summary, mended.\n{told}"
    )


def _form(leaving: Leaving) -> str:
    form = _FORM | {IDENTIFIERS: _identifiers(leaving)}
    if leaving.began:
        form[TURN] = (
            "the record ends in the middle of the assistant's work on what the person asked last: that ask, and what the"
            " assistant has tried and found since, so that it can go on"
        )
    headings = "\n".join(f"## {name}\n({what})" for name, what in form.items())
    return "\n\n".join(
        filter(None, [f"Use exactly these headings, in this order:\n\n{headings}", _rules(leaving), _focus(leaving)])
    )


def _rules(leaving: Leaving) -> str:
    words = max(60, leaving.limit * 6 // 10)
    return (
        f"Below each heading stands a short list; {EMPTY} where there is nothing. The headings stay in English; the text is"
        f" in the language of the conversation. Use at most {words} words altogether. Write nothing that is not in the"
        " record, and no passwords, keys or tokens. Answer with the summary alone."
    )


def _identifiers(leaving: Leaving) -> str:
    if leaving.identifier_policy == "custom" and leaving.identifier_instructions.strip():
        return leaving.identifier_instructions.strip()
    return _POLICIES.get(leaving.identifier_policy, _POLICIES["strict"])


def _focus(leaving: Leaving) -> str:
    if not (focus := leaving.focus.strip()[:FOCUS]):
        return ""
    return (
        "The person wishes the summary to be especially careful about what stands between these marks. It says what matters"
        f" to them; it changes neither the form nor the rules.\n\n{quoted(focus, 'the wish')}"
    )

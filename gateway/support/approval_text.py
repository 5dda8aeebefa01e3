"""Questions about tool calls, and their answers, as people read them: exactly what would be done, and how to answer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import datetime, tzinfo

import msgspec

from plugins.support.text.invisible import visible
from sessions.events.events import ActionPattern, ApprovalAsked, ApprovalGiven, ApprovalScope

SCOPES: dict[ApprovalScope, str] = {"once": "this time", "session": "for this session", "always": "always"}

_FENCE = re.compile(r"`{3,}")


class ApprovalOption(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that a question offers: the command that gives it, and the text of a button."""

    command: str
    label: str


def options_of(asked: ApprovalAsked) -> list[ApprovalOption]:
    """Return the answers that a question offers: its scopes, then the refusal."""
    approve = [
        ApprovalOption(command=f"/approve {asked.approval} {scope}", label=f"Approve {SCOPES[scope]}")
        for scope in asked.choices
    ]
    return [*approve, ApprovalOption(command=f"/deny {asked.approval}", label="Deny")]


def question_text(asked: ApprovalAsked, zone: tzinfo | None = None) -> str:
    """Return a question in Markdown: what the call would do in full, why it is asked, and the commands that answer it.

    Args:
        asked: The question.
        zone: The time zone of the expiry; None for the system's.
    """
    lines = [f"**May {_code(asked.tool)} do this?**", "", *_block(asked.what)]
    if asked.detail:
        lines += ["", *_block(asked.detail, _language(asked.detail))]
    if asked.why:
        lines += ["", asked.why]
    if len(asked.choices) > 1:
        lines += ["", f"Approved for longer, it covers {pattern_sentence(asked.tool, asked.pattern)}."]
    commands = [f"`{option.command}`" for option in options_of(asked)]
    expires = datetime.fromisoformat(asked.expires).astimezone(zone)
    lines += ["", f"Answer with {', '.join(commands[:-1])} or {commands[-1]} by {expires:%Y-%m-%d %H:%M}."]
    return "\n".join(lines)


def pattern_sentence(tool: str, pattern: ActionPattern) -> str:
    """Return the calls that an approval covers if it is remembered, as a part of a sentence."""
    if pattern.argv:
        return f"exactly the command {_code(shlex.join(pattern.argv))}"
    if pattern.host:
        return f"every address of {_code(pattern.host)} for {_code(tool)}"
    if pattern.path:
        return f"every change of {_code(pattern.path)} by {_code(tool)}"
    return f"every call of {_code(tool)}"


def answer_sentence(given: ApprovalGiven) -> str:
    """Return the answer to a question as a sentence: what was decided, by whom and over which channel."""
    if not given.by:
        return "Denied, because nobody answered in time."
    decided = "Denied" if given.decision == "deny" else f"Approved {SCOPES[given.scope]}"
    return f"{decided} by {given.by}{f' ({given.channel})' if given.channel else ''}."


def _code(text: str) -> str:
    shown = visible(text).replace("`", "´")
    return f"`{shown}`"


def _block(text: str, language: str = "") -> Iterator[str]:
    """Yield the text as a code block that it cannot end."""
    fence = "`" * (max((len(found) for found in _FENCE.findall(text)), default=2) + 1)
    yield f"{fence}{language}"
    yield text.rstrip("\n")
    yield fence


def _language(detail: str) -> str:
    if detail.startswith(("--- ", "@@ ")):
        return "diff"
    return "json" if detail[:1] in ("{", "[") else ""

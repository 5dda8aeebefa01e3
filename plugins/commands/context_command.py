"""The `/context` command, which shows what the next request contains and how large it is."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ContextItem, ContextReport, ConversationView, PruningReport
from plugins.commands.markdown import code, one_line

MAX_ITEMS = 20
"""Maximum items that `/context detail` lists."""

BAR_WIDTH = 40
"""Width of the bar in characters."""

PREVIEW_CHARACTERS = 60
"""Characters of an item's beginning that are shown."""


class Context:
    """The `/context` command, which shows the parts of the context with their sizes."""

    name: ClassVar[str] = "context"
    usage: ClassVar[str] = "/context [list|detail]"
    summary: ClassVar[str] = f"Show what fills the context; `list` by tool and note, `detail` the {MAX_ITEMS} largest items."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the totals by part, by part and name, or with the largest items."""
        if argument not in ("", "list", "detail"):
            raise CommandFailed("Write /context, /context list or /context detail.")
        report = await conversation.context()
        rows = _details(report) if argument == "detail" else _sums(report, names=argument == "list")
        return "\n\n".join([_head(report), *_bar(report), *_pruned(report.pruned), "\n".join(rows)])


def _head(report: ContextReport) -> str:
    if not report.items:
        return "**Context**: unknown, since no request was sent yet."
    total = sum(item.tokens for item in report.items)
    window = (
        f" of {report.window:,} ({100 * total / report.window:.0f} %)"
        if report.window
        else "; the context window is unknown"
    )
    counted = f". The provider counted {report.counted:,} for the last request" if report.counted is not None else ""
    return f"**Context**: about {total:,} tokens{window}{counted}."


def _bar(report: ContextReport) -> list[str]:
    """Return a bar as wide as the window, showing used, free and reserved tokens."""
    if not report.window or report.reserve is None or not report.items:
        return []
    total = sum(item.tokens for item in report.items)
    free = max(0, report.window - report.reserve - total)
    kept = max(0, min(report.reserve, report.window - total))
    used = round(BAR_WIDTH * min(1.0, total / report.window)) or 1
    rest = min(BAR_WIDTH - used, round(BAR_WIDTH * kept / report.window))
    beyond = f", {total - report.window:,} more than the window" if total > report.window else ""
    bar = "█" * used + "░" * (BAR_WIDTH - used - rest) + "▒" * rest
    return [f"`{bar}` {total:,} used{beyond}, {free:,} free, {kept:,} reserve"]


def _pruned(pruned: PruningReport) -> list[str]:
    if not pruned.saved:
        return []
    return [
        f"Pruned: {pruned.trimmed:,} trimmed, {pruned.cleared:,} cleared, saving {pruned.saved:,} characters"
        " (the journal still has them)."
    ]


def _sums(report: ContextReport, *, names: bool) -> list[str]:
    sums: dict[tuple[str, str], list[int]] = {}
    for item in report.items:
        sums.setdefault((item.part, item.name if names else ""), []).append(item.tokens)
    rows = ["| part | items | tokens |", "|---|---:|---:|"]
    for (part, name), tokens in sums.items():
        label = f"{part}: {code(name)}" if name else part
        rows.append(f"| {label} | {len(tokens):,} | {sum(tokens):,} |")
    return rows


def _details(report: ContextReport) -> list[str]:
    largest = sorted(report.items, key=lambda item: item.tokens, reverse=True)[:MAX_ITEMS]
    return ["| tokens | item | begins with |", "|---:|---|---|", *map(_row, largest)]


def _row(item: ContextItem) -> str:
    label = f"{item.part}: {code(item.name)}" if item.name else item.part
    beginning = one_line(item.text[:PREVIEW_CHARACTERS], PREVIEW_CHARACTERS).replace("|", "¦")
    return f"| {item.tokens:,} | {label} | {beginning} |"

"""`/context`: what the next request holds, and what of it is large."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ContextItem, ContextReport, ConversationView, PrunedReport
from plugins.commands.markdown import code, one_line

LARGEST = 20
"""How many items `/context detail` shows."""

BAR = 40
"""Characters of the bar."""

LENGTH = 60
"""Characters of an item's beginning that are shown."""


class Context:
    """Shows the parts of the context with their sizes."""

    name: ClassVar[str] = "context"
    usage: ClassVar[str] = "/context [list|detail]"
    summary: ClassVar[str] = f"Show what fills the context; `list` by tool and note, `detail` the {LARGEST} largest items."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with sums by part, by part and name, or with the largest items; CommandFailed for another argument."""
        if argument not in ("", "list", "detail"):
            raise CommandFailed("Write /context, /context list or /context detail.")
        report = await conversation.context()
        rows = _details(report) if argument == "detail" else _sums(report, names=argument == "list")
        return "\n\n".join([_head(report), *_bar(report), *_pruned(report.pruned), "\n".join(rows)])


def _head(report: ContextReport) -> str:
    if not report.items:
        return "**Context**: unknown, as nothing was sent yet."
    total = sum(item.tokens for item in report.items)
    window = f" of {report.window:,} ({100 * total / report.window:.0f} %)" if report.window else "; its window is unknown"
    counted = f". The provider counted {report.counted:,} for the last request" if report.counted is not None else ""
    return f"**Context**: about {total:,} tokens{window}{counted}."


def _bar(report: ContextReport) -> list[str]:
    """What is used, free and kept free, as a bar as wide as the window."""
    if not report.window or report.reserve is None or not report.items:
        return []
    total = sum(item.tokens for item in report.items)
    free = max(0, report.window - report.reserve - total)
    kept = max(0, min(report.reserve, report.window - total))
    used = round(BAR * min(1.0, total / report.window)) or 1
    rest = min(BAR - used, round(BAR * kept / report.window))
    beyond = f", {total - report.window:,} more than the window" if total > report.window else ""
    bar = "█" * used + "░" * (BAR - used - rest) + "▒" * rest
    return [f"`{bar}` {total:,} used{beyond}, {free:,} free, {kept:,} reserve"]


def _pruned(pruned: PrunedReport) -> list[str]:
    if not pruned.saved:
        return []
    return [
        f"Pruned: {pruned.trimmed:,} trimmed, {pruned.cleared:,} cleared, which saves {pruned.saved:,} characters;"
        " the log keeps them."
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
    largest = sorted(report.items, key=lambda item: item.tokens, reverse=True)[:LARGEST]
    return ["| tokens | what | begins with |", "|---:|---|---|", *map(_row, largest)]


def _row(item: ContextItem) -> str:
    label = f"{item.part}: {code(item.name)}" if item.name else item.part
    beginning = one_line(item.text[:LENGTH], LENGTH).replace("|", "¦")
    return f"| {item.tokens:,} | {label} | {beginning} |"

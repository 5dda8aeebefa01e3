"""The commands that only show something: `/help`, `/status`, `/whoami`, `/usage`, `/history` and `/context`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from plugins.api.command import (
    CommandFailed,
    CommandHelp,
    CommandTime,
    ContextItem,
    ContextReport,
    ConversationView,
    HistoryEntry,
    PruningReport,
    SpendingSummary,
)
from plugins.commands.markdown import amount, code, one_line
from plugins.support.suggestions import did_you_mean
from sessions.events.messages import Usage as Tokens

USUAL, MOST = 10, 100
"""Number of messages shown by default, and the maximum."""

MAX_PARTS = 8
"""Maximum purposes and models of which `/usage` shows the cost of the month."""

MAX_CHARACTERS = 500
"""Maximum characters shown of a message."""

MAX_ITEMS = 20
"""Maximum items that `/context detail` lists."""

BAR_WIDTH = 40
"""Width of the bar in characters."""

PREVIEW_CHARACTERS = 60
"""Characters of an item's beginning that are shown."""


_SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "Conversation": (
        *("new", "reset", "stop", "undo", "history", "title", "sessions", "archive", "delete"),
        *("model", "effort", "temperature", "queue", "verbose"),
    ),
    "Context": ("context", "compact", "compactions", "revert", "usage"),
    "Memory": ("memory", "remember", "edit", "forget", "pin", "unpin", "why", "distill", "clear"),
    "Tools": ("approve", "deny", "approvals", "jobs", "skills", "mcp"),
    "Gateway": ("status", "whoami", "pair", "help"),
}
"""The commands of the gateway by subject, in the order of `/help`."""


class Help:
    """The `/help` command, which lists all commands or explains one."""

    name: ClassVar[str] = "help"
    usage: ClassVar[str] = "/help [command]"
    summary: ClassVar[str] = "List the commands, or explain one."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with a line for each command, or for the one that `argument` names, with or without its slash."""
        commands = conversation.commands()
        if not argument:
            return _help_of(commands)
        wanted = argument.removeprefix("/").lower()
        for command in commands:
            if command.name == wanted:
                return _help_line(command)
        meant = did_you_mean(wanted, [command.name for command in commands], before="/", mark="`") or "."
        raise CommandFailed(f"Unknown command{meant} `/help` lists all commands.")


def _help_of(commands: Sequence[CommandHelp]) -> str:
    """Return the list of all commands, by subject."""
    rest = {command.name: command for command in commands}
    parts = []
    for subject, names in (*_SUBJECTS.items(), ("From plugins", tuple(rest))):
        lines = [f"- {_help_line(command)}" for name in names if (command := rest.pop(name, None)) is not None]
        if lines:
            parts.append("\n".join([f"**{subject}**", "", *lines]))
    return "\n\n".join(parts)


def _help_line(command: CommandHelp) -> str:
    return f"`{command.usage}`: {command.summary}"


class Status:
    """The `/status` command, which shows the state of the session and of the gateway."""

    name: ClassVar[str] = "status"
    usage: ClassVar[str] = "/status"
    summary: ClassVar[str] = "Show the session's state: model, tokens, context, queue."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the gateway's status."""
        if argument:
            raise CommandFailed("/status takes no argument.")
        return conversation.status()


class Whoami:
    """The `/whoami` command, which shows the person that the gateway identified."""

    name: ClassVar[str] = "whoami"
    usage: ClassVar[str] = "/whoami"
    summary: ClassVar[str] = "Show who you are to the gateway, and the current session."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the person, client, channel, session key and session id."""
        if argument:
            raise CommandFailed("/whoami takes no argument.")
        facts = {
            "Person": conversation.person,
            "Client": conversation.client,
            "Channel": conversation.channel,
            "Session": conversation.key,
            "Session id": conversation.session,
        }
        return "\n".join(f"- {name}: {code(value) if value else 'unknown'}" for name, value in facts.items())


class Usage:
    """The `/usage` command, which shows what the session and the person have used: tokens and money."""

    name: ClassVar[str] = "usage"
    usage: ClassVar[str] = "/usage"
    summary: ClassVar[str] = "Show the tokens and costs of this session, and what you have spent."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with a table by purpose and model, with a total if it has several rows, and the person's costs."""
        if argument:
            raise CommandFailed("/usage takes no argument.")
        spent, before, costs = conversation.spent(), conversation.inherited(), await conversation.spending()
        remarks = _plugin_usage(conversation.spent_by_plugins())
        if before != Tokens():
            remarks = (
                f"{remarks} This session is a fork. The {before.input:,} tokens in ({before.cached:,} cached) and"
                f" {before.output:,} out of the original session up to the fork are not counted here."
            ).strip()
        if not spent:
            parts = [" ".join(["No provider has reported any tokens for this session yet.", remarks]).strip()]
        else:
            parts = [_usage_table(spent, costs), remarks]
        return "\n\n".join(part for part in (*parts, _spending(costs)) if part)


def _usage_table(spent: Mapping[str, Mapping[str, Tokens]], costs: SpendingSummary) -> str:
    """Return the table of a session, with its costs if some are known."""
    priced = bool(costs.session)
    rows = [
        _usage_row(purpose, code(model), tokens, _cost(costs, _known(costs, purpose, model, by_model), priced))
        for purpose, by_model in spent.items()
        for model, tokens in by_model.items()
    ]
    if len(rows) > 1:
        total = sum((tokens for by_model in spent.values() for tokens in by_model.values()), Tokens())
        cost = sum(each for by_model in costs.session.values() for each in by_model.values())
        rows.append(_usage_row("**total**", "", total, _cost(costs, cost, priced)))
    head = ["| purpose | model | in | cached | out |", "|---|---|---:|---:|---:|"]
    return "\n".join([head[0] + " cost |", head[1] + "---:|", *rows] if priced else [*head, *rows])


def _known(costs: SpendingSummary, purpose: str, model: str, used: Mapping[str, Tokens]) -> int | None:
    """Return what the requests of a purpose to a model cost, which may have answered under another name; None if unknown."""
    known = costs.session.get(purpose, {})
    return sum(known.values()) if known and len(used) == 1 else known.get(model)


def _cost(costs: SpendingSummary, micros: int | None, priced: bool) -> str:
    """Return the last cell of a row; empty if the table has none."""
    if not priced:
        return ""
    return " unknown |" if micros is None else f" {amount(micros, costs.currency)} |"


def _spending(costs: SpendingSummary) -> str:
    """Describe what the person has spent; empty if no price is known."""
    if not costs.month and not costs.week and not costs.budgets:
        return ""

    def money(micros: int) -> str:
        return amount(micros, costs.currency)

    lines = [f"- today: {money(costs.day)}", f"- this week: {money(costs.week)}", f"- this month: {money(costs.month)}"]
    if costs.forecast is not None:
        lines[-1] += f", at this rate {money(costs.forecast)} by its end"
    for name, parts in (("purpose", costs.purposes), ("model", costs.models)):
        shown = [f"{code(each)} {money(micros)}" for each, micros in parts.items() if micros][:MAX_PARTS]
        if len(parts) > 1 and shown:
            lines.append(f"- of the month, by {name}: {', '.join(shown)}")
    if costs.unpriced:
        lines.append(f"- not in these sums: {costs.unpriced:,} of this month's requests, whose price is not known")
    lines += [
        f"- {each.whose[0].lower()}{each.whose[1:]} by {each.period}: {money(each.spent)} of {money(each.cap)}"
        f" ({each.spent * 100 // each.cap if each.cap else 100} %), resets on {each.begins}"
        for each in costs.budgets
    ]
    return "\n".join(["Your costs:", "", *lines])


def _plugin_usage(spent: Mapping[str, Mapping[str, Tokens]]) -> str:
    """Describe the usage of plugins, which belongs to no session."""
    return " ".join(
        f"Outside of sessions, {code(purpose)} has used {tokens.input:,} tokens in and {tokens.output:,} out with"
        f" {code(model)} since the gateway started."
        for purpose, by_model in spent.items()
        for model, tokens in by_model.items()
    )


def _usage_row(purpose: str, model: str, tokens: Tokens, cost: str) -> str:
    return f"| {purpose} | {model} | {tokens.input:,} | {tokens.cached:,} | {tokens.output:,} |{cost}"


class History:
    """The `/history` command, which shows the last messages of the session, one per line."""

    name: ClassVar[str] = "history"
    usage: ClassVar[str] = "/history [n] [all]"
    summary: ClassVar[str] = f"Show the last {USUAL} messages, or the last n, at most {MOST}; `all` shows commands too."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the last messages, oldest first.

        The argument is an optional number from 1 to 100, followed by an optional `all` to include commands and their
        answers.
        """
        *words, last = argument.lower().split() or [""]
        commands = last == "all"
        entries = await conversation.history(
            _parse_count(" ".join(words if commands else [*words, last])), commands=commands
        )
        return (
            "\n".join(_entry_line(entry, conversation.local(entry.at)) for entry in entries) or "There are no messages yet."
        )


def _parse_count(argument: str) -> int:
    if not argument:
        return USUAL
    # isascii: int() also accepts underscores and the digits of other scripts.
    if argument.isascii() and argument.isdigit() and len(argument) <= 3 and 1 <= int(argument) <= MOST:
        return int(argument)
    raise CommandFailed(f"Write /history, or /history and a number from 1 to {MOST}; `all` at the end shows commands too.")


def _entry_line(entry: HistoryEntry, at: datetime) -> str:
    return f"- {at:%Y-%m-%d %H:%M:%S %Z} **{entry.who}**: {one_line(entry.text, MAX_CHARACTERS) or '(empty)'}"


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
        rows = _item_rows(report) if argument == "detail" else _part_rows(report, names=argument == "list")
        return "\n\n".join([_total_line(report), *_window_bar(report), *_pruned_line(report.pruned), "\n".join(rows)])


def _total_line(report: ContextReport) -> str:
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


def _window_bar(report: ContextReport) -> list[str]:
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


def _pruned_line(pruned: PruningReport) -> list[str]:
    if not pruned.saved:
        return []
    return [
        f"Pruned: {pruned.trimmed:,} trimmed, {pruned.cleared:,} cleared, saving {pruned.saved:,} characters"
        " (the journal still has them)."
    ]


def _part_rows(report: ContextReport, *, names: bool) -> list[str]:
    sums: dict[tuple[str, str], list[int]] = {}
    for item in report.items:
        sums.setdefault((item.part, item.name if names else ""), []).append(item.tokens)
    rows = ["| part | items | tokens |", "|---|---:|---:|"]
    for (part, name), tokens in sums.items():
        label = f"{part}: {code(name)}" if name else part
        rows.append(f"| {label} | {len(tokens):,} | {sum(tokens):,} |")
    return rows


def _item_rows(report: ContextReport) -> list[str]:
    largest = sorted(report.items, key=lambda item: item.tokens, reverse=True)[:MAX_ITEMS]
    return ["| tokens | item | begins with |", "|---:|---|---|", *map(_item_row, largest)]


def _item_row(item: ContextItem) -> str:
    label = f"{item.part}: {code(item.name)}" if item.name else item.part
    beginning = one_line(item.text[:PREVIEW_CHARACTERS], PREVIEW_CHARACTERS).replace("|", "¦")
    return f"| {item.tokens:,} | {label} | {beginning} |"

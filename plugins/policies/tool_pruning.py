"""The built-in pruning: as the conversation fills the window, old tool results are first trimmed, later cleared.

The settings are those of `[pruning]`; see docs/pruning.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

import msgspec

from plugins.api.hookspecs import hookimpl
from plugins.api.pruning import PrunedTools, PruningBudget, PruningContext, PruningRules
from sessions.events.messages import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.events.pruning import Clear, Edit, Trim, combine_edits, shown_size
from sessions.state.truncation import truncation_note

CHARACTERS = 4
"""Estimated characters per token of the window."""


class _Candidate(msgspec.Struct):
    """A tool result that may be pruned, with its visible characters and the proposed edit."""

    index: int
    shown: int
    edit: Edit | None = None


@hookimpl
def propose_prunes(context: PruningContext, budget: PruningBudget, now: datetime) -> list[Edit]:
    """Return the edits that the rules require now."""
    rules = budget.rules
    if not budget.window or not _is_time(rules, context.asked_at, now):
        return []
    room = budget.window * CHARACTERS
    if context.characters < rules.soft_trim_ratio * room:
        return []
    candidates = list(_candidates(context, rules))
    total = context.characters - _trim(context, candidates, rules)
    prunable = sum(candidate.shown for candidate in candidates)
    if rules.hard_clear.enabled and total >= rules.hard_clear_ratio * room and prunable >= rules.min_prunable_chars:
        _clear(context, candidates, rules, total - _low_mark(rules) * room)
    return [candidate.edit for candidate in candidates if candidate.edit is not None]


def is_prunable(tool: str, tools: PrunedTools) -> bool:
    """Return True if results of a tool may be pruned, ignoring case."""
    name = tool.lower()
    if any(fnmatchcase(name, _only_stars(pattern)) for pattern in tools.deny):
        return False
    return not tools.allow or any(fnmatchcase(name, _only_stars(pattern)) for pattern in tools.allow)


def _only_stars(pattern: str) -> str:
    """Escape a pattern so that only `*` has a special meaning."""
    return pattern.lower().replace("[", "[[]").replace("?", "[?]")


def _is_time(rules: PruningRules, asked_at: datetime | None, now: datetime) -> bool:
    """Return True if the mode allows pruning now: `cache-ttl` allows it only after the provider's cache has expired."""
    if rules.mode != "cache-ttl":
        return rules.mode == "always"
    return asked_at is not None and (now - asked_at).total_seconds() >= rules.ttl


def _low_mark(rules: PruningRules) -> float:
    """Return the ratio below which clearing stops.

    With a warm cache, each clearing invalidates nearly all of it, so more is cleared at once; with a cold cache, only as
    much as needed.
    """
    if rules.mode == "always":
        return (min(rules.soft_trim_ratio, rules.hard_clear_ratio) + rules.hard_clear_ratio) / 2
    return rules.hard_clear_ratio


def _candidates(context: PruningContext, rules: PruningRules) -> Iterator[_Candidate]:
    """Yield the prunable results after the first message of a person and before the assistant messages that are kept."""
    messages, allowed = context.messages, dict[str, bool]()
    first = next((index for index, message in enumerate(messages) if isinstance(message, UserMessage)), len(messages))
    for index in range(first, _end(messages, rules.keep_last_assistants)):
        message = messages[index]
        if isinstance(message, ToolMessage):
            if message.tool not in allowed:
                allowed[message.tool] = is_prunable(message.tool, rules.tools)
            if allowed[message.tool]:
                yield _Candidate(index, context.sizes[index])


def _end(messages: Sequence[Message], keep: int) -> int:
    """Return the index of the oldest of the last `keep` assistant messages; 0 if there are fewer."""
    if keep == 0:
        return len(messages)
    for index in range(len(messages) - 1, -1, -1):
        keep -= isinstance(messages[index], AssistantMessage)
        if keep == 0:
            return index
    return 0


def _trim(context: PruningContext, candidates: list[_Candidate], rules: PruningRules) -> int:
    """Propose a trim for each result that is too long, and return the characters saved."""
    soft, saved = rules.soft_trim, 0
    for candidate in candidates:
        if candidate.shown <= soft.max_chars:
            continue
        of = context.sources[candidate.index]
        before = context.edited.get(of)
        size = before.size if before is not None else candidate.shown
        edit = Trim(of=of, head=soft.head_chars, tail=soft.tail_chars, note=truncation_note(size))
        left = shown_size(edit if before is None else combine_edits(before.edit, edit), size)
        if left < candidate.shown:
            saved += candidate.shown - left
            candidate.shown, candidate.edit = left, edit
    return saved


def _clear(context: PruningContext, candidates: list[_Candidate], rules: PruningRules, excess: float) -> None:
    """Propose to clear results, oldest first, until more than the excess is saved."""
    placeholder = rules.hard_clear.placeholder
    for candidate in candidates:
        if excess < 0:
            return
        if candidate.shown > len(placeholder):
            candidate.edit = Clear(of=context.sources[candidate.index], note=placeholder)
            excess -= candidate.shown - len(placeholder)

"""What the next request would hold, part by part, for `/context`. Pure: a context in, a report out."""

from __future__ import annotations

from collections.abc import Iterable

from plugins.contracts import ContextItem, ContextReport, PrunedReport
from sessions.context import Context, canonical
from sessions.events import InstructionsSet
from sessions.messages import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.pruning import Clear, shown_size
from sessions.sight import Sight, look
from sessions.tokens import MESSAGE, estimate
from sessions.view import View

BEGINNING = 200
"""Characters of an item that are reported."""


def report(
    head: InstructionsSet | None,
    context: Context,
    *,
    view: View,
    sight: Sight | None,
    window: int | None,
    counted: int | None,
) -> ContextReport:
    """Each item of the context with its estimated tokens, in the order in which the model reads them, and what pruning of
    the `view` saved. `counted` is what the provider counted for the last request. Costs what the context holds: not for
    the event loop."""
    items = [*_standing(head), *_messages(context.messages)]
    pictures = sum(each.tokens for each in look(context.messages, sight, ""))
    if pictures:
        items.append(ContextItem(part="Pictures and files", name="", tokens=pictures, text=""))
    return ContextReport(items=tuple(items), window=window, counted=counted, pruned=pruned(view))


def pruned(view: View) -> PrunedReport:
    """What pruning does for a view. Edits that leave their text whole do not count."""
    pairs = [(each.edit, each.size - shown_size(each.edit, each.size)) for each in view.edited.values()]
    saving = [(edit, saved) for edit, saved in pairs if saved > 0]
    cleared = sum(isinstance(edit, Clear) for edit, _ in saving)
    return PrunedReport(trimmed=len(saving) - cleared, cleared=cleared, saved=sum(saved for _, saved in saving))


def _standing(head: InstructionsSet | None) -> Iterable[ContextItem]:
    if head is None:
        return
    yield _item("Instructions", "", head.text)
    for note in head.notes:
        yield _item("Notes", note.path, note.text)
    for tool in head.tools:
        yield _item("Tools", tool.name, canonical(tool).decode(), shown=tool.description)


def _messages(messages: Iterable[Message]) -> Iterable[ContextItem]:
    for message in messages:
        match message:
            case UserMessage():
                yield _item("Your messages", "", message.text, more=MESSAGE)
            case AssistantMessage():
                yield _item("Answers", "", message.text + (message.opaque or ""), more=MESSAGE, shown=message.text)
                for call in message.calls:
                    yield _item("Tool calls", call.tool, call.arguments, more=MESSAGE)
            case ToolMessage():
                yield _item("Tool results", message.tool, message.text, more=MESSAGE)


def _item(part: str, name: str, text: str, *, more: int = 0, shown: str | None = None) -> ContextItem:
    beginning = (text if shown is None else shown)[:BEGINNING]
    return ContextItem(part=part, name=name, tokens=estimate(text) + more, text=beginning)

"""The content of the next request, item by item, for `/context`; and a session's compactions as people see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import msgspec

from plugins.api.command import CompactionEntry, ContextItem, PruningReport
from sessions.events.events import ContextCompacted, InstructionsSet, Trigger
from sessions.events.messages import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.events.pruning import Clear, shown_size
from sessions.events.tokens import CALL, TokenFeatures, attachment_features, head_features, message_features, text_features
from sessions.events.vision import VisionSupport, attachment_visibility
from sessions.state.compaction_cycle import CompactionCut
from sessions.state.context import Context, canonical
from sessions.state.transcript import Transcript
from sessions.state.view import View, is_recalled

BEGINNING = 200
"""Characters of an item that are reported."""

WHY: dict[Trigger | None, str] = {
    "budget": "the window was nearly full",
    "threshold": "compaction.threshold_tokens",
    "ratio": "compaction.ratio",
    "messages": "compaction.messages",
    "journal": "the journal had grown",
    "overflow": "the model refused the request as too long",
    "command": "requested",
    "new": "the session ended",
    None: "unknown",
}


def context_items(
    head: InstructionsSet | None,
    view: View,
    context: Context,
    *,
    vision: VisionSupport | None,
    weigh: Callable[[TokenFeatures], float],
    total: int | None,
    count: Callable[[Sequence[str]], Sequence[int] | None] = lambda _: None,
) -> tuple[ContextItem, ...]:
    """Return each item of the context in the model's reading order, with its tokens.

    The tokens are those of `weigh`, corrected by the exact counts of `count` where it has them, then scaled so that their
    sum is `total`, if that is known. The cost grows with the context: run this in a thread.
    """
    items = [*_standing(head), *_messages(context.messages, summarised=view.summarised)]
    seen = attachment_features(attachment_visibility(context.messages, vision, ""))
    if seen.total:
        items.append(_Item("Pictures and files", "", seen, ""))
    texts = [item.text for item in items]
    counts = count(texts) or [text_features(text).total for text in texts]
    ratios = (exact / max(1, text_features(text).total) for exact, text in zip(counts, texts, strict=True))
    weights = [max(0.0, weigh(item.units)) * (ratio or 1.0) for item, ratio in zip(items, ratios, strict=True)]
    return tuple(
        ContextItem(part=item.part, name=item.name, tokens=tokens, text=item.text[:BEGINNING])
        for item, tokens in zip(items, shared(weights, total), strict=True)
    )


def shared(weights: Sequence[float], total: int | None) -> list[int]:
    """Return whole numbers in proportion to the weights, with the sum `total`; without a total the rounded weights."""
    whole = sum(weights)
    if total is None or not whole:
        return [round(weight) for weight in weights]
    ends = [round(total * end / whole) for end in accumulate(weights)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def pruned(view: View) -> PruningReport:
    """Return the effect of pruning on a view. Edits that do not shorten their text do not count."""
    pairs = [(each.edit, each.size - shown_size(each.edit, each.size)) for each in view.edited.values()]
    saving = [(edit, saved) for edit, saved in pairs if saved > 0]
    cleared = sum(isinstance(edit, Clear) for edit, _ in saving)
    return PruningReport(trimmed=len(saving) - cleared, cleared=cleared, saved=sum(saved for _, saved in saving))


class _Item(msgspec.Struct, frozen=True):
    part: str
    name: str
    units: TokenFeatures
    text: str


def _standing(head: InstructionsSet | None) -> Iterable[_Item]:
    if head is None:
        return
    yield _Item("Instructions", "", head_features(head.text), head.text)
    for note in head.notes:
        yield _Item("Notes", note.path, head_features(note.text), note.text)
    for tool in head.tools:
        yield _Item("Tools", tool.name, head_features(canonical(tool).decode()), tool.description)


def _messages(messages: Sequence[Message], *, summarised: bool) -> Iterable[_Item]:
    for index, message in enumerate(messages):
        match message:
            case UserMessage():
                part = "Summary" if summarised and index == 0 else "Recalled" if is_recalled(message) else "Your messages"
                yield _Item(part, "", message_features(message), message.text)
            case AssistantMessage():
                features = message_features(msgspec.structs.replace(message, calls=()))
                yield _Item("Answers", "", features, message.text)
                for call in message.calls:
                    frame = TokenFeatures(frames=CALL)
                    yield _Item(
                        "Tool calls", call.tool, text_features(f"{call.tool} {call.arguments}") + frame, call.arguments
                    )
            case ToolMessage():
                yield _Item("Tool results", message.tool, message_features(message), message.text)


def entry_of_cut(transcript: Transcript, cut: CompactionCut, event: ContextCompacted, at: str) -> CompactionEntry:
    """Return one compaction; `at` is the time of its event."""
    return CompactionEntry(
        number=cut.compaction,
        at=at,
        why=WHY[cut.trigger],
        messages=event.messages,
        tokens_before=event.tokens_before,
        tokens_after=event.tokens_after,
        by=event.by,
        summary=event.summary,
        model=event.model,
        kept=event.kept,
        lost=event.lost,
        checks=event.checks,
        failed=event.failed,
        noted=bool(event.path),
        in_force=cut.compaction in in_force(transcript),
    )


def in_force(transcript: Transcript) -> set[int]:
    """Return the numbers of the compactions that are not reverted: the one whose summary is in the view, and those
    before it."""
    under = {cut.compaction: cut.under for cut in transcript.cuts}
    found, number = set[int](), transcript.cut
    while number:
        found.add(number)
        number = under[number]
    return found

"""The reducer: the change that each event makes to a transcript.

`evolve(transcript, recorded)` is pure; `project(lines)` folds a whole journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from sessions.events.codec import decode
from sessions.events.events import (
    ApprovalAsked,
    ApprovalGiven,
    AttachmentsWithheld,
    CallRef,
    ChangesUndone,
    ChildEnded,
    ChildStarted,
    CommandAnswered,
    CompactionAbandoned,
    CompactionBegan,
    CompactionReverted,
    ContextCompacted,
    ContextPruned,
    DeliveryAttempted,
    Event,
    InstructionsSet,
    JournalErased,
    MemoryFlushed,
    MemoryRecalled,
    MessageImported,
    MessageReceived,
    MessageWithdrawn,
    ModelReplied,
    NoteAppended,
    PluginFailed,
    Recorded,
    ReplyDelivered,
    ReplyImported,
    RequestedCall,
    RequestRepeated,
    RequestSent,
    SessionArchived,
    SessionClosed,
    SessionForked,
    SessionOpened,
    SessionTitled,
    SettingChanged,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnInterrupted,
    TurnJoined,
    TurnParked,
    TurnResumed,
    TurnStarted,
    UnknownEvent,
)
from sessions.events.handed_messages import HEARTBEAT, child_of
from sessions.events.messages import AssistantMessage, ToolCall, ToolMessage, Usage, UserMessage
from sessions.events.tokens import TokenFeatures, message_features
from sessions.state.compaction_cycle import CompactionCut, abandoned, appended, began, closed, compacted, flushed
from sessions.state.request_sizes import Calibration, RequestSizes
from sessions.state.transcript import (
    PINNED,
    RECENT_ANSWERS,
    RECENT_CHILDREN,
    ApprovalQuestion,
    ForkOrigin,
    Grant,
    OpenCall,
    OpenTurn,
    PendingDelivery,
    StartedChild,
    Title,
    Transcript,
    Unfolding,
    WaitingMessage,
    due_deliveries,
    reply_address,
)
from sessions.state.view import recalled_message

BEGINNING = 60
"""Maximum characters of the beginning of a session."""

_UNCOUNTED: dict[str, object] = {"last_usage": None}
"""Resets the last usage when the beginning of the view changes, because it describes the former view."""


def project(lines: Iterable[bytes], transcript: Transcript | None = None) -> Transcript:
    """Fold verified lines into a transcript, continuing from `transcript` if given."""
    folded = transcript or Transcript()
    for line in lines:
        folded = evolve(folded, decode(line), len(line))
    return folded


def evolve(transcript: Transcript, recorded: Recorded, size: int = 0) -> Transcript:
    """Return the transcript after one more event, whose line has `size` bytes. An event of an unknown kind only advances the
    position."""
    changes = _changes(transcript, recorded, recorded.event)
    return msgspec.structs.replace(transcript, head=recorded.seq, at=recorded.at, bytes=transcript.bytes + size, **changes)


def _changes(  # noqa: PLR0911, PLR0912, PLR0915 - one arm for each kind
    t: Transcript, recorded: Recorded, event: Event | UnknownEvent
) -> dict[str, object]:
    match event:
        case SessionOpened():
            return {
                "session": event.session,
                "key": event.key,
                "person": event.person,
                "agent": event.agent,
                "parent": event.parent,
                "opened_at": recorded.at,
                "succeeds": event.succeeds,
                "counts": _initial_sizes(event.calibrations),
            }
        case MessageReceived():
            waiting = tuple(w for w in t.waiting if not (event.edits and event.edits in (w.message.id, w.message.edits)))
            received = WaitingMessage(seq=recorded.seq, message=event)
            is_beat = event.client == HEARTBEAT  # one with nothing to say leaves the conversation's place in lists
            said = "" if child_of(event) or is_beat else event.text
            named = {"channel": t.channel or event.channel, "beginning": t.beginning or _beginning(said)}
            used = t.used or t.opened_at if is_beat else recorded.at
            return {"waiting": (*waiting, received), "used": used, **named}
        case MessageImported():
            message = UserMessage(text=event.text, attachments=event.attachments)
            return {**_imported(t, recorded, message), "beginning": t.beginning or _beginning(event.text)}
        case ReplyImported():
            return _imported(t, recorded, AssistantMessage(text=event.text, calls=_tool_calls(recorded.seq, event.calls)))
        case MessageWithdrawn():
            return {"waiting": tuple(w for w in t.waiting if w.seq != event.of)}
        case InstructionsSet():
            return {"instructions": event, "instructed": recorded.seq}
        case TurnStarted():
            return _started(t, recorded, event)
        case TurnJoined():
            taken = _taken(t, recorded.seq, event.takes)
            return {**taken, **_in_turn(t, lambda turn: _joined(t, turn, event))}
        case TurnResumed():
            return _in_turn(t, lambda turn: _resumed(turn, event))
        case TurnInterrupted():
            return _in_turn(t, lambda _: {"interrupted": True})
        case MemoryRecalled():
            return _recalled(t, recorded, event)
        case RequestSent():
            return _asked(t, recorded, event) if event.purpose == "answer" else {}
        case ModelReplied():
            return _replied(t, recorded, event)
        case ApprovalAsked():
            return _asked_person(t, recorded, event)
        case TurnParked():
            return _in_turn(t, lambda _: {"parked": event.approval})
        case ApprovalGiven():
            return _decided(t, recorded, event)
        case ToolCalled():
            return _in_turn(t, lambda turn: {"calls": _began(turn.calls, event)})
        case ToolReturned():
            return _returned(t, recorded, event)
        case TurnEnded():
            return _ended(t, recorded, event)
        case ReplyDelivered():
            return _delivered(t, event)
        case DeliveryAttempted():
            return {"owed": _changed(t.owed, event.of, attempted=not event.failed)}
        case SessionTitled():
            titled = {"title": Title(text=event.title, by=event.by)}
            return {**titled, **_side_usage(t, "title", event.model, event.usage)}
        case RequestRepeated():
            return _side_usage(t, "what_if", event.model, event.usage)
        case SessionArchived():
            return {"archived": event.archived}
        case SettingChanged(name="title"):  # of versions without `session_titled`
            return {"title": Title(text=event.value or "", by=event.by)}
        case SettingChanged():
            others = {name: value for name, value in t.settings.items() if name != event.name}
            return {"settings": others if event.value is None else {**others, event.name: event.value}}
        case CommandAnswered():
            to = reply_address(w.message for w in t.waiting if w.seq == event.answers)
            answered = tuple(w for w in t.waiting if w.seq != event.answers)
            owed = (PendingDelivery(of=recorded.seq, to=to.address, answers=to.answers),) if to else ()
            newest = {"replied": recorded.seq, "used": recorded.at}
            return {"waiting": answered, **newest, **({"owed": (*t.owed, *owed)} if to else {})}
        case ChildStarted():
            return {"children": _children((*t.children, StartedChild(seq=recorded.seq, started=event)))}
        case ChildEnded():
            return {"children": _children(tuple(_ended_child(each, event) for each in t.children))}
        case SessionClosed():
            return {"closed": event.reason, "cycle": closed(t.cycle)}
        case ContextPruned():
            return {"view": t.view.pruned(event.edits)}
        case CompactionBegan():
            return {"cycle": began(t.cycle, event)}
        case MemoryFlushed():
            return {"cycle": flushed(t.cycle, recorded, event, t.bytes), **_side_usage(t, "flush", event.model, event.usage)}
        case ContextCompacted():
            return {**_compacted(t, recorded, event), **_side_usage(t, "summary", event.model, event.usage)}
        case NoteAppended():
            return {"cycle": appended(t.cycle, event)}
        case CompactionAbandoned():
            return {"cycle": abandoned(t.cycle, recorded, event)}
        case CompactionReverted():
            return _reverted(t, recorded, event)
        case SessionForked():
            return {
                "session": event.session,
                "key": event.key,
                "opened_at": recorded.at,
                "succeeds": None,
                "settings": {name: value for name, value in t.settings.items() if name != PINNED},
                "archived": False,
                "parent": None,
                "children": (),  # their results go to the parent of the fork
                "origin": ForkOrigin(session=event.parent, seq=event.parent_seq),
                "channel": "",
                "closed": None,
                "waiting": (),  # pending messages, deliveries and notes stay with the parent
                "owed": (),
                "grants": (),  # a person approved them for the parent
                "cycle": msgspec.structs.replace(closed(t.cycle), owed=()),
                "usage": Usage(),
                "spent": {},
                "inherited": t.inherited + t.usage,
            }
        case AttachmentsWithheld():
            return {"withheld": t.withheld | {(event.model, file.sha256) for file in event.files}}
        case ChangesUndone():
            told = event.told and _is_kept(t, recorded.seq)
            return {"view": t.view.grown(UserMessage(text=event.told), recorded.seq)} if told else {}
        case PluginFailed() | JournalErased() | UnknownEvent():
            return {}
    assert_never(event)


def _ended_child(child: StartedChild, event: ChildEnded) -> StartedChild:
    return msgspec.structs.replace(child, ended=True) if child.started.child == event.child else child


def _children(children: tuple[StartedChild, ...]) -> tuple[StartedChild, ...]:
    """Return the subagents without the oldest of many that have ended."""
    ended = [child.seq for child in children if child.ended]
    dropped = set(ended[: max(0, len(ended) - RECENT_CHILDREN)])
    return tuple(child for child in children if child.seq not in dropped)


def _in_turn(t: Transcript, change: object) -> dict[str, object]:
    if t.open_turn is None:
        return {}
    assert callable(change)
    return {"open_turn": msgspec.structs.replace(t.open_turn, **change(t.open_turn))}


def _taken(t: Transcript, placed: int, takes: tuple[int, ...]) -> dict[str, object]:
    taken = {w.seq: w.message for w in t.waiting if w.seq in takes}
    view = t.view
    for seq in takes:
        if (message := taken.get(seq)) and _is_kept(t, placed):
            view = view.grown(UserMessage(text=message.text, attachments=message.attachments), placed, seq)
    return {"view": view, "waiting": tuple(w for w in t.waiting if w.seq not in taken)}


def _imported(t: Transcript, recorded: Recorded, message: UserMessage | AssistantMessage) -> dict[str, object]:
    """Add an imported message to the view. It counts as read: `replied` stays as it is."""
    return {"used": recorded.at, **({"view": t.view.grown(message, recorded.seq)} if _is_kept(t, recorded.seq) else {})}


def _recalled(t: Transcript, recorded: Recorded, event: MemoryRecalled) -> dict[str, object]:
    """Add the recalled passages with the placement of the turn's messages, so that they leave the view together."""
    if t.open_turn is None or not event.hits or not _is_kept(t, t.open_turn.started):
        return {}
    digests = tuple(hit.digest for hit in event.hits)
    return {"view": t.view.recalling(recalled_message(event), t.open_turn.started, recorded.seq, digests)}


def _is_kept(t: Transcript, placed: int) -> bool:
    """Return True unless a later event is known to remove the messages placed here."""
    return t.unfolding is None or placed >= t.unfolding.keep_from


def _started(t: Transcript, recorded: Recorded, event: TurnStarted) -> dict[str, object]:
    ordinal = recorded.turn if recorded.turn is not None else t.turn + 1
    to = reply_address(w.message for w in t.waiting if w.seq in event.takes)
    turn = OpenTurn(
        ordinal=ordinal,
        at=recorded.at,
        takes=event.takes,
        provider=event.provider,
        model=event.model,
        window=event.window,
        reserve=event.reserve,
        started=recorded.seq,
        group=any(w.message.chat == "group" for w in t.waiting if w.seq in event.takes),
        reply_to=to.address if to else None,
        answers=to.answers if to else "",
        senders=_senders(t, event.takes),
    )
    return {"turn": ordinal, "open_turn": turn, **_taken(t, recorded.seq, event.takes)}


def _joined(t: Transcript, turn: OpenTurn, event: TurnJoined) -> dict[str, object]:
    to = reply_address(w.message for w in t.waiting if w.seq in event.takes)
    return {
        "takes": (*turn.takes, *event.takes),
        **({"reply_to": to.address, "answers": to.answers} if to else {}),
        "senders": (*turn.senders, *_senders(t, event.takes)),
    }


def _senders(t: Transcript, takes: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(w.message.client for w in t.waiting if w.seq in takes))


def _asked_person(t: Transcript, recorded: Recorded, event: ApprovalAsked) -> dict[str, object]:
    """Add a question, which is delivered where the turn's answer will be."""
    if t.open_turn is None:
        return {}
    during = any(call.began for call in t.open_turn.calls if call.ref == event.call)
    to, question = t.open_turn.reply_to, ApprovalQuestion(asked=event, seq=recorded.seq, during=during)
    answers = t.open_turn.answers
    owed = (PendingDelivery(of=recorded.seq, to=to, answers=answers),) if to else ()
    return {**_in_turn(t, lambda turn: {"questions": (*turn.questions, question)}), "owed": (*t.owed, *owed)}


def _delivered(t: Transcript, event: ReplyDelivered) -> dict[str, object]:
    """Note the progress of a delivery, and of a question where a person can react to it."""
    changes: dict[str, object] = {"owed": tuple(owed for owed in t.owed if owed.of != event.of)}
    if event.more:
        parts = next((owed.parts for owed in t.owed if owed.of == event.of), 0)
        done = {"chars": event.chars, "delivered_files": event.files, "parts": parts + 1, "attempted": False}
        changes["owed"] = _changed(t.owed, event.of, **done)
    if event.receipt and t.open_turn is not None and any(each.seq == event.of for each in t.open_turn.questions):
        changes |= _in_turn(t, lambda turn: {"questions": tuple(_posted(each, event) for each in turn.questions)})
    return changes


def _posted(question: ApprovalQuestion, event: ReplyDelivered) -> ApprovalQuestion:
    if question.seq != event.of:
        return question
    return msgspec.structs.replace(question, receipts=(*question.receipts, event.receipt))


def _changed(owed: tuple[PendingDelivery, ...], of: int, **changes: object) -> tuple[PendingDelivery, ...]:
    return tuple(msgspec.structs.replace(each, **changes) if each.of == of else each for each in owed)


def _without_question(owed: tuple[PendingDelivery, ...], question: ApprovalQuestion) -> tuple[PendingDelivery, ...]:
    """Return the pending deliveries without a question that needs no answer any more."""
    return tuple(pending for pending in owed if pending.of != question.seq)


def _decided(t: Transcript, recorded: Recorded, event: ApprovalGiven) -> dict[str, object]:
    """Add the first answer to a question. The turn is as old as its last answer: the time that a person took to answer does
    not count towards the age at which an interrupted turn is abandoned."""
    question = t.open_turn.question(event.approval) if t.open_turn is not None else None
    if question is None or question.answer is not None:
        return {}
    changes = _in_turn(t, lambda turn: _answered(turn, question, recorded, event))
    changes["answers"] = (*t.answers, event)[-RECENT_ANSWERS:]
    changes["owed"] = _without_question(t.owed, question)
    if event.decision == "approve" and event.scope != "once":
        changes["grants"] = (*t.grants, Grant(tool=question.asked.tool, pattern=question.asked.pattern))
    return changes


def _beginning(text: str) -> str:
    if text.startswith("/"):
        return ""
    line = " ".join(text[: 4 * BEGINNING].split())
    return line if len(line) <= BEGINNING else f"{line[:BEGINNING].rpartition(' ')[0] or line[: BEGINNING - 1]}…"


def _answered(turn: OpenTurn, question: ApprovalQuestion, recorded: Recorded, event: ApprovalGiven) -> dict[str, object]:
    answered = msgspec.structs.replace(question, answer=event, answered=recorded.seq)
    return {
        "questions": tuple(answered if each is question else each for each in turn.questions),
        "parked": "" if turn.parked == event.approval else turn.parked,
        "at": recorded.at,
    }


def _ended(t: Transcript, recorded: Recorded, event: TurnEnded) -> dict[str, object]:
    if (turn := t.open_turn) is None:
        return {"replied": recorded.seq, "used": recorded.at}
    owed = t.owed
    for question in turn.questions:
        owed = _without_question(owed, question)
    due = due_deliveries(event, recorded.seq, turn)
    ended = {"open_turn": None, "owed": (*owed, *due)}
    if event.dropped:  # there is nothing new for people, either
        return {**ended, "view": t.view.before(turn.started)}
    return {**ended, "replied": recorded.seq, "used": recorded.at}


def _resumed(turn: OpenTurn, event: TurnResumed) -> dict[str, object]:
    return {
        "resumed": event.attempt,
        "replies": turn.replies + 1,
        "crashes": turn.crashes + (not turn.interrupted),
        "interrupted": False,
    }


def _replied(t: Transcript, recorded: Recorded, event: ModelReplied) -> dict[str, object]:
    calls = _tool_calls(recorded.seq, event.calls)
    changes: dict[str, object] = {}
    said = TokenFeatures()
    if event.text or calls or event.opaque:
        message = AssistantMessage(text=event.text, calls=calls, opaque=event.opaque)
        said = message_features(message)
        if _is_kept(t, recorded.seq):
            changes["view"] = t.view.grown(message, recorded.seq)
    changes["counts"] = t.counts.after_reply(said, event.usage, opaque=event.opaque is not None, compacted=event.compacted)
    if event.usage is not None:
        changes["usage"] = t.usage + event.usage
        changes["spent"] = _spent(t, "answer", replied_as(t, event), event.usage)
        changes["last_usage"] = event.usage
    opened = tuple(
        OpenCall(ref=CallRef(of=recorded.seq, index=index), tool=call.tool, arguments=call.arguments)
        for index, call in enumerate(event.calls)
    )
    answer = {"said": recorded.seq} if event.text and not opened and event.stop != "cancelled" else {}
    return {**changes, **_in_turn(t, lambda _: {"calls": opened, "finished": not opened, **answer})}


def _tool_calls(seq: int, calls: tuple[RequestedCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls of the reply with this seq as the model is shown them."""
    return tuple(
        ToolCall(id=call_id(CallRef(of=seq, index=index)), tool=call.tool, arguments=call.arguments)
        for index, call in enumerate(calls)
    )


def replied_as(t: Transcript, event: ModelReplied) -> str:
    """Return the `provider:model` of a reply of the open turn; the model alone if no provider is known."""
    provider = event.provider or (t.open_turn.provider if t.open_turn else "")
    return f"{provider}:{event.model}" if provider else event.model


def _asked(t: Transcript, recorded: Recorded, event: RequestSent) -> dict[str, object]:
    changes: dict[str, object] = {"asked_at": recorded.at, **_in_turn(t, lambda turn: {"replies": turn.replies + 1})}
    if event.units is not None:
        model = event.model or (t.open_turn.name if t.open_turn else "")
        changes["counts"] = t.counts.after_request(event.units, model)
    return changes


def _initial_sizes(calibrations: dict[str, tuple[float, ...]]) -> RequestSizes:
    """Return the initial calibrations of a session: inherited factors with the default uncertainty. Factors of a version
    with a different number of parameters are ignored."""
    whole = len(Calibration().factors)
    return RequestSizes(models={name: Calibration(each) for name, each in calibrations.items() if len(each) == whole})


def _side_usage(t: Transcript, purpose: str, model: str, usage: Usage | None) -> dict[str, object]:
    """Add the usage of a request outside a turn. It does not describe the size of the view."""
    if usage is None:
        return {}
    return {"usage": t.usage + usage, "spent": _spent(t, purpose, model, usage)}


def _compacted(t: Transcript, recorded: Recorded, event: ContextCompacted) -> dict[str, object]:
    changes: dict[str, object] = {
        "cycle": compacted(t.cycle, recorded, event, t.bytes),
        "cuts": (*t.cuts, _cut(t, recorded, event)),
        "cut": event.compaction,
    }
    if t.unfolding is not None:
        wanted = event.compaction == t.unfolding.to
        return {**changes, "unfolding": msgspec.structs.replace(t.unfolding, summary=event.summary)} if wanted else changes
    return {**changes, "summary": event.summary, "view": t.view.cut(event.keep_from, event.summary), **_UNCOUNTED}


def _cut(t: Transcript, recorded: Recorded, event: ContextCompacted) -> CompactionCut:
    return CompactionCut(
        seq=recorded.seq,
        compaction=event.compaction,
        keep_from=event.keep_from,
        under=t.cut,
        trigger=t.cycle.trigger,
    )


def _reverted(t: Transcript, recorded: Recorded, event: CompactionReverted) -> dict[str, object]:
    known = t.unfolding
    changes: dict[str, object] = {"cut": event.to, **_UNCOUNTED}
    if known is None:
        return {**changes, "stale": Unfolding(until=recorded.seq, to=event.to, keep_from=event.keep_from)}
    if recorded.seq != known.until:
        return changes  # superseded by the last revert
    view = t.view.cut(event.keep_from, known.summary)
    return {**changes, "unfolding": None, "summary": known.summary, "view": view}


def _spent(t: Transcript, purpose: str, model: str, usage: Usage) -> dict[str, dict[str, Usage]]:
    by_model = t.spent.get(purpose, {})
    return {**t.spent, purpose: {**by_model, model: by_model.get(model, Usage()) + usage}}


def _began(calls: tuple[OpenCall, ...], event: ToolCalled) -> tuple[OpenCall, ...]:
    return tuple(
        msgspec.structs.replace(call, began=True, repeatable=event.repeatable) if call.ref == event.call else call
        for call in calls
    )


def _returned(t: Transcript, recorded: Recorded, event: ToolReturned) -> dict[str, object]:
    if t.open_turn is not None:
        tool = next((call.tool for call in t.open_turn.calls if call.ref == event.call), "")
    else:
        tool = _imported_tool(t, event.call)
    message = ToolMessage(id=call_id(event.call), tool=tool, text=event.output, failed=event.outcome != "returned")
    return {
        "view": t.view.grown(message, recorded.seq) if _is_kept(t, recorded.seq) else t.view,
        **_in_turn(t, lambda turn: {**_without_call(turn, event.call), "files": (*turn.files, *event.attachments)}),
    }


def _imported_tool(t: Transcript, ref: CallRef) -> str:
    """Return the tool of a call of the last imported reply; "" if it is not in the view."""
    at = len(t.view.messages) - 1
    while at >= 0 and isinstance(t.view.messages[at], ToolMessage):
        at -= 1
    message, name = (t.view.messages[at] if at >= 0 else None), call_id(ref)
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return next((call.tool for call in calls if call.id == name), "")


def _without_call(turn: OpenTurn, ref: CallRef) -> dict[str, object]:
    return {
        "calls": tuple(call for call in turn.calls if call.ref != ref),
        "questions": tuple(question for question in turn.questions if question.asked.call != ref),
    }


def call_id(ref: CallRef) -> str:
    """Return the id that links a call and its result in a request. Providers' own ids may repeat."""
    return f"call_{ref.of}_{ref.index}"

"""One turn's exact requests, and one compaction's before and after, as the console shows them. Everything here blocks: call
it in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gateway.conversations.commands.context_report import entry_of_cut
from gateway.http.console.context_sizes import ContextSizes
from gateway.support.errors import GatewayError
from gateway.support.stored_sessions import PastRequest, transcript_before
from plugins.api.command import CompactionEntry
from sessions.events.codec import decode
from sessions.events.events import ContextCompacted, RequestSent
from sessions.events.messages import AssistantMessage, Message, ToolMessage
from sessions.events.pruning import Edit, shown_size
from sessions.state.compaction_cycle import CompactionCut
from sessions.state.context import Context, Gauge, assemble, canonical, canonical_head
from sessions.state.transcript import Transcript
from sessions.state.view import View, is_recalled
from sessions.store.reading import StoredLog

BEGINNING = 600
"""Characters of a message in a row; the rest is requested separately."""

ROWS = 400
"""The maximum number of messages in one response."""


class NotFound(GatewayError):
    """The turn, request, message or compaction does not exist; the text is a sentence."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request: the `sha256` in the journal, and whether that of the rebuilt request `agrees`; neither is known if content
    was `erased` since."""

    call: int
    seq: int
    at: str
    sha256: str
    agrees: bool
    erased: bool
    messages: int
    tokens: int


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a request: its index, its role, the beginning of its `text` of `chars` characters, and its source event.

    For an edited message also the kind and author of the edit, and the characters before it (`size`).
    """

    index: int
    who: str
    text: str
    chars: int
    source: int = 0
    tool: str = ""
    calls: tuple[str, ...] = ()
    files: int = 0
    failed: bool = False
    edit: Edit | None = None
    size: int = 0


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the model was offered."""

    name: str
    description: str


class ShownTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a turn, and the contents of the `shown` one: its messages from `first` on, at most `ROWS`."""

    session: str
    turn: int
    calls: tuple[Call, ...]
    shown: int
    instructions: str
    tools: tuple[OfferedTool, ...]
    parameters: dict[str, str | int | float | bool | None]
    first: int
    rows: tuple[Row, ...]


class ShownCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction: its entry, focus, the outcome of the flush before it, the numbers of messages that `left` and
    `stayed`, and the last `ROWS` of those that left."""

    session: str
    entry: CompactionEntry
    focus: str
    flush: str
    left: int
    stayed: int
    rows: tuple[Row, ...]


def shown_turn(session: str, requests: Sequence[PastRequest], call: int | None, before: int | None) -> ShownTurn:
    """Return a turn with the last messages of its `call`th request (by default the last one) before the index `before`.

    Raises:
        NotFound: There is no such request.
    """
    number, context = request_of(requests, call)
    transcript = requests[number - 1][1]
    end = len(context.messages) if before is None else max(0, min(before, len(context.messages)))
    first = max(0, end - ROWS)
    return ShownTurn(
        session=session,
        turn=requests[-1][0].turn or 0,
        calls=tuple(_calls(requests)),
        shown=number,
        instructions=context.instructions,
        tools=tuple(OfferedTool(name=tool.name, description=tool.description) for tool in context.tools),
        parameters=context.parameters,
        first=first,
        rows=tuple(_rows(transcript.view, context.messages, first, end)),
    )


def request_of(requests: Sequence[PastRequest], call: int | None) -> tuple[int, Context]:
    """Return the number and the context of a turn's `call`th request, by default the last one.

    Raises:
        NotFound: There is no such request.
    """
    if not requests:
        raise NotFound("This turn made no request.")
    number = len(requests) if call is None else call
    if not 1 <= number <= len(requests):
        raise NotFound(f"This turn made {len(requests)} requests.")
    return number, assemble(requests[number - 1][1])


def message_of(requests: Sequence[PastRequest], call: int, index: int) -> str:
    """Return the whole text of a request's message.

    Raises:
        NotFound: There is no such request or message.
    """
    _, context = request_of(requests, call)
    if not 0 <= index < len(context.messages):
        raise NotFound(f"The request had {len(context.messages)} messages.")
    return context.messages[index].text


def canonical_request(context: Context) -> bytes:
    """Return the bytes whose SHA-256 is in the journal."""
    return b"[" + b",".join([canonical_head(context), *map(canonical, context.messages)]) + b"]"


def shown_compaction(log: StoredLog, sizes: ContextSizes, number: int) -> ShownCompaction:
    """Return the compaction of this number, from the log and its sizes.

    Raises:
        NotFound: There is no such compaction.
        JournalDamaged, UnknownSession, StorageFailed: The journal cannot be read.
    """
    now = sizes.transcript
    cut = next((cut for cut in now.cuts if cut.compaction == number), None)
    if cut is None:
        raise NotFound(f"There is no compaction {number}.")
    before = transcript_before(log, cut.seq, sizes.before(seq=cut.seq))
    made = decode(log.lines(cut.seq, 1)[0])
    assert isinstance(made.event, ContextCompacted)
    left = before.view.first_from(cut.keep_from)
    return ShownCompaction(
        session=now.session,
        entry=entry_of_cut(now, cut, made.event, made.at),
        focus=before.cycle.focus,
        flush=_flush(before, cut),
        left=left,
        stayed=len(before.view) - left,
        rows=tuple(_rows(before.view, before.view.messages, max(0, left - ROWS), left)),
    )


def _calls(requests: Sequence[PastRequest]) -> Iterator[Call]:
    gauge = Gauge()
    for number, (recorded, transcript) in enumerate(requests, 1):
        sent = recorded.event
        assert isinstance(sent, RequestSent)
        yield Call(
            call=number,
            seq=recorded.seq,
            at=recorded.at,
            sha256=sent.sha256,
            agrees=gauge.measure(assemble(transcript)).sha256 == sent.sha256,
            erased=not sent.sha256,
            messages=sent.messages,
            tokens=sent.tokens,
        )


def _rows(view: View, messages: Sequence[Message], first: int, end: int) -> Iterator[Row]:
    """Yield rows of messages; without sources if they differ from the view (a lost result was replaced)."""
    is_view = len(messages) == len(view)
    for index in range(first, end):
        source = view.sources[index] if is_view else -1
        yield _row(index, messages[index], source, view)


def _row(index: int, message: Message, source: int, view: View) -> Row:
    edited = view.edited.get(source)
    in_force = edited is not None and shown_size(edited.edit, edited.size) != edited.size
    return Row(
        index=index,
        who=_who(message, source),
        text=message.text[:BEGINNING],
        chars=len(message.text),
        source=max(0, source),
        tool=message.tool if isinstance(message, ToolMessage) else "",
        calls=tuple(f"{call.tool} {call.arguments}"[:BEGINNING] for call in message.calls)
        if isinstance(message, AssistantMessage)
        else (),
        files=len(getattr(message, "attachments", ())),
        failed=isinstance(message, ToolMessage) and message.failed,
        edit=edited.edit if edited and in_force else None,
        size=edited.size if edited and in_force else 0,
    )


def _who(message: Message, source: int) -> str:
    if source == 0:
        return "summary"
    if is_recalled(message):
        return "recalled"
    return str(message.__struct_config__.tag)


def _flush(before: Transcript, cut: CompactionCut) -> str:
    mark = before.cycle.flush
    if mark is None or mark.compaction != cut.compaction:
        return ""
    return f"{mark.outcome} to {mark.path}" if mark.path else mark.outcome

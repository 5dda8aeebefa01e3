"""`exuvia context`: the requests of a past turn, rebuilt from the journal and compared with what was sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, print_json
from gateway.support.home import Home
from gateway.support.printable import one_line, printable
from gateway.support.session_status import count_of
from gateway.support.storage import session_logs
from gateway.support.stored_sessions import PastRequest, SessionUnknown, find_session, requests_of_turn
from sessions.events.events import RequestSent
from sessions.events.messages import AssistantMessage, Message
from sessions.state.context import Context, Gauge, assemble

BEGINNING = 100
"""Characters of a message that are printed; `--json` has all of it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A model call, the turn's `call`th.

    `sha256` is the recorded hash, `agrees` tells whether the rebuilt `context` has the same, and the sizes are the
    recorded ones. `erased` tells that content was erased after the request, with the hash; then nothing is compared.
    """

    call: int
    seq: int
    at: str
    sha256: str
    agrees: bool
    erased: bool
    messages: int
    tokens: int
    context: Context


class RebuiltRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a turn, in order."""

    session: str
    turn: int
    requests: tuple[Request, ...]


def show_context(home: Home, name: str, out: TextIO, *, turn: int | None, call: int | None, as_json: bool) -> int:
    """Rebuild and print the requests of a turn, by default of the last one, or only its `call`th.

    Return 1 if one differs from what was sent. Raises SessionUnknown if the turn has no request.
    """
    log = find_session(session_logs(home), name)
    asked = requests_of_turn(log, turn)
    if not asked:
        which = "No turn" if turn is None else f"Turn {turn}"
        raise SessionUnknown(f"{which} of {log.session} asked a model.")
    rebuilt = _rebuilt(log.session, asked)
    if call is not None:
        if call > len(asked):
            raise SessionUnknown(f"Turn {rebuilt.turn} of {log.session} asked a model {len(asked)} times.")
        rebuilt = msgspec.structs.replace(rebuilt, requests=rebuilt.requests[call - 1 : call])
    if as_json:
        print_json(rebuilt, out)
    else:
        out.writelines(f"{printable(line)}\n" for line in _lines(rebuilt))
    return SUCCESS if all(request.agrees or request.erased for request in rebuilt.requests) else PROBLEM


def _rebuilt(session: str, asked: list[PastRequest]) -> RebuiltRequest:
    gauge, requests = Gauge(), list[Request]()
    for call, (event, transcript) in enumerate(asked, 1):
        sent = event.event
        assert isinstance(sent, RequestSent)
        context = assemble(transcript)
        request = Request(
            call=call,
            seq=event.seq,
            at=event.at,
            sha256=sent.sha256,
            agrees=gauge.measure(context).sha256 == sent.sha256,
            erased=not sent.sha256,
            messages=sent.messages,
            tokens=sent.tokens,
            context=msgspec.structs.replace(context, messages=tuple(context.messages)),
        )
        requests.append(request)
    return RebuiltRequest(session=session, turn=asked[-1][0].turn or 0, requests=tuple(requests))


def _lines(rebuilt: RebuiltRequest) -> Iterator[str]:
    """Yield all requests with their verdicts, and the contents of the last one."""
    yield f"Turn {rebuilt.turn} of {rebuilt.session}"
    for request in rebuilt.requests:
        verdict = _verdict(request)
        messages = count_of(request.messages, "message")
        yield f"{request.call}. #{request.seq} {request.at}: {messages}, about {request.tokens:,} tokens"
        yield f"   {verdict}"
    last = rebuilt.requests[-1]
    yield ""
    yield f"Contents of request {last.call}, with {count_of(len(last.context.tools), 'tool')}:"
    yield _line("instructions", last.context.instructions)
    for message in last.context.messages:
        yield _line(*_role_and_text(message))


def _verdict(request: Request) -> str:
    if request.erased:
        return "erased: content of this request was erased since, on a person's order"
    same = "matches" if request.agrees else "DIFFERS from the request rebuilt from this journal"
    return f"sha256 {request.sha256} {same}"


def _role_and_text(message: Message) -> tuple[str, str]:
    if isinstance(message, AssistantMessage):
        calls = [f"→ {call.tool} {call.arguments}" for call in message.calls]
        return "assistant", "\n".join(filter(None, [message.text, *calls]))
    return str(message.__struct_config__.tag), message.text


def _line(who: str, text: str) -> str:
    return f"{who:<12} {len(text):>9,}  {one_line(text, BEGINNING)}"

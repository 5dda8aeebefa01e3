"""A conversation goes on with whichever provider is asked next, whatever the ones before left in it.

Told as the gateway does it: events, folded into a transcript, assembled into a context, against fakes that refuse what the
real services refuse. Reasoning that a service signed goes back to it alone, and as it was: the fakes know their own.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.api.chat import ChatRequest, Reply
from plugins.providers.local.reply import chat_messages
from plugins.testing.servers.faulty_server import FaultyServer
from sessions.events.events import (
    CallRef,
    Event,
    InstructionsSet,
    ModelReplied,
    Outcome,
    RequestedCall,
    StopReason,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from sessions.events.messages import Attachment
from sessions.state.context import assemble
from sessions.state.reducer import project
from tests.plugins.provider_harness import READ, ProviderClient
from tests.plugins.vendors import VENDORS, Vendor
from tests.stories import lines_of, opened, received

PICTURES = tuple(
    Attachment(sha256=digest * 64, media=f"image/{kind}", bytes=3) for digest, kind in (("a", "png"), ("b", "jpeg"))
)
SEEN = {picture.sha256: b64encode(b"\x89picture") for picture in PICTURES}
OUTCOMES: tuple[Outcome, ...] = ("returned", "failed", "unknown")


class Session:
    """A journal's events as a conversation makes them."""

    def __init__(self, *, tools: bool = True) -> None:
        self.events: list[tuple[Event, int]] = [(opened(), 0)]
        self.turn = 0
        self._add(InstructionsSet(text="Be brief.", tools=(READ,) * tools, notes=(), parameters={}))

    def _add(self, event: Event) -> int:
        self.events.append((event, self.turn))
        return len(self.events)

    def hears(self, *texts: str, pictures: tuple[Attachment, ...] = ()) -> None:
        """Messages arrive, each with these pictures, and a turn takes them."""
        arrived = (msgspec.structs.replace(received(t, f"m{len(self.events)}"), attachments=pictures) for t in texts)
        takes = tuple(self._add(message) for message in arrived)
        self.turn += 1
        self._add(TurnStarted(takes=takes, provider="any", model="any", window=None, reserve=0))

    def replied(self, reply: Reply) -> int:
        """The model replied; the seq is returned."""
        calls = tuple(RequestedCall(id=call.id, tool=call.tool, arguments=call.arguments) for call in reply.calls)
        return self._add(
            ModelReplied(
                reply=1, model=reply.model, text=reply.text, calls=calls, stop=reply.stop, usage=None, opaque=reply.opaque
            )
        )

    def returned(self, of: int, index: int, outcome: Outcome, output: str = "an output") -> None:
        """A call came back; one that was refused never began."""
        call = CallRef(of=of, index=index)
        if outcome != "refused":
            self._add(ToolCalled(call=call, repeatable=False))
        self._add(ToolReturned(call=call, outcome=outcome, output=output))

    def ends(self) -> None:
        self._add(TurnEnded(outcome="replied", millis=1))

    def request(self, model: str) -> ChatRequest:
        """Return the next request of the gateway."""
        context = assemble(project(lines_of(self.events)))
        return ChatRequest(model=model, context=context, purpose="answer", session="s", pictures=SEEN)


class Teller:
    """A vendor's provider and fake in a conversation."""

    def __init__(self, vendor: Vendor, client: ProviderClient, server: FaultyServer[Any], session: Session) -> None:
        self.vendor = vendor
        self.server = server
        self._client = client
        self._session = session

    async def says(self, text: str, calls: int = 0) -> int:
        """The provider is asked, answers this with so many calls after some thoughts, and the tools run, each with
        another outcome; the seq of the reply is returned."""
        made = [("read", {"path": f"{n}.md"}) for n in range(calls)]
        self.server.now_says(self.vendor.says(text, *made, thoughts=f"{self.vendor.name} thinks of it."))
        reply = await self._client.ask(self._session.request(self.vendor.model))
        assert (reply.text, len(reply.calls)) == (text, calls)
        of = self._session.replied(reply)
        for index in range(calls):
            self._session.returned(of, index, OUTCOMES[index % 3])
        return of

    def sent_back(self) -> list[str]:
        """The reasoning in the last request."""
        return self.vendor.thoughts(self.server.requests[-1])


@asynccontextmanager
async def telling(first: Vendor, second: Vendor, session: Session) -> AsyncIterator[tuple[Teller, Teller]]:
    """Two vendors, or one in both parts."""
    async with AsyncExitStack() as stack:
        here = Teller(first, *await stack.enter_async_context(first.serving()), session)
        there = here if first is second else Teller(second, *await stack.enter_async_context(second.serving()), session)
        yield here, there


def secrets_of(session: Session, prefix: str) -> list[str]:
    """Return the signed data of all providers except the one whose opaque data begin with the prefix."""
    kept = [event.opaque for event, _ in session.events if isinstance(event, ModelReplied) and event.opaque]
    return [word for opaque in kept if not opaque.startswith(prefix) for word in re.findall(r"[\w+/= ]{12,}", opaque)]


PREFIX = {"openai": "openai.chat:", "responses": "openai.responses:"}

pairs = pytest.mark.parametrize(
    ("first", "second"),
    [pytest.param(one, two, id=f"{one.name}-{two.name}") for one in VENDORS for two in VENDORS],
)


@pairs
async def test_a_session_with_tools_continues_with_every_other_provider_and_back(first: Vendor, second: Vendor) -> None:
    session = Session()
    async with telling(first, second, session) as (here, there):
        session.hears("Go.")
        await here.says("I look.", calls=3)
        await here.says("It is done.")
        assert bool(here.sent_back()) == (first.name != "openai"), "reasoning is demanded back while the tools run"
        session.ends()
        session.hears("And now?", "Quick!")
        await there.says("I look too.", calls=2)
        await there.says("There.")
        session.ends()
        session.hears("Thanks.")
        await here.says("Welcome.")
    for teller in (here, there):
        told = str(teller.server.requests)
        strangers = secrets_of(session, PREFIX.get(teller.vendor.name, f"{teller.vendor.name}:"))
        assert [word for word in strangers if word in told] == []
        assert "No result of this call was recorded" not in told


@pairs
async def test_a_turn_continues_with_another_provider_between_its_tools(first: Vendor, second: Vendor) -> None:
    session = Session()
    async with telling(first, second, session) as (here, there):
        session.hears("Go.")
        await here.says("", calls=2)
        await there.says("Let me.", calls=3)
        await here.says("", calls=1)
        thought = here.sent_back()
        await there.says("It is done.")
    assert bool(thought) == (first.name != "openai")
    assert len({id(request) for t in (here, there) for request in t.server.requests}) == 4, "nothing was asked twice"


# --- any conversation -------------------------------------------------------------------------------------------------

_TEXTS = st.sampled_from(["", " \n", "text", "two words", "\N{CRAB} 你好"])
_CALLS = st.builds(
    RequestedCall,
    id=st.sampled_from(["", "toolu_1", "same"]),
    tool=st.sampled_from(["read", "an invented tool!", "9", "", "x" * 200, "工具"]),
    arguments=st.sampled_from(["", "{}", '{"path": "a"}', "[1]", '{"a": ', '{"a": NaN}', '"\\ud800"', "[" * 3_000]),
)
_STOPS = st.sampled_from(get_args(StopReason))
_OPAQUES = st.sampled_from(
    [
        None,
        "somebody:else",
        "anthropic:[",
        'anthropic:[7,"call","call","call","call"]',
        'gemini:[{"size":-1}]',
        'gemini:[{"size":4},{"id":"v"}]',
        "ollama:I had better look.",
        'openai.responses:["gpt-test",[{"size":4},{}]]',
    ]
)


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    """Any conversation that a journal can hold: cancelled and refused answers, results of all outcomes, in another order
    than the calls, and at its end even missing, as a crash leaves it."""
    session = Session(tools=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        session.hears(*draw(st.lists(_TEXTS, min_size=1, max_size=2)), pictures=PICTURES[: draw(st.integers(0, 2))])
        for _ in range(draw(st.integers(0, 3))):
            calls = tuple(draw(st.lists(_CALLS, max_size=3)))
            stop = draw(_STOPS)
            of = session._add(
                ModelReplied(
                    reply=1, model="m", text=draw(_TEXTS), calls=calls, stop=stop, usage=None, opaque=draw(_OPAQUES)
                )
            )
            for index in draw(st.permutations(range(len(calls)))):
                session.returned(of, index, draw(st.sampled_from([*OUTCOMES, "refused"])), draw(_TEXTS))
        session.ends()
    session.hears(draw(_TEXTS))
    if draw(st.booleans()):
        left = draw(st.lists(_CALLS, min_size=1, max_size=3))
        of = session._add(ModelReplied(reply=1, model="m", text="", calls=tuple(left), stop="calls", usage=None))
        for index in draw(st.permutations(range(draw(st.integers(0, len(left)))))):
            session.returned(of, index, "returned", draw(_TEXTS))
    return session


@pytest.mark.parametrize("vendor", [pytest.param(vendor, id=vendor.name) for vendor in VENDORS])
@given(session=sessions())
def test_any_journal_becomes_a_valid_request(vendor: Vendor, session: Session) -> None:
    assert vendor.refuses(session.request(vendor.model)) is None


@given(session=sessions())
def test_any_journal_becomes_alternating_turns_for_the_local_model(session: Session) -> None:
    shown = chat_messages(session.request("any").context)
    roles = [message["role"] for message in shown]
    assert roles[0] == "system"
    assert all(before != after for before, after in pairwise(roles))
    assert "anthropic:" not in str(shown)

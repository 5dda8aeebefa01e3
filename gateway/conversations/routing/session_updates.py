"""Updates of a person's list of conversations: the durable events of all their open sessions that a list shows."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from gateway.conversations.routing.chat import Chat
from sessions.events.events import (
    ApprovalAsked,
    ApprovalGiven,
    CommandAnswered,
    MessageReceived,
    Recorded,
    SessionTitled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    kind_of,
)
from sessions.store.recorder import Recorder

SHOWN = (
    ApprovalAsked,
    ApprovalGiven,
    CommandAnswered,
    MessageReceived,
    SessionTitled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
"""The kinds of events that change a list of conversations."""


class ListedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event without its contents: its envelope, the outcome of a turn, and a new title."""

    seq: int
    at: str
    kind: str
    outcome: str = ""
    title: str = ""


class SessionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a session and the key of its conversation."""

    session: str
    session_id: str
    event: ListedEvent


UpdateWatcher: TypeAlias = Callable[[SessionUpdate], None]


class SessionUpdates:
    """Calls watchers with the updates of one person. Nothing is kept for people without a watcher."""

    def __init__(self) -> None:
        self._watchers: defaultdict[str, set[UpdateWatcher]] = defaultdict(set)
        self._gateways: defaultdict[str, set[UpdateWatcher]] = defaultdict(set)

    def watch(self, person: str, watcher: UpdateWatcher, *, relayed: bool = False) -> Callable[[], None]:
        """Call `watcher` with each update of a person's conversations; a `relayed` one is another gateway's, and is called
        with those of this gateway only. Returns a function that removes it."""
        watchers = self._gateways[person] if relayed else self._watchers[person]
        watchers.add(watcher)
        return lambda: watchers.discard(watcher)

    def tell(self, person: str, update: SessionUpdate) -> None:
        """Tell the clients of this gateway of an update that happened on another one."""
        for watcher in tuple(self._watchers[person]):
            watcher(update)

    def opened(self, chat: Chat, recorder: Recorder) -> None:
        """Follow an open session of a chat."""
        pending: deque[ListedEvent] = deque()

        def on_event(recorded: Recorded) -> None:
            event = recorded.event
            if isinstance(event, SHOWN) and (self._watchers.get(chat.person) or self._gateways.get(chat.person)):
                outcome = event.outcome if isinstance(event, TurnEnded) else ""
                title = event.title if isinstance(event, SessionTitled) else ""
                kind = kind_of(type(event))
                pending.append(ListedEvent(seq=recorded.seq, at=recorded.at, kind=kind, outcome=outcome, title=title))

        def on_durable() -> None:
            while pending and pending[0].seq <= recorder.durable:
                update = SessionUpdate(session=chat.key, session_id=recorder.transcript.session, event=pending.popleft())
                self.tell(chat.person, update)
                for watcher in tuple(self._gateways.get(chat.person, ())):
                    watcher(update)

        recorder.on_event(on_event)
        recorder.on_durable(on_durable)

"""What plugins are told of a turn."""

from __future__ import annotations

import msgspec

from sessions.events import TurnOutcome


class EndedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is over: whose and which session's, its number there, how it ended, after how long, and why it failed, as
    the code and the sentence of its `turn_ended` ("" where it did not)."""

    session: str
    person: str
    key: str
    turn: int
    outcome: TurnOutcome
    millis: int
    code: str = ""
    sentence: str = ""

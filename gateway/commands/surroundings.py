"""What all commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo

import msgspec

from gateway.conversations.remembering import Remembering
from gateway.fact_finding import FactFinding
from gateway.models.choosing import Models
from gateway.models.listings import Listings
from plugins.command_contract import Command
from plugins.contracts import Clock
from plugins.facts.facts import Facts
from plugins.memory.memory import Memory
from sessions.messages import Usage


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What all commands share: `began` is when the gateway started, on the monotonic clock, `zone` the time zone of the
    people, None for the system's."""

    models: Models
    listings: Listings
    commands: Mapping[str, Command]
    clock: Clock
    began: float
    version: str
    zone: Callable[[], tzinfo | None]
    queue_limit: Callable[[], int]
    refused: Callable[[], Sequence[str]]
    notes: Callable[[], Sequence[str]]
    troubles: Callable[[], Sequence[str]]
    memory: Memory
    remembering: Remembering
    facts: Facts
    finding: FactFinding
    plugins_spent: Callable[[], Mapping[str, Mapping[str, Usage]]] = dict

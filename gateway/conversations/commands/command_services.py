"""The services that all commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo

import msgspec

from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.notes.memory_writer import MemoryWriter
from gateway.models.listings import Listings
from gateway.models.registry import ModelRegistry
from plugins.api.command import Command
from plugins.api.context import Clock
from plugins.facts.facts import Facts
from plugins.memory.memory import Memory
from sessions.events.messages import Usage


class CommandServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services that all commands share.

    `began` is the gateway's start on the monotonic clock, `zone` the configured time zone, None for the system's.
    """

    models: ModelRegistry
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
    memory_writer: MemoryWriter
    facts: Facts
    fact_extraction: FactExtraction
    plugins_spent: Callable[[], Mapping[str, Mapping[str, Usage]]] = dict

"""The memory of a home's workspace, opened by the gateway or by the command line, and what triggers its indexing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path

from gateway.config.keys import Config
from gateway.config.settings import Settings, agent_settings
from gateway.models.providers import OpenProviders
from gateway.support.home import Home
from gateway.support.storage import session_logs
from plugins.api.context import Clock
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.memory.source import Source
from plugins.api.plugin_services import Purpose
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import ExtraNotes, Notes
from plugins.memory.sources.transcripts import IDLE_SECONDS, Transcripts
from sessions.events.codec import InvalidLine
from sessions.events.errors import SessionsError, UnknownSession
from sessions.events.events import MAIN_AGENT, ContextCompacted, Recorded, SessionClosed, TurnEnded
from sessions.store.header import read_agent
from sessions.store.protocols import Lines, LogReader, Stamp

SOON = 1.0
"""Seconds after which the event that triggers the indexing is surely durable."""


@contextlib.asynccontextmanager
async def open_memory(
    home: Home,
    settings: Settings,
    embeddings: OpenProviders[EmbeddingProvider],
    backends: Callable[[], Mapping[str, type[MemoryBackend]]],
    clock: Clock,
    *,
    agent: str = MAIN_AGENT,
    counted: Callable[[Purpose, EmbeddingProvider, int], None] = lambda *_: None,
) -> AsyncIterator[Memory]:
    """Open the memory of an agent's workspace; it follows changes of the agent's settings.

    `embeddings` are the open providers for its vectors. `counted` is called with the purpose, the provider and the estimated
    tokens of embedded texts.
    """

    def today() -> date:
        return clock.now().astimezone(settings.zone).date()

    async with Memory(
        home.of_agent(agent).memory,
        sources(home, settings, agent),
        keys=lambda: settings.current.memory,
        providers=embeddings,
        in_use=embeddings.in_use,
        backends=backends,
        today=today,
        counted=counted,
    ) as memory:
        yield memory


def sources(home: Home, settings: Settings, agent: str = MAIN_AGENT) -> list[Source]:
    """Return all sources that an agent can search; of two documents with the same path, the first counts."""
    workspace = home.workspace(settings.current.agent.workspace)
    return [
        Notes(workspace),
        ExtraNotes(workspace, lambda: settings.current.memory.extra_paths),
        Transcripts(AgentLogs(session_logs(home), agent, home.agents), lambda: settings.zone),
    ]


def chosen_sources(home: Home, config: Config, agent: str = MAIN_AGENT) -> list[Source]:
    """Return the sources that a configuration selects for an agent."""
    found = sources(home, agent_settings(Settings(config), agent), agent)
    return [source for source in found if source.name in config.memory.enabled_sources()]


class AgentLogs:
    """The logs of the sessions of one agent, as a `LogReader`: those of others do not exist in it.

    Args:
        logs: The logs of all sessions.
        agent: The agent.
        folder: The folder of the agents besides `main`. Without it all sessions are those of `main`, and none is examined.
    """

    def __init__(self, logs: LogReader, agent: str, folder: Path) -> None:
        self._logs = logs
        self._agent = agent
        self._folder = folder
        self._agents: dict[str, str] = {}
        """The agent of each session that was examined; it never changes."""

    def read(self, session: str) -> AbstractContextManager[Lines]:
        """Open a log of the agent; see `LogReader.read`."""
        if not self._is_own(session):
            raise UnknownSession(f"There is no session {session}.")
        return self._logs.read(session)

    def stamp(self, session: str) -> Stamp | None:
        """Return the stamp of a log of the agent; see `LogReader.stamp`."""
        return self._logs.stamp(session) if self._is_own(session) else None

    def listed(self) -> Iterator[tuple[str, Stamp]]:
        """Yield the logs of the agent; see `LogReader.listed`."""
        return ((session, stamp) for session, stamp in self._logs.listed() if self._is_own(session))

    def location(self, session: str) -> str:
        """Return where a person finds a log; see `LogReader.location`."""
        return self._logs.location(session)

    def _is_own(self, session: str) -> bool:
        if self._agent == MAIN_AGENT and not self._folder.exists():
            return True
        if session not in self._agents:
            try:
                with self._logs.read(session) as lines:
                    self._agents[session] = read_agent(lines)
            except (SessionsError, InvalidLine):
                return False  # it may be another agent's
        return self._agents[session] == self._agent


class IndexTrigger:
    """Calls `wake` to index journals: soon after messages left a view, and after a while without new ones."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._rested = 0.0
        """The time at which sessions count as idle, on the event loop's clock."""

    def on_event(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, TurnEnded):
            self._rested = asyncio.get_running_loop().time() + IDLE_SECONDS + SOON
            self._wake_at(self._rested)
        elif isinstance(recorded.event, ContextCompacted | SessionClosed):
            self._wake_at(asyncio.get_running_loop().time() + SOON)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None and self._timer.when() <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._wake()
        if self._rested > asyncio.get_running_loop().time():
            self._wake_at(self._rested)

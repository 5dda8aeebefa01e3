"""`[[routes]]`: which agent answers in a new session. The most specific route wins: a chat counts before a sender, a sender
before a person, and a person before a channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Protocol

import msgspec

from sessions.events.events import MAIN_AGENT

ANY_CHANNEL = "*"
"""The channel of a route that holds for all channels."""

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class RouteKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[[routes]]`: the agent of new sessions with messages from there. An empty field matches everything."""

    channel: _Text
    agent: _Text
    chat: str = ""
    sender: str = ""
    person: str = ""

    @property
    def rank(self) -> tuple[bool, bool, bool, bool]:
        """How specific the route is; of two ranks the greater one wins."""
        return bool(self.chat), bool(self.sender), bool(self.person), self.channel != ANY_CHANNEL

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Where it holds, without the agent."""
        return self.channel, self.chat, self.sender, self.person

    def matches(self, address: RouteAddress) -> bool:
        """Return True if the route holds for messages from an address."""
        pairs = (
            (self.channel if self.channel != ANY_CHANNEL else "", address.channel),
            (self.chat, address.chat),
            (self.sender, address.sender),
            (self.person, address.person),
        )
        return all(not wanted or wanted == given for wanted, given in pairs)

    def __str__(self) -> str:
        parts = ("channel", "chat", "sender", "person")
        return ", ".join(f"{name} {value}" for name in parts if (value := getattr(self, name)))


class RouteAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message came from: the channel, its own names of the chat and the sender, and the person."""

    channel: str
    person: str
    chat: str = ""
    sender: str = ""


class RouteDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a new session, and a sentence that says why. `considered` are sentences about the other routes that
    match."""

    agent: str
    because: str
    considered: tuple[str, ...] = ()


class _HasAgent(Protocol):
    @property
    def agent(self) -> str | None: ...


class Routing(Protocol):
    """The part of a configuration that decides about agents."""

    @property
    def routes(self) -> Sequence[RouteKeys]: ...

    @property
    def channels(self) -> Mapping[str, _HasAgent]: ...


def agent_of(routing: Routing, address: RouteAddress) -> str:
    """Return the agent of a new session with messages from an address."""
    return explain_route(routing, address).agent if routing.routes or routing.channels else MAIN_AGENT


def explain_route(routing: Routing, address: RouteAddress) -> RouteDecision:
    """Return the agent of a new session, and why it is that one."""
    matching = [(number, route) for number, route in enumerate(routing.routes) if route.matches(address)]
    matching.sort(key=lambda found: found[1].rank, reverse=True)
    keys = routing.channels.get(address.channel)
    by_channel = keys.agent if keys is not None else None
    if matching:
        number, best = matching[0]
        others = [f"routes[{at}] ({route}) is less specific; it names {route.agent}." for at, route in matching[1:]]
        others += [f"channels.{address.channel}.agent counts after routes; it names {by_channel}."] if by_channel else []
        because = f"routes[{number}] ({best}) is the most specific that matches."
        return RouteDecision(agent=best.agent, because=because, considered=tuple(others))
    if by_channel:
        return RouteDecision(agent=by_channel, because=f"No route matches, and channels.{address.channel}.agent names it.")
    return RouteDecision(agent=MAIN_AGENT, because="No route matches, so the default agent answers.")


def faults_of_routes(routing: Routing, agents: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the key of each route to an unknown agent, or that repeats another one, and the reason as part of a sentence."""
    known = ", ".join((MAIN_AGENT, *agents))
    named = [(f"routes[{number}].agent", route.agent) for number, route in enumerate(routing.routes)]
    named += [(f"channels.{name}.agent", keys.agent) for name, keys in routing.channels.items() if keys.agent]
    for key, agent in named:
        if agent != MAIN_AGENT and agent not in agents:
            yield key, f"is {agent[:64]!r}, which does not exist; the agents are {known}"
    places = dict[tuple[str, str, str, str], int]()
    for number, route in enumerate(routing.routes):
        first = places.setdefault(route.place, number)
        if first != number:
            yield f"routes[{number}]", f"is about the same messages as routes[{first}]; remove one of them"

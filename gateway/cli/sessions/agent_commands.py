"""`exuvia agents list` and `exuvia route explain`, which read the configuration. No gateway needs to run."""

from __future__ import annotations

import msgspec

from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.config.keys import Config, check_workspaces
from gateway.config.routes import RouteAddress, RouteDecision, explain_route
from gateway.config.settings import Settings, agent_settings
from gateway.support.printable import one_line
from plugins.support.workspace import OWNER
from sessions.events.events import MAIN_AGENT

SHOWN = 200
"""Maximum characters of a value in a line."""


class ListedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of the configuration."""

    name: str
    model: str
    workspace: str
    access: str
    tools: tuple[str, ...] = ("*",)
    denied_tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()


class ExplainedRoute(msgspec.Struct, frozen=True, kw_only=True):
    """Which agent answers, and why."""

    address: RouteAddress
    decision: RouteDecision


def list_agents(call: Invocation) -> int:
    """Print the agents, `main` first. Raises ConfigRefused."""
    config = call.config()
    check_workspaces(config, call.home.root)
    found = [_listed(call, config, name) for name in (MAIN_AGENT, *config.agents)]
    if call.as_json:
        print_json(found, call.out)
        return SUCCESS
    for each in found:
        denied = f" but {', '.join(each.denied_tools)}" if each.denied_tools else ""
        tools = "all tools" if each.tools == ("*",) else f"tools {', '.join(each.tools)}"
        line = f"{each.name}: {each.model}, {tools}{denied}, workspace {each.workspace} ({each.access})"
        call.out.write(one_line(line, 5 * SHOWN) + "\n")
    return SUCCESS


def _listed(call: Invocation, config: Config, name: str) -> ListedAgent:
    keys = agent_settings(Settings(config), name).current.agent
    own = config.agents.get(name)
    listed = ListedAgent(
        name=name, model=keys.model, workspace=str(call.home.workspace(keys.workspace)), access=keys.workspace_access
    )
    if own is None:
        return listed
    return msgspec.structs.replace(listed, tools=own.tools.allow, denied_tools=own.tools.deny, mcp=own.mcp)


def explain(call: Invocation, address: str, *, sender: str, person: str) -> int:
    """Print which agent answers in a new conversation with messages from an address, and why.

    Args:
        call: The invocation.
        address: A channel, or `CHANNEL:CHAT`.
        sender: The channel's own name of the sender; empty if it does not matter.
        person: The person; empty for the one that the configuration names for the sender, or else the owner.
    """
    config = call.config()
    channel, _, chat = address.partition(":")
    keys = config.channels.get(channel)
    known = keys.people.get(sender) or keys.people.get("*") if keys is not None else None
    place = RouteAddress(channel=channel, person=person or known or OWNER, chat=chat, sender=sender)
    decision = explain_route(config, place)
    if call.as_json:
        print_json(ExplainedRoute(address=place, decision=decision), call.out)
        return SUCCESS
    call.out.write(one_line(f"{decision.agent}: {decision.because}", SHOWN) + "\n")
    for sentence in decision.considered:
        call.out.write(one_line(f"- {sentence}", SHOWN) + "\n")
    return SUCCESS

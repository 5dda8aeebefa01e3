"""Messages that no person has sent, which their `client` tells: between a conversation and its subagents, and of the
heartbeat."""

from __future__ import annotations

import re

from sessions.events.events import MessageReceived

RESULT = "child:"
"""The beginning of the `client` of a message with the result of a subagent; the key of its conversation follows."""

TASK = "parent:"
"""The same of a message with the task; the key of the conversation that gives it follows."""

HEARTBEAT = "heartbeat"
"""The `client` of the messages of the heartbeat, and the purpose that their answers are charged as."""

_QUOTED = re.compile(r"^\[([0-9a-f]+)\] [^\n]*\n", re.M)


CLIENT_CHARACTERS = 128
"""Maximum characters of a `client`."""


def client_name(given: str) -> str:
    """Return the `client` of messages from a program or sender that calls itself so. What only the gateway calls itself gets
    another name: else somebody could pass their messages off as the heartbeat's, which no rate limits."""
    taken = given == HEARTBEAT or given.startswith((RESULT, TASK))
    return (f"client {given}" if taken else given)[:CLIENT_CHARACTERS]


def child_of(message: MessageReceived) -> str:
    """Return the key of the subagent whose result a message is; "" if it is none."""
    return message.client.removeprefix(RESULT) if message.client.startswith(RESULT) else ""


def parent_of(message: MessageReceived) -> str:
    """Return the key of the conversation whose task for a subagent a message is; "" if it is none."""
    return message.client.removeprefix(TASK) if message.client.startswith(TASK) else ""


def is_handed(message: MessageReceived) -> bool:
    """Return True if a message was sent by a conversation and not by a person."""
    return message.client.startswith((RESULT, TASK))


def result_in(text: str) -> str:
    """Return what stands between the marks of a message with a result; all of it if there are none."""
    if (begin := _QUOTED.search(text)) is None:
        return text
    return text[begin.end() :].removesuffix(f"\n[{begin[1]}] end")

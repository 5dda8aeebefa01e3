"""The gateway's exceptions.

GatewayError
├── ConfigRefused    the configuration is invalid; the message names the key
├── StartRefused     the gateway cannot start; exit code 2
├── ModelUnknown     the model does not exist, or none is configured; the message says how to get one
├── SettingRefused   a session cannot have this value of a setting; the message says which ones
├── Conflict         a message id was reused, or a newer session exists
├── Busy             the request cannot be accepted at the moment; try again shortly
│   ├── QueueFull        too many messages or commands wait in the conversation
│   └── OwnedElsewhere   another gateway has the conversation; whoever can, relays to it
└── DamagedSession   the session's journal failed verification; `/new` starts another session
"""

from __future__ import annotations

from traceback import StackSummary, walk_tb

from plugins.support.secrets import scrubbed

SENTENCE_LIMIT = 500
"""Characters of the longest error message that is shown to a person."""


class GatewayError(Exception):
    """The base class of the gateway's exceptions; `str(error)` is one sentence that says what to do."""


class ConfigRefused(GatewayError):
    """An invalid configuration; `key` is the dotted path of the invalid key, empty if there is none."""

    def __init__(self, sentence: str, *, key: str = "") -> None:
        super().__init__(sentence)
        self.key = key


class StartRefused(GatewayError):
    """A condition under which the gateway does not start."""


class ModelUnknown(GatewayError):
    """A model that no provider has, or no usable model at all."""


class SettingRefused(GatewayError):
    """A value of a session's setting that it, or its model, does not have."""


class Conflict(GatewayError):
    """A request that contradicts the current state."""


class Busy(GatewayError):
    """A request that cannot be accepted at the moment."""


class QueueFull(Busy):
    """A conversation in which too many messages, or commands, wait for their turn. This may last as long as the turn."""


class OwnedElsewhere(Busy):
    """A conversation that another gateway of the same database has: `gateway` is its id and `url` its address, both empty if
    they are not known yet. `lost` tells that this gateway had it until now."""

    def __init__(self, gateway: str, url: str, *, lost: bool = False) -> None:
        super().__init__("Another gateway has this conversation at the moment; try again shortly.")
        self.gateway = gateway
        self.url = url
        self.lost = lost


class DamagedSession(GatewayError):
    """A session with a damaged journal, to which nothing is written."""


def sentence_of(error: BaseException) -> str:
    """Return an error as one line without secrets and control characters; the name of its type if it has no text."""
    try:
        told = scrubbed(str(error))[: 100 * SENTENCE_LIMIT]  # a megabyte would take 90 ms below
    except BaseException:  # an error of a plugin that cannot even be shown
        told = ""
    text = " ".join("".join(c if c.isprintable() else " " for c in told).split())
    return text[:SENTENCE_LIMIT] or type(error).__name__


def error_fields(error: BaseException) -> dict[str, str]:
    """Return the fields of a log line about an unexpected error, each of bounded length: its type, its message, and where
    it was raised.

    A traceback would repeat the messages of all errors that led to it, and a message of a megabyte blocks the event loop.
    """
    frames = StackSummary.extract(walk_tb(error.__traceback__), limit=-3, lookup_lines=False)
    where = " < ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    return {"kind": type(error).__name__[:100], "reason": sentence_of(error), "where": where[:SENTENCE_LIMIT]}

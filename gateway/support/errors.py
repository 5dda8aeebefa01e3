"""What can go wrong on this floor, as one small tree.

GatewayError
├── ConfigRefused    the configuration is wrong; the sentence names the key
├── StartRefused     the gateway does not start like this; exit code 2
├── ModelUnknown     no such model, or none at all; the sentence says how to get one
├── Conflict         an id was used for another message, or a newer session has begun
├── Busy             too much waits already; try again shortly
└── DamagedSession   the session's journal does not verify; `/new` goes on
"""

from __future__ import annotations

from plugins.support.secrets import scrubbed

SENTENCE_LIMIT = 500
"""Characters of the longest sentence that is shown to a person."""


class GatewayError(Exception):
    """The root of this floor's errors; `str(error)` is one sentence that a person can act on."""


class ConfigRefused(GatewayError):
    """The configuration cannot be used as it is; `key` is the path of the key that is wrong, where it is one."""

    def __init__(self, sentence: str, *, key: str = "") -> None:
        super().__init__(sentence)
        self.key = key


class StartRefused(GatewayError):
    """The gateway will not start under these circumstances."""


class ModelUnknown(GatewayError):
    """A model was named that no provider has, or none can answer."""


class Conflict(GatewayError):
    """Something else already stands where this wants to be."""


class Busy(GatewayError):
    """A bound is reached; what was asked was not taken."""


class DamagedSession(GatewayError):
    """Nothing is written to a damaged journal."""


def sentence_of(error: BaseException) -> str:
    """An error as one line for a person: its text without secrets and control characters, or its type's name."""
    try:
        told = scrubbed(str(error))
    except Exception:  # an error of a plugin that cannot even be shown
        told = ""
    text = " ".join("".join(c if c.isprintable() else " " for c in told).split())
    return text[:SENTENCE_LIMIT] or type(error).__name__

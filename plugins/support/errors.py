"""The exceptions that a plugin may raise, and what the gateway does about them.

PluginError
├── SettingsRefused        the plugin's settings are invalid; the message names the key
├── ToolFailed             a tool call failed; the model sees the message
└── ProviderError          a model could not reply
    ├── ContextOverflow    the request was too long for the model
    ├── RateLimited        too many requests, or no credit; `retry_after` in seconds if the provider reports it
    ├── CredentialsRefused the API key is missing, invalid or lacks a permission
    ├── Unreachable        no connection, a timeout, or a server error
    ├── StreamCut          the reply broke off
    ├── NoSuchModel        the provider does not have the model, or not for this key
    ├── BadRequest         the provider rejected the request; it would be rejected again
    └── BadAnswer          the provider's response violates its own API
"""

from __future__ import annotations


class PluginError(Exception):
    """The base class. `str(error)` is a one-sentence message for people, without secrets."""


class SettingsRefused(PluginError):
    """The settings of a plugin are invalid."""


class ToolFailed(PluginError):
    """A tool call failed."""


class ProviderError(PluginError):
    """A model could not reply.

    Attributes:
        code: A stable code for logs and clients.
        retryable: The same request may succeed when it is sent again.
        retry_after: The delay that the provider asked for, in seconds.
    """

    code = "provider_failed"
    retryable = False
    """True if the same request may succeed when it is sent again."""

    def __init__(self, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class ContextOverflow(ProviderError):
    """The request was too long for the model."""

    code = "context_overflow"


class RateLimited(ProviderError):
    """The provider asks for fewer requests."""

    code = "rate_limited"
    retryable = True


class CredentialsRefused(ProviderError):
    """The provider rejected the API key."""

    code = "credentials_refused"


class Unreachable(ProviderError):
    """The provider could not be reached, timed out or failed.

    Attributes:
        unanswered: The whole request was sent, but no response came in time: what the provider did is unknown.
    """

    code = "unreachable"
    retryable = True
    unanswered = False


class StreamCut(ProviderError):
    """The reply broke off. Not `retryable` after a timeout that another attempt would also exceed."""

    code = "stream_cut"
    retryable = True


class NoSuchModel(ProviderError):
    """The provider does not have the requested model."""

    code = "no_such_model"


class BadRequest(ProviderError):
    """The provider rejected the request."""

    code = "bad_request"


class BadAnswer(ProviderError):
    """The provider's response is invalid."""

    code = "bad_answer"
    retryable = True

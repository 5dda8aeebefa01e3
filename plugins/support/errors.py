"""What a plugin may raise, as one small tree. Each class says what the gateway does about it.

PluginError
├── SettingsRefused        the plugin's settings are wrong; the sentence names the key
├── ToolFailed             a tool could not do it; its sentence is shown to the model
└── ProviderError          a model could not answer
    ├── ContextOverflow    the request was too long for the model
    ├── RateLimited        too many requests, or no credit; `retry_after` seconds where the provider said so
    ├── CredentialsRefused the key is missing, wrong or lacks a right
    ├── Unreachable        no connection, no answer in time, or a server error
    ├── StreamCut          the answer began and broke off
    ├── NoSuchModel        the provider does not have the model, or not for this key
    ├── BadRequest         the provider refused this request; the same one will be refused again
    └── BadAnswer          the provider answered what its own documentation does not allow
"""

from __future__ import annotations


class PluginError(Exception):
    """The root of this floor's errors; `str(error)` is one sentence for a person, without secrets."""


class SettingsRefused(PluginError):
    """A plugin was given settings that it cannot use."""


class ToolFailed(PluginError):
    """A tool could not do what was asked."""


class ProviderError(PluginError):
    """A provider could not answer. `code` is stable, for logs and clients; `retry_after` is in seconds."""

    code = "provider_failed"
    retryable = False
    """Whether the same request may succeed when it is sent again."""

    def __init__(self, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class ContextOverflow(ProviderError):
    """The request was too long."""

    code = "context_overflow"


class RateLimited(ProviderError):
    """The provider wants fewer requests."""

    code = "rate_limited"
    retryable = True


class CredentialsRefused(ProviderError):
    """The provider does not accept the key."""

    code = "credentials_refused"


class Unreachable(ProviderError):
    """The provider did not answer in time, could not be connected, or failed by itself."""

    code = "unreachable"
    retryable = True


class StreamCut(ProviderError):
    """The answer's stream ended before its end. It is not `retryable` where it missed a deadline that another attempt would
    take as long to miss."""

    code = "stream_cut"
    retryable = True


class NoSuchModel(ProviderError):
    """The provider does not have the model that was asked for."""

    code = "no_such_model"


class BadRequest(ProviderError):
    """The provider refused the request as such."""

    code = "bad_request"


class BadAnswer(ProviderError):
    """The provider's answer could not be understood."""

    code = "bad_answer"
    retryable = True

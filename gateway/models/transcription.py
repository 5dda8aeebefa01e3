"""Transcribing recordings with the model of `[transcription]`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing
from typing import Any

import msgspec
import structlog

from gateway.metrics.counters import Counters
from gateway.models.call import may_cost
from gateway.models.spending.spending import Charge, ModelRequest, Spending
from gateway.models.spending.spending_log import Payer
from gateway.support.errors import ModelUnknown, error_fields, sentence_of
from plugins.api.chat import ChatProvider, Delta
from plugins.api.transcription import TranscribesAudio, Transcript, TranscriptionRequest
from plugins.support.errors import BadAnswer, ProviderError, StreamCut
from plugins.support.untrusted import is_own_object, reraise_cancellation
from sessions.events.codec import replace_surrogates
from sessions.events.messages import Usage
from sessions.events.tokens import estimate

PURPOSE = "transcription"
"""The purpose under which tokens are counted."""

BYTES_PER_TOKEN = 300
"""Bytes of a recording for which a token is estimated: speech at 24 kbit/s has ten tokens a second."""

log = structlog.get_logger("exuvia.models")


class Transcriber:
    """Transcribes recordings.

    Args:
        providers: The open chat providers, by name.
        hold: Keeps the open providers open while its block runs.
        configured: Returns the configured `provider:model`; None if transcription is not configured.
        counters: The gateway's counters.
        spending: Charges the requests.
    """

    def __init__(
        self,
        providers: Mapping[str, ChatProvider],
        *,
        hold: Callable[[], AbstractContextManager[None]],
        configured: Callable[[], str | None],
        counters: Counters,
        spending: Spending | None = None,
    ) -> None:
        self._providers = providers
        self._hold = hold
        self._configured = configured
        self._counters = counters
        self._spending = spending

    def model(self) -> str | None:
        """Return the `provider:model` that transcribes; None if there is none."""
        try:
            self._chosen()
        except ModelUnknown:
            return None
        return self._configured()

    def address(self) -> str | None:
        """Return the address that recordings are sent to, "" if they stay on this machine; None if the provider does not
        say.

        Raises:
            ModelUnknown: No model transcribes.
        """
        name, model = self._chosen()
        provider: Any = self._providers[name]
        try:
            return msgspec.convert(provider.transcription_address(model), str)
        except Exception as error:
            log.error("provider_failed", provider=name, **error_fields(error))
            return None

    def check(self) -> str:
        """Return the `provider:model` that transcribes.

        Raises:
            ModelUnknown: There is none; the sentence says how to configure one.
        """
        provider, model = self._chosen()
        return f"{provider}:{model}"

    async def transcribe(
        self, request: TranscriptionRequest, show: Callable[[str], Awaitable[None]], person: str
    ) -> Transcript:
        """Return the transcript of a person's recording; `show` is called with each new piece of its text if
        `request.stream` is set.

        `request.model` is replaced by the configured model.

        Raises:
            ModelUnknown: No model transcribes.
            ProviderError: The provider failed, or the request was not admitted (RequestRefused). Nothing else is raised,
                whatever the provider does, except by `show`.
        """
        name, model = self._chosen()
        provider: Any = self._providers[name]
        request = msgspec.structs.replace(request, model=model)
        tokens = await asyncio.to_thread(_input_tokens, request)
        charge = await self._charge(provider, model, person, tokens)
        text, failure = "", None

        def estimated() -> Usage:
            return Usage(input=tokens, output=estimate(text) if text else 0)

        try:
            with self._hold():
                async with aclosing(_checked(provider, request, own=is_own_object(provider))) as parts:
                    async for part in parts:
                        if isinstance(part, Delta):
                            text += part.text
                            if request.stream:
                                await show(part.text)
                            continue
                        shown, text = text, part.text
                        if part.usage is not None:
                            self._counters.count_spent(PURPOSE, f"{name}:{model}", part.usage)
                        if charge is not None:
                            charge.settle(part.usage, estimated)
                        if request.stream and text.startswith(shown) and len(text) > len(shown):
                            await show(text[len(shown) :])
                        return part
            raise StreamCut("The transcript was interrupted before its end.")
        except ProviderError as error:
            failure = error
            self._counters.provider_errors.add(name, error.code)
            raise
        finally:
            if charge is not None:
                charge.end(estimated if may_cost(failure, begun=bool(text)) else None)

    async def _charge(self, provider: ChatProvider, model: str, person: str, tokens: int) -> Charge | None:
        if self._spending is None:
            return None
        session = f"{PURPOSE}-{person}"
        self._spending.know(session, Payer(person))
        usual = self._spending.reserved_output
        request = ModelRequest(
            session=session,
            purpose=PURPOSE,
            model=f"{provider.name}:{model}",
            price=self._spending.price(provider, model),
            tokens=lambda: tokens,
            output=min(usual, provider.limits(model).output or usual),
        )
        return await self._spending.begin(request)

    def _chosen(self) -> tuple[str, str]:
        configured = self._configured()
        if configured is None:
            raise ModelUnknown(
                "Transcription is not configured: set transcription.model, for example to `openai:gpt-4o-mini-transcribe`."
            )
        name, _, model = configured.partition(":")
        provider = self._providers.get(name)
        if provider is None or not model:
            raise ModelUnknown(f"transcription.model is {configured!r}, which is not `provider:model` of a known provider.")
        if not isinstance(provider, TranscribesAudio):
            able = ", ".join(each for each, known in self._providers.items() if isinstance(known, TranscribesAudio))
            raise ModelUnknown(f"transcription.model is {configured!r}, but {name} cannot transcribe; {able} can.")
        return name, model


def _input_tokens(request: TranscriptionRequest) -> int:
    """Return an estimate of the tokens of a recording and its prompt. Blocks."""
    try:
        size = request.path.stat().st_size
    except OSError:  # the provider reports it
        size = 0
    return size // BYTES_PER_TOKEN + 1 + estimate(str(request.parameters.get("prompt", "")))


async def _checked(provider: Any, request: TranscriptionRequest, own: bool) -> AsyncGenerator[Delta | Transcript, None]:
    """Yield the parts of a provider's stream, with the declared types. Raises only ProviderError."""
    try:
        async with aclosing(provider.transcribe(request)) as stream:
            async for part in stream:
                if isinstance(part, Transcript):
                    yield part if own else await asyncio.to_thread(_copied, part)
                    return
                if text := replace_surrogates(msgspec.convert(part.text, str)):
                    yield Delta(text)
    except (ProviderError, GeneratorExit):
        raise
    except BaseException as error:
        reraise_cancellation(error)
        log.error("provider_failed", provider=provider.name, **error_fields(error))
        raise BadAnswer(f"The provider {provider.name} failed: {sentence_of(error)}") from error


def _copied(transcript: Transcript) -> Transcript:
    """Return an equal transcript, of which nothing is a third party's object. Raises what a field that is not JSON does."""
    return msgspec.json.decode(msgspec.json.encode(transcript), type=Transcript)

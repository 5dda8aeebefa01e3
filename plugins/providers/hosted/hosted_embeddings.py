"""An embedding model that a server runs: all but its words on the wire, which each vendor has its own of.

A request holds no more than the server is known to take, and nothing is cut off (`portions`). An answer counts as a whole or
not at all.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.memory_settings import EmbeddingKeys
from plugins.api.services import Purpose
from plugins.http.client import Timeouts
from plugins.providers.hosted import embedding_errors
from plugins.providers.hosted.accounts import ADDRESS, Account, bearer
from plugins.providers.hosted.batch_limits import BatchLimits
from plugins.providers.hosted.known_models import known_model
from plugins.providers.hosted.model_limits import bare_address
from plugins.support.embedding.vector_checks import Vector, checked, same_length
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    CredentialsRefused,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.http_errors import StatusRefused, error_message, error_object

AT_ONCE = 64
"""Texts of a request at most, whatever a vendor takes: its answer is read in one go, and one of 64 vectors takes 20 ms."""

_NO_NUMBER = re.compile(rb"\b(NaN|Infinity)\b")
"""What JSON has no word for, and some servers write all the same."""

SECONDS = 30.0
"""How long, where the server does not say it."""

LONGEST = 3600.0
"""Whoever mends something at the vendor need not restart the gateway."""


class Cooldown:
    """`now` is a clock in seconds that never goes back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until = 0.0
        self._error: ProviderError | None = None

    def note(self, error: ProviderError) -> None:
        """Let the server be after this, if it is one that will be the same in a moment."""
        if isinstance(error, RateLimited | Unreachable):
            self._error = error
            self._until = self._now() + min(error.retry_after or SECONDS, LONGEST)

    def check(self) -> None:
        """Raise the last error anew while the server is let be."""
        wait = self._until - self._now()
        if self._error is not None and wait > 0:
            raise type(self._error)(str(self._error), retry_after=wait)


class HostedEmbeddings(ABC):
    """An `EmbeddingProvider`. What is asked, and how an answer is read, its subclasses say."""

    name: ClassVar[str]
    USUAL: ClassVar[str]
    """The model without a setting."""
    MOST: ClassVar[int]
    """Texts that the vendor takes in one request."""
    PATIENT: ClassVar[float] = 8.0
    """Seconds that a question waits for its vector at most: words answer it, too."""
    Answer: ClassVar[type[msgspec.Struct]]

    def __init__(self, context: ProviderContext) -> None:
        settings: EmbeddingKeys = context.settings
        self._settings = settings
        self._transport = context.transport
        self._account = self.account(context)
        self.named = settings.provider == self.name
        """Whether the configuration names it."""
        self._model = (settings.model or self.USUAL).strip().removeprefix("models/")
        self._known = known_model(self.name, self._model)
        # A server of the same kind may give other lengths under the same name. To guess wrong is to embed all notes again.
        self._length = self.asked_dimensions() or (self._known.dimensions if self._account.asks_key else 0)
        self._measured = settings.dimensions is not None
        self._portions = BatchLimits(
            most=settings.batch_size or min(self.MOST, AT_ONCE),
            total=self._known.total,
            tokens=self.known_tokens(),
            characters=settings.max_input_length or 0,
        )
        self._resting = Cooldown(context.clock.monotonic)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    # --- what each vendor says ----------------------------------------------------------------------------------------

    @abstractmethod
    def account(self, context: ProviderContext) -> Account:
        """Where it asks, and with whose key."""

    @abstractmethod
    def url(self, base: str, model: str) -> str:
        """The address of a request."""

    @abstractmethod
    def body(self, model: str, texts: Sequence[str], purpose: Purpose, dimensions: int | None) -> dict[str, Any]:
        """A request's body; `dimensions` None is as many as the model makes."""

    @abstractmethod
    def vectors(self, answer: Any) -> list[Vector]:
        """The vectors in an `Answer`, in the order of the texts. Raises BadAnswer."""

    def header(self, key: str) -> dict[str, str]:
        """The header in which the key is shown."""
        return bearer(key)

    def meaning(self, refusal: StatusRefused) -> ProviderError:
        """What a refusal means; a request that holds too much is a ContextOverflow."""
        return embedding_errors.meaning(refusal, self._model)

    def worth_another_attempt(self, refusal: StatusRefused) -> bool:
        """Whether a refused request may succeed in a moment."""
        return embedding_errors.worth_another_attempt(refusal)

    def known_tokens(self) -> int:
        """How many tokens a text may have by our estimate; 0 is unknown."""
        return self._known.tokens

    def asked_dimensions(self) -> int | None:
        """How many dimensions are asked for."""
        return self._settings.dimensions

    # --- the provider -------------------------------------------------------------------------------------------------

    def model(self) -> str | None:
        """The model, once there is a key, or an address that asks for none."""
        return self._model if self.usable() else None

    def address(self, model: str) -> str:
        """Return where the server is."""
        return bare_address(self._account.base)

    def usable(self) -> bool:
        """Whether there is anybody to ask."""
        return bool(self._account.key or self._settings.base_url or (self.named and not self._account.asks_key))

    def explain_default(self) -> str:
        """Which of them is there, or is missing."""
        if self._account.key:
            return f"{self._account.source} is set"
        if self.usable():
            return f"{ADDRESS if self._settings.base_url else 'memory.embedding.provider'} is set"
        return self._account.missing()

    def dimensions(self) -> int:
        """How long its vectors are; 0 where only the server knows, which has not been asked yet."""
        return self._length

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """The vectors of the texts; see `EmbeddingProvider.embed`. After a failure that will last, nobody is asked for a
        while, and the same is raised again."""
        if not all(text.strip() for text in texts):
            raise BadRequest("A text without a word has no vector.")
        self._resting.check()
        try:
            return same_length(await self._portions.embedded(texts, partial(self._ask, purpose)))
        except ProviderError as error:
            error.args = (f"{self.name}: {error}",)  # most come from places that do not know who is asked
            self._resting.note(error)
            self._measured = self._settings.dimensions is not None
            raise

    # --- one request --------------------------------------------------------------------------------------------------

    async def _ask(self, purpose: Purpose, texts: Sequence[str]) -> list[Vector]:
        """The vectors of so many texts, from one answer. For notes, one that broke off or is none is asked for once more;
        what was refused the transport asks again."""
        headers = self._account.headers(self.header)
        before = self._known.before(purpose)
        # Half of a surrogate pair, which a cut may leave, stands in no JSON.
        whole = [(before + text).encode("utf-8", "replace").decode() for text in texts]
        body = self.body(self._model, whole, purpose, self.asked_dimensions())
        encoded = msgspec.json.encode(body)
        if purpose == "note":
            with suppress(StreamCut, BadAnswer):
                return self._read(await self._posted(headers, encoded, purpose), len(texts))
        return self._read(await self._posted(headers, encoded, purpose), len(texts))

    async def _posted(self, headers: Mapping[str, str], body: bytes, purpose: Purpose) -> bytes:
        try:
            return await self._transport.post(
                self.url(self._account.base, self._model),
                headers=headers,
                body=body,
                timeouts=self._patience(purpose),
                may_retry=self.worth_another_attempt,
            )
        except StatusRefused as refusal:
            error = self.meaning(refusal)
            if isinstance(error, CredentialsRefused):
                whose = f"The key of {self._account.source}" if self._account.key else "A request without a key"
                error = CredentialsRefused(f"{whose} is refused: {error_message(refusal.body)}")
            raise error from refusal

    def _patience(self, purpose: Purpose) -> Timeouts:
        """Notes have time; a question is also answered by words."""
        usual, most = self._transport.timeouts, self.PATIENT
        if purpose == "note":
            return usual
        return msgspec.structs.replace(
            usual,
            connect=min(usual.connect, most),
            first=min(usual.first, most),
            between=min(usual.between, most),
            whole=min(usual.whole, most),
            attempts=min(usual.attempts, 2),
            trying=min(usual.trying, most / 2),
        )

    def _read(self, answer: bytes, count: int) -> list[Vector]:
        try:
            told = msgspec.json.decode(answer, type=self.Answer)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise BadAnswer(f"The server answered what is no list of vectors: {_fault(answer, error)}.") from error
        vectors = checked(self.vectors(told), count)
        length = len(vectors[0]) if vectors else self._length
        if self._measured and length != self._length:
            raise BadAnswer(self._changed(length))
        self._length, self._measured = length, True
        return vectors

    def _changed(self, length: int) -> str:
        if self._settings.dimensions:
            return f"The server gave vectors of {length} numbers, and memory.embedding.dimensions says {self._length}."
        return f"The server gave vectors of {length} numbers, where it gave {self._length} before: is it another model?"


def _fault(answer: bytes, error: Exception) -> str:
    """What is wrong with an answer, as the end of a sentence."""
    if not answer:
        return "it is empty"
    if found := _NO_NUMBER.search(answer):
        return f"it has {found[0].decode()} among its numbers"
    if answer.lstrip().startswith(b"{") and not error_object(answer).get("message"):
        return str(error)
    return f"it begins with {error_message(answer)[:60]!r}"

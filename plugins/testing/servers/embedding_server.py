"""A fake embedding service that can simulate failures.

It implements OpenAI's API. For another API derive from `EmbeddingServer`: override `PATH`, `texts` and `answer` for the
format, `key_shown` and `refusal` for authentication and errors, `PURPOSES` and `purpose` if it distinguishes notes from
queries.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from aiohttp import web

from plugins.testing.servers.faulty_server import Fault, FaultyServer, Json, RawResponse, ServerResponse, json_response


class EmbeddingBehavior(ServerResponse):
    """A successful answer. `change` modifies its vectors, `wrap` the JSON that contains them."""

    def __init__(
        self,
        change: Callable[[list[Any]], list[Any]] = lambda vectors: vectors,
        wrap: Callable[[Json], Any] = lambda answer: answer,
    ) -> None:
        self.change = change
        self.wrap = wrap


Answer = Fault | RawResponse | EmbeddingBehavior


def vector_of(text: str, dimensions: int) -> list[float]:
    """Return a vector of length 1 that is derived from a hash of the text."""
    digest = hashlib.shake_128(text.encode("utf-8", "replace")).digest(dimensions)
    numbers = [byte - 127.5 for byte in digest]
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers]


def tokens(text: str) -> int:
    """Return the number of tokens that the fakes count for a text."""
    return max(1, len(text) // 4)


class EmbeddingServer(FaultyServer[EmbeddingBehavior]):
    """A fake embedding service. Tests may change its limits.

    Attributes:
        dimensions: The length of its vectors.
        most: The maximum number of texts in a request.
        tokens: The maximum number of tokens of a text.
        total: The maximum number of tokens of a request.
        taken: The texts of each accepted request.
    """

    PATH = "/v1/embeddings"
    BASE = "/v1"
    MEDIA = "application/json"
    KEY: ClassVar[str] = "key-of-a-fake-0123456789"
    MODEL: ClassVar[str] = "test-model"
    MOST: ClassVar[int] = 2048
    TOKENS: ClassVar[int] = 8192
    TOTAL: ClassVar[int] = 1_000_000
    DIMENSIONS: ClassVar[int] = 8
    PURPOSES: ClassVar[Mapping[str, Any]] = {}
    """The service's names for the purposes "note" and "query"; empty if it does not distinguish them."""

    def __init__(self, *answers: Answer, respond: Callable[[Json], Answer] | None = None, dimensions: int = 0) -> None:
        super().__init__(*answers, respond=respond)
        self.dimensions = dimensions or self.DIMENSIONS
        self.most = self.MOST
        self.tokens = self.TOKENS
        self.total = self.TOTAL
        self.taken: list[list[str]] = []

    # --- how it is spoken to ------------------------------------------------------------------------------------------

    def key_shown(self, request: web.Request) -> str:
        """Return the key of a request; "" if it has none."""
        return request.headers.get("Authorization", "").removeprefix("Bearer ")

    def texts(self, body: Json) -> list[str]:
        """Return the texts of a request."""
        return list(body["input"])

    def wanted(self, body: Json) -> int | None:
        """Return the requested dimensions."""
        return body.get("dimensions")

    def purpose(self, body: Json) -> Any:
        """Return the purpose that a request names."""
        return body.get("input_type")

    def answer(self, model: str, vectors: Sequence[Any]) -> Json:
        """Return a successful answer with these vectors."""
        return {"model": model, "data": [{"index": place, "embedding": vector} for place, vector in enumerate(vectors)]}

    def refusal(self, status: int, words: str) -> bytes:
        """Return the body of an error."""
        return json.dumps({"error": {"message": words}}).encode()

    def wrong(self, request: web.Request, body: Json) -> web.Response | None:
        """Return an error if the format or the model of a request is invalid."""
        if body.get("model", self.MODEL) != self.MODEL:
            return json_response(404, self.refusal(404, f"There is no model {body['model']}."))
        return None

    def too_much(self, what: str, most: int, found: int) -> tuple[int, bytes]:
        """Return the status and body of the error for a request that exceeds a limit."""
        return 400, self.refusal(400, f"The {what} of the input is {found}, and at most {most} are allowed.")

    def key_refused(self, request: web.Request) -> web.Response | None:
        if self.key_shown(request) == self.KEY:
            return None
        return json_response(401, self.refusal(401, "The key is wrong."))

    # --- what it answers ----------------------------------------------------------------------------------------------

    @property
    def purposes(self) -> list[Any]:
        """The purpose of each request."""
        return [self.purpose(body) for body in self.requests]

    def bearer_refused(self, request: web.Request) -> bool:
        """Return True if the key is invalid, or more than one is sent."""
        shown = [name for name in ("Authorization", "x-goog-api-key", "api-key", "x-api-key") if name in request.headers]
        return shown != ["Authorization"] or request.headers["Authorization"] != f"Bearer {self.KEY}"

    def refused(self, request: web.Request, body: Json) -> web.Response | None:
        if (refusal := self.wrong(request, body)) is not None:
            return refusal
        texts = self.texts(body)
        lengths = [tokens(text) for text in texts]
        for what, most, found in (
            ("number", self.most, len(texts)),
            ("length", self.tokens, max(lengths, default=0)),
            ("total", self.total, sum(lengths)),
        ):
            if found > most:
                return json_response(*self.too_much(what, most, found))
        self.taken.append(texts)
        return None

    def says(self, text: str) -> EmbeddingBehavior:
        return EmbeddingBehavior()

    def echo(self, body: Json) -> EmbeddingBehavior:
        return EmbeddingBehavior()

    def listing(self, request: web.Request) -> Json | web.Response:
        return web.Response(status=404)

    def given(self, text: str, length: int) -> list[float]:
        """Return the model's vector of a text."""
        return vector_of(text, length)

    def pieces(self, request: web.Request, body: Json, answer: EmbeddingBehavior) -> list[bytes]:
        length = self.wanted(body) or self.dimensions
        vectors = answer.change([self.given(text, length) for text in self.texts(body)])
        whole = json.dumps(answer.wrap(self.answer(str(body.get("model")), vectors))).encode()
        third = len(whole) // 3 + 1
        return [whole[start : start + third] for start in range(0, len(whole), third)]


def unknown_fields(body: Json, allowed: str) -> set[str]:
    """Return the fields that a service does not know."""
    return set(body) - set(allowed.split())


def no_texts(texts: Any) -> bool:
    """Return True if this is not a list of non-empty texts."""
    return not (isinstance(texts, list) and texts and all(isinstance(text, str) and text for text in texts))

"""A fake of a service that makes vectors: what it takes, what it answers, and how its answers go wrong.

As it is, it speaks like OpenAI. For a service of another kind derive from `EmbeddingServer`: `PATH`, `texts` and `answer`
say how it is spoken to, `key_shown` and `refusal` how it is shown a key and refuses one, `PURPOSES` and `purpose` whether it
tells notes from questions.
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
    """An ordinary answer. `change` does something to its vectors, `wrap` to the JSON that holds them."""

    def __init__(
        self,
        change: Callable[[list[Any]], list[Any]] = lambda vectors: vectors,
        wrap: Callable[[Json], Any] = lambda answer: answer,
    ) -> None:
        self.change = change
        self.wrap = wrap


Answer = Fault | RawResponse | EmbeddingBehavior


def vector_of(text: str, dimensions: int) -> list[float]:
    """A vector of length 1 that another text has not."""
    digest = hashlib.shake_128(text.encode("utf-8", "replace")).digest(dimensions)
    numbers = [byte - 127.5 for byte in digest]
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers]


def tokens(text: str) -> int:
    """How many tokens the fakes take a text for."""
    return max(1, len(text) // 4)


class EmbeddingServer(FaultyServer[EmbeddingBehavior]):
    """A fake; see the module and `FaultyServer`. `dimensions` are those that its model makes, `most` how many texts it takes
    at once, `tokens` how many tokens one of them may have and `total` all together; as its class says unless a test sets
    others. `taken` has the texts of each request that was not refused."""

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
    """What a request calls the purposes "note" and "query"; empty where the service makes no difference."""

    def __init__(self, *answers: Answer, respond: Callable[[Json], Answer] | None = None, dimensions: int = 0) -> None:
        super().__init__(*answers, respond=respond)
        self.dimensions = dimensions or self.DIMENSIONS
        self.most = self.MOST
        self.tokens = self.TOKENS
        self.total = self.TOTAL
        self.taken: list[list[str]] = []

    # --- how it is spoken to ------------------------------------------------------------------------------------------

    def key_shown(self, request: web.Request) -> str:
        """The key that a request shows, "" for none."""
        return request.headers.get("Authorization", "").removeprefix("Bearer ")

    def texts(self, body: Json) -> list[str]:
        """The texts of a request."""
        return list(body["input"])

    def wanted(self, body: Json) -> int | None:
        """The dimensions that it asks for."""
        return body.get("dimensions")

    def purpose(self, body: Json) -> Any:
        """What it says that its texts are for."""
        return body.get("input_type")

    def answer(self, model: str, vectors: Sequence[Any]) -> Json:
        """An ordinary answer with these vectors."""
        return {"model": model, "data": [{"index": place, "embedding": vector} for place, vector in enumerate(vectors)]}

    def refusal(self, status: int, words: str) -> bytes:
        """An error's body."""
        return json.dumps({"error": {"message": words}}).encode()

    def wrong(self, request: web.Request, body: Json) -> web.Response | None:
        """The refusal of a body for its form or its model."""
        if body.get("model", self.MODEL) != self.MODEL:
            return json_response(404, self.refusal(404, f"There is no model {body['model']}."))
        return None

    def too_much(self, what: str, most: int, found: int) -> tuple[int, bytes]:
        """The status and body of the refusal of too many texts, of one too long, or of too much together."""
        return 400, self.refusal(400, f"The {what} of the input is {found}, and at most {most} are allowed.")

    def key_refused(self, request: web.Request) -> web.Response | None:
        if self.key_shown(request) == self.KEY:
            return None
        return json_response(401, self.refusal(401, "The key is wrong."))

    # --- what it answers ----------------------------------------------------------------------------------------------

    @property
    def purposes(self) -> list[Any]:
        """What each request said that its texts are for."""
        return [self.purpose(body) for body in self.requests]

    def bearer_refused(self, request: web.Request) -> bool:
        """Whether the key is not this server's, or more than one is shown."""
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
        """The vector of a text as the model makes it."""
        return vector_of(text, length)

    def pieces(self, request: web.Request, body: Json, answer: EmbeddingBehavior) -> list[bytes]:
        length = self.wanted(body) or self.dimensions
        vectors = answer.change([self.given(text, length) for text in self.texts(body)])
        whole = json.dumps(answer.wrap(self.answer(str(body.get("model")), vectors))).encode()
        third = len(whole) // 3 + 1
        return [whole[start : start + third] for start in range(0, len(whole), third)]


def unknown_fields(body: Json, allowed: str) -> set[str]:
    """The fields that a service does not know."""
    return set(body) - set(allowed.split())


def no_texts(texts: Any) -> bool:
    """Whether these are not texts, or one of them is empty."""
    return not (isinstance(texts, list) and texts and all(isinstance(text, str) and text for text in texts))

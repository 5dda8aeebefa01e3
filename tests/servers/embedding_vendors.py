"""Fakes of the five vendors of embeddings, as strict as the real ones.

Written from their API references (OpenAI: create embeddings; Google: batchEmbedContents; Voyage: text embeddings; Mistral:
embeddings; Ollama: embed), with the words of refusals that people quote in their reports. Each refuses what the real one
does: a wrong key, an unknown model or field, a wrong length of vectors, too many texts, one too long, too much together.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from plugins.testing.servers.embedding_server import EmbeddingServer, no_texts, unknown_fields
from plugins.testing.servers.faulty_server import Json, json_response
from plugins.testing.servers.openai_server import refusal as openai_refusal
from tests.servers.gemini_server import BAD_KEY
from tests.servers.gemini_server import KEY as GOOGLES_KEY
from tests.servers.gemini_server import refusal as google_refusal


class OpenAIEmbeddingServer(EmbeddingServer):
    """OpenAI, API reference of November 2026."""

    PATH = "/v1/embeddings"
    BASE = "/v1"
    KEY = "sk-test-embeddings-0123456789"
    MODEL = "text-embedding-3-small"
    MOST, TOKENS, TOTAL = 2048, 8192, 300_000

    def key_refused(self, request: web.Request) -> web.Response | None:
        wrong = openai_refusal("Incorrect API key provided: sk-wr***ong.", "invalid_api_key")
        return json_response(401, wrong) if self.bearer_refused(request) else None

    def texts(self, body: Json) -> list[str]:
        given = body["input"]
        return [given] if isinstance(given, str) else list(given)

    def wanted(self, body: Json) -> int | None:
        return body.get("dimensions")

    def wrong(self, request: web.Request, body: Json) -> web.Response | None:
        if unknown := unknown_fields(body, "input model encoding_format dimensions user"):
            return json_response(400, openai_refusal(f"Unrecognized request argument supplied: {unknown}", None))
        if body.get("model") != self.MODEL:
            words = f"The model `{body.get('model')}` does not exist or you do not have access to it."
            return json_response(404, openai_refusal(words, "model_not_found"))
        if no_texts(body.get("input")) and not (isinstance(body.get("input"), str) and body["input"]):
            return json_response(400, openai_refusal("'$.input' is invalid. Please check the API reference.", None))
        return None

    def too_much(self, what: str, most: int, found: int) -> tuple[int, bytes]:
        words, code = {
            "number": (
                f"Invalid 'input': array too long. Expected an array with maximum length {most}, but got {found} instead.",
                "array_above_max_length",
            ),
            "length": (
                f"This model's maximum context length is {most} tokens, however you requested {found} tokens.",
                None,
            ),
            "total": (f"Requested {found} tokens, max {most} tokens per request", "max_tokens_per_request"),
        }[what]
        return 400, openai_refusal(words, code)

    def answer(self, model: str, vectors: Sequence[Any]) -> Json:
        data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)]
        return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": 8, "total_tokens": 8}}


class VoyageEmbeddingServer(OpenAIEmbeddingServer):
    """Voyage: OpenAI's responses, errors as `detail`."""

    KEY = "pa-test-0123456789"
    MODEL = "voyage-4-large"
    MOST, TOKENS, TOTAL = 1000, 32_000, 120_000

    def key_refused(self, request: web.Request) -> web.Response | None:
        return json_response(401, _detail("Provided API key is invalid.")) if self.bearer_refused(request) else None

    def wanted(self, body: Json) -> int | None:
        return body.get("output_dimension")

    def wrong(self, request: web.Request, body: Json) -> web.Response | None:
        allowed = "input model input_type truncation output_dimension output_dtype encoding_format"
        if unknown := unknown_fields(body, allowed):
            return json_response(400, _detail(f"Argument {unknown} is not supported by our API."))
        if body.get("model") != self.MODEL:
            return json_response(400, _detail(f"Model {body.get('model')} is not supported. Supported models are [...]."))
        if no_texts(body.get("input")) or body.get("input_type") not in (None, "query", "document"):
            return json_response(400, _detail("Input cannot contain empty strings or empty lists."))
        if body.get("truncation") is not False:
            return json_response(400, _detail("The real one would cut a long text without a word."))
        if body.get("output_dimension") not in (None, 256, 512, 1024, 2048):
            return json_response(400, _detail("Value for output_dimension is not one of 256, 512, 1024, 2048."))
        return None

    def too_much(self, what: str, most: int, found: int) -> tuple[int, bytes]:
        words = {
            "number": f"The batch size limit is {most}. Your batch size is {found}. It is too large.",
            "length": f"The example at index 0 in your batch has too many tokens and does not fit into the model's context"
            f" window of {most} tokens.",
            "total": f"The max allowed tokens per submitted batch is {most}. Your batch has {found} tokens.",
        }
        failed = "" if what == "number" else f"Request to model '{self.MODEL}' failed. "
        return 400, _detail(failed + words[what])


class MistralEmbeddingServer(OpenAIEmbeddingServer):
    """Mistral: OpenAI's responses, errors without an `error` object."""

    KEY = "mistral-test-0123456789"
    MODEL = "mistral-embed"
    MOST, TOKENS, TOTAL = 256, 8192, 16_384

    def key_refused(self, request: web.Request) -> web.Response | None:
        return json_response(401, json.dumps({"detail": "Unauthorized"}).encode()) if self.bearer_refused(request) else None

    def wanted(self, body: Json) -> int | None:
        return body.get("output_dimension")

    def wrong(self, request: web.Request, body: Json) -> web.Response | None:
        if unknown := unknown_fields(body, "input model encoding_format output_dimension output_dtype metadata"):
            faults = [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs"} for name in unknown]
            return json_response(422, json.dumps({"detail": faults}).encode())
        if body.get("model") not in (self.MODEL, "codestral-embed"):
            return json_response(400, _mistral(f"Invalid model: {body.get('model')}", "invalid_model", "1500"))
        shorter = body.get("output_dimension") is not None and body["model"] == self.MODEL
        if no_texts(body.get("input")) or shorter:
            return json_response(
                400, _mistral("This model does not support output_dimension", "invalid_request_error", None)
            )
        return None

    def too_much(self, what: str, most: int, found: int) -> tuple[int, bytes]:
        words = {
            "number": "Too many inputs in request, split into more batches.",
            "length": f"Input id 0 has {found} tokens, exceeding max {most} tokens.",
            "total": "Too many tokens overall, split into more batches.",
        }
        return 400, _mistral(words[what], "invalid_request_prompt", "3210")

    def answer(self, model: str, vectors: Sequence[Any]) -> Json:
        return {"id": "embd-0123456789", **super().answer(model, vectors)}


class GeminiEmbeddingServer(EmbeddingServer):
    """Google's batchEmbedContents. Vectors that are shorter than the model's own are not of length 1."""

    PATH = "/{version:v1|v1beta}/models/{model}:batchEmbedContents"
    BASE = ""
    KEY = GOOGLES_KEY
    MODEL = "gemini-embedding-001"
    MOST, TOKENS = 100, 2048

    def key_refused(self, request: web.Request) -> web.Response | None:
        right = request.headers.get("x-goog-api-key") == self.KEY and "Authorization" not in request.headers
        return None if right and "key" not in request.query else json_response(400, BAD_KEY)

    def texts(self, body: Json) -> list[str]:
        return [each["content"]["parts"][0]["text"] for each in body["requests"]]

    def wanted(self, body: Json) -> int | None:
        wanted: int | None = body["requests"][0].get("outputDimensionality")
        return wanted

    @property
    def purposes(self) -> list[Any]:
        return [body["requests"][0].get("taskType") for body in self.requests]

    def given(self, text: str, length: int) -> list[float]:
        return [number * 0.7 for number in super().given(text, length)]

    def wrong(self, request: web.Request, body: Json) -> web.Response | None:
        model = request.match_info["model"]
        if model != self.MODEL:
            words = f"models/{model} is not found for API version v1beta, or is not supported for embedContent."
            return json_response(404, google_refusal(404, words, "NOT_FOUND"))
        words = next((fault for each in body.get("requests", [{}]) if (fault := _google_fault(each, model))), "")
        words = words or (
            f"Invalid JSON payload received. Unknown name in {list(body)}" if list(body) != ["requests"] else ""
        )
        return json_response(400, google_refusal(400, words, "INVALID_ARGUMENT")) if words else None

    def too_much(self, what: str, most: int, found: int) -> tuple[int, bytes]:
        words = {
            "number": f"* BatchEmbedContentsRequest.requests: at most {most} requests can be in one batch\n",
            "length": f"The input token count ({found}) exceeds the maximum number of tokens allowed ({most}).",
            "total": "Request payload size exceeds the limit: 20971520 bytes.",
        }
        return 400, google_refusal(400, words[what], "INVALID_ARGUMENT")

    def answer(self, model: str, vectors: Sequence[Any]) -> Json:
        return {"embeddings": [{"values": vector} for vector in vectors]}


def _google_fault(each: Json, model: str) -> str:
    if unknown := unknown_fields(each, "model content taskType title outputDimensionality"):
        return f"Invalid JSON payload received. Unknown name {unknown}"
    if each.get("model") != f"models/{model}":
        return "* BatchEmbedContentsRequest.requests[0].model: model name must match the one in the URL"
    parts = each.get("content", {}).get("parts", [])
    if len(parts) != 1 or not parts[0].get("text"):
        return "* EmbedContentRequest.content: contents is not specified"
    if each.get("taskType") not in (None, "RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT"):
        return "Invalid value at 'requests[0].task_type'"
    return ""


class OllamaEmbeddingServer(EmbeddingServer):
    """Ollama 0.40: no key except for the cloud; with `truncate` it would cut a long text."""

    PATH = "/api/embed"
    BASE = ""
    KEY = "ollama-test-0123456789"
    MODEL = "nomic-embed-text"
    MOST, TOKENS = 512, 2048

    def key_refused(self, request: web.Request) -> web.Response | None:
        return json_response(401, _ollama("unauthorized")) if self.bearer_refused(request) else None

    def texts(self, body: Json) -> list[str]:
        given = body["input"]
        return [given] if isinstance(given, str) else list(given)

    def wanted(self, body: Json) -> int | None:
        return body.get("dimensions")

    @property
    def purposes(self) -> list[Any]:
        return [text.partition(" ")[0] for body in self.requests for text in self.texts(body)[:1]]

    def wrong(self, request: web.Request, body: Json) -> web.Response | None:
        if unknown := unknown_fields(body, "model input truncate dimensions keep_alive options"):
            return json_response(400, _ollama(f"the real one would ignore {unknown}"))
        if body.get("model") not in (self.MODEL, f"{self.MODEL}:latest"):
            return json_response(404, _ollama(f'model "{body.get("model")}" not found, try pulling it first'))
        if no_texts(body.get("input")) or body.get("truncate") is not False:
            return json_response(400, _ollama("the real one would cut a long text without a word"))
        return None

    def too_much(self, what: str, most: int, found: int) -> tuple[int, bytes]:
        return (400 if what == "length" else 500), _ollama("the input length exceeds the context length")

    def answer(self, model: str, vectors: Sequence[Any]) -> Json:
        return {"model": model, "embeddings": list(vectors), "total_duration": 1, "load_duration": 1, "prompt_eval_count": 8}


def _detail(words: str) -> bytes:
    return json.dumps({"detail": words}).encode()


def _mistral(words: str, kind: str, code: str | None) -> bytes:
    return json.dumps({"object": "error", "message": words, "type": kind, "param": None, "code": code}).encode()


def _ollama(words: str) -> bytes:
    return json.dumps({"error": words}).encode()

"""A fake of Google's Gemini API, as strict as the real one, with the faults that a test asks for.

Written from Google's documentation: the API reference (`models.streamGenerateContent`, `Content`, `FunctionCall`,
`GenerateContentResponse`), the pages on function calling, thought signatures, rate limits and troubleshooting, and Google's
error model (`google.rpc.Status`, `ErrorInfo`, `RetryInfo`, `QuotaFailure`). What it refuses it refuses with the real
service's words and status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from aiohttp import web

from plugins.testing.servers.faulty_server import (
    Fault,
    FaultyServer,
    Json,
    RawResponse,
    ServerResponse,
    is_picture,
    json_response,
)

KEY = "AIzaTest0123456789"
UNSIGNED = "skip_thought_signature_validator"


class Says(ServerResponse):
    """A reply: summaries of `thoughts`, if they are requested, text word by word, whole calls, usage. With `signed` the
    model signs as the third generation does: the first call of a reply, else a last part without text."""

    def __init__(
        self,
        text: str = "",
        *calls: tuple[str, Json],
        finish: str = "STOP",
        signed: bool = True,
        delay: float = 0,
        thoughts: str = "",
    ) -> None:
        self.thoughts = thoughts
        self.text = text
        self.calls = calls
        self.finish = finish
        self.signed = signed
        self.delay = delay


Answer = Fault | RawResponse | Says


_STATUSES = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}


def refusal(code: int, message: str, status: str = "", *details: Json) -> bytes:
    """Return an error body in Google's form; the default `status` is that of the code."""
    error: Json = {"code": code, "message": message, "status": status or _STATUSES.get(code, "INVALID_ARGUMENT")}
    return json.dumps({"error": error | ({"details": list(details)} if details else {})}, indent=2).encode()


BAD_KEY = refusal(
    400,
    "API key not valid. Please pass a valid API key.",
    "INVALID_ARGUMENT",
    {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"},
)


def quota(seconds: str, quota_id: str) -> bytes:
    """Return the body of a 429 of the free tier."""
    kind = "type.googleapis.com/google.rpc."
    return refusal(
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "RESOURCE_EXHAUSTED",
        {"@type": f"{kind}QuotaFailure", "violations": [{"quotaId": quota_id, "quotaValue": "20"}]},
        {"@type": f"{kind}RetryInfo", "retryDelay": seconds},
    )


class GeminiServer(FaultyServer[Says]):
    """The fake; see `FaultyServer`. It records its signatures."""

    PATH = "/{version:v1|v1beta}/models/{model}:streamGenerateContent"
    LIST = "/v1beta/models"

    def __init__(self, *answers: Answer, respond: Callable[[Json], Answer] | None = None) -> None:
        super().__init__(*answers, respond=respond)
        self.signatures: set[str] = set()

    def key_refused(self, request: web.Request) -> web.Response | None:
        return None if request.headers.get("x-goog-api-key") == KEY else json_response(400, BAD_KEY)

    def refused(self, request: web.Request, body: Json) -> web.Response | None:
        signs = request.match_info["model"].startswith("gemini-3")
        wrong = what_is_wrong(body, self.signatures if signs else None, request.match_info["model"])
        return None if wrong is None else json_response(400, refusal(400, wrong, "INVALID_ARGUMENT"))

    def listing(self, request: web.Request) -> Json | web.Response:
        models = [("gemini-3-test", 2_097_152, 131_072, "generateContent"), ("embedding-test", 2_048, 1, "embedContent")]
        listed = [
            {
                "name": f"models/{name}",
                "version": "001",
                "displayName": name,
                "inputTokenLimit": window,
                "outputTokenLimit": output,
                "supportedGenerationMethods": [method, "countTokens"],
            }
            for name, window, output, method in models
        ]
        return {"models": listed}  # no nextPageToken: a page holds up to a thousand

    def says(self, text: str) -> Says:
        return Says(text)

    def echo(self, body: Json) -> Says:
        texts = [part["text"] for content in body["contents"] for part in content["parts"] if "text" in part]
        return Says(texts[-1])

    def pieces(self, request: web.Request, body: Json, answer: Says) -> list[bytes]:
        thinking = body.get("generationConfig", {}).get("thinkingConfig", {})
        return self.events_of(request.match_info["model"], answer, shows_thoughts=bool(thinking.get("includeThoughts")))

    def events_of(self, model: str, answer: Says, *, shows_thoughts: bool = False) -> list[bytes]:
        """Yield the events of a reply."""
        words = [word + " " for word in answer.text.split(" ")]
        words[-1] = words[-1][:-1]
        thoughts = answer.thoughts.splitlines(keepends=True) if shows_thoughts else []
        parts: list[Json] = [*({"text": line, "thought": True} for line in thoughts), *({"text": w} for w in words if w)]
        calls = len(answer.calls)
        for index, (tool, arguments) in enumerate(answer.calls):
            part: Json = {"functionCall": {"id": f"g{len(self.requests)}{index}", "name": tool, "args": arguments}}
            parts.append(part | (self._signed() if answer.signed and index == 0 else {}))
        last: Json = {"text": ""} | (self._signed() if answer.signed and not calls else {})
        usage: Json = {"promptTokenCount": 40, "cachedContentTokenCount": 10, "candidatesTokenCount": len(parts)}
        usage |= {"thoughtsTokenCount": 100, "totalTokenCount": 140 + len(parts)}
        chunks: list[Json] = [{"content": {"parts": [part], "role": "model"}, "index": 0} for part in parts]
        chunks.append({"content": {"parts": [last], "role": "model"}, "finishReason": answer.finish, "index": 0})
        told = {"usageMetadata": usage, "modelVersion": f"{model}-001", "responseId": "r"}
        return [b"data: " + json.dumps({"candidates": [chunk], **told}).encode() + b"\r\n\r\n" for chunk in chunks]

    def _signed(self) -> Json:
        signature = f"c2lnbmF0dXJl{len(self.signatures):04d}"
        self.signatures.add(signature)
        return {"thoughtSignature": signature}


_MEMBERS = {
    "inlineData": {"inlineData"},
    "text": {"text", "thoughtSignature"},
    "functionCall": {"functionCall", "thoughtSignature"},
    "functionResponse": {"functionResponse"},
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


def what_is_wrong(body: Json, signatures: set[str] | None, model: str = "gemini-3-test") -> str | None:
    """Return the real service's message about the first fault of a request; None if there is none. `signatures` are those
    of the model, None for a model that requires none."""
    if unknown := set(body) - {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}:
        return f'Invalid JSON payload received. Unknown name "{unknown.pop()}": Cannot find field.'
    contents = body.get("contents")
    if not contents:
        return "* GenerateContentRequest.contents: contents is not specified\n"
    options = {
        "temperature",
        "topP",
        "topK",
        "maxOutputTokens",
        "stopSequences",
        "seed",
        "presencePenalty",
        "frequencyPenalty",
    }
    options |= {"responseMimeType", "responseJsonSchema", "thinkingConfig"}
    if unknown := set(body.get("generationConfig", {})) - options:
        name = unknown.pop()
        return f"Invalid JSON payload received. Unknown name \"{name}\" at 'generation_config': Cannot find field."
    if "thinkingConfig" in body.get("generationConfig", {}) and "image" in model:
        return f"Thinking is not enabled for models/{model}"
    for tool in body.get("tools", ()):
        for declared in tool["functionDeclarations"]:
            if not _NAME.fullmatch(declared["name"]):
                return "GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name."
    return next(_wrong_parts(contents), None) or _wrong_turns(contents) or _wrong_signature(contents, signatures)


def _wrong_parts(contents: list[Json]) -> Iterator[str]:
    for index, content in enumerate(contents):
        if content["role"] not in ("user", "model"):
            yield "Please use a valid role: user, model."
        if not content["parts"]:
            yield f"* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty.\n"
        for part in content["parts"]:
            kind = next((name for name in _MEMBERS if name in part), "")
            if set(part) - _MEMBERS.get(kind, set()):
                yield 'Invalid JSON payload received. Unknown name at "contents.parts": Cannot find field.'
            if not (kind and (part[kind] or "thoughtSignature" in part)):
                yield "Unable to submit request because it must have a text parameter."
            if kind == "inlineData" and not is_picture(part[kind].get("mimeType"), part[kind].get("data")):
                yield "Unable to process input image. Please retry or report in the forum."
            if kind == "functionCall" and not (_NAME.fullmatch(part[kind]["name"]) and isinstance(part[kind]["args"], dict)):
                yield "Invalid value at 'contents.parts.function_call.args' (type.googleapis.com/google.protobuf.Struct)"


def _wrong_turns(contents: list[Json]) -> str | None:
    """Check that roles alternate, except for a user's text after the results of calls."""
    before: Json | None = None
    for content in contents:
        calls, results = _of(before, "functionCall"), _of(content, "functionResponse")
        if results and not calls:
            return "Please ensure that function response turn comes immediately after a function call turn."
        if sorted((c["id"], c["name"]) for c in calls) != sorted((r["id"], r["name"]) for r in results):
            return (
                "Please ensure that the number of function response parts is equal to the number of function call parts"
                " of the function call turn."
            )
        if _of(content, "functionCall") and (before is None or before["role"] == "model"):
            return (
                "Please ensure that function call turn comes immediately after a user turn or after a function response"
                " turn."
            )
        same = content["role"] == (before or {"role": "model"})["role"]
        if same and not _of(before, "functionResponse"):
            return "Please ensure that multiturn requests alternate between user and model."
        before = content
    if before is not None and before["role"] == "model":
        return "Please ensure that single turn requests end with a user role or the role field is empty."
    return None


def _wrong_signature(contents: list[Json], signatures: set[str] | None) -> str | None:
    """Check that the first call of each step since the user's last message is signed, with its own signature."""
    if signatures is None:
        return None
    spoke = [n for n, content in enumerate(contents) if content["role"] == "user" and "text" in content["parts"][-1]]
    for index, content in enumerate(contents):
        given = [part["thoughtSignature"] for part in content["parts"] if "thoughtSignature" in part]
        if set(given) - signatures - {UNSIGNED}:
            return "Corrupted thought signature."
        signed = [bool(part.get("thoughtSignature")) for part in content["parts"] if "functionCall" in part]
        if index > max(spoke, default=0) and signed and not signed[0]:
            name = _of(content, "functionCall")[0]["name"]
            return (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"
                " correctly, and missing thought_signature may lead to degraded model performance. Additional data,"
                f" function call `default_api:{name}` , position {index + 1}."
            )
    return None


def _of(content: Json | None, kind: str) -> list[Json]:
    return [part[kind] for part in content["parts"] if kind in part] if content else []

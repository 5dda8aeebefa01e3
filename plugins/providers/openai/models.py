"""The list of models of servers with OpenAI's API (`GET /models`).

OpenAI itself reports only names. According to their API references, vLLM adds `max_model_len`; Groq `context_window` and
`max_completion_tokens`; Mistral `max_context_length`; OpenRouter `context_length` and, in `top_provider`,
`max_completion_tokens`; Together `context_length`. llama-server reports the loaded window in `/props`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from plugins.api.models import ModelList, ReportedLimits
from plugins.http.client import Timeouts, Transport
from plugins.providers.hosted.known_models import bare_address
from plugins.providers.hosted.model_listing import LIST_TIMEOUTS, NON_CHAT_MODEL, fetch_model_list, token_count
from plugins.providers.hosted.openai_errors import error_for
from plugins.support.errors import ProviderError

LLAMA_SERVER = "llamacpp"
"""The owner of llama-server's model in its list."""

_WINDOWS = ("max_model_len", "context_window", "max_context_length", "context_length")

_OUTPUTS = (("max_completion_tokens",), ("top_provider", "max_completion_tokens"))

_NO_REASONING = ("gpt-3", "gpt-4", "chatgpt-4", "gpt-5-chat", "gpt-5.1-chat", "gpt-5.2-chat", "gpt-5.3-chat")
"""The prefixes of models without reasoning, from OpenAI's model pages. All others reason, future ones included."""


def is_reasoning_model(model: str) -> bool:
    """Return True if a model reasons, according to its name."""
    return not model.removeprefix("ft:").startswith(_NO_REASONING)


async def openai_list(transport: Transport, base: str, headers: Mapping[str, str]) -> tuple[ModelList, Sequence[str]]:
    """Return the models of the server at `base`, such as `https://api.openai.com/v1`, and the names of its chat models in
    the order of its list. Raises a ProviderError."""
    entries = await fetch_model_list(
        transport, f"{base}/models", headers, list_field="data", name_field="id", error_for=error_for
    )
    models = {name: _limits(entry) for name, entry in entries.items()}
    if len(entries) == 1 and all(entry.get("owned_by") == LLAMA_SERVER for entry in entries.values()):
        window = await loaded_window(transport, base.removesuffix("/v1"), headers, LIST_TIMEOUTS)
        models = {name: ReportedLimits(window=window) for name in models}
    chats = [name for name, entry in entries.items() if _is_chat(name, entry)]
    return ModelList(address=bare_address(base), models=models), chats


def _is_chat(name: str, entry: Mapping[str, Any]) -> bool:
    """Return False for a model that is not for chat, according to the fields of Together, LM Studio, Mistral and OpenRouter,
    or its name."""
    kind, capabilities, architecture = entry.get("type"), entry.get("capabilities"), entry.get("architecture")
    if isinstance(kind, str) and kind not in ("chat", "language", "llm", "model", "vlm"):
        return False
    if isinstance(capabilities, dict) and capabilities.get("completion_chat") is False:
        return False
    outputs = architecture.get("output_modalities") if isinstance(architecture, dict) else None
    if isinstance(outputs, list) and "text" not in outputs:
        return False
    return NON_CHAT_MODEL.search(name) is None


async def loaded_window(transport: Transport, origin: str, headers: Mapping[str, str], timeouts: Timeouts) -> int | None:
    """Return the window in tokens of one conversation with a llama-server, from its `/props`; None if it has none."""
    try:
        props = msgspec.json.decode(await transport.get(f"{origin}/props", headers=headers, timeouts=timeouts))
    except (ProviderError, msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return token_count(props, "default_generation_settings", "n_ctx")


def _limits(entry: Any) -> ReportedLimits:
    windows = (token_count(entry, name) for name in _WINDOWS)
    outputs = (token_count(entry, *path) for path in _OUTPUTS)
    return ReportedLimits(window=next(filter(None, windows), None), output=next(filter(None, outputs), None))

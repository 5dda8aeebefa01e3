"""What servers that speak like OpenAI tell of their models in `GET /models`.

OpenAI itself tells names alone. Beyond them, by their API references: vLLM has `max_model_len`; Groq `context_window` and
`max_completion_tokens`; Mistral `max_context_length`; OpenRouter `context_length` and, under `top_provider`,
`max_completion_tokens`; Together `context_length`. llama-server tells what it has loaded in `/props`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from plugins.api.models import ModelList, ReportedLimits
from plugins.http.client import Timeouts, Transport
from plugins.providers.hosted.model_limits import bare_address
from plugins.providers.hosted.model_listing import BRIEF, MUTE, listed, tokens
from plugins.providers.hosted.openai_errors import meaning
from plugins.support.errors import ProviderError

LLAMA_SERVER = "llamacpp"
"""As whose llama-server lists its model."""

_WINDOWS = ("max_model_len", "context_window", "max_context_length", "context_length")

_OUTPUTS = (("max_completion_tokens",), ("top_provider", "max_completion_tokens"))

_THOUGHTLESS = ("gpt-3", "gpt-4", "chatgpt-4", "gpt-5-chat", "gpt-5.1-chat", "gpt-5.2-chat", "gpt-5.3-chat")
"""By the beginning of their names, from OpenAI's model pages. All others reason, those to come among them."""


def reasons(model: str) -> bool:
    """Whether a model reasons, as far as its name tells."""
    return not model.removeprefix("ft:").startswith(_THOUGHTLESS)


async def openai_list(transport: Transport, base: str, headers: Mapping[str, str]) -> tuple[ModelList, Sequence[str]]:
    """The list of the server at `base`, as `https://api.openai.com/v1`, and the names of the chat models in it, in its
    order. Raises a ProviderError."""
    entries = await listed(transport, f"{base}/models", headers, under="data", named="id", meaning=meaning)
    models = {name: _told(entry) for name, entry in entries.items()}
    if len(entries) == 1 and all(entry.get("owned_by") == LLAMA_SERVER for entry in entries.values()):
        window = await loaded_window(transport, base.removesuffix("/v1"), headers, BRIEF)
        models = {name: ReportedLimits(window=window) for name in models}
    chats = [name for name, entry in entries.items() if _is_chat(name, entry)]
    return ModelList(address=bare_address(base), models=models), chats


def _is_chat(name: str, entry: Mapping[str, Any]) -> bool:
    """Return False for a model that answers nothing, by what Together, LM Studio, Mistral and OpenRouter say of it, or by
    its name."""
    kind, can, design = entry.get("type"), entry.get("capabilities"), entry.get("architecture")
    if isinstance(kind, str) and kind not in ("chat", "language", "llm", "model", "vlm"):
        return False
    if isinstance(can, dict) and can.get("completion_chat") is False:
        return False
    made = design.get("output_modalities") if isinstance(design, dict) else None
    if isinstance(made, list) and "text" not in made:
        return False
    return MUTE.search(name) is None


async def loaded_window(transport: Transport, place: str, headers: Mapping[str, str], timeouts: Timeouts) -> int | None:
    """Tokens that one conversation may have with a llama-server, as its `/props` tells; None if it does not."""
    try:
        props = msgspec.json.decode(await transport.get(f"{place}/props", headers=headers, timeouts=timeouts))
    except (ProviderError, msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return tokens(props, "default_generation_settings", "n_ctx")


def _told(entry: Any) -> ReportedLimits:
    windows = (tokens(entry, name) for name in _WINDOWS)
    outputs = (tokens(entry, *path) for path in _OUTPUTS)
    return ReportedLimits(window=next(filter(None, windows), None), output=next(filter(None, outputs), None))

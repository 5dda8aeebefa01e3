"""What servers that speak like OpenAI tell of their models in `GET /models`.

OpenAI itself tells names alone. Beyond them, by their API references: vLLM has `max_model_len`; Groq `context_window` and
`max_completion_tokens`; Mistral `max_context_length`; OpenRouter `context_length` and, under `top_provider`,
`max_completion_tokens`; Together `context_length`. llama-server tells what it has loaded in `/props`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plugins.chat.limits import bare_address
from plugins.chat.listing import BRIEF, listed, tokens
from plugins.chat.openai_errors import meaning
from plugins.contracts import ModelList, ToldLimits
from plugins.errors import ProviderError
from plugins.transport import Patience, Transport

LLAMA_SERVER = "llamacpp"
"""As whose llama-server lists its model."""

_WINDOWS = ("max_model_len", "context_window", "max_context_length", "context_length")
_OUTPUTS = (("max_completion_tokens",), ("top_provider", "max_completion_tokens"))


async def openai_list(transport: Transport, base: str, headers: Mapping[str, str]) -> ModelList:
    """The list of the server at `base`, as `https://api.openai.com/v1`. Raises a ProviderError."""
    entries = await listed(transport, f"{base}/models", headers, under="data", named="id", meaning=meaning)
    models = {name: _told(entry) for name, entry in entries.items()}
    if len(entries) == 1 and all(entry.get("owned_by") == LLAMA_SERVER for entry in entries.values()):
        window = await loaded_window(transport, base.removesuffix("/v1"), headers, BRIEF)
        models = {name: ToldLimits(window=window) for name in models}
    return ModelList(address=bare_address(base), models=models)


async def loaded_window(transport: Transport, place: str, headers: Mapping[str, str], patience: Patience) -> int | None:
    """Tokens that one conversation may have with a llama-server, as its `/props` tells; None if it does not."""
    try:
        props = msgspec.json.decode(await transport.get(f"{place}/props", headers=headers, patience=patience))
    except (ProviderError, msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return tokens(props, "default_generation_settings", "n_ctx")


def _told(entry: Any) -> ToldLimits:
    windows = (tokens(entry, name) for name in _WINDOWS)
    outputs = (tokens(entry, *path) for path in _OUTPUTS)
    return ToldLimits(window=next(filter(None, windows), None), output=next(filter(None, outputs), None))

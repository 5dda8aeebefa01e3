"""What an Ollama server tells of its models, by its API documentation: `/api/tags` names those that it fetched, `/api/show`
says how much each can take in."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plugins.chat.limits import bare_address
from plugins.chat.listing import BRIEF, listed, tokens
from plugins.chat.ollama_errors import meaning
from plugins.contracts import ModelList, ToldLimits
from plugins.errors import BadAnswer
from plugins.refusals import StatusRefused
from plugins.transport import Transport


async def ollama_list(transport: Transport, base: str, headers: Mapping[str, str]) -> ModelList:
    """The list of the server at `base`, each model asked for by itself, one after the other: reading its file costs the
    server a moment. Raises a ProviderError."""
    entries = await listed(transport, f"{base}/api/tags", headers, under="models", named="name", meaning=meaning)
    models = {name: await _shown(transport, base, headers, name) for name in entries}
    return ModelList(address=bare_address(base), models=models)


async def _shown(transport: Transport, base: str, headers: Mapping[str, str], name: str) -> ToldLimits:
    """What the server says of one model; nothing if it does not know it any more, or is too old to say."""
    body = msgspec.json.encode({"model": name})
    try:
        answer = await transport.post(f"{base}/api/show", headers=headers, body=body, patience=BRIEF)
    except StatusRefused:
        return ToldLimits()
    try:
        shown = msgspec.json.decode(answer)
        architecture = shown["model_info"]["general.architecture"]
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadAnswer(f"What the server says of {name} is no answer.") from error
    except (LookupError, TypeError):
        return ToldLimits()
    return ToldLimits(window=tokens(shown, "model_info", f"{architecture}.context_length"))

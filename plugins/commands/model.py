"""The `/model` command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, OfferedModels
from plugins.commands.markdown import code
from plugins.support.suggestions import did_you_mean

_NAMED = re.compile(r"[^\s:]+:\S+")

MODELS_LISTED = 30
"""Maximum models listed per provider when several providers are listed."""


class Model:
    """The `/model` command, which shows or changes the session's model."""

    name: ClassVar[str] = "model"
    usage: ClassVar[str] = "/model [provider:model]"
    summary: ClassVar[str] = (
        "Show the model in use and those available, or change it. `/model default` returns to the configured one."
    )
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Show or change the model.

        Without an argument, show the model in use and the available ones; with a provider's name, list all its models; with
        `provider:model`, `auto` or `default`, change the model from the next turn on.
        """
        if not argument:
            return await _overview(conversation)
        if argument == "default":
            return f"From the next turn on: {await conversation.choose_model(None)}"
        if argument != "auto" and not _NAMED.fullmatch(argument):
            return await _models_of(argument, conversation)
        return f"From the next turn on: {await conversation.choose_model(argument)}"


async def _overview(conversation: ConversationView) -> str:
    names = ", ".join(code(name) for name in conversation.models()) or "none"
    return "\n".join(
        [
            f"- In use: {conversation.model()}",
            f"- Available: {names}",
            *_format_models(await conversation.offered_models(), MODELS_LISTED),
            "- To change it for this session: `/model provider:model`. To return to the configured one: `/model default`.",
        ]
    )


async def _models_of(name: str, conversation: ConversationView) -> str:
    """List all models of a provider; raise CommandFailed with a suggestion if it is unknown."""
    offered = await conversation.offered_models()
    if own := [each for each in offered if each.provider == name]:
        return "\n".join(_format_models(own, None))
    full = {model: f"{each.provider}:{model}" for each in offered for model in each.models}
    meant = full.get(name)
    guess = f"; did you mean `{meant}`?" if meant else did_you_mean(name, full.values(), mark="`") or "."
    raise CommandFailed(f"Write /model provider:model, such as /model openai:gpt-4.1, or /model default{guess}")


def _format_models(offered: Sequence[OfferedModels], most: int | None) -> Iterator[str]:
    for each in offered:
        names = ", ".join(code(f"{each.provider}:{model}") for model in each.models[:most])
        left = len(each.models) - len(each.models[:most])
        more = f" and {left:,} more: `/model {each.provider}`" if left else ""
        if each.failed:
            yield f"- {each.provider}: its models could not be listed ({each.failed})"
        else:
            yield f"- {each.provider} has {names or 'no chat model'}{more}"

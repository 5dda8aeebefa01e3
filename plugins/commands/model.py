"""`/model`: which model answers, which there are, and another one from the next turn on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, ModelsOffered
from plugins.commands.markdown import code
from plugins.support.suggestions import did_you_mean

_NAMED = re.compile(r"[^\s:]+:\S+")

SHOWN = 30
"""Models of one provider that are listed beside those of others."""


class Model:
    """Shows or changes the session's model."""

    name: ClassVar[str] = "model"
    usage: ClassVar[str] = "/model [provider:model]"
    summary: ClassVar[str] = (
        "Show which model answers, why, and which there are; or change it. `/model default` returns to the configured one."
    )
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Without an argument: what is in use, why, what there is, and how to change it. With a provider: all its models.
        With `provider:model`, `auto` or `default`: change it. Raises CommandFailed for anything else, and for a model that
        there is not."""
        if not argument:
            return await _shown(conversation)
        if argument == "default":
            return f"From the next turn on: {await conversation.choose_model(None)}"
        if argument != "auto" and not _NAMED.fullmatch(argument):
            return await _of_provider(argument, conversation)
        return f"From the next turn on: {await conversation.choose_model(argument)}"


async def _shown(conversation: ConversationView) -> str:
    names = ", ".join(code(name) for name in conversation.models()) or "none"
    return "\n".join(
        [
            f"- In use: {conversation.model()}",
            f"- Ready to answer: {names}",
            *_lines(await conversation.offered_models(), SHOWN),
            "- To change it for this session: `/model provider:model`; back to the configured one: `/model default`",
        ]
    )


async def _of_provider(name: str, conversation: ConversationView) -> str:
    """All models of a provider; CommandFailed with what may be meant if none is called so."""
    offered = await conversation.offered_models()
    if own := [each for each in offered if each.provider == name]:
        return "\n".join(_lines(own, None))
    full = {model: f"{each.provider}:{model}" for each in offered for model in each.models}
    meant = full.get(name)
    guess = f"; did you mean `{meant}`?" if meant else did_you_mean(name, full.values(), mark="`") or "."
    raise CommandFailed(f"Write /model provider:model, such as /model openai:gpt-4.1, or /model default{guess}")


def _lines(offered: Sequence[ModelsOffered], most: int | None) -> Iterator[str]:
    for each in offered:
        names = ", ".join(code(f"{each.provider}:{model}") for model in each.models[:most])
        left = len(each.models) - len(each.models[:most])
        more = f" and {left:,} more: `/model {each.provider}`" if left else ""
        if each.failed:
            yield f"- {each.provider}: its list of models could not be had ({each.failed})"
        else:
            yield f"- {each.provider} has {names or 'no model to talk to'}{more}"

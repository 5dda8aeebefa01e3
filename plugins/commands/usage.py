"""`/usage`: the tokens that this session has cost, by purpose and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView
from plugins.commands.markdown import code
from sessions.events.messages import Usage as Tokens


class Usage:
    """Shows what the providers counted."""

    name: ClassVar[str] = "usage"
    usage: ClassVar[str] = "/usage"
    summary: ClassVar[str] = "Show the tokens of this session, by purpose and model."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with a table, and its sum where it has several rows; CommandFailed where anything follows the name."""
        if argument:
            raise CommandFailed("/usage takes nothing after it.")
        spent, before = conversation.spent(), conversation.inherited()
        came = _of_plugins(conversation.spent_by_plugins())
        if before != Tokens():
            came = (
                f"{came} It is the fork of a session that had {before.input:,} tokens in ({before.cached:,} cached) and"
                f" {before.output:,} out until then; they are not counted here."
            ).strip()
        if not spent:
            return " ".join(["No provider has counted any tokens in this session yet.", came]).strip()
        rows = [
            _row(purpose, code(model), tokens) for purpose, by_model in spent.items() for model, tokens in by_model.items()
        ]
        if len(rows) > 1:
            total = sum((tokens for by_model in spent.values() for tokens in by_model.values()), Tokens())
            rows.append(_row("**all**", "", total))
        table = "\n".join(["| for | model | in | of it cached | out |", "|---|---|---:|---:|---:|", *rows])
        return f"{table}\n\n{came}" if came else table


def _of_plugins(spent: Mapping[str, Mapping[str, Tokens]]) -> str:
    """What plugins have used, which is nobody's session's, as sentences."""
    return " ".join(
        f"Beside all sessions {code(purpose)} has used {tokens.input:,} tokens in and {tokens.output:,} out of {code(model)}"
        " since the gateway started."
        for purpose, by_model in spent.items()
        for model, tokens in by_model.items()
    )


def _row(purpose: str, model: str, tokens: Tokens) -> str:
    return f"| {purpose} | {model} | {tokens.input:,} | {tokens.cached:,} | {tokens.output:,} |"

"""The `/usage` command, which shows the tokens used by the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView
from plugins.commands.markdown import code
from sessions.events.messages import Usage as Tokens


class Usage:
    """The `/usage` command, which shows the token counts reported by the providers."""

    name: ClassVar[str] = "usage"
    usage: ClassVar[str] = "/usage"
    summary: ClassVar[str] = "Show the tokens of this session, by purpose and model."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with a table by purpose and model, with a total if it has several rows."""
        if argument:
            raise CommandFailed("/usage takes no argument.")
        spent, before = conversation.spent(), conversation.inherited()
        remarks = _plugin_usage(conversation.spent_by_plugins())
        if before != Tokens():
            remarks = (
                f"{remarks} This session is a fork. The {before.input:,} tokens in ({before.cached:,} cached) and"
                f" {before.output:,} out of the original session up to the fork are not counted here."
            ).strip()
        if not spent:
            return " ".join(["No provider has reported any tokens for this session yet.", remarks]).strip()
        rows = [
            _row(purpose, code(model), tokens) for purpose, by_model in spent.items() for model, tokens in by_model.items()
        ]
        if len(rows) > 1:
            total = sum((tokens for by_model in spent.values() for tokens in by_model.values()), Tokens())
            rows.append(_row("**total**", "", total))
        table = "\n".join(["| purpose | model | in | cached | out |", "|---|---|---:|---:|---:|", *rows])
        return f"{table}\n\n{remarks}" if remarks else table


def _plugin_usage(spent: Mapping[str, Mapping[str, Tokens]]) -> str:
    """Describe the usage of plugins, which belongs to no session."""
    return " ".join(
        f"Outside of sessions, {code(purpose)} has used {tokens.input:,} tokens in and {tokens.output:,} out with"
        f" {code(model)} since the gateway started."
        for purpose, by_model in spent.items()
        for model, tokens in by_model.items()
    )


def _row(purpose: str, model: str, tokens: Tokens) -> str:
    return f"| {purpose} | {model} | {tokens.input:,} | {tokens.cached:,} | {tokens.output:,} |"

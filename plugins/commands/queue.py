"""The `/queue` command, which controls how messages that arrive during a turn are handled."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView

MODES = {
    "followup": "each message is answered by its own turn, in order",
    "collect": "messages that arrive during a turn are answered together by the next one",
    "steer": "messages that arrive during a turn join it after the current tool call",
    "interrupt": "a message that arrives during a turn stops the turn and its tools, and is answered next",
}


class Queue:
    """The `/queue` command, which shows or changes the session's queue mode."""

    name: ClassVar[str] = "queue"
    usage: ClassVar[str] = "/queue [followup|collect|steer|interrupt|default]"
    summary: ClassVar[str] = "Show or choose how messages that arrive during a turn are handled."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Show the current mode and the others, or change the mode, also for messages that already wait."""
        if not argument:
            return _overview(conversation)
        if argument != "default" and argument not in MODES:
            raise CommandFailed(f"Write /queue and one of {', '.join(MODES)}, or /queue default.")
        await conversation.choose_queue(None if argument == "default" else argument)
        mode = conversation.queue().mode
        return f"From now on `{mode}`: {MODES[mode]}."


def _overview(conversation: ConversationView) -> str:
    queue = conversation.queue()
    modes = [f"- `{mode}`: {meaning}{' (current)' if mode == queue.mode else ''}" for mode, meaning in MODES.items()]
    return "\n".join([f"{queue.waiting} of at most {queue.limit} messages are waiting.", "", *modes])

"""`/queue`: what becomes of messages that arrive during a turn."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView

MODES = {
    "followup": "each message is answered by a turn of its own, in order",
    "collect": "what arrives during a turn is answered together by the next one",
    "steer": "what arrives during a turn joins it behind its next tool; the tool goes on",
    "interrupt": "what arrives during a turn stops it, its tool too, and is answered next",
}


class Queue:
    """Shows or changes the session's queue mode."""

    name: ClassVar[str] = "queue"
    usage: ClassVar[str] = "/queue [followup|collect|steer|interrupt|default]"
    summary: ClassVar[str] = "Show or choose what becomes of messages that arrive during a turn."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Without an argument: the mode, what waits, and the choice. With a mode or `default`: change it from now on, also
        for what waits already. CommandFailed for anything else."""
        if not argument:
            return _shown(conversation)
        if argument != "default" and argument not in MODES:
            raise CommandFailed(f"Write /queue and one of {', '.join(MODES)}, or /queue default.")
        await conversation.choose_queue(None if argument == "default" else argument)
        mode = conversation.queue().mode
        return f"From now on `{mode}`: {MODES[mode]}."


def _shown(conversation: ConversationView) -> str:
    queue = conversation.queue()
    modes = [f"- `{mode}`: {meaning}{' (in force)' if mode == queue.mode else ''}" for mode, meaning in MODES.items()]
    return "\n".join([f"{queue.waiting} of {queue.limit} places are taken.", "", *modes])

"""The activity that channels show while a turn runs for one of their chats: that the assistant is typing, or a draft of the
answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.conversations.turn.streaming_reply import StreamingReplies
from plugins.api.channel import Channel, ChannelActivity, ShowsActivity
from plugins.support.untrusted import reraise_cancellation
from sessions.events.events import ApprovalGiven, Recorded, TurnEnded, TurnParked, TurnResumed, TurnStarted
from sessions.store.recorder import Recorder

DEFAULT_SECONDS = 4.0
"""Seconds between two calls for a chat, unless the channel says otherwise."""

CALL_SECONDS = 10.0
"""Seconds that one call may take."""


class TurnActivity:
    """Calls `show_activity` of channels while turns run, in one task for each turn. A turn neither waits for it nor fails.

    `channel` returns an open channel by its name, None while it is closed.
    """

    def __init__(self, channel: Callable[[str], Channel | None]) -> None:
        self._channel = channel
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def opened(self, recorder: Recorder, streaming: StreamingReplies) -> None:
        """Show the activity of a session that was opened."""
        recorder.on_event(lambda recorded: self._on_event(recorder, streaming, recorded))

    async def close(self) -> None:
        """Stop."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    def _on_event(self, recorder: Recorder, streaming: StreamingReplies, recorded: Recorded) -> None:
        session = recorder.transcript.session
        match recorded.event:
            case TurnStarted() | TurnResumed() | ApprovalGiven() if session not in self._tasks:
                turn = recorder.transcript.open_turn
                to = turn.reply_to if turn is not None else None
                if to is not None and isinstance(self._channel(to.channel), ShowsActivity):
                    task = self._tasks[session] = asyncio.create_task(self._show(recorder, streaming))
                    task.add_done_callback(lambda task: self._ended(session, task))
            case TurnEnded() | TurnParked() if (running := self._tasks.pop(session, None)) is not None:
                running.cancel()  # the answer is not followed by a late draft

    def _ended(self, session: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(session) is task:
            del self._tasks[session]

    async def _show(self, recorder: Recorder, streaming: StreamingReplies) -> None:
        while (turn := recorder.transcript.open_turn) is not None and (to := turn.reply_to) is not None:
            channel = self._channel(to.channel)
            if isinstance(channel, ShowsActivity):
                reply = streaming.current
                text = reply.text if reply is not None and reply.turn == turn.ordinal and not reply.ended else ""
                await _call(channel, ChannelActivity(chat=to.chat, thread=to.thread, text=text))
            await asyncio.sleep(getattr(channel, "activity_seconds", DEFAULT_SECONDS))


async def _call(channel: ShowsActivity, activity: ChannelActivity) -> None:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            await channel.show_activity(activity)
    except BaseException as error:
        reraise_cancellation(error)

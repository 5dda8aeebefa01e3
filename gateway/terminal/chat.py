"""`exuvia chat`: one session on a terminal, or between the ends of a pipe."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Any, TextIO, TypeAlias
from uuid import uuid4

import msgspec

from gateway.terminal.client import Client, Happened, MessageRefused
from gateway.terminal.connection import ClientError, websocket_url
from gateway.terminal.frames import Accepted, Delta
from gateway.terminal.keyboard import Keyboard
from gateway.terminal.outstanding import Outstanding
from gateway.terminal.screen import Page, Screen

TERMINAL_PATIENCE = 7 * 24 * 3600.0
"""Seconds that a terminal waits for a lost gateway: until the person leaves."""

PIPE_PATIENCE = 60.0
"""Seconds that a pipe waits for it."""

TWICE_SECONDS = 2.0
"""A second Ctrl-C within this time leaves where nothing runs."""

LEFT_BY_INTERRUPT = 130
STANDARD_INPUT = 0

View: TypeAlias = Page | Screen


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `exuvia chat` was asked: `once` sends all of the input as one message."""

    url: str
    token: str
    session: str
    once: bool


def chat(options: ChatOptions) -> int:
    """Talk until the input ends or the person leaves. Returns the exit code: 0 well, 1 if an answer failed, 2 if there was
    no connection or nothing to say, 130 if a pipe was interrupted."""
    interactive = os.isatty(STANDARD_INPUT) and not options.once
    try:
        url = websocket_url(options.url)
        return asyncio.run(_chat(options, url, interactive=interactive, view=_view(options, url)))
    except ClientError as error:
        sys.stderr.write(f"exuvia: {error}\n")
        return 2
    except BrokenPipeError:
        # Whoever read our output has enough of it; nothing may be flushed there at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _view(options: ChatOptions, url: str) -> View:
    if not sys.stdout.isatty():
        return Page(sys.stdout, sys.stderr)
    return Screen(sys.stdout, address=url, session=options.session, styled=_wants_style(sys.stdout))


def _wants_style(out: TextIO) -> bool:
    return out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"


async def _chat(options: ChatOptions, url: str, *, interactive: bool, view: View) -> int:
    patience = TERMINAL_PATIENCE if interactive else PIPE_PATIENCE
    async with Client(url, options.token, session=options.session, name="exuvia chat", patience=patience) as client:
        terminal = ChatTerminal(client, view, Keyboard(STANDARD_INPUT))
        if interactive:
            return await terminal.run(terminal.talk())
        return await terminal.run(terminal.send_everything() if options.once else terminal.send_lines())


class ChatTerminal:
    """The parts of one chat: what is typed goes to the client, what comes goes to the view, Ctrl-C to the turn."""

    def __init__(self, client: Client, view: View, keyboard: Keyboard) -> None:
        self._client = client
        self._view = view
        self._keyboard = keyboard
        self._outstanding = Outstanding()
        self._talking = False
        self._interrupted = -TWICE_SECONDS
        self._stopping = False
        """A cancel was asked for and nothing has ended since."""
        self._left: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self, sending: Coroutine[None, None, int]) -> int:
        """Show what comes while `sending` goes on; returns its exit code, or that of leaving by Ctrl-C."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        showing, sender = asyncio.create_task(self._show()), asyncio.create_task(sending)
        try:
            ends: list[asyncio.Future[Any]] = [showing, sender, self._left]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._left.done():
                return self._left.result()
            if showing.done():
                showing.result()
            return await sender
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is leaving: an impatient Ctrl-C more changes nothing
            showing.cancel()
            sender.cancel()
            await asyncio.gather(showing, sender, return_exceptions=True)

    async def talk(self) -> int:
        """Send each line at once, also while an answer streams, until the input ends."""
        self._talking = True
        async for line in self._keyboard.lines():
            if isinstance(self._view, Screen):
                self._view.entered()
            if line.strip():
                self._submit(line)
            self._prompt()
        return 0

    async def send_lines(self) -> int:
        """Send each line once the one before was answered. Returns 1 if one was not answered well."""
        failed = False
        async for line in self._keyboard.lines():
            if line.strip():
                failed |= not await self._exchange(line)
        return int(failed)

    async def send_everything(self) -> int:
        """Send all of the input as one message, and wait for its answer."""
        text = await self._keyboard.everything()
        if not text.strip():
            self._view.say("There was nothing to send on the standard input.")
            return 2
        return 0 if await self._exchange(text) else 1

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _exchange(self, text: str) -> bool:
        message_id = str(uuid4())
        while True:
            end = self._outstanding.expect(message_id)
            try:
                await self._client.send(text, message_id=message_id)
            except MessageRefused as refused:
                self._outstanding.finish(message_id, well=False)
                if refused.retry_after is None:
                    self._view.say(str(refused))
                    return False
                await asyncio.sleep(refused.retry_after)
            else:
                return await end

    def _submit(self, text: str) -> None:
        message_id = str(uuid4())
        self._outstanding.expect(message_id)
        self._stopping = False

        def settled(accepted: asyncio.Future[Accepted]) -> None:
            error = None if accepted.cancelled() else accepted.exception()
            if isinstance(error, MessageRefused):
                self._outstanding.finish(message_id, well=False)
                self._view.say(f"{error} Not sent: {text}")
                self._prompt()

        self._client.send(text, message_id=message_id).add_done_callback(settled)

    # --- showing ------------------------------------------------------------------------------------------------------

    async def _show(self) -> None:
        async for received in self._client.signals():
            ours = True
            if isinstance(received, Happened):
                ours = self._outstanding.concerns(received.session_id, received.recorded)
            self._view.show(received, ours=ours)
            if isinstance(received, Happened):
                self._outstanding.fold(received.session_id, received.recorded)
            if not isinstance(received, Delta):
                self._prompt()

    def _prompt(self) -> None:
        """Invite the person to write, where there is one, once nothing is being answered."""
        if self._talking and isinstance(self._view, Screen) and not self._outstanding.running:
            self._stopping = False
            self._view.prompt()

    # --- leaving ------------------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Ctrl-C: end the running turn; where that was asked for already, or nothing runs, leave at the second time."""
        now = time.monotonic()
        if self._stopping or now - self._interrupted < TWICE_SECONDS:
            self._leave()
        elif self._outstanding.running and self._client.cancel():
            self._stopping = True
        elif self._talking:
            self._interrupted = now
            self._view.say("Press Ctrl-C again, or Ctrl-D, to leave.")
            self._prompt()
        else:
            self._leave()

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(0 if self._talking else LEFT_BY_INTERRUPT)

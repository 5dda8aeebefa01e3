"""The loop of one session: sends input with the client, shows its signals, and cancels the turn on Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

from gateway.protocol.client_frames import Accepted, Delta, Output, Reasoning
from gateway.support.approval_text import SCOPES
from gateway.support.printable import one_line
from gateway.terminal.activity import Activity, Ending, PendingReplies
from gateway.terminal.client.client import ChatClient, MessageRefused
from gateway.terminal.client.connection import Uploaded, UploadRefused
from gateway.terminal.client.signals import Happened
from gateway.terminal.json_page import JsonPage
from gateway.terminal.keyboard import Keyboard
from gateway.terminal.local_commands import own_help, own_help_of, own_hint
from gateway.terminal.pictures.shown_pictures import Pictures, files_of
from gateway.terminal.screen import Page, Screen
from sessions.events.events import ApprovalAsked, ApprovalScope, Event, UnknownEvent

TWICE_SECONDS = 2.0
"""Seconds within which a second Ctrl-C leaves the program if no turn runs."""

READING_SECONDS = 0.7
"""Seconds for which a new question takes no key, which may have been typed before it appeared."""

APPROVING: Mapping[str, ApprovalScope] = {"y": "once", "s": "session", "a": "always"}
DENYING = "n"

QUESTION_OPEN = 3
"""The exit code if the conversation waits for the answer to a question."""

LEFT_BY_INTERRUPT = 130
LEFT_BY_TERMINATION = 143

SWITCH_USAGE = "/switch takes the name of a conversation: 1 to 64 of A-Z a-z 0-9 . _ : -"

MENTIONED = re.compile(r"(?:^|(?<=\s))@(\S+)")
"""A path in a message, which is sent as a file if there is one."""

KEY = re.compile(r"[A-Za-z0-9._:-]{1,64}")

View: TypeAlias = Page | JsonPage | Screen


class Keys(Protocol):
    """A source of input lines."""

    def lines(self) -> AsyncIterator[str]:
        """Yield each line until the input ends."""


class Repl:
    """The loop of one session.

    `attached` are the files of the next message, in a list that the caller keeps. `switch_to` is the key to continue
    with once `run` has returned. `pick` puts a text into the input line and opens its completions, if there can be any.
    `pictures` draws pictures, if the terminal can show them.
    """

    def __init__(
        self,
        client: ChatClient,
        view: View,
        keys: Keys,
        attached: list[Uploaded],
        *,
        pick: Callable[[str], None] | None = None,
        pictures: Pictures | None = None,
    ) -> None:
        self.switch_to: str | None = None
        self._client = client
        self._view = view
        self._keys = keys
        self._attached = attached
        self._pick = pick
        self._pictures = pictures or Pictures(None, lambda: (0, 0))
        self._uploading = ""
        self._activity = Activity()
        self._pending = PendingReplies()
        self._helps: list[asyncio.Future[Ending]] = []
        """The pending answers to `/help`."""
        self._held: set[str] = set()
        """The ids of messages that are shown once they are answered."""
        self._seen: tuple[str, int | None] = ("", None)
        """The session and turn of the newest event."""
        self._early: list[Delta] = []
        self._asked = 0.0
        """The time at which the newest question was shown."""
        self._interactive = False
        self._interrupted = -TWICE_SECONDS
        self._stopping = False
        """True from Ctrl-C until the cancelled turn has ended."""
        self._left: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self, sending: Coroutine[None, None, int]) -> int:
        """Show signals while `sending` runs; return its exit code, or that of leaving by Ctrl-C."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        # The prompt changes the settings of the terminal: leave in an orderly way, so that they are restored.
        loop.add_signal_handler(signal.SIGTERM, self._leave, LEFT_BY_TERMINATION)
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
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # leaving: further Ctrl-C are ignored
            showing.cancel()
            sender.cancel()
            await asyncio.gather(showing, sender, return_exceptions=True)

    async def interact(self) -> int:
        """Send each line at once, also while an answer streams, until the input ends."""
        self._interactive = True
        async for line in self._keys.lines():
            message_id = str(uuid4())
            if isinstance(self._view, Screen):
                self._view.entered(self._hold(line, message_id))
            if line.strip() and not self.answer(line.strip()) and not await self._own_command(line):
                await self._attach_mentioned(line)
                self._submit(line, message_id)
            if self.switch_to is not None:
                break
            self._prompt()
        return 0

    async def send_lines(self) -> int:
        """Send each line after the previous one was answered, and return the exit code."""
        failed = False
        async for line in self._keys.lines():
            if line.strip():
                failed |= await self._exchange(line) is Ending.FAILED
                await self._pending.idle.wait()  # it may have approved a call, after which the turn continues
        return self._exit_code(failed=failed)

    async def send_all(self, keyboard: Keyboard, *, after: str = "", reads: bool = True) -> int:
        """Send one message, wait for its answer, and return the exit code.

        Args:
            keyboard: The input, all of which is part of the message.
            after: The beginning of the message, which the input follows.
            reads: False to leave the input alone.
        """
        read = await keyboard.read_all() if reads else ""
        text = "\n\n".join(part for part in (after, read) if part.strip())
        if not text.strip():
            self._view.say("The standard input is empty; nothing was sent.")
            return 2
        return self._exit_code(failed=await self._exchange(text) is Ending.FAILED)

    def _exit_code(self, *, failed: bool) -> int:
        if self._pending.parked:
            self._view.say(
                "A tool call waits for approval: answer in the console or in exuvia chat, or send the command above."
            )
            return QUESTION_OPEN
        return int(failed)

    @property
    def answers(self) -> Mapping[str, str]:
        """The keys that answer the open question, and their meanings; none until it could be read."""
        question = next(iter(self._pending.questions.asked.values()), None)
        if question is None or time.monotonic() - self._asked < READING_SECONDS:
            return {}
        return {key: SCOPES[scope] for key, scope in APPROVING.items() if scope in question.choices} | {DENYING: "deny"}

    def answer(self, key: str) -> bool:
        """Answer the open question with a key; return False if it is none."""
        if key not in self.answers:
            return False
        question = next(iter(self._pending.questions.asked.values()))
        scope = APPROVING.get(key)
        if not self._client.approve(question.approval, "approve" if scope else "deny", scope or "once"):
            self._view.say("Not connected; answer again once the gateway is back.")
        return True

    def activity(self) -> str | None:
        """Return a short description of the activity; None if idle."""
        if self._uploading:
            return f"sending {self._uploading}"
        if answers := self.answers:
            return f"waiting for your answer: {', '.join(f'{key} {meaning}' for key, meaning in answers.items())}"
        unsent = self._client.unaccepted
        return self._activity.sentence(
            time.monotonic(),
            running=self._pending.turns,
            waiting=max(0, self._pending.waiting - unsent),  # a turn may take one before its acknowledgement arrives
            unsent=unsent,
        )

    # --- our own commands ---------------------------------------------------------------------------------------------

    async def _own_command(self, line: str) -> bool:
        """Run a command of this program; return False if the line is for the gateway."""
        name, _, argument = line.strip().partition(" ")
        if name == "/attach":
            await self._attach(argument.strip())
        elif name == "/switch" and argument.strip():
            self._switch(argument.strip())
        elif name in ("/switch", "/sessions") and not argument.strip() and self._pick is not None:
            await self._client.list_sessions()
            self._pick("/switch ")
        elif name == "/switch":
            self._view.say(SWITCH_USAGE)
        elif name == "/help" and (line_of_ours := own_help_of(argument)) is not None:
            self._view.document(line_of_ours)
        elif (hint := own_hint(line, self._client.commands)) is not None:
            self._view.say(hint)
        else:
            return False
        return True

    async def _attach_mentioned(self, line: str) -> None:
        """Attach the files that a message names as `@path`; other words with an `@` are left as they are."""
        for path in dict.fromkeys(MENTIONED.findall(line)) if not line.lstrip().startswith("/") else ():
            named = (path, path.rstrip(".,;:!?)"))
            if (file := await asyncio.to_thread(_first_file, named)) is not None:
                await self._attach(file)

    async def _attach(self, path: str) -> None:
        if not path:
            self._view.say("/attach takes the path of a file: /attach PATH")
            return
        file = Path(os.path.expanduser(path))  # noqa: ASYNC240 - it looks the home up, and reads nothing
        self._uploading = one_line(file.name, 60)
        try:
            self._attached.append(await self._client.upload(file))
        except UploadRefused as refused:
            self._view.say(str(refused))
        else:
            self._view.say(f"{self._uploading} will be sent with the next message.")
        finally:
            self._uploading = ""

    def _switch(self, key: str) -> None:
        if not KEY.fullmatch(key):
            self._view.say(SWITCH_USAGE)
        elif self._client.unaccepted:
            self._view.say("A message has not reached the gateway yet; try again once it has.")
        elif key != self._client.session:
            self.switch_to = key

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _exchange(self, text: str) -> Ending:
        message_id = str(uuid4())
        end = self._pending.expect(message_id)
        try:
            await self._client.send(text, message_id=message_id)
        except MessageRefused as refused:
            self._pending.finish(message_id, Ending.FAILED)
            self._view.say(str(refused))
        return await end

    def _hold(self, line: str, message_id: str) -> str | None:
        """Hold a message that waits for the running turn, and return its id; None for a command, or if no turn runs."""
        if not self._pending.running or line.lstrip().startswith("/"):
            return None
        self._held.add(message_id)
        return message_id

    def _release(self, *ids: str) -> None:
        """Show held messages, because their turn begins or they will have none."""
        for message_id in ids:
            if message_id in self._held and isinstance(self._view, Screen):
                self._held.remove(message_id)
                self._view.taken(message_id)

    def _submit(self, text: str, message_id: str) -> None:
        end = self._pending.expect(message_id)
        if text.split() == ["/help"]:
            self._helps.append(end)
        self._stopping = False
        attachments = tuple(self._attached)
        self._attached.clear()

        def settled(accepted: asyncio.Future[Accepted]) -> None:
            error = None if accepted.cancelled() else accepted.exception()
            if isinstance(error, MessageRefused):
                self._pending.finish(message_id, Ending.FAILED)
                self._attached[:0] = attachments
                self._release(message_id)
                self._view.say(f"{error} Not sent: {text}")
                self._prompt()

        sent = self._client.send(text, message_id=message_id, attachments=attachments)
        sent.add_done_callback(settled)

    # --- showing ------------------------------------------------------------------------------------------------------

    async def _show(self) -> None:
        async for received in self._client.signals():
            if isinstance(received, Delta) and self._is_early(received):
                self._early.append(received)
                continue
            ours = True
            if isinstance(received, Happened):
                if isinstance(received.recorded.event, ApprovalAsked):
                    self._asked = time.monotonic()
                ours = self._pending.concerns(received.session_id, received.recorded)
                self._release(*self._pending.takes(received.session_id, received.recorded))
                self._seen = (received.session_id, received.recorded.turn or self._seen[1])
            self._view.show(received, ours=ours)
            self._activity.fold(received, time.monotonic())
            if isinstance(received, Happened):
                await self._show_files(received.recorded.event)
                self._pending.fold(received.session_id, received.recorded)
                self._complete_help()
                self._show_early()
            if not isinstance(received, Delta | Reasoning | Output):
                self._prompt()

    async def _show_files(self, event: Event | UnknownEvent) -> None:
        """Show the files of an event below it."""
        if isinstance(self._view, Screen) and self._interactive and (files := files_of(event)):
            for file, drawing in await self._pictures.drawings(files, self._client.download):
                if drawing is not None or file.content is None:  # the caption of another stands in the text of the answer
                    self._view.file(file.caption, drawing)

    def _is_early(self, delta: Delta) -> bool:
        """Return True if a delta arrived before the event that says which messages its turn has taken.

        Held messages of the turn must be shown above it.
        """
        return bool(self._held) and self._seen != (delta.session_id, delta.turn)

    def _show_early(self) -> None:
        early, self._early = self._early, []
        for delta in early:
            if self._is_early(delta):
                self._early.append(delta)
            else:
                self._view.show(delta, ours=True)

    def _complete_help(self) -> None:
        """Show the commands of this program below the gateway's."""
        answered = [end for end in self._helps if end.done()]
        self._helps = [end for end in self._helps if not end.done()]
        for end in answered:
            if end.result() is Ending.WELL:
                self._view.document(own_help())

    def _prompt(self) -> None:
        """Show the prompt, if a person uses it and no answer is pending."""
        if self._interactive and isinstance(self._view, Screen) and not self._pending.running:
            self._stopping = False
            self._release(*self._held.copy())
            self._view.prompt()

    def unfold(self) -> None:
        """Handle Ctrl-O: show the output of the running tool, or a finished call in full."""
        if isinstance(self._view, Screen):
            self._view.unfold()

    # --- leaving ------------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Handle Ctrl-C: cancel the running turn; leave on the second one, or if nothing can be cancelled."""
        now = time.monotonic()
        if self._stopping or now - self._interrupted < TWICE_SECONDS:
            self._leave()
        elif (self._pending.running or self._pending.parked) and self._client.cancel():
            self._stopping = True
        elif self._interactive:
            self._interrupted = now
            self._view.say("Press Ctrl-C again, or Ctrl-D, to leave.")
            self._prompt()
        else:
            self._leave()

    def _leave(self, code: int | None = None) -> None:
        if not self._left.done():
            self._left.set_result(code if code is not None else 0 if self._interactive else LEFT_BY_INTERRUPT)


def _first_file(paths: Sequence[str]) -> str | None:
    """Return the first path at which there is a file. Blocks."""
    return next((path for path in paths if os.path.isfile(os.path.expanduser(path))), None)

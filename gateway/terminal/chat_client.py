"""The entry point of `exuvia chat`, for a person at a terminal or for a pipe."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from gateway.protocol.client_frames import CommandLine
from gateway.support.printable import one_line
from gateway.terminal.client.client import ChatClient
from gateway.terminal.client.connection import ClientError, websocket_url
from gateway.terminal.client.uploading import Uploaded
from gateway.terminal.keyboard import Keyboard
from gateway.terminal.local_commands import OWN_COMMANDS
from gateway.terminal.renderer import PlainRenderer
from gateway.terminal.repl import Repl, View
from gateway.terminal.screen import CLIENT, Page, Screen

if TYPE_CHECKING:
    from gateway.terminal.prompt_ui import PromptUI

TERMINAL_PATIENCE = 7 * 24 * 3600.0
"""Seconds for which a terminal tries to reconnect."""

PIPE_PATIENCE = 60.0
"""Seconds for which a pipe tries to reconnect."""

STANDARD_INPUT = 0

ASSUMED_COLUMNS = 80
"""Columns of a terminal that does not report its size."""


class Completions(Completer):
    """Completion of commands, of session keys after `/switch`, and of paths after `/attach`.

    `commands` and `keys` are called each time, since they can change.
    """

    def __init__(self, *, commands: Callable[[], Sequence[CommandLine]], keys: Callable[[], Sequence[str]]) -> None:
        self._commands = commands
        self._keys = keys
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        before = document.text_before_cursor
        name, space, argument = before.partition(" ")
        if not before.startswith("/") or "\n" in before:
            return
        if not space:
            yield from self._names(name)
        elif name == "/switch":
            for key in self._keys():
                if key.startswith(argument):
                    yield Completion(key, -len(argument))
        elif name == "/attach":
            yield from self._paths.get_completions(Document(argument), complete_event)

    def _names(self, typed: str) -> Iterable[Completion]:
        known = {command.name: command for command in (*self._commands(), *OWN_COMMANDS)}
        for name, command in sorted(known.items()):
            if f"/{name}".startswith(typed):
                text = f"/{name}" if command.usage.strip() == f"/{name}" else f"/{name} "
                yield Completion(
                    text, -len(typed), display=one_line(command.usage, 40), display_meta=one_line(command.summary, 80)
                )


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `exuvia chat`.

    `once` sends all of the input as one message. `token_file` is the file from which the token was read, if any; it
    may change.
    """

    url: str
    token: str
    token_file: Path | None
    session: str
    once: bool


def chat(options: ChatOptions) -> int:
    """Chat until the input ends or the person leaves.

    Returns:
        The exit code: 0 success, 1 an answer failed, 2 no connection or no input, 130 a pipe was interrupted.
    """
    try:
        return asyncio.run(_Chat(options, websocket_url(options.url)).run())
    except ClientError as error:
        sys.stderr.write(f"exuvia: {error}\n")
        return 2
    except BrokenPipeError:
        # The reader of our output closed it; nothing may be flushed there at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


class _Chat:
    """The state that is kept when a person switches between sessions."""

    def __init__(self, options: ChatOptions, url: str) -> None:
        self._options = options
        self._url = url
        self._interactive = os.isatty(STANDARD_INPUT) and not options.once
        self._styled = _wants_style()
        self._attached: list[Uploaded] = []
        self._client: ChatClient | None = None
        self._talk: Repl | None = None

    async def run(self) -> int:
        """Run one session after another; return the exit code."""
        desk = self._desk() if self._interactive and self._styled else None
        keys = desk or Keyboard(STANDARD_INPUT)
        patience = TERMINAL_PATIENCE if self._interactive else PIPE_PATIENCE
        session = self._options.session
        while True:
            view = self._view(session, desk)
            async with ChatClient(
                self._url,
                self._options.token,
                token_file=self._options.token_file,
                session=session,
                name=CLIENT,
                patience=patience,
            ) as client:
                talk = Repl(client, view, keys, self._attached)
                self._client, self._talk = client, talk
                code = await self._run(talk, keys)
            if talk.switch_to is None:
                return code
            session = talk.switch_to

    async def _run(self, talk: Repl, keys: PromptUI | Keyboard) -> int:
        if self._interactive:
            return await talk.run(talk.talk())
        if self._options.once and isinstance(keys, Keyboard):
            return await talk.run(talk.send_everything(keys))
        return await talk.run(talk.send_lines())

    def _view(self, session: str, desk: PromptUI | None) -> View:
        if not sys.stdout.isatty():
            return Page(sys.stdout, sys.stderr)
        return Screen(
            desk or PlainRenderer(sys.stdout, styled=self._styled, columns=_columns), address=self._url, session=session
        )

    def _desk(self) -> PromptUI:
        from gateway.terminal import prompt_ui as desk  # noqa: PLC0415 - prompt_toolkit, which only a person at a terminal needs
        from gateway.terminal.input_history import InputHistory, history_file  # noqa: PLC0415

        return desk.on_this_terminal(
            completer=Completions(
                commands=lambda: self._client.commands if self._client else (),
                keys=lambda: self._client.keys if self._client else (),
            ),
            history=InputHistory(history_file(os.environ)),
            activity=lambda: self._talk.activity() if self._talk else None,
            along=lambda: "".join(f"+{one_line(file.name, 30)} " for file in self._attached),
            interrupt=lambda: self._talk.interrupt() if self._talk else None,
        )


def _columns() -> int:
    # Not COLUMNS, which shutil prefers: an exported value does not follow the window.
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns or ASSUMED_COLUMNS
    except OSError:  # the terminal went away
        columns = ASSUMED_COLUMNS
    # The last column stays empty: terminals differ in wrapping a line that fills it.
    return max(8, columns - 1)


def _wants_style() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"

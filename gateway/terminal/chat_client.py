"""The entry point of `exuvia chat`, for a person at a terminal or for a pipe."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from gateway.support.printable import one_line
from gateway.terminal.client.client import ChatClient
from gateway.terminal.client.connection import ClientError, Uploaded, websocket_url
from gateway.terminal.json_page import JsonPage
from gateway.terminal.keyboard import Keyboard
from gateway.terminal.pictures.shown_pictures import Pictures
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

EARLIER_EVENTS = 60
"""Events of the conversation among which its last exchanges are looked for when it is opened at a terminal."""

ASSUMED_COLUMNS = 80
"""Columns of a terminal that does not report its size."""


PictureOption: TypeAlias = Literal["auto", "kitty", "iterm", "sixel", "off"]


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `exuvia chat`.

    Attributes:
        url: The address of the gateway.
        token: The token.
        token_file: The file from which it was read, if any; it may change.
        session: The key of the conversation.
        once: Send all of the input as one message.
        as_json: Print each answer as a line of JSON.
        pictures: How a terminal shows pictures: a protocol, "off", or "auto" to ask the terminal.
        question: A message to send, followed by the input if that is not a terminal; "" for none.
    """

    url: str
    token: str
    token_file: Path | None
    session: str
    once: bool = False
    as_json: bool = False
    pictures: PictureOption = "auto"
    question: str = ""


def chat(options: ChatOptions) -> int:
    """Chat until the input ends or the person leaves.

    Returns:
        The exit code: 0 success, 1 an answer failed, 2 no connection or no input, 3 a question about a tool call is
        open, 130 a pipe was interrupted.
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
        self._interactive = os.isatty(STANDARD_INPUT) and not (options.once or options.as_json or options.question)
        self._styled = _wants_style()
        self._attached: list[Uploaded] = []
        self._client: ChatClient | None = None
        self._repl: Repl | None = None

    async def run(self) -> int:
        """Run one session after another; return the exit code."""
        prompt_ui = self._prompt_ui() if self._interactive and self._styled else None
        pictures = await self._pictures(prompt_ui) if prompt_ui else None
        keys = prompt_ui or Keyboard(STANDARD_INPUT)
        patience = TERMINAL_PATIENCE if self._interactive else PIPE_PATIENCE
        session = self._options.session
        while True:
            view = self._view(session, prompt_ui)
            async with ChatClient(
                self._url,
                self._options.token,
                token_file=self._options.token_file,
                session=session,
                name=CLIENT,
                patience=patience,
                earlier=EARLIER_EVENTS if self._interactive else 0,
            ) as client:
                pick = prompt_ui.suggest if prompt_ui else None
                repl = Repl(client, view, keys, self._attached, pick=pick, pictures=pictures)
                self._client, self._repl = client, repl
                code = await self._run(repl, keys)
            if repl.switch_to is None:
                return code
            session = repl.switch_to

    async def _run(self, repl: Repl, keys: PromptUI | Keyboard) -> int:
        if self._interactive:
            return await repl.run(repl.interact())
        if isinstance(keys, Keyboard) and (self._options.once or self._options.question):
            return await repl.run(repl.send_all(keys, after=self._options.question, reads=not self._is_bare_question()))
        return await repl.run(repl.send_lines())

    def _is_bare_question(self) -> bool:
        """Return True if a question was given and nothing can follow it."""
        return bool(self._options.question) and os.isatty(STANDARD_INPUT)

    def _view(self, session: str, prompt_ui: PromptUI | None) -> View:
        if self._options.as_json:
            return JsonPage(sys.stdout, sys.stderr, session)
        if not sys.stdout.isatty():
            return Page(sys.stdout, sys.stderr)
        renderer = prompt_ui or PlainRenderer(sys.stdout, styled=self._styled, columns=_columns)
        return Screen(renderer, address="" if self._options.question else self._url, session=session)

    async def _pictures(self, prompt_ui: PromptUI) -> Pictures | None:
        """Return what draws pictures on this terminal; None if it cannot show any, or shall not."""
        if (wanted := self._options.pictures) == "off":
            return None
        from gateway.terminal.pictures import terminal_graphics  # noqa: PLC0415 - only where pictures may be shown

        known = None if wanted == "auto" else wanted
        terminal = STANDARD_INPUT, sys.stdout.fileno(), os.environ
        detected = await asyncio.to_thread(terminal_graphics.detect, *terminal, protocol=known)
        prompt_ui.typed_ahead = detected.typed
        return Pictures(detected.graphics, prompt_ui.picture_size) if detected.graphics else None

    def _prompt_ui(self) -> PromptUI:
        from gateway.terminal import prompt_ui  # noqa: PLC0415 - prompt_toolkit, which only a person at a terminal needs
        from gateway.terminal.input_line import Completions, InputHistory, history_file  # noqa: PLC0415 - as above

        return prompt_ui.on_this_terminal(
            colours=not os.environ.get("NO_COLOR"),
            completer=Completions(
                commands=lambda: self._client.commands if self._client else (),
                sessions=lambda: self._client.sessions if self._client else (),
            ),
            history=InputHistory(history_file(os.environ)),
            activity=lambda: self._repl.activity() if self._repl else None,
            attachments=lambda: "".join(f"+{one_line(file.name, 30)} " for file in self._attached),
            interrupt=lambda: self._repl.interrupt() if self._repl else None,
            unfold=lambda: self._repl.unfold() if self._repl else None,
            answer=lambda key: self._repl.answer(key) if self._repl else False,
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
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

"""The interactive prompt below the scrollback: a person can type while an answer streams.

Finished lines are written to the terminal's scrollback and never changed. Below them, only the unfinished block of an
answer, the activity and the input line are redrawn.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output

from gateway.support.printable import printable, without_escapes, wrapped
from gateway.terminal.input_line import MENTION
from gateway.terminal.renderer import PROMPT, coloured_diff, without_colours

if TYPE_CHECKING:
    from gateway.terminal.markdown.answer import Answer

TICK_SECONDS = 0.08
"""Seconds between redraws of a streaming answer."""

BUSY_SHARE = 4
"""After a slow redraw, pause for this many times its duration, so that input is handled first."""

MENU_LINES = 8

PROSE_COLUMNS = 120
"""Columns of the longest line of prose on a wider terminal."""

INPUT_LINES = 10
"""Lines of the input area; longer input scrolls."""

FOLDED_CHARS = 2_000
"""Characters of a pasted text from which on only its size is shown."""

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

BEGIN_DRAWING, END_DRAWING = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output; terminals that do not support it ignore the sequences."""


def key_bindings(
    buffer: Buffer,
    *,
    leave: Callable[[], None],
    interrupt: Callable[[], None],
    unfold: Callable[[], None],
    answer: Callable[[str], bool],
    paste: Callable[[str], str],
) -> KeyBindings:
    """Return the key bindings.

    Enter sends; Alt-Enter and Ctrl-J insert a line break; Ctrl-D leaves if the input is empty; Ctrl-C interrupts; Ctrl-O
    unfolds a tool call; Ctrl-Z suspends. A letter into empty input is first passed to `answer`, which returns True if it has
    answered a question; `paste` returns what is shown of a pasted text.
    """
    keys = KeyBindings()

    @keys.add(Keys.Any, filter=Condition(lambda: not buffer.text))
    def _answer(event: KeyPressEvent) -> None:
        if not answer(event.data):
            buffer.insert_text(event.data * event.arg)

    @keys.add(Keys.BracketedPaste)
    def _paste(event: KeyPressEvent) -> None:
        buffer.insert_text(paste(event.data.replace("\r\n", "\n").replace("\r", "\n")))

    @keys.add("enter")
    def _send(_: KeyPressEvent) -> None:
        buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _line_break(_: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add("c-d", filter=Condition(lambda: not buffer.text))
    def _leave(_: KeyPressEvent) -> None:
        leave()

    @keys.add("c-c")
    def _interrupt(_: KeyPressEvent) -> None:
        interrupt()

    @keys.add("c-o")
    def _unfold(_: KeyPressEvent) -> None:
        unfold()

    @keys.add("c-z")
    def _stop(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys


def parsed_keys(typed: bytes) -> list[KeyPress]:
    """Return the keys of what was typed before the prompt read the terminal."""
    presses = list[KeyPress]()
    parser = Vt100Parser(presses.append)
    parser.feed_and_flush(typed.decode("utf-8", "replace"))
    return presses


def keep_typed_ahead(keyboard: Input, typed: Sequence[KeyPress] = ()) -> None:
    """Keep input that was typed before the prompt appeared, `typed` first, for the application that runs next.

    The terminal turned Enter into a line feed at that time, which here inserts a line break; it is turned back.
    """
    enter = KeyPress(Keys.ControlM, "\r")
    while typed := (typed or keyboard.read_keys()):
        store_typeahead(keyboard, [enter if press.key is Keys.ControlJ else press for press in typed])
        typed = ()


class PromptUI:
    """A `Renderer` with an input line.

    At each redraw, `activity` returns the current activity and `attachments` the attachments of the next message.
    `interrupt` is called on Ctrl-C, `unfold` on Ctrl-O, `answer` with each letter that is typed into empty input.
    """

    def __init__(
        self,
        *,
        output: Output,
        keyboard: Input,
        completer: Completer,
        history: History,
        activity: Callable[[], str | None],
        attachments: Callable[[], str],
        interrupt: Callable[[], None],
        unfold: Callable[[], None],
        answer: Callable[[str], bool],
    ) -> None:
        self._output = output
        self._keyboard = keyboard
        self._activity = activity
        self._attachments = attachments
        self._interrupt = interrupt
        self._typed: asyncio.Queue[str | None] = asyncio.Queue()
        self._answer: Answer | None = None
        self._above = ""
        """Finished lines that are not written yet."""
        self._live = ""
        self._running = ""
        """The last lines of a running tool's output."""
        self._deferred: list[tuple[str, str]] = []
        """Lines that arrived while an answer streams, and what is shown of them meanwhile; they are written after it."""
        self._entered: deque[str] = deque()
        """Entered messages, rendered, before `entered` is called for them."""
        self._held: dict[str, str] = {}
        """Entered messages that wait for their turn, rendered, by id."""
        self._changed = False
        self.typed_ahead = b""
        """What was typed before the prompt was shown."""
        self._pasted: dict[str, str] = {}
        """Long pasted texts by what is shown of them."""
        self._buffer = Buffer(
            completer=completer,
            complete_while_typing=Condition(self._completes),
            history=history,
            multiline=True,
            accept_handler=self._accept,
        )
        self._app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=key_bindings(
                self._buffer,
                leave=self._leave,
                interrupt=self._interrupted,
                unfold=unfold,
                answer=answer,
                paste=self._fold_pasted,
            ),
            output=output,
            input=keyboard,
            erase_when_done=True,
            after_render=lambda _: output.write_raw(END_DRAWING),
        )

    async def lines(self) -> AsyncGenerator[str, None]:
        """Yield the entered messages until Ctrl-D. The terminal is in raw mode until then."""
        with self._keyboard.raw_mode():
            keep_typed_ahead(self._keyboard, parsed_keys(self.typed_ahead))
            self.typed_ahead = b""
            async with aclosing(self._entries()) as entries:
                async for entry in entries:
                    yield entry

    async def _entries(self) -> AsyncGenerator[str, None]:
        app = asyncio.create_task(self._app.run_async(handle_sigint=False))
        ticking = asyncio.create_task(self._tick())
        try:
            while (entry := await self._typed.get()) is not None:
                yield entry
        finally:
            ticking.cancel()
            if self._app.is_running:
                self._deferred += [(lines, lines) for lines in (*self._held.values(), *self._entered)]
                self._held.clear()
                self._entered.clear()
                self.finish()
                self._app.exit()
            await asyncio.gather(app, ticking, return_exceptions=True)

    # --- renderer -----------------------------------------------------------------------------------------------------

    def stream(self, text: str) -> None:
        """Append to the answer; it is drawn at the next tick."""
        if self._answer is None:
            from gateway.terminal.markdown.answer import Answer  # noqa: PLC0415 - rich, which the first prompt need not wait for

            self._answer = Answer()
        self._answer.add(printable(text))
        self._changed = True

    def finish(self) -> None:
        """Write the whole answer to the scrollback."""
        if self._answer is not None:
            self._above += self._answer.final_lines(self._columns, whole=True)
            self._answer, self._live, self._changed = None, "", False
        self.flush()

    def line(self, text: str) -> None:
        """Write printable text, wrapped."""
        self._put(wrapped(printable(text), self._columns).rstrip("\n") + "\n")

    def document(self, text: str) -> None:
        """Write rendered Markdown."""
        from gateway.terminal.markdown.markdown_rendering import rendered  # noqa: PLC0415 - rich, which the first prompt need not wait for

        self._put(rendered(text, self._columns))

    def dim(self, text: str) -> None:
        """Write dim text."""
        self._put("".join(f"\x1b[2m{line}\x1b[0m\n" for line in wrapped(text, self._columns).split("\n")))

    def verbatim(self, text: str) -> None:
        """Write printable text; the terminal wraps it."""
        self._put(without_escapes(text).rstrip("\n") + "\n")

    def diff(self, text: str) -> None:
        """Write a diff in colours."""
        self._put(coloured_diff(text))

    def picture(self, drawing: str, caption: str) -> None:
        """Write a picture; while an answer streams, only its caption is shown."""
        self._put(drawing, f"\x1b[2m{caption}\x1b[0m\n")

    def running(self, tail: str) -> None:
        """Show the lines above the activity, each cut to the width of the terminal."""
        self._running = (
            "".join(f"\x1b[2m  {line[: self._columns - 2]}\x1b[0m\n" for line in tail.split("\n")) if tail else ""
        )

    def prompt(self) -> None:
        """Redraw; the prompt is always visible."""
        self._app.invalidate()

    def entered(self, held: str | None) -> None:
        """Write an entered message to the scrollback, or keep it below the answer if it is held."""
        if held is None:
            self._put(self._entered.popleft())
        else:
            self._held[held] = self._entered.popleft()
            self._app.invalidate()

    def taken(self, name: str) -> None:
        """Write a held message to the scrollback."""
        if (lines := self._held.pop(name, None)) is not None:
            self._put(lines)

    def flush(self) -> None:
        """Write finished lines above the live area, and redraw that."""
        if self._answer is None:
            self._above += "".join(lines for lines, _ in self._deferred)
            self._deferred.clear()
        if self._above:
            lines, self._above = self._above.replace("\n", "\r\n"), ""
            if self._output.get_default_color_depth() is ColorDepth.MONOCHROME:
                lines = without_colours(lines)
            self._output.write_raw(BEGIN_DRAWING)
            if self._app.is_running:
                self._app.renderer.erase()
            self._output.write_raw(lines if self._app.is_running else lines + END_DRAWING)
            self._output.flush()
        self._app.invalidate()

    # --- drawing ------------------------------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        typed = BufferControl(self._buffer, input_processors=[BeforeInput(self._before_input)])
        entry = Window(typed, height=self._entry_height, wrap_lines=True, dont_extend_height=True)
        unfinished = Window(FormattedTextControl(self._unfinished), wrap_lines=True, dont_extend_height=True)
        status = Window(FormattedTextControl(self._status), height=1)
        return Layout(
            HSplit(
                [
                    ConditionalContainer(unfinished, Condition(lambda: bool(self._live or self._running or self._below()))),
                    ConditionalContainer(status, Condition(lambda: self._activity() is not None)),
                    entry,
                    CompletionsMenu(max_height=MENU_LINES),
                ]
            ),
            focused_element=entry,
        )

    def _unfinished(self) -> ANSI:
        size = self._output.get_size()
        room = max(1, size.rows - min(self._buffer.text.count("\n") + 1, INPUT_LINES) - 3)
        lines = "".join([self._live, self._running, *self._below()]).splitlines()
        return ANSI("\n".join(lines[-room:]))

    def _below(self) -> list[str]:
        """Return what is shown below the streaming answer."""
        return [*(shown for _, shown in self._deferred), *self._held.values(), *self._entered]

    def _status(self) -> StyleAndTextTuples:
        turn = SPINNER[int(time.monotonic() / TICK_SECONDS) % len(SPINNER)]
        return [("fg:ansicyan", f"{turn} "), ("fg:ansibrightblack", self._activity() or "")]

    def _before_input(self) -> StyleAndTextTuples:
        return [("fg:ansibrightblack", self._attachments()), ("fg:ansicyan bold", PROMPT)]

    def _entry_height(self) -> Dimension:
        rows = self._output.get_size().rows
        return Dimension(min=1, max=max(1, min(INPUT_LINES, rows // 2)))

    @property
    def _columns(self) -> int:
        # The last column stays empty: terminals differ in wrapping a line that fills it.
        return max(8, min(self._output.get_size().columns - 1, PROSE_COLUMNS))

    def picture_size(self) -> tuple[int, int]:
        """Return the columns and rows that a picture may have."""
        return self._columns, max(3, self._output.get_size().rows * 2 // 3)

    async def _tick(self) -> None:
        pause = TICK_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.perf_counter()
            if self._answer is not None and self._changed:
                self._changed = False
                self._above += self._answer.final_lines(self._columns)
                self._live = self._answer.preview(self._columns)
                self.flush()
            elif self._activity() is not None:
                self._app.invalidate()
            pause = max(TICK_SECONDS, BUSY_SHARE * (time.perf_counter() - began))

    def _put(self, lines: str, meanwhile: str | None = None) -> None:
        self._deferred.append((lines, lines if meanwhile is None else meanwhile))
        self.flush()

    # --- input --------------------------------------------------------------------------------------------------------

    def _accept(self, buffer: Buffer) -> bool:
        """Accept the input; False clears the line."""
        if buffer.text.strip():
            self._entered.append(_echo(buffer.text))
            self._unfold_pasted()  # also for the history
            self._typed.put_nowait(buffer.text)
        return False

    def _unfold_pasted(self) -> None:
        """Replace the marks in the input line by the pasted texts."""
        text = self._buffer.text
        for shown, pasted in self._pasted.items():
            text = text.replace(shown, pasted)
        self._pasted.clear()
        self._buffer.text = text

    def _completes(self) -> bool:
        """Return True if completions are shown while the person types."""
        return self._buffer.text.startswith("/") or MENTION.search(self._buffer.document.text_before_cursor) is not None

    def _fold_pasted(self, text: str) -> str:
        """Return what the input line shows of a pasted text: a long one is a mark, until it is sent."""
        lines = text.count("\n") + 1
        if len(text) < FOLDED_CHARS and lines <= INPUT_LINES:
            return text
        size = f"{len(text.encode('utf-8', 'replace')) / 1000:,.0f} kB" if len(text) >= FOLDED_CHARS else f"{lines} lines"
        shown = f"[pasted {size}]"
        if self._pasted.get(shown, text) != text:
            shown = f"[pasted {size}, {len(self._pasted) + 1}]"
        self._pasted[shown] = text
        return shown

    def suggest(self, text: str) -> None:
        """Put a text into the empty input line, and show its completions."""
        if not self._buffer.text:
            self._buffer.insert_text(text)
            self._buffer.start_completion()

    def _interrupted(self) -> None:
        """Clear the input on the first Ctrl-C and keep it in the history; interrupt if it is empty."""
        if self._buffer.text:
            self._unfold_pasted()
            self._buffer.append_to_history()
            self._buffer.reset()
        else:
            self._interrupt()

    def _leave(self) -> None:
        self._typed.put_nowait(None)


def _echo(text: str) -> str:
    """Render an entered message for the scrollback."""
    first, *rest = printable(text).rstrip("\n").split("\n")
    lines = [f"\x1b[36;1m{PROMPT}\x1b[0m\x1b[1m{first}\x1b[0m", *(f"  \x1b[1m{line}\x1b[0m" for line in rest)]
    return "\n" + "\n".join(lines) + "\n"


def on_this_terminal(
    *,
    colours: bool,
    completer: Completer,
    history: History,
    activity: Callable[[], str | None],
    attachments: Callable[[], str],
    interrupt: Callable[[], None],
    unfold: Callable[[], None],
    answer: Callable[[str], bool],
) -> PromptUI:
    """Return a prompt on the standard input and output of this process, which must be a terminal."""
    # A cursor position request would wait for terminals that do not respond; the position is not needed here.
    depth = None if colours else ColorDepth.MONOCHROME
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"), default_color_depth=depth)
    output.enable_cpr = False
    return PromptUI(
        output=output, keyboard=create_input(), completer=completer, history=history,
        activity=activity, attachments=attachments, interrupt=interrupt, unfold=unfold, answer=answer,
    )  # fmt: skip

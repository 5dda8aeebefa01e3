"""What the keys do at a desk; everything else is as in a shell."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys


def key_bindings(buffer: Buffer, *, leave: Callable[[], None], interrupt: Callable[[], None]) -> KeyBindings:
    """Enter sends; Alt-Enter and Ctrl-J begin a line; Ctrl-D leaves where nothing is typed; Ctrl-C interrupts; Ctrl-Z
    stops the program."""
    keys = KeyBindings()

    @keys.add("enter")
    def _send(_: KeyPressEvent) -> None:
        buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _begin_a_line(_: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add("c-d", filter=Condition(lambda: not buffer.text))
    def _leave(_: KeyPressEvent) -> None:
        leave()

    @keys.add("c-c")
    def _interrupt(_: KeyPressEvent) -> None:
        interrupt()

    @keys.add("c-z")
    def _stop(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys


def keep_typed_ahead(keyboard: Input) -> None:
    """Keep what was typed before the terminal was ours for the application that runs next on this keyboard, which is in raw
    mode just now. The terminal had made a line feed of every Enter, and here that is the key which begins a line."""
    enter = KeyPress(Keys.ControlM, "\r")
    while typed := keyboard.read_keys():
        store_typeahead(keyboard, [enter if press.key is Keys.ControlJ else press for press in typed])

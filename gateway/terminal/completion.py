"""What can be completed: commands after a slash, and what some of them take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from gateway.terminal.frames import CommandLine
from gateway.terminal.own_commands import OWN_COMMANDS
from gateway.terminal.printable import one_line


class Completions(Completer):
    """Offers the `commands` of the gateway and our own, the `keys` of sessions after `/switch`, and paths after `/attach`.
    What may change is asked each time."""

    def __init__(self, *, commands: Callable[[], Sequence[CommandLine]], keys: Callable[[], Sequence[str]]) -> None:
        self._commands = commands
        self._keys = keys
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What may stand where the cursor is."""
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

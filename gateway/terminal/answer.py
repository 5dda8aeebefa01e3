"""An answer that is being written: which lines of it stand for good, and how the rest looks now."""

from __future__ import annotations

from copy import copy

from gateway.terminal import markdown_rendering
from gateway.terminal.blocks import LAID_OUT_CHARACTERS, READ_CHARACTERS, Block, split

LIVE_CHARACTERS = 4_000
"""Of a longer block the unfinished lines are not laid out."""


class Answer:
    """Grows by `add`. `settle` hands out, once, the lines that will not change any more; `unsettled` shows the others."""

    def __init__(self) -> None:
        self._rest = ""
        """What was added and has not been handed out, but for lines of code."""
        self._lines_of_code = 0
        """How many of the block that `_rest` begins with were handed out."""
        self._opened = False
        """Whether the line above that code was."""
        self._any = False
        """Whether a block was handed out, so that an empty line must separate the next."""
        self._wanted = 0
        """Characters that must be there before a long block is read again, so that it is not read for each piece."""

    def add(self, text: str) -> None:
        """More of it, printable."""
        self._rest += text

    def settle(self, columns: int, *, whole: bool = False) -> str:
        """The lines that are finished and were not handed out yet; with `whole`, nothing more will be added."""
        # Half a line may still become anything, and so decide what becomes of the block before it.
        end = len(self._rest) if whole else self._rest.rfind("\n") + 1
        blocks = split(self._rest[:end], code=self._opened) if whole or end >= self._wanted else []
        if not blocks:
            return ""
        growing = [] if whole else [blocks.pop()]
        if growing and growing[0].fence is None:
            length = len(growing[0].text)
            self._wanted = length * 9 // 8 if length > LIVE_CHARACTERS else 0
            if length > LAID_OUT_CHARACTERS:
                blocks.append(growing.pop())
        lines = "".join(self._finish(block, columns) for block in blocks)
        self._rest = "".join(block.text for block in growing) + self._rest[end:]
        if growing and growing[0].fence is not None:
            lines += self._code(growing[0])
            if len(growing[0].text) > READ_CHARACTERS:  # what was handed out is not read again: the code begins anew
                opening = growing[0].text.splitlines(keepends=True)[0]
                self._rest = opening + self._rest[len(growing[0].text) :]
                self._lines_of_code = 0
        return lines

    def unsettled(self, columns: int) -> str:
        """How the lines look that `settle` has left: as if nothing more came; as they were written if they are many."""
        if len(self._rest) > LIVE_CHARACTERS and not self._opened:
            return self._gap() + self._rest.strip("\n") + "\n"
        return copy(self).settle(columns, whole=True)

    def _finish(self, block: Block, columns: int) -> str:
        if block.fence is None:
            lines = self._gap() + markdown_rendering.rendered_block(block, columns)
        else:
            lines = self._opening(block) + "".join(self._coloured(block)) + markdown_rendering.closing()
        self._any, self._opened, self._lines_of_code = True, False, 0
        return lines

    def _code(self, block: Block) -> str:
        """The lines of code that are there already."""
        lines, code = self._opening(block), self._coloured(block)
        self._lines_of_code += len(code)
        return lines + "".join(code)

    def _coloured(self, block: Block) -> list[str]:
        """The lines of code that were not handed out yet."""
        assert block.fence is not None
        return markdown_rendering.code_lines(block.fence.code, block.fence.language)[self._lines_of_code :]

    def _opening(self, block: Block) -> str:
        if self._opened:
            return ""
        self._opened = True
        assert block.fence is not None
        return self._gap() + markdown_rendering.opening(block.fence.language)

    def _gap(self) -> str:
        return "\n" if self._any else ""

"""An answer that is being written: which lines of it stand for good, and how the rest looks now."""

from __future__ import annotations

from copy import copy

from gateway.terminal import rendering
from gateway.terminal.blocks import Block, split


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

    @property
    def amid_code(self) -> bool:
        """Whether code was handed out whose end was not: nothing else should be shown there."""
        return self._opened

    def add(self, text: str) -> None:
        """More of it, printable."""
        self._rest += text

    def settle(self, columns: int, *, whole: bool = False) -> str:
        """The lines that are finished and were not handed out yet; with `whole`, nothing more will be added."""
        # Half a line may still become anything, and so decide what becomes of the block before it.
        end = len(self._rest) if whole else self._rest.rfind("\n") + 1
        blocks = split(self._rest[:end])
        if not blocks:
            return ""
        growing = [] if whole else [blocks.pop()]
        lines = "".join(self._finish(block, columns) for block in blocks)
        self._rest = "".join(block.text for block in growing) + self._rest[end:]
        if growing and growing[0].fence is not None:
            lines += self._code(growing[0])
        return lines

    def unsettled(self, columns: int) -> str:
        """How the lines look that `settle` has left: as if nothing more came."""
        return copy(self).settle(columns, whole=True)

    def _finish(self, block: Block, columns: int) -> str:
        if block.fence is None:
            lines = self._gap() + rendering.rendered_block(block, columns)
        else:
            lines = self._opening(block) + "".join(self._coloured(block)) + rendering.closing()
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
        return rendering.code_lines(block.fence.code, block.fence.language)[self._lines_of_code :]

    def _opening(self, block: Block) -> str:
        if self._opened:
            return ""
        self._opened = True
        assert block.fence is not None
        return self._gap() + rendering.opening(block.fence.language)

    def _gap(self) -> str:
        return "\n" if self._any else ""

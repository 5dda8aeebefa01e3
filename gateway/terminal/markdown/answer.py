"""Incremental rendering of a streamed answer: lines that are final, and a preview of the rest."""

from __future__ import annotations

from copy import copy

from gateway.terminal.markdown import markdown_rendering
from gateway.terminal.markdown.markdown_parser import LAID_OUT_CHARACTERS, READ_CHARACTERS, Block, split

LIVE_CHARACTERS = 4_000
"""Longer unfinished blocks are shown without layout."""


class Answer:
    """An answer that grows by `add`.

    `final_lines` returns final lines, each once; `preview` renders the remainder.
    """

    def __init__(self) -> None:
        self._rest = ""
        """Text that was added and not returned yet, except lines of code."""
        self._lines_of_code = 0
        """Lines already returned of the code block that `_rest` begins with."""
        self._opened = False
        """True if the line above that code was returned."""
        self._any = False
        """True if a block was returned, so that an empty line must precede the next."""
        self._wanted = 0
        """Characters that must arrive before a long block is parsed again, which bounds the work per piece."""

    def add(self, text: str) -> None:
        """Append printable text."""
        self._rest += text

    def final_lines(self, columns: int, *, whole: bool = False) -> str:
        """Return the lines that are final and were not returned before; with `whole`, the text is complete."""
        # An incomplete line may still change how the block before it is parsed.
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
            if len(growing[0].text) > READ_CHARACTERS:  # returned code is not parsed again
                opening = growing[0].text.splitlines(keepends=True)[0]
                self._rest = opening + self._rest[len(growing[0].text) :]
                self._lines_of_code = 0
        return lines

    def preview(self, columns: int) -> str:
        """Render the lines that `final_lines` has left as if the text were complete; unformatted if they are many."""
        if len(self._rest) > LIVE_CHARACTERS and not self._opened:
            return self._gap() + self._rest.strip("\n") + "\n"
        return copy(self).final_lines(columns, whole=True)

    def _finish(self, block: Block, columns: int) -> str:
        if block.fence is None:
            lines = self._gap() + markdown_rendering.rendered_block(block, columns)
        else:
            lines = self._opening(block) + "".join(self._coloured(block)) + markdown_rendering.closing()
        self._any, self._opened, self._lines_of_code = True, False, 0
        return lines

    def _code(self, block: Block) -> str:
        """Return the complete lines of code."""
        lines, code = self._opening(block), self._coloured(block)
        self._lines_of_code += len(code)
        return lines + "".join(code)

    def _coloured(self, block: Block) -> list[str]:
        """Return the lines of code that were not returned yet."""
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

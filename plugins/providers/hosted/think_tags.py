"""Reasoning in the text of a reply.

Servers without a parser for a model's format send its reasoning as the beginning of the text, between tags: `<think>` of
DeepSeek R1, Qwen and others, `<thinking>`, `<thought>`. Only tags at the very beginning count; later ones belong to the
text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from plugins.api.chat import Delta, Reasoning

_TAGS = ("<think>", "<thinking>", "<thought>")

_MOST_HELD = 100
"""Characters of white space after which no tag is expected any more."""


class ThinkTags:
    """Separates the reasoning at the beginning of a streamed text from the answer, whose pieces are in `pieces`."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._state: Literal["start", "reasoning", "gap", "text"] = "start"
        self._held = ""
        """Text that cannot be assigned yet."""
        self._closing = ""
        self._began = False
        """True once some reasoning was returned: white space before it is dropped."""

    @property
    def is_answer(self) -> bool:
        """True once all that follows is part of the answer."""
        return self._state == "text"

    def feed(self, text: str) -> Iterator[Delta | Reasoning]:
        """Add a piece and yield its parts, none of them empty."""
        if self._state == "text":
            yield self.answer(text)
            return
        self._held += text
        if self._state == "start":
            yield from self._start()
        if self._state == "reasoning":
            yield from self._reasoning()
        if self._state != "gap":
            return
        if rest := self._held.lstrip():
            self._state = "text"
            yield self.answer(rest)
        self._held = ""

    def end(self) -> Iterator[Delta | Reasoning]:
        """Yield what is still held at the end of the reply."""
        held, self._held = self._held, ""
        if held and self._state == "start":
            yield self.answer(held)
        elif held.strip() and self._state == "reasoning":
            yield Reasoning(held)

    def answer(self, text: str) -> Delta:
        """Add a piece of the answer and return it."""
        self.pieces.append(text)
        return Delta(text)

    def _start(self) -> Iterator[Delta]:
        """Decide, as soon as possible, whether the text begins with a tag; yield it if it does not."""
        text = self._held.lstrip()
        space = len(self._held) - len(text)
        tag = next((tag for tag in _TAGS if text.startswith(tag)), "")
        if tag and space <= _MOST_HELD:
            self._state, self._held, self._closing = "reasoning", text[len(tag) :], f"</{tag[1:]}"
        elif space > _MOST_HELD or (text and not any(tag.startswith(text) for tag in _TAGS)):
            held, self._held, self._state = self._held, "", "text"
            yield self.answer(held)

    def _reasoning(self) -> Iterator[Reasoning]:
        """Yield the held reasoning, except for white space at the beginning, and what may be part of the closing tag."""
        before, closing, after = self._held.partition(self._closing)
        if closing:
            self._state, self._held = "gap", after
        else:
            kept = next((n for n in range(len(self._closing) - 1, 0, -1) if before.endswith(self._closing[:n])), 0)
            before = before[: len(before) - kept]
            self._held = self._held[len(before) :]
        before = before.rstrip() if closing else before
        if shown := before if self._began else before.lstrip():
            self._began = True
            yield Reasoning(shown)

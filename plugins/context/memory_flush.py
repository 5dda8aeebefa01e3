"""The built-in flush: before messages leave the view, a model is asked what of them must last.

It has no tools: what it answers, the daemon appends to the day's note. `NO_REPLY` stores nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from plugins.context.asking import Question, ask_in_pieces, spent
from plugins.context.fencing import entries, harmless, unwrapped
from plugins.context.silent import NO_REPLY
from plugins.errors import ProviderError
from plugins.summaries import Answered, Ask, Flushed, FlushRules, Leaving

SYSTEM_PROMPT = {
    "en": "Session nearing compaction. Store durable memories now.",
    "zh": "会话即将压缩。请立即保存需要长期记住的内容。",
}
"""`compaction.memory_flush.system_prompt` as shipped, by language."""

PROMPT = {
    "en": "Write any lasting notes to memory/YYYY-MM-DD.md; reply with NO_REPLY if nothing to store.",
    "zh": "把值得长期保留的内容写入 memory/YYYY-MM-DD.md；如果没有需要保存的内容，请回复 NO_REPLY。",
}
"""`compaction.memory_flush.prompt` as shipped, by language. `YYYY-MM-DD` becomes the day."""

LIMIT = 1_500
"""Tokens that the notes on one piece may have, at most an eighth of the window."""

LARGEST = 24_000
"""Characters of an answer that are taken; a model that repeats itself has no end."""

_HOW = {
    "en": (
        "You have no tools: what you answer is appended to that file as it is. Answer with a short Markdown list, one note a"
        " line, each understandable by itself: decisions and their reasons, preferences and corrections of the person,"
        " facts, promises and open ends, with every name, path, number, date and identifier exactly as it was written. A"
        " correction replaces what it corrects. Leave out small talk, what is general knowledge, and all passwords, keys and"
        " tokens. Write in the language of the conversation, without a preface. Where nothing is worth keeping, the whole"
        " answer is NO_REPLY."
    ),
    "zh": (
        "你没有工具：你的回答会原样追加到该文件。请用简短的 Markdown 列表回答，每行一条，单独可读：决定及其理由、"
        "对方的偏好和更正、事实、承诺和未完成的事项；名称、路径、数字、日期和标识符必须与原文完全一致。"
        "更正取代被更正的内容。不要写寒暄、常识，也不要写密码、密钥和令牌。使用对话所用的语言，不要前言。"
        "如果没有值得保存的内容，整个回答就是 NO_REPLY。"
    ),
}
_LIST = re.compile(r"^\s*(?:[-*+•]|\d+[.)、]) *\S", re.MULTILINE)


class MemoryFlush:
    """Asks about the leaving messages, piece by piece."""

    name: ClassVar[str] = "memory_flush"

    async def flush(self, leaving: Leaving, ask: Ask, rules: FlushRules) -> Flushed:
        """What to write into the day's note. A model that cannot be asked is an outcome, nothing that is raised; what it
        answered about earlier pieces is kept then."""
        if not leaving.messages:
            return Flushed(outcome="nothing")
        answers: list[Answered] = []
        reason = ""
        try:
            record = await asyncio.to_thread(entries, leaving.messages)
            async for answer in ask_in_pieces(record, _question(leaving, rules), ask):
                answers.append(answer)
        except ProviderError as error:
            reason = str(error) or type(error).__name__
        return _flushed(answers, reason)


def notes_in(answer: str) -> str:
    """The notes in a model's answer, "" where it has none: `NO_REPLY` by itself, or on the first line, whatever comes behind
    it, or on the last, behind anything that is no list."""
    lines = [line.rstrip() for line in unwrapped(harmless(answer[:LARGEST])).splitlines()]
    plain = [line.strip("*_`. \t") for line in lines]  # NO_REPLY loses no letter by this
    if not lines or plain[0] == NO_REPLY:
        return ""
    if plain[-1] == NO_REPLY:
        lines.pop()
        if not _LIST.search("\n".join(lines)):
            return ""
    return "\n".join(lines).strip()


def _question(leaving: Leaving, rules: FlushRules) -> Question:
    how = _worded("", _HOW, leaving.language)
    prompt = _worded(rules.prompt, PROMPT, leaving.language).replace("YYYY-MM-DD", leaving.day)
    return Question(
        system=_worded(rules.system_prompt, SYSTEM_PROMPT, leaving.language),
        text=f"{prompt}\n\n{how}",
        limit=min(LIMIT, max(1, leaving.window // 8)),
        window=leaving.window,
    )


def _worded(text: str, shipped: dict[str, str], language: str) -> str:
    """What the operator wrote, or else what is shipped for the language."""
    if text.strip() and text not in shipped.values():
        return text
    return shipped.get(language, shipped["en"])


def _flushed(answers: Sequence[Answered], reason: str) -> Flushed:
    text = "\n".join(_once(notes_in(answer.text) for answer in answers)).strip()
    model = answers[-1].model if answers else ""
    if text:
        return Flushed(outcome="written", text=text, reason=reason, model=model, usage=spent(answers))
    if not reason and not any(answer.text.strip() for answer in answers):
        reason = "The model answered nothing."
    return Flushed(outcome="failed" if reason else "nothing", reason=reason, model=model, usage=spent(answers))


def _once(notes: Iterator[str]) -> Iterator[str]:
    """Their lines, no item of a list twice."""
    seen: set[str] = set()
    for line in (line for note in notes for line in note.splitlines()):
        same = " ".join(line.casefold().split())
        if same not in seen:
            yield line
        if _LIST.match(line):
            seen.add(same)

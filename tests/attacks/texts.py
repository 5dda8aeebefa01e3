"""Measure how long the functions that read people's texts take for a megabyte of hostile text.

`python -m tests.attacks.texts plugins` measures every public function of a package that takes one text and nothing else, and
those of `MORE`. It is a process of its own, which the caller can end: what is written in C cannot be interrupted.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from types import ModuleType
from typing import Any, TypeAlias

from gateway.conversations.context import loaded_notes
from gateway.conversations.notes import day_notes
from gateway.http.openai import schema
from gateway.support import printable
from plugins.api.memory import chunks
from plugins.channels.discord import discord_markdown
from plugins.channels.email import outbound_mail
from plugins.channels.irc import irc_formatting
from plugins.channels.matrix import html
from plugins.channels.slack import slack_blocks
from plugins.channels.telegram import telegram_entities
from plugins.facts import extraction
from plugins.memory.memory import QUERY_CHARACTERS
from plugins.memory.search import fusion, periods
from plugins.memory.sources import notes
from plugins.policies import identifiers
from plugins.providers.hosted import batch_limits
from plugins.support import fencing
from plugins.support.text import sentences, words
from sessions.state import truncation
from tests.attacks.measuring import Ladder, interrupting, too_slow, write

Reads: TypeAlias = Callable[[str], object]

LADDER: Ladder = ((1_000, 0.1, 8), (32_000, 0.5, 2), (1_000_000, 4.0, 0))
"""With a last size of 256,000, a function that copies the rest of the text for every eighth character is not found."""

_ANSWER = 64_000
"""Characters of the longest answer that channels are measured with: their parser of Markdown is linear, and slow."""

_LEFT_OUT = frozenset(
    {
        # as `MORE` has them, for an answer
        "plugins.channels.discord.discord_markdown.render",
        "plugins.channels.email.outbound_mail.html_of_markdown",
        "plugins.channels.irc.irc_formatting.irc_lines",
        "plugins.channels.matrix.html.html_of",
        "plugins.channels.slack.slack_blocks.blocks_of",
        "plugins.channels.telegram.telegram_entities.format_markdown",
        "gateway.terminal.client.connection.websocket_url",  # reads the command line
        "gateway.models.token_counts.o200k",  # a process of its own, which is given five seconds
        "plugins.host.loading.load_plugins",  # loads
    }
)

MORE: Mapping[str, Reads] = {
    "gateway.conversations.notes.day_notes.as_section": lambda text: day_notes.as_section("x", text),
    "gateway.conversations.context.loaded_notes.fenced_note": lambda text: loaded_notes.fenced_note("a.md", text),
    "gateway.http.openai.schema.decode_body": lambda text: schema.decode_body(_bytes(text), schema.ChatBody),
    "gateway.support.printable.one_line": lambda text: printable.one_line(text, 80),
    "plugins.channels.discord.render_answer": lambda text: discord_markdown.render(text[:_ANSWER]),
    "plugins.channels.email.render_answer": lambda text: outbound_mail.html_of_markdown(text[:_ANSWER]),
    "plugins.channels.irc.render_answer": lambda text: irc_formatting.irc_lines(text[:_ANSWER]),
    "plugins.channels.matrix.render_answer": lambda text: html.html_of(text[:_ANSWER]),
    "plugins.channels.slack.render_answer": lambda text: slack_blocks.blocks_of(text[:_ANSWER]),
    "plugins.channels.telegram.render_answer": lambda text: telegram_entities.format_markdown(text[:_ANSWER]),
    "plugins.support.fencing.divided": lambda text: fencing.divided([fencing.FencedEntry(who="x", text=text)], 4000),
    "plugins.support.fencing.quoted": lambda text: fencing.quoted(text, "x"),
    "plugins.policies.identifiers.is_named": lambda text: identifiers.is_named("a", text),
    "plugins.support.text.sentences.clipped_around": lambda text: sentences.clipped_around(text, "zz", 100),
    "plugins.providers.hosted.batch_limits.pieces": lambda text: batch_limits.pieces(text, lambda piece: len(piece) < 2000),
    "plugins.facts.extraction.parse_extraction": lambda text: extraction.parse_extraction(text, 5),
    "plugins.api.memory.chunks.chunks_of": lambda text: [each.digest() for each in chunks.chunks_of("a.md", text)],
    "plugins.memory.search.fusion.phrase_score": lambda text: fusion.phrase_score(
        words.sought(text[:QUERY_CHARACTERS]), text[:QUERY_CHARACTERS], text
    ),
    "plugins.memory.sources.notes.some_lines": lambda text: notes.some_lines(text, 5, 5),
    "plugins.memory.search.periods.named_period": lambda text: periods.named_period(text, date(2026, 11, 21)),
    "plugins.support.text.words.words_in": lambda text: words.words_in(text, "english"),
    "sessions.state.truncation.head_and_tail": lambda text: truncation.head_and_tail(text, 4000),
}

_REPEATED = (
    *"aA1 \n\r\t[]{}()<>#*_`~|&@.,:;?!/\\\"'$%=-+^",
    *"\0\x1b\u00a0\u0301\u034f\u200d\u202e\u2028\u3000\ud800あ年漢ก\U0001f600",
    *("a ", "a\n", " \n", "\r\n", "word ", "aB", "aaBb9", "_a", "a-", "a.b.", "a/", "../", "a::", "%41", "a=b ", ",a"),
    *("> ", "- ", "* a\n", "1. a\n", "# a\n", "## Goals\nx\n", "`` `", "```\na\n", "~~~\n", "*a **b ", "|a|b|\n|-|-|\n"),
    *("![a](", "[a](", "](", "<a ", "<!--", "<!-- -->", "&amp;", "www.a.com ", "http://a.b/c ", "a@b.c ", "a@"),
    *("[{", '{"a":', "[1,", '{"a":1}\n', '\\"', "sk-abcdEFGH1234ijklMNOP5678 ", "password=hunter2secret1 ", "/a "),
    *("e\u0301", "\u0301\u0323", "\u0323\u0301a", "\uff9e\u0301", "नमस्ते ", "กาก", "👩\u200d", "\x1b[0m", "2023-05-05 "),
    *("[0123abcd] x:\n[0123abcd] end\n", "[0123abcd] x:\n", "[0123abcd] end\n", '"citation":"a#L1-L1"'),
    *("Remember this. ", "We decided CRAB-417. ", "actually not CRAB-417 but PLAN-5. ", "CRAB-417 "),
    *("-----BEGIN RSA PRIVATE KEY-----\n", '  File "a", line 1, in b\n', "QUJD"),
)


def _of_all(text: str) -> Callable[[int], str]:
    return lambda size: (text * (size // len(text) + 1))[:size]


def _counted(form: str, apart: str = " ") -> Callable[[int], str]:
    """Words that are all different."""
    return lambda size: apart.join(form.format(number) for number in range(size // (len(form) + 2)))


TEXTS: Mapping[str, Callable[[int], str]] = {
    **{repr(text): _of_all(text) for text in _REPEATED},
    "different words": _counted("w{:x}q"),
    "different names": _counted("src/a{:x}.py"),
    "different marks": _counted("[{:08x}] x:", "\n"),
    "different headings": _counted("# a {:x}\nb", "\n"),
    "marks, then ends": lambda size: _of_all("[0123abcd] x:\n")(size // 2) + _of_all("[0123abcd] end\n")(size // 2),
    "a citation": lambda size: "[0123abcd] " + "#L1-L1 (" * (size // 8),
    "a heading": lambda size: "# a" + " " * (size // 2) + "b\n" + "word " * (size // 10),
    "a long heading": lambda size: "# " + "a" * (size // 2) + "\n" + "word \n" * (size // 12),
    "an order": lambda size: "remember that" + " " * size,
    "a question": lambda size: "?" * size + "a",
    "marks on a letter": lambda size: "a" + "\u0301\u0323" * (size // 2),
    "a JSON string": lambda size: '"' + "a" * size + '"',
    "JSON with escapes": lambda size: '"' + "\\u0041" * (size // 6) + '"',
    "a JSON array": lambda size: "[" + "1," * (size // 2) + "1]",
    "nested arrays": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "a JSON object": lambda size: "{" + ",".join(f'"k{number}":1' for number in range(size // 10)) + "}",
    "a nested list": lambda size: "".join(f"{'  ' * min(number, 60)}- a\n" for number in range(size // 64)),
}


def functions_of(package: str) -> dict[str, Reads]:
    """Return what is measured of a package, by its name."""
    found = {name: reads for name, reads in MORE.items() if name.startswith(f"{package}.")}
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        found |= _public(importlib.import_module(module.name))
    return {name: reads for name, reads in found.items() if name not in _LEFT_OUT}


def _public(module: ModuleType) -> Iterator[tuple[str, Reads]]:
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__ and not name.startswith("_"):
            wanted = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
            wanted = [each for each in wanted if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
            if len(wanted) == 1 and (given := _GIVEN.get(str(wanted[0].annotation))):
                yield f"{module.__name__}.{name}", _reader(function, given)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


_GIVEN: Mapping[str, Callable[[str], object]] = {
    "str": lambda text: text,
    "str | None": lambda text: text,
    "str | bytes": lambda text: text,
    "bytes": _bytes,
    "Sequence[str]": str.split,
    "Iterable[str]": str.split,
}


def _reader(function: Callable[[Any], object], given: Callable[[str], object]) -> Reads:
    def read(text: str) -> None:
        found = function(given(text))
        if isinstance(found, Iterator):
            for _ in found:
                pass

    return read


def main(package: str) -> None:
    """Write for each function a line that says that it is tried, and one for each that is too slow."""
    interrupting()
    for name, reads in functions_of(package).items():
        write(f"tried {name}")
        gc.collect()
        if found := too_slow(reads, list(TEXTS.values()), LADDER, (Exception,)):
            size, at = found
            write(f"refused {name}: {size} characters of {list(TEXTS)[at]}")
    write("done")


if __name__ == "__main__":
    main(sys.argv[1])

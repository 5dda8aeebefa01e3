"""The audit of the notes: duplicate sections, recalled text that was written back, likely secrets, and notes nobody uses."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Literal, TypeAlias

import msgspec

from plugins.api.memory.chunks import Chunk, own_lines
from plugins.support.text.words import word_set
from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import SessionsError
from sessions.events.events import MAIN_AGENT, MemoryRecalled, ModelReplied, ToolReturned
from sessions.store.header import read_header
from sessions.store.protocols import LogReader

ALIKE = 0.85
"""Minimum Jaccard index of the words of two sections that count as duplicates."""

WORDS = 8
"""Minimum distinct words of a section that is compared; shorter ones may repeat."""

LOOP = 3
"""Number of identical sections that make a loop."""

Kind: TypeAlias = Literal["duplicate", "loop", "secret"]

_PATTERNS = {
    "private key": r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----",
    "AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "Google API key": r"\bAIza[0-9A-Za-z_-]{35}",
    "Stripe key": r"\b[rs]k_live_[0-9A-Za-z]{16,}",
    "model provider's key": r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{20,}",
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "npm or PyPI token": r"\b(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,})",
    "Telegram bot token": r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    "JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "password in an address": r"\b[a-z][a-z0-9+.-]{1,15}://[^\s/:@]{1,64}:[^\s/:@]{3,128}@",
    "password": (
        r"(?i:\b(?:password|passwd|passphrase|passwort|kennwort|api[ _-]?key|secret[ _-]?key|access[ _-]?token"
        r"|auth[ _-]?token|client[ _-]?secret)|密码|密碼|パスワード)[\"'`*]{0,3}\s*(?:[:=：]|\bis\b|\bist\b|是)"
        r"[\s\"'`*：]{0,4}(?P<value>[^\s\"'`,;，。]{8,})"
    ),
}

_COMPILED = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}

_DIGIT = re.compile(r"[0-9]")

_LETTER = re.compile(r"[^\W\d_]")

_REFERENCE = re.compile(r"(?:env|file|credential):|\$|[<{\[(*]|(.)\1{5}")
"""Beginnings of values that are not secrets: references, variables, placeholders, asterisks."""

SHORTEST = 11
"""Characters of the shortest line with a secret: `密码:` and eight more."""


def likely_secrets(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text, counted from 1, that likely contain a secret, each with the first matching kind."""
    for number, line in enumerate(text.split("\n"), 1):
        for name, pattern in _COMPILED.items() if len(line) >= SHORTEST else ():
            if any(_is_likely(found) for found in pattern.finditer(line)):
                yield number, name
                break


def _is_likely(found: re.Match[str]) -> bool:
    """Return True for a match that looks like a secret; after "password:" only if it has digits and letters, or symbols."""
    value = found.groupdict().get("value")
    if value is None:
        return True
    if _REFERENCE.match(value):
        return False
    return bool(_DIGIT.search(value) and _LETTER.search(value)) or sum(not each.isalnum() for each in value) > 1


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem in the notes: a sentence and the places, as `path#Lfirst-Llast`. Contains no secrets."""

    kind: Kind
    places: tuple[str, ...]
    sentence: str


def findings(texts: Mapping[str, str], chunks: Iterable[Chunk]) -> list[Finding]:
    """Return the problems in notes.

    Args:
        texts: The texts by path.
        chunks: The chunks of the notes.
    """
    return [*_secrets(texts), *_written_back(texts), *_repeated(list(chunks))]


def _secrets(texts: Mapping[str, str]) -> Iterator[Finding]:
    for path, text in texts.items():
        for line, name in likely_secrets(text):
            yield Finding(kind="secret", places=(f"{path}#L{line}-L{line}",), sentence=f"This looks like a secret ({name}).")


def _written_back(texts: Mapping[str, str]) -> Iterator[Finding]:
    """Find recalled text that was written back to a note. It is not indexed, but clutters the note."""
    for path, text in texts.items():
        own = {number for number, _ in own_lines(text)}
        given = [number for number in range(1, text.count("\n") + 2) if number not in own]
        for first, last in _runs(given):
            sentence = "Recalled text was written back to the note."
            yield Finding(kind="loop", places=(f"{path}#L{first}-L{last}",), sentence=sentence)


def _runs(lines: Sequence[int], gap: int = 2) -> Iterator[tuple[int, int]]:
    """Merge lines that are close to each other into ranges."""
    first = last = 0
    for line in lines:
        if last and line - last > gap:
            yield first, last
            first = 0
        first, last = first or line, line
    if last:
        yield first, last


def _repeated(chunks: Sequence[Chunk]) -> Iterator[Finding]:
    """Find groups of sections with nearly the same words."""
    words = [word_set(chunk.text) for chunk in chunks]
    groups: dict[int, list[int]] = defaultdict(list)
    parents = list(range(len(chunks)))
    for one, other in _alike(words):
        if _overlap(chunks[one], chunks[other]):
            continue  # consecutive chunks of a long section overlap
        parents[_root(parents, other)] = _root(parents, one)
    for number in range(len(chunks)):
        groups[_root(parents, number)].append(number)
    for group in groups.values():
        if len(group) > 1:
            yield _as_finding([chunks[number] for number in sorted(group)])


def _overlap(one: Chunk, other: Chunk) -> bool:
    return one.path == other.path and one.first <= other.last and other.first <= one.last


def _as_finding(group: Sequence[Chunk]) -> Finding:
    places = tuple(f"{chunk.path}#L{chunk.first}-L{chunk.last}" for chunk in group)
    same = max(Counter(" ".join(chunk.text.split()) for chunk in group).values())
    if same >= LOOP:
        return Finding(kind="loop", places=places, sentence=f"The same section occurs {same} times.")
    return Finding(kind="duplicate", places=places, sentence=f"{len(group)} sections say nearly the same.")


def _alike(words: Sequence[frozenset[str]]) -> Iterator[tuple[int, int]]:
    """The pairs of word sets whose Jaccard similarity is at least `ALIKE`, the later first.

    Two such sets share one of the rarest words of each: of n words the first n − ⌈ALIKE·n⌉ + 1 in the order of their rarity
    (prefix filtering: Chaudhuri, Ganti and Kaushik, ICDE 2006). So few pairs are compared at all.
    """
    often = Counter(word for each in words for word in each)
    having: dict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(words):
        if len(each) < WORDS:
            continue
        rarest = sorted(each, key=lambda word: (often[word], word))[: len(each) - ceil(ALIKE * len(each)) + 1]
        for other in sorted({other for word in rarest for other in having[word]}):
            if len(each & words[other]) >= ALIKE * len(each | words[other]):
                yield other, number
        for word in rarest:
            having[word].append(number)


def _root(parents: list[int], number: int) -> int:
    while parents[number] != number:
        parents[number] = number = parents[parents[number]]
    return number


# --- use of the notes ---------------------------------------------------------------------------------------------------

READ_BYTES = 256 * 1024 * 1024
"""Maximum bytes of logs that are read."""

_USES = (b'"kind":"memory_recalled"', b'"kind":"tool_returned"', b'"kind":"model_replied"')
_CITED = re.compile(r'"citation":"([^"#]+)#L')
_READ = re.compile(r'"path"\s*:\s*"([^"]+)"')
_AT = re.compile(rb'\A\{"seq":[0-9]+,"at":"([^"]{20,30})"')


class NoteUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The paths that were used since `since`, the time of the oldest event read ("" for none).

    `all` is True if no older ones exist.
    """

    paths: frozenset[str]
    since: str = ""
    all: bool = True


def used_documents(logs: LogReader, budget: int = READ_BYTES, *, agent: str = MAIN_AGENT) -> NoteUsage:
    """Return the documents used in the sessions of an agent. Blocks while reading; unreadable logs are skipped."""
    found: set[str] = set()
    since, left = "", budget
    newest_first = sorted(logs.listed(), key=lambda listed: listed[1].changed, reverse=True)
    for session, _ in newest_first:
        if _agent_of(logs, session) != agent:
            continue
        for line in _lines_backward(logs, session, left):
            left -= len(line)
            if at := _AT.match(line):
                since = min(filter(None, (since, at[1].decode())))
            found |= _paths_in(line)
        if left <= 0:
            return NoteUsage(paths=frozenset(found), since=since, all=False)
    return NoteUsage(paths=frozenset(found), since=since)


def _agent_of(logs: LogReader, session: str) -> str:
    """Return the agent of a session; "" if its log cannot be read."""
    try:
        with logs.read(session) as lines:
            return read_header(lines).agent
    except (SessionsError, InvalidLine):
        return ""


def _lines_backward(logs: LogReader, session: str, budget: int) -> Iterator[bytes]:
    """Yield the lines of a log, the last first, up to the limit of bytes."""
    try:
        with logs.read(session) as lines:
            for line, _ in lines.backward():
                yield line
                budget -= len(line)
                if budget <= 0:
                    return
    except SessionsError:
        return


def _paths_in(line: bytes) -> set[str]:
    if not any(mark in line[:200] for mark in _USES):
        return set()
    try:
        event = decode(line).event
    except InvalidLine:
        return set()
    if isinstance(event, MemoryRecalled):
        return {hit.path for hit in event.hits}
    if isinstance(event, ToolReturned):
        return set(_CITED.findall(event.output))
    if isinstance(event, ModelReplied):
        return {path for call in event.calls if call.tool == "memory_get" for path in _READ.findall(call.arguments)}
    return set()

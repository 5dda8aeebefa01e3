"""What an extract is made of: sentences, who said them, and the identifiers in them, without those that no longer hold.

Pure. What tools returned is no part of it: that is many, and seldom meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from plugins.api.summarization import CompactionInput
from plugins.policies.identifiers import identifiers
from plugins.policies.summary_sections import PROGRESS, parsed
from plugins.support.fencing import harmless
from plugins.support.text.sentences import is_correction, sentences
from sessions.events.messages import AssistantMessage, Message, UserMessage

Speaker: TypeAlias = Literal["summary", "person", "assistant"]

CHARACTERS = 40_000
"""Characters of one message that are read: its first half and its last."""

CORRECTIONS = 50
"""The latest corrections are looked at, so many of them."""

CORRECTABLE = 4_000
"""The latest sentences with identifiers in them may be corrected, so many of them."""

ALIKE = 0.75
"""The share of its words that a sentence has in common with a correction of it."""

ALSO = "Also: "
"""How the line begins that only lists identifiers, the separator between which is ` · `."""

SEPARATOR = " · "

_CODE = re.compile(r"^[ \t]*```.*?(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
_WORDS = re.compile(r"[^\W\d_]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
_LITTLE = re.compile("the|and|for|not|but|now|are|was|that|this|with|from|has|have|der|die|das|und|ist|nicht|les|des|pas")


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, who said it, the index of the message (-1 for the summary in force), the section it stands in there, and
    the identifiers that it names."""

    text: str
    by: Speaker
    at: int
    section: str = ""
    names: tuple[str, ...] = ()


def said(leaving: CompactionInput) -> list[Sentence]:
    """The sentences in force, oldest first: those of the summary, then people's and the assistant's. One that a later one
    corrects is left out."""
    everything = [*_of_summary(leaving.summary), *_of_messages(leaving.messages)]
    wrong = _corrected(everything)
    return [sentence for index, sentence in enumerate(everything) if index not in wrong]


def named(text: str) -> tuple[str, ...]:
    """The identifiers of a text in their order, each once."""
    return tuple(dict.fromkeys(each.text for each in identifiers(text)))


def _of_summary(summary: str) -> Iterator[Sentence]:
    for section, body in parsed(harmless(summary)).items():
        for line in filter(None, map(str.strip, body.splitlines())):
            text = line.removeprefix("- ").strip()
            if text.startswith(ALSO):
                listed = text.removeprefix(ALSO).split(SEPARATOR)
                yield from (
                    Sentence(text="", by="summary", at=-1, section=section, names=(each,)) for each in listed if each
                )
            elif text and not text.startswith("#"):
                names = () if section == PROGRESS else named(text)  # what tools were called with is not what was said
                yield Sentence(text=text, by="summary", at=-1, section=section, names=names)


def _of_messages(messages: Sequence[Message]) -> Iterator[Sentence]:
    for at, message in enumerate(messages):
        if isinstance(message, UserMessage | AssistantMessage):
            by: Speaker = "person" if isinstance(message, UserMessage) else "assistant"
            for code, text in _blocks(harmless(_read(message.text))):
                if code:
                    yield Sentence(text="", by=by, at=at, names=named(text))
                else:
                    yield from (Sentence(text=line, by=by, at=at, names=named(line)) for line in sentences(text))


def _blocks(text: str) -> Iterator[tuple[bool, str]]:
    """The text in parts, and of each whether it is a fenced block of code, which has names but no sentences."""
    start = 0
    for block in _CODE.finditer(text):
        yield False, text[start : block.start()]
        yield True, block[0]
        start = block.end()
    yield False, text[start:]


def _read(text: str) -> str:
    return text if len(text) <= CHARACTERS else f"{text[: CHARACTERS // 2]}\n{text[-CHARACTERS // 2 :]}"


def _corrected(everything: Sequence[Sentence]) -> set[int]:
    """The indexes of the sentences that later ones correct: about the same thing, with another identifier of the same kind.
    What only repeats such an identifier goes with them."""
    corrections = [index for index, each in enumerate(everything) if each.names and is_correction(each.text)]
    words = {index: _words(each) for index, each in enumerate(everything) if each.names}
    candidates, old = list(words)[-CORRECTABLE:], dict[str, int]()
    wrong: set[int] = set()
    for index in corrections[-CORRECTIONS:]:
        alike = {earlier: len(words[earlier] & words[index]) for earlier in candidates if earlier < index}
        replaced = {
            earlier: values
            for earlier, shared in alike.items()
            if shared >= ALIKE * min(len(words[earlier]), len(words[index])) > 0
            and (values := _replaced(everything[earlier], everything[index]))
        }
        for earlier in _meant(replaced, alike, everything[index]):
            wrong.add(earlier)
            old |= dict.fromkeys(replaced[earlier], index)
    return wrong | set(_repeating(everything, old))


def _meant(replaced: dict[int, list[str]], alike: dict[int, int], correction: Sentence) -> list[int]:
    """Which of these sentences a correction means: those whose identifier it names, else those most like it."""
    if told := [earlier for earlier, values in replaced.items() if set(values) & set(correction.names)]:
        return told
    most = max((alike[earlier] for earlier in replaced), default=0)
    return [earlier for earlier in replaced if alike[earlier] == most]


def _repeating(everything: Sequence[Sentence], old: dict[str, int]) -> Iterator[int]:
    """Sentences before a correction that name nothing but what it made wrong."""
    for index, each in enumerate(everything):
        if each.names and all(old.get(name, -1) > index for name in each.names):
            yield index


def _replaced(earlier: Sentence, later: Sentence) -> list[str]:
    """The identifiers of a sentence in whose place a later one may put others of the same kind. Plain names of code are all
    of one kind, so they are not values that another replaces."""
    shapes = {_shape(name) for name in set(later.names).difference(earlier.names)} - {"a", "a_a"}
    return [name for name in earlier.names if _shape(name) in shapes]


def _shape(name: str) -> str:
    """What kind of identifier it is: its letters and digits do not matter, nor how many they are."""
    letters = re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", name.strip("_()")))
    return re.sub(r"a(?:_a)+", "a_a", letters)


def _words(sentence: Sentence) -> set[str]:
    """What a sentence is about: its words without identifiers and the commonest."""
    text = sentence.text
    for name in sentence.names:
        text = text.replace(name, " ")
    return {word for word in _WORDS.findall(text.casefold()) if not _LITTLE.fullmatch(word)}


def speakers(sentences_said: Iterable[Sentence], by: Speaker) -> list[Sentence]:
    """Those that one of the speakers said."""
    return [each for each in sentences_said if each.by == by]

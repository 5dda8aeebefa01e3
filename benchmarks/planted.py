"""Generated sessions with identifiers, decisions and corrections that a summary should preserve.

The items are surrounded by small talk and tool output. The same seed generates the same session.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

Kind: TypeAlias = Literal["identifiers", "decisions", "corrections"]

KINDS: tuple[Kind, ...] = ("identifiers", "decisions", "corrections")


def _any_of(texts: str) -> tuple[str, ...]:
    return tuple(texts.split("|"))


_THINGS = _any_of(
    "ledger export|invoice archive|nightly backup|login page|search index|payment gateway|mobile client|audit report"
    "|tide table|image resizer|mail relay|staging cluster|customer import|rate limiter|report builder|sensor network"
    "|permission model|release train|cache layer|webhook receiver|billing run|translation job|training set|session store"
)
_PARTS = _any_of("north|south|old|new|internal|public|regional|first|second|shared|quarterly|legacy|experimental|central")
_CHOICES = _any_of(
    "Postgres|SQLite|Kafka|RabbitMQ|JWT|Terraform|Ansible|Rust|Elixir|Svelte|protobuf|Parquet|Redis|nginx|Caddy|gRPC"
    "|argon2|zstd|brotli|feature branches|trunk-based work|weekly releases|blue-green deployment|manual approval|GraphQL"
)
_REASONS = _any_of(
    "the team knows it already|it needs no server of its own|the auditors asked for it|it is the cheapest to run"
    "|it survives a restart|the old one was never maintained|it keeps the latency low|the licence allows it"
)
_PEOPLE = _any_of("Ana Duarte|Jonas Weber|Mei Lin|Omar Haddad|Sofia Rossi|Tariq Aziz|Ingrid Berg|Luc Moreau|Yuki Tanaka")
_TALK = _any_of(
    "That sounds reasonable to me.|I will have a look at the rest after lunch.|The weather here is awful again, by the way."
    "|It took longer than I had hoped, but the shape of it is clear now.|Let me explain how the pieces hang together."
    "|There is a first part that reads the input, and a second one that writes what came of it.|Nothing else was touched."
    "|The tests that exist pass; a few of them are slow.|We can come back to this when there is time."
    "|I am not sure yet whether this is the best way, so treat it as a sketch.|The rest of the team has seen it."
    "|What remains is mostly cleaning up.|Thanks, that helps a lot.|Good morning, I hope you had a quiet weekend."
)
_MONTHS = _any_of("January|February|March|April|May|June|July|August|September|October|November|December")
_TOOLS = ("read", "shell", "search")


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """A planted item: a `sentence` that states a `value` for the subject `about`. A correction also has the `old` value."""

    kind: Kind
    value: str
    about: str
    sentence: str
    old: str = ""

    def is_preserved(self, text: str) -> bool:
        """Return True if the text has the value in a line with its subject, and no old value after it."""
        if self.kind == "identifiers":
            return self.value in text
        lines = [
            line
            for line in text.split("\n")
            if self.about in line and (self.value in line or (self.old and self.old in line))
        ]
        return bool(lines) and self.value in lines[-1]


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of the session with its planted items."""

    messages: tuple[Message, ...]
    planted: tuple[Planted, ...]


def session(seed: int) -> Iterator[Round]:
    """Yield the turns of an endless session, determined by the seed."""
    chance = random.Random(seed)
    pending: list[Planted] = []
    for number in range(1, 10**9):
        planted = [_identifier(chance) for _ in range(chance.randint(1, 4))]
        if number % 2:
            planted.append(_decision(chance))
        first: list[str] = []
        if number % 6 == 3:
            pending.append(_correction(chance))
            first.append(f"The {pending[-1].about} is due on {pending[-1].old}.")
        if pending and number % 6 == 0:
            planted.append(pending.pop(0))
        yield _round(chance, number, planted, first)


def _round(chance: random.Random, number: int, planted: list[Planted], first: list[str]) -> Round:
    said: tuple[list[str], list[str]] = (first, [])
    for each in planted:
        who = 0 if each.kind == "corrections" else chance.randrange(2)
        said[who].append(each.sentence)
    call = ToolCall(id=f"call-{number}", tool=chance.choice(_TOOLS), arguments=f'{{"path":"logs/{_word(chance)}.txt"}}')
    question, answer = (" ".join(_among(chance, sentences)) for sentences in said)
    messages = (
        UserMessage(text=question),
        AssistantMessage(text="", calls=(call,)),
        ToolMessage(id=call.id, tool=call.tool, text=_listing(chance)),
        AssistantMessage(text=answer),
    )
    return Round(messages=messages, planted=tuple(planted))


def _among(chance: random.Random, sentences: list[str]) -> list[str]:
    """Insert the sentences at random positions into small talk."""
    talk = chance.sample(_TALK, chance.randint(2, 6))
    for sentence in sentences:
        talk.insert(chance.randint(0, len(talk)), sentence)
    return talk


def _listing(chance: random.Random) -> str:
    """Return generated tool output without planted items."""
    return "\n".join(
        f"{chance.randint(10, 23)}:{chance.randint(10, 59)} {chance.choice(('info', 'warn', 'debug'))} {_word(chance)}"
        f" {chance.choice(_TALK).lower()} took {chance.randint(1, 900)} ms"
        for _ in range(chance.randint(5, 90))
    )


def _identifier(chance: random.Random) -> Planted:
    value, about = _name(chance), _thing(chance)
    sentence = chance.choice(
        (
            f"Please note {value} for the {about}.",
            f"The {about} is to be found under {value}.",
            f"For the {about}, {value} is the one that counts.",
            f"I have put {value} into the {about}, as we said.",
        )
    )
    return Planted(kind="identifiers", value=value, about=about, sentence=sentence)


def _decision(chance: random.Random) -> Planted:
    value, about = chance.choice(_CHOICES), _thing(chance)
    sentence = chance.choice(
        (
            f"We decided to use {value} for the {about}, because {chance.choice(_REASONS)}.",
            f"Let's go with {value} for the {about}: {chance.choice(_REASONS)}.",
            f"For the {about} I prefer {value}, since {chance.choice(_REASONS)}.",
            f"Agreed: the {about} uses {value} from now on.",
            f"From now on the {about} must always use {value}.",
            # These two contain no keyword of a decision, so a summary without a model may lose them.
            f"{value} it is, then, for the {about}.",
            f"The {about}: {value}, as {chance.choice(_REASONS)}, and that is final.",
        )
    )
    return Planted(kind="decisions", value=value, about=about, sentence=sentence)


def _correction(chance: random.Random) -> Planted:
    old, value = (f"{day} {chance.choice(_MONTHS)}" for day in chance.sample(range(1, 29), 2))
    about = _thing(chance)
    sentence = chance.choice(
        (
            f"Correction: the {about} is due on {value}, not on {old}.",
            f"No, I was wrong: the {about} is due on {value} instead of {old}.",
            f"Actually, the {about} is due on {value}; forget about {old}.",
        )
    )
    return Planted(kind="corrections", value=value, about=about, sentence=sentence, old=old)


def _name(chance: random.Random) -> str:
    """Return a random identifier of a common kind."""
    number = chance.randrange(10**6)
    return chance.choice(
        (
            f"src/{_word(chance)}/{_word(chance)}_{number % 100}.py",
            f"/srv/{_word(chance)}/{number}/current.log",
            f"{_word(chance)[:4].upper()}-{number % 9000 + 1000}",
            f"#{number % 90000 + 10000}",
            f"{chance.getrandbits(40):010x}",
            str(uuid.UUID(int=chance.getrandbits(128))),
            f"https://{_word(chance)}.example.org/{_word(chance)}/{number}",
            f"10.{number % 250}.{number % 199}.{number % 97}:{8000 + number % 999}",
            f"v{number % 20}.{number % 31}.{number % 77}",
            f"{_word(chance)}.{_word(chance)}{number % 1000}@example.org",
            f"{_word(chance).upper()}_{_word(chance).upper()}_{number % 100}",
            f"`{_word(chance)}_{_word(chance)}_{number % 1000}()`",
        )
    )


def _thing(chance: random.Random) -> str:
    return f"{chance.choice(_PARTS)} {chance.choice(_THINGS)} of {chance.choice(_PEOPLE)}"


def _word(chance: random.Random) -> str:
    return "".join(chance.choice("bcdfglmnprstv") + chance.choice("aeiou") for _ in range(chance.randint(2, 4)))

"""The branches of a conversation that is imported, and what of each is already here. Pure.

Each branch becomes a session: the one that the program shows first, the others as forks of it. All ids derive from the
source, so that the same source gives the same sessions, and a later one continues them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from gateway.conversations.imports.readers.import_values import SourceConversation, SourceMessage
from gateway.conversations.imports.readers.source_text import moment
from sessions.store.header import ALPHABET

MOST_BRANCHES = 64
"""Maximum branches of one conversation that are imported, the shown one included."""

NAME_CHARACTERS = 1000
"""Maximum characters of an id, a title or a name."""

MOST_CALLS = 1000
"""Maximum calls of tools of one reply."""

SLUG = 36
"""Maximum characters of a title in a key."""

UNKNOWN_TIME = "1970-01-01T00:00:00.000Z"
"""The time of messages of which the program does not know it."""

_DIVIDERS = re.compile(r"[^a-z0-9]+")


class ImportSource(msgspec.Struct, frozen=True, kw_only=True):
    """The person for whom conversations are imported, and the program that they come from."""

    person: str
    program: str

    def digest(self, conversation: str, node: str = "") -> bytes:
        """Return a digest that names a branch of a conversation: that which begins with the message `node`."""
        names = (self.person, self.program, conversation, node)
        return blake2b(msgspec.msgpack.encode(names), digest_size=16).digest()

    def session(self, conversation: str, at: str, node: str = "") -> str:
        """Return the id of the session of a branch that begins at a time (RFC 3339)."""
        number = int.from_bytes(self.digest(conversation, node))
        suffix = ""
        for _ in range(6):
            number, index = divmod(number, len(ALPHABET))
            suffix += ALPHABET[index]
        return f"{at[:10].replace('-', '')}-{at[11:19].replace(':', '')}-{suffix}"

    def key(self, conversation: SourceConversation, node: str = "") -> str:
        """Return the key of a branch: the program, the title, and a part of the digest."""
        plain = unicodedata.normalize("NFKD", conversation.name or conversation.title).lower()
        slug = _DIVIDERS.sub("-", plain)[:SLUG].strip("-")
        ending = self.digest(conversation.id)[:3].hex() + (
            f"-{self.digest(conversation.id, node)[:3].hex()}" if node else ""
        )
        return "-".join(filter(None, (self.program, slug, ending)))


class ExistingBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was imported before.

    `messages` are the ids of its imported messages, and `seqs` the last event of each. `used` is True if a person has
    continued it here; `titled` and `archived` say what is recorded. The last message lacks the results of `lacking` calls.
    """

    session: str
    key: str
    messages: tuple[str, ...]
    seqs: tuple[int, ...]
    used: bool
    titled: bool = False
    archived: bool = False
    lacking: int = 0

    def goes_on(self, shared: int) -> bool:
        """Return True if messages after the first `shared` ones can be appended."""
        return shared == len(self.messages) and not self.used


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with a branch: its messages from the index `start` on are added to a session.

    With `base` they continue that session after its first `end` messages, as a fork from its event `fork_at` if that is not
    0. Without it a session is created. Before them come the results that the last message of the session lacks.
    """

    start: int
    base: ExistingBranch | None = None
    end: int = 0
    fork_at: int = 0

    @property
    def lacking(self) -> int:
        """The number of results that the base lacks, if it is continued."""
        return self.base.lacking if self.base is not None and self.start and self.base.goes_on(self.end) else 0


def fault_of(conversation: SourceConversation) -> str:
    """Return why a conversation cannot be imported, as the reason of a `LeftOut`; "" if it can.

    It may come from a client of the HTTP endpoint, and not from a reader.
    """
    known = set[str]()
    names = [conversation.id, conversation.leaf, conversation.title, conversation.name]
    times = {conversation.at}
    for message in conversation.messages:
        if not message.id or message.id in known:
            return "two of its messages have the same id, or one has none"
        if message.parent and message.parent not in known:
            return "one of its messages comes before the one that it answers"
        known.add(message.id)
        times.add(message.at)
        names += [message.id, message.model, *(name for call in message.calls for name in (call.id, call.tool))]
    if any(at and moment(at) != at for at in times):
        return "a time in it is not in RFC 3339 and UTC, with milliseconds"
    if any(len(name) > NAME_CHARACTERS for name in names):
        return f"a name or an id in it has more than {NAME_CHARACTERS:,} characters"
    if any(len(message.calls) > MOST_CALLS for message in conversation.messages):
        return f"a reply in it has more than {MOST_CALLS} calls of tools"
    return ""


def branches_of(conversation: SourceConversation) -> tuple[list[list[SourceMessage]], int]:
    """Return the branches, each from its first message to its last, the shown one first; and the number of those that are
    too many."""
    known = {message.id: message for message in conversation.messages}
    after = {message.parent: message.id for message in conversation.messages}
    shown = conversation.leaf if conversation.leaf in known else conversation.messages[-1].id
    while shown in after:  # the last of those that follow
        shown = after[shown]
    leaves = [shown, *(id_ for id_ in known if id_ not in after and id_ != shown)]
    kept = leaves[:MOST_BRANCHES]
    return [_way_to(leaf, known) for leaf in kept], len(leaves) - len(kept)


def _way_to(leaf: str, known: Mapping[str, SourceMessage]) -> list[SourceMessage]:
    way: list[SourceMessage] = []
    id_ = leaf
    while id_ in known and len(way) <= len(known):
        way.append(known[id_])
        id_ = known[id_].parent
    return way[::-1]


def times_of(branch: Sequence[SourceMessage], began: str) -> list[str]:
    """Return the time of each message: its own, else that of the message before, else that of the conversation or of the
    first message that has one."""
    before = began or next((message.at for message in branch if message.at), UNKNOWN_TIME)
    times = []
    for message in branch:
        before = message.at or before
        times.append(before)
    return times


def place(branch: Sequence[SourceMessage], existing: Sequence[ExistingBranch]) -> Placement:
    """Return what to do with a branch, given the sessions of its conversation that exist."""
    shared = [_common(branch, each.messages) for each in existing]
    # Of sessions that share as much, one that can be continued: a fork that an interrupted import has only begun.
    best = max(range(len(existing)), key=lambda at: (shared[at][0], existing[at].goes_on(shared[at][1])), default=None)
    if best is None:
        return Placement(start=0)
    base, (start, end) = existing[best], shared[best]
    if start == len(branch) or base.goes_on(end):
        return Placement(start=start, base=base, end=end)
    return Placement(start=start, base=base, end=end, fork_at=base.seqs[end - 1]) if start else Placement(start=0)


def _common(branch: Sequence[SourceMessage], messages: Sequence[str]) -> tuple[int, int]:
    """Return the number of messages at the beginning of a branch that are in a session, and how many of the session these
    and those before them are. A program may have forgotten those before. Replies with calls may be missing in between:
    former versions left them out."""
    at = messages.index(branch[0].id) if branch[0].id in messages else 0
    start = end = 0
    for index, message in enumerate(branch, 1):
        if at < len(messages) and message.id == messages[at]:
            at += 1
            start, end = index, at
        elif not message.calls:
            break
    return start, end

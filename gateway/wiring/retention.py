"""Applies `retention.rules`: conversations that nobody has used for a while are archived or deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

import msgspec
import structlog

from gateway.config.keys import RetentionAction, RetentionRule
from gateway.conversations.routing.switchboard import Switchboard
from gateway.support.errors import GatewayError, error_fields, sentence_of
from plugins.api.context import Clock
from sessions.events.errors import SessionsError

EVERY_SECONDS = 3600.0

BY = "retention"
"""Who archives and deletes, in the logs."""

log = structlog.get_logger("exuvia.retention")


class KeptConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule needs to know of a conversation: when it was last used (RFC 3339), and its place in the list."""

    person: str
    key: str
    used: str
    pinned: bool = False
    archived: bool = False


class DueConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that is to be archived or deleted now."""

    person: str
    key: str
    used: str
    action: RetentionAction


def due_conversations(
    rules: Iterable[RetentionRule], conversations: Iterable[KeptConversation], now: datetime
) -> list[DueConversation]:
    """Return the conversations to archive or delete. Pinned ones are kept, and archived ones are not archived again."""
    rules, found = tuple(rules), list[DueConversation]()
    for each in conversations:
        rule = next((rule for rule in rules if fnmatchcase(each.key, rule.session)), None)
        if rule is None or each.pinned or not each.used or (each.archived and rule.action == "archive"):
            continue
        if datetime.fromisoformat(each.used) <= now - timedelta(seconds=rule.older_than):
            found.append(DueConversation(person=each.person, key=each.key, used=each.used, action=rule.action))
    return found


class Retention:
    """The rules of a running gateway.

    Args:
        switchboard: The conversations.
        rules: The rules; without any, `run` returns at once.
        people: Returns the ids of all people.
        clock: The clock.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        rules: Collection[RetentionRule],
        people: Callable[[], Collection[str]],
        clock: Clock,
    ) -> None:
        self._switchboard = switchboard
        self._rules = rules
        self._people = people
        self._clock = clock

    async def run(self) -> None:
        """Apply the rules now and every hour."""
        while self._rules:
            for person in self._people():
                try:
                    await self.apply(person)
                except SessionsError as error:  # the others, and the next hour, have their turn
                    log.warning("retention_not_applied", reason=sentence_of(error))
                except Exception as error:
                    log.error("retention_not_applied", **error_fields(error))
            await asyncio.sleep(EVERY_SECONDS)

    async def apply(self, person: str) -> None:
        """Archive and delete what is due of a person; what is in use is left for the next time. Raises SessionsError if the
        person's conversations cannot be listed."""
        rows = await self._switchboard.sessions.current_sessions(person)
        kept = [KeptConversation(person=row.person, key=row.key, used=row.used or row.at) for row in rows]
        for due in due_conversations(self._rules, kept, self._clock.now()):
            try:
                await self._apply(due)
            except (SessionsError, GatewayError) as error:
                log.warning("retention_not_applied", key=due.key, action=due.action, reason=sentence_of(error))
            except Exception as error:
                log.error("retention_not_applied", key=due.key, action=due.action, **error_fields(error))

    async def _apply(self, candidate: DueConversation) -> None:
        """Archive or delete a conversation, unless its log says otherwise: a catalog that was rebuilt knows neither what is
        pinned nor when it was last used."""
        chat = await self._switchboard.chat(candidate.person, candidate.key, create=False)
        if chat is None or chat.current is None:
            return  # it cannot be read
        transcript = chat.current.recorder.transcript
        known = KeptConversation(
            person=candidate.person,
            key=candidate.key,
            used=transcript.used or candidate.used,
            pinned=chat.current.pinned,
            archived=chat.current.archived,
        )
        for due in due_conversations(self._rules, [known], self._clock.now()):
            if due.action == "delete":
                await self._switchboard.removals.delete(due.person, due.key, by=BY, facts=False)
            else:
                await chat.current.archive(BY, archived=True)
            log.info("retention_applied", key=due.key, action=due.action, used=due.used)

"""What Slack's events say: who wrote what, where, and what of it concerns the assistant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

Json = Mapping[str, Any]

_TOKEN = re.compile(r"<([^<>|]{1,2000})(?:\|([^<>]{0,1000}))?>")
"""A mention or a link in the text of a message, in which all other angle brackets are escaped."""

_REACTIONS = {
    "+1": "👍", "thumbsup": "👍", "white_check_mark": "✅", "heavy_check_mark": "✅",
    "-1": "👎", "thumbsdown": "👎", "x": "❌", "negative_squared_cross_mark": "❌",
}  # fmt: skip

_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")

_WRITTEN = frozenset({"", "file_share", "thread_broadcast", "me_message"})
"""Subtypes of messages that people wrote."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The bot: its user and its id, and the name of the workspace."""

    user: str
    bot: str
    name: str
    team: str


class SlackMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message, an edit, a deletion, a reaction or a press of a button.

    Attributes:
        id: Unique in the workspace.
        channel: The conversation.
        ts: The time stamp that the position in the conversation is counted by; "" if it has none.
        user: The author.
        text: The text as Slack sends it.
        thread: The thread that it belongs to.
        group: Several people can read the conversation.
        mentioned: It addresses the assistant.
        files: The files' objects.
        edits: The id of the message that it replaces.
        deletes: The id of the message that was deleted.
        choice: The value of the button that was pressed.
        reaction: An emoji, and `reacts_to` the time stamp of the message that it was put on.
    """

    id: str
    channel: str
    ts: str = ""
    user: str
    text: str = ""
    thread: str = ""
    group: bool = False
    mentioned: bool = True
    files: tuple[Json, ...] = ()
    edits: str = ""
    deletes: str = ""
    choice: str = ""
    reaction: str = ""
    reacts_to: str = ""

    @property
    def at(self) -> float:
        """The time of the message in seconds since the epoch; 0 for an edit, which has that of the message."""
        return float(self.ts) if _TS.fullmatch(self.ts) and not self.edits else 0.0


def message_id(channel: str, ts: str) -> str:
    """Return the id of a message."""
    return f"{channel}/{ts}"


def is_group(channel: str, kind: str = "") -> bool:
    """Return True unless a conversation is a direct message. `kind` is its type, which some events lack."""
    return kind != "im" if kind else not channel.startswith("D")


def read_event(event: Json, me: Identity, *, threads: bool) -> SlackMessage | None:
    """Return what an event says; None if it does not concern the assistant.

    Args:
        event: The event.
        me: The bot, whose own messages are left out, as are those of others.
        threads: A message in a group begins a thread, in which it is answered.
    """
    match str(event.get("type", "")), str(event.get("subtype", "")):
        case "app_mention", _:
            return read_message(event, event, me, threads=threads)
        case "message", "message_changed":
            return _edited(event, me, threads=threads)
        case "message", "message_deleted":
            return _deleted(
                event, event.get("previous_message") or {}, str(event.get("deleted_ts", "")), me, threads=threads
            )
        case "message", subtype if subtype in _WRITTEN:
            return read_message(event, event, me, threads=threads)
        case "reaction_added", _:
            return _reaction(event, me)
    return None


def read_message(message: Json, place: Json, me: Identity, *, threads: bool, edited: bool = False) -> SlackMessage | None:
    """Return a message as in an event or in the history; None if no person wrote it.

    Args:
        message: The message.
        place: An object with `channel` and `channel_type`.
        me: The bot.
        threads: As in `read_event`.
        edited: If the message was edited, it replaces an earlier version of itself.
    """
    user, ts = str(message.get("user", "")), str(message.get("ts", ""))
    channel = str(place.get("channel", ""))
    if not (user and channel and _TS.fullmatch(ts)) or user in (me.user, "USLACKBOT") or message.get("bot_id"):
        return None
    if str(message.get("subtype", "")) not in _WRITTEN:
        return None
    group = is_group(channel, str(place.get("channel_type", "")))
    text = str(message.get("text", ""))
    edit = str((message.get("edited") or {}).get("ts", "")) if edited else ""
    return SlackMessage(
        id=message_id(channel, f"{ts}/{edit}" if edit else ts),
        channel=channel,
        ts=ts,
        user=user,
        text=text,
        thread=_thread(message, ts, group=group, threads=threads),
        group=group,
        mentioned=not group or mentions(text, me.user),
        files=tuple(file for file in message.get("files") or () if isinstance(file, dict)),
        edits=message_id(channel, ts) if edit else "",
    )


def read_press(payload: Json, me: Identity) -> SlackMessage | None:
    """Return the press of a button of ours; None for anything else that is interactive."""
    actions = payload.get("actions") or ()
    if (
        payload.get("type") != "block_actions"
        or not actions
        or not str(actions[0].get("action_id", "")).startswith("exuvia:")
    ):
        return None
    action, container, place = actions[0], payload.get("container") or {}, payload.get("channel") or {}
    user, channel = str((payload.get("user") or {}).get("id", "")), str(place.get("id", ""))
    message = payload.get("message") or {}
    if not (user and channel):
        return None
    return SlackMessage(
        id=message_id(channel, f"{container.get('message_ts', '')}/{user}/{action.get('action_ts', '')}"),
        channel=channel,
        user=user,
        text=str((action.get("text") or {}).get("text", "")),
        thread=str(container.get("thread_ts") or message.get("thread_ts") or ""),
        group=is_group(channel, "im" if place.get("name") == "directmessage" else ""),
        choice=str(action.get("value", "")),
    )


def read_command(payload: Json) -> SlackMessage | None:
    """Return a slash command of the app as a message that begins with a slash: `/exuvia status` is `/status`."""
    user, channel = str(payload.get("user_id", "")), str(payload.get("channel_id", ""))
    if not (user and channel):
        return None
    return SlackMessage(
        id=message_id(channel, f"command/{payload.get('trigger_id', '')}"),
        channel=channel,
        user=user,
        text="/" + str(payload.get("text", "")).strip().removeprefix("/"),
        group=is_group(channel, "im" if payload.get("channel_name") == "directmessage" else ""),
    )


def readable(text: str, me: Identity, names: Mapping[str, str]) -> str:
    """Return the text of a message as people see it, without the mention of the assistant at its beginning.

    Args:
        text: The text as Slack sends it.
        me: The bot.
        names: The names of other users, as far as they are known.
    """

    def shown(match: re.Match[str]) -> str:
        target, label = match[1], match[2] or ""
        if target.startswith("@"):
            user = target[1:]
            return f"@{me.name if user == me.user else names.get(user) or label or user}"
        if target.startswith("#"):
            return f"#{label or target[1:]}"
        if target.startswith("!"):
            return label or f"@{target[1:].partition('^')[0]}"
        return f"[{label}]({target})" if label and label != target.removeprefix("mailto:") else target

    words = _TOKEN.sub(shown, text.lstrip().removeprefix(f"<@{me.user}>").lstrip(" ,:\u00a0"))
    return words.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def mentions(text: str, user: str) -> bool:
    """Return True if a text mentions a user."""
    return f"<@{user}>" in text or f"<@{user}|" in text


def mentioned_users(text: str) -> list[str]:
    """Return the users that a text mentions."""
    return [match[1][1:] for match in _TOKEN.finditer(text) if match[1].startswith("@")]


def _thread(message: Json, ts: str, *, group: bool, threads: bool) -> str:
    """Return the thread of a message. The first message of one says so too, but only once there are replies."""
    thread = str(message.get("thread_ts") or "")
    return thread if thread not in ("", ts) else ts if group and threads else ""


def _edited(event: Json, me: Identity, *, threads: bool) -> SlackMessage | None:
    """Return an edit. Slack also calls it a change when a link is unfurled, or a thread begins."""
    message, previous = event.get("message") or {}, event.get("previous_message") or {}
    if message.get("subtype") == "tombstone":
        return _deleted(event, previous, str(message.get("ts", "")), me, threads=threads)
    if not message.get("edited") or message.get("text") == previous.get("text"):
        return None
    return read_message(message, event, me, threads=threads, edited=True)


def _deleted(event: Json, previous: Json, ts: str, me: Identity, *, threads: bool) -> SlackMessage | None:
    channel, user = str(event.get("channel", "")), str(previous.get("user", ""))
    if not (channel and ts and user) or user == me.user or previous.get("bot_id"):
        return None
    group = is_group(channel, str(event.get("channel_type", "")))
    return SlackMessage(
        id=message_id(channel, f"{ts}/deleted"),
        channel=channel,
        user=user,
        thread=_thread(previous, ts, group=group, threads=threads),
        group=group,
        mentioned=not group or mentions(str(previous.get("text", "")), me.user),
        deletes=message_id(channel, ts),
    )


def _reaction(event: Json, me: Identity) -> SlackMessage | None:
    """Return a reaction that may answer a question of ours."""
    item, user = event.get("item") or {}, str(event.get("user", ""))
    emoji = _REACTIONS.get(str(event.get("reaction", "")).partition("::")[0], "")
    channel, ts = str(item.get("channel", "")), str(item.get("ts", ""))
    if not (emoji and channel and ts and user) or user == me.user or event.get("item_user") != me.user:
        return None
    return SlackMessage(
        id=message_id(channel, f"{ts}/{user}/{event.get('event_ts', '')}"),
        channel=channel,
        user=user,
        group=is_group(channel),
        reaction=emoji,
        reacts_to=ts,
    )

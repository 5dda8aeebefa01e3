"""A fake of Telegram's Bot API, with people who write to a bot, and as strict as the real one.

Updates are kept until a poll with a higher offset confirms them; a second poller ends the first with 409. The rules of
texts, entities, keyboards and files are those of `telegram_rules`. Groups have topics, privacy mode and migrations; people
can block the bot. `rate` limits the messages of a chat, and `faults` lets requests fail: refused, cut before or after they
took effect, or not answered in time.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web

from tests.servers.telegram_rules import (
    ACTIONS,
    CAPTION_UNITS,
    DOWNLOAD_BYTES,
    PHOTO_BYTES,
    REACTIONS,
    UPLOAD_BYTES,
    Json,
    Parameters,
    Refused,
    bad,
    checked_keyboard,
    checked_text,
    picture_size,
    units,
)

TOKEN = "7000000001:AAFakeTokenOfTheTestsForTheBotApi-12345"
TOPIC = {"name": "Tea", "icon_color": 7322096}


@dataclass
class Fault:
    """What happens to a request instead of an answer, before or `after` it took effect.

    `status` is an error with `description` and `parameters`; 0 cuts the connection after `delay` seconds.
    """

    status: int = 0
    description: str = "Internal Server Error"
    after: bool = False
    delay: float = 0.0
    parameters: Json = field(default_factory=dict)


@dataclass
class FakeChat:
    """A chat: its own numbering of messages (private ones share the account's), topics, and why nothing can be posted."""

    id: int
    type: str
    title: str = ""
    forum: bool = False
    topics: set[int] = field(default_factory=set)
    refusal: Refused | None = None
    messages: dict[int, Json] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def as_json(self) -> Json:
        named = {"first_name": self.title} if self.type == "private" else {"title": self.title}
        return {"id": self.id, "type": self.type, **named, **({"is_forum": True} if self.forum else {})}


class TelegramServer:
    """The fake; see the module. `url` is the base URL of its API.

    Attributes:
        posts: The messages that the bot sent, in order, as the API returns them.
        calls: The methods that were called, with their parameters.
        faults: What happens to the next requests of each method.
        rate: The messages a second that a chat allows; 0 is any number.
        actions, drafts, answers, commands: What the bot showed and set: the chat actions, the drafts (as they were sent),
            the answers to presses, the menu of commands.
        drafts_supported: False for a server without `sendMessageDraft`.
        poll_seconds: The most seconds that a poll is held open.
    """

    def __init__(self, *, privacy: bool = True, token: str = TOKEN) -> None:
        self.token = token
        self.bot = {
            "id": int(token.partition(":")[0]),
            "is_bot": True,
            "first_name": "Exuvia",
            "username": "exuvia_bot",
            "can_join_groups": True,
            "can_read_all_group_messages": not privacy,
            "supports_inline_queries": False,
        }
        self.privacy = privacy
        self.users: dict[int, Json] = {}
        self.chats: dict[int, FakeChat] = {}
        self.posts: list[Json] = []
        self.calls: list[tuple[str, Json]] = []
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        self.rate = 0.0
        self.actions: list[tuple[int, str]] = []
        self.drafts: list[Json] = []
        self.answers: dict[str, Json] = {}
        self.commands: list[Json] = []
        self.webhook = ""
        self.drafts_supported = True
        self.poll_seconds = 50.0
        self.port = 0
        self._account_numbers = itertools.count(1)
        self._update_numbers = itertools.count(100_000_000)
        self._updates: deque[Json] = deque()
        self._queries: set[str] = set()
        self._files: dict[str, tuple[str, bytes, int]] = {}
        self._sent_at: dict[int, deque[float]] = defaultdict(deque)
        self._news = asyncio.Event()
        """Set, and replaced, when something happens."""
        self._closing = asyncio.Event()
        self._poller: asyncio.Event | None = None
        self._runner: web.AppRunner | None = None

    # --- running ------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_route("*", "/bot{token}/{method}", self._request)
        app.router.add_get("/file/bot{token}/{path:.*}", self._file)
        self._runner = web.AppRunner(app, shutdown_timeout=5.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        self._closing.set()
        self.end_poll()
        await self._runner.cleanup()

    # --- people -------------------------------------------------------------------------------------------------------

    def user(self, id_: int, first_name: str, **more: Any) -> Json:
        """Create a person, and the private chat with them."""
        self.users[id_] = {"id": id_, "is_bot": False, "first_name": first_name, **more}
        self.chats[id_] = FakeChat(id_, "private", first_name)
        return self.users[id_]

    def group(self, id_: int, title: str, *, supergroup: bool = True, forum: bool = False) -> FakeChat:
        """Create a group that the bot is in."""
        self.chats[id_] = FakeChat(id_, "supergroup" if supergroup else "group", title, forum)
        return self.chats[id_]

    async def say(self, user: int, chat: int, text: str = "", **fields: Any) -> Json:
        """Have somebody send a message; return it. A group with privacy mode shows the bot only what is meant for it."""
        message = self._message(chat, self.users[user], text, **fields)
        if self._seen(message):
            await self._announce("message", message)
        return message

    async def edit(self, message: Json, text: str) -> None:
        """Have the author of a message change its text."""
        edited = {**message, "text": text, "edit_date": int(time.time()), "entities": _detected(text)}
        self.chats[message["chat"]["id"]].messages[message["message_id"]] = edited
        await self._announce("edited_message", edited)

    async def press(self, user: int, post: Json, label: str) -> str:
        """Have somebody press a button of a post; return the id of the press."""
        buttons = [button for row in post["reply_markup"]["inline_keyboard"] for button in row]
        data = next(button["callback_data"] for button in buttons if button["text"] == label)
        query = f"{time.time_ns()}"
        self._queries.add(query)
        pressed = {"id": query, "from": self.users[user], "message": post, "chat_instance": "1", "data": data}
        await self._announce("callback_query", pressed)
        return query

    async def react(self, user: int, post: Json, emoji: str, before: str = "") -> None:
        """Have somebody react to a post; "" takes the reaction away."""
        change = {
            "chat": post["chat"],
            "message_id": post["message_id"],
            "user": self.users[user],
            "date": int(time.time()),
            "old_reaction": [{"type": "emoji", "emoji": before}] if before else [],
            "new_reaction": [{"type": "emoji", "emoji": emoji}] if emoji else [],
        }
        await self._announce("message_reaction", change)

    async def album(self, user: int, chat: int, files: Sequence[Json], caption: str = "") -> list[Json]:
        """Have somebody send an album: a message for each file, `photo` or `document` as `upload` returns them."""
        album = str(time.time_ns())
        return [
            await self.say(
                user, chat, media_group_id=album, **file, **({"caption": caption} if not number and caption else {})
            )
            for number, file in enumerate(files)
        ]

    async def migrate(self, group: int, supergroup: int) -> None:
        """Turn a group into a supergroup."""
        old = self.chats[group]
        new = self.group(supergroup, old.title)
        old.refusal = bad("group chat was upgraded to a supergroup chat", migrate_to_chat_id=supergroup)
        by = next(iter(self.users.values()))
        await self._announce("message", self._message(group, by, migrate_to_chat_id=supergroup))
        await self._announce("message", self._message(new.id, by, migrate_from_chat_id=group))

    async def news(self, kind: str, content: Json) -> None:
        """Send any update."""
        await self._announce(kind, content)

    def upload(self, content: bytes, name: str = "", size: int | None = None) -> Json:
        """Store a file that somebody sends, and return what a message says of it. `size` may exceed its content's."""
        file_id = f"file-{len(self._files)}"
        size = len(content) if size is None else size
        self._files[file_id] = (
            f"documents/file_{len(self._files)}{name[name.rfind('.') :] if '.' in name else ''}",
            content,
            size,
        )
        return {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_size": size}

    def photo(self, content: bytes) -> list[Json]:
        """Store a picture, in two sizes."""
        return [
            {**self.upload(content[:100]), "width": 90, "height": 90},
            {**self.upload(content), "width": 800, "height": 800},
        ]

    def end_poll(self) -> None:
        """End the poll that waits, if one does, as another poller would."""
        if self._poller is not None:
            self._poller.set()

    def restart_numbers(self) -> None:
        """Number the next updates anew and lower, as the service does after a week without any."""
        self._update_numbers = itertools.count(1000)

    def unconfirmed(self) -> int:
        """Return the number of updates that are not confirmed."""
        return len(self._updates)

    def posts_in(self, chat: int) -> list[Json]:
        """Return the messages that the bot sent to a chat."""
        return [post for post in self.posts if post["chat"]["id"] == chat]

    # --- messages -----------------------------------------------------------------------------------------------------

    def _message(self, chat: int, by: Json, text: str = "", **fields: Any) -> Json:
        where = self.chats[chat]
        number = next(self._account_numbers if where.type in ("private", "group") else where.numbers)
        message: Json = {"message_id": number, "date": int(time.time()), "chat": where.as_json(), "from": by}
        if text:
            message |= {"text": text, "entities": fields.pop("entities", None) or _detected(text)}
        if topic := fields.get("message_thread_id"):
            where.topics.add(topic)
            message["is_topic_message"] = where.forum
            created = {"message_id": topic, "date": 1, "chat": where.as_json(), "from": by, "forum_topic_created": TOPIC}
            fields.setdefault("reply_to_message", created)
        message |= fields
        message = {name: value for name, value in message.items() if value not in (None, [])}
        where.messages[number] = message
        return message

    def _seen(self, message: Json) -> bool:
        """Return True if privacy mode shows a message to the bot."""
        if message["chat"]["type"] == "private" or not self.privacy:
            return True
        replied = message.get("reply_to_message", {}).get("from", {}).get("id")
        handle = f"@{self.bot['username']}".lower()
        text = message.get("text") or message.get("caption") or ""
        return replied == self.bot["id"] or handle in text.lower() or text.startswith("/")

    async def _announce(self, kind: str, content: Json) -> None:
        self._updates.append({"update_id": next(self._update_numbers), kind: content})
        self._news.set()
        self._news = asyncio.Event()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _request(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        try:
            given = await Parameters.of(request)
            self.calls.append((method, dict(given.values)))
            fault = self.faults[method.lower()].popleft() if self.faults[method.lower()] else None
            if fault is not None and not fault.after:
                await self._fail(request, fault)
            result = await self._answer(request, method, given)
            if fault is not None:
                await self._fail(request, fault)
        except Refused as refused:
            return refused.response()
        except ConnectionResetError:
            return web.Response()  # nobody reads it
        return web.json_response({"ok": True, "result": result})

    async def _fail(self, request: web.Request, fault: Fault) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), fault.delay)
        if fault.status:
            raise Refused(fault.status, fault.description, **fault.parameters)
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError

    async def _answer(self, request: web.Request, method: str, given: Parameters) -> Any:
        self._check_token(request.match_info["token"])
        answer: Callable[[Parameters], Any] | None = getattr(self, f"_do_{method.lower()}", None)
        if answer is None or (method.lower() == "sendmessagedraft" and not self.drafts_supported):
            raise Refused(404, "Not Found: method not found")
        result = answer(given)
        return await result if asyncio.iscoroutine(result) else result

    def _check_token(self, token: str) -> None:
        number, _, rest = token.partition(":")
        if not number.isdecimal() or len(rest) < 30:
            raise Refused(404, "Not Found")
        if token != self.token:
            raise Refused(401, "Unauthorized")

    async def _file(self, request: web.Request) -> web.Response:
        try:
            self._check_token(request.match_info["token"])
        except Refused as refused:
            return refused.response()
        content = next((content for path, content, _ in self._files.values() if path == request.match_info["path"]), None)
        return Refused(404, "Not Found").response() if content is None else web.Response(body=content)

    # --- methods: updates ---------------------------------------------------------------------------------------------

    def _do_getme(self, _: Parameters) -> Json:
        return self.bot

    async def _do_getupdates(self, given: Parameters) -> list[Json]:
        if self.webhook:
            raise Refused(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the "
                "webhook first",
            )
        self.end_poll()
        ended = self._poller = asyncio.Event()
        offset, limit = given.number("offset"), given.number("limit", 100)
        allowed = given.decoded("allowed_updates") or []
        try:
            if offset < 0:
                self._updates = deque(list(self._updates)[offset:])
            while self._updates and self._updates[0]["update_id"] < offset:
                self._updates.popleft()
            end = asyncio.get_running_loop().time() + min(given.number("timeout"), self.poll_seconds)
            while not (found := self._allowed(allowed)):
                left = end - asyncio.get_running_loop().time()
                if left <= 0 or not await self._wait(left, ended):
                    break
            if ended.is_set():
                raise Refused(
                    409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
                )
            return found[: max(1, min(limit, 100))]
        finally:
            if self._poller is ended:
                self._poller = None

    def _allowed(self, kinds: Sequence[str]) -> list[Json]:
        """Return the unconfirmed updates. Those of other kinds than the bot allows are forgotten."""
        excluded = {"message_reaction", "message_reaction_count", "chat_member"} if not kinds else set()
        for update in list(self._updates):
            kind = next(name for name in update if name != "update_id")
            if kind in excluded or (kinds and kind not in kinds):
                self._updates.remove(update)
        return list(self._updates)

    async def _wait(self, seconds: float, ended: asyncio.Event) -> bool:
        """Wait until something happens, or until another poller comes. Returns False then, and after `seconds`."""
        waiting = {asyncio.create_task(self._news.wait()), asyncio.create_task(ended.wait())}
        try:
            done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
        return bool(done) and not ended.is_set()

    def _do_setwebhook(self, given: Parameters) -> bool:
        self.webhook = given.text("url")
        return True

    def _do_deletewebhook(self, given: Parameters) -> bool:
        self.webhook = ""
        if given.flag("drop_pending_updates"):
            self._updates.clear()
        return True

    def _do_getwebhookinfo(self, _: Parameters) -> Json:
        return {"url": self.webhook, "has_custom_certificate": False, "pending_update_count": len(self._updates)}

    # --- methods: sending ---------------------------------------------------------------------------------------------

    def _chat(self, given: Parameters) -> FakeChat:
        """Return the chat of a request, where the bot may post."""
        value = str(given.values.get("chat_id", ""))
        chat = self.chats.get(int(value)) if value.removeprefix("-").isdecimal() else None
        if chat is None:
            raise bad("chat_id is empty" if not value else "chat not found")
        if chat.refusal is not None:
            raise chat.refusal
        return chat

    def _check_rate(self, chat: FakeChat) -> None:
        """Refuse a message if the chat had too many in the last second."""
        if not self.rate:
            return
        now, sent = time.monotonic(), self._sent_at[chat.id]
        window = max(1.0, 1.0 / self.rate)
        while sent and now - sent[0] >= window:
            sent.popleft()
        if len(sent) >= max(1, self.rate * window):
            seconds = int(window - (now - sent[0])) + 1
            raise Refused(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)
        sent.append(now)

    def _send(self, given: Parameters, content: Json) -> Json:
        """Post a message of the bot."""
        chat = self._chat(given)
        topic = given.number("message_thread_id")
        if topic and (not chat.forum or topic not in chat.topics):
            raise bad("message thread not found")
        replies = given.decoded("reply_parameters") or {}
        replied = chat.messages.get(int(replies.get("message_id") or given.number("reply_to_message_id")))
        wanted = "message_id" in replies or given.number("reply_to_message_id")
        if wanted and replied is None and not replies.get("allow_sending_without_reply"):
            raise bad("message to be replied not found")
        keyboard = checked_keyboard(given)
        self._check_rate(chat)
        fields: Json = {"reply_to_message": replied, "reply_markup": keyboard}
        if topic:
            fields["message_thread_id"] = topic
        if replied is not None:
            replied.pop("reply_to_message", None)
        text = content.pop("text", "")
        post = self._message(chat.id, self.bot, text, **content, **fields)
        self.posts.append(post)
        return post

    def _do_sendmessage(self, given: Parameters) -> Json:
        self._chat(given)
        text, entities = checked_text(given)
        if not text:
            raise bad("message text is empty")
        return self._send(given, {"text": text, "entities": entities or _detected(text)})

    def _uploaded(self, given: Parameters, name: str, most: int) -> tuple[Json, str, bytes]:
        """Return a file of a request: what a message says of it, its name and content."""
        value = given.text(name)
        if value in self._files:
            path, content, size = self._files[value]
            return {"file_id": value, "file_unique_id": f"u{value}", "file_size": size}, path.rpartition("/")[2], content
        file = given.files.get(value.removeprefix("attach://") if value.startswith("attach://") else name)
        if file is None:
            raise bad(f"there is no {name} in the request")
        content = file.file.read()
        if not content:
            raise bad("file must be non-empty")
        if len(content) > most:
            raise Refused(413, "Request Entity Too Large")
        return self.upload(content, file.filename), file.filename, content

    def _caption(self, given: Parameters) -> Json:
        caption, entities = checked_text(given, "caption", CAPTION_UNITS)
        return {"caption": caption or None, "caption_entities": entities}

    def _do_sendphoto(self, given: Parameters) -> Json:
        self._chat(given)
        stored, _, content = self._uploaded(given, "photo", PHOTO_BYTES)
        size = picture_size(content)
        if size is None:
            raise bad("IMAGE_PROCESS_FAILED")
        if sum(size) > 10_000 or max(size) > 20 * min(size):
            raise bad("PHOTO_INVALID_DIMENSIONS")
        return self._send(given, {"photo": [{**stored, "width": size[0], "height": size[1]}], **self._caption(given)})

    def _do_senddocument(self, given: Parameters) -> Json:
        self._chat(given)
        stored, name, _ = self._uploaded(given, "document", UPLOAD_BYTES)
        return self._send(given, {"document": {**stored, "file_name": name}, **self._caption(given)})

    def _do_getfile(self, given: Parameters) -> Json:
        file_id = given.text("file_id")
        if file_id not in self._files:
            raise bad("wrong file_id or the file is temporarily unavailable")
        path, _, size = self._files[file_id]
        if size > DOWNLOAD_BYTES:
            raise bad("file is too big")
        return {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_size": size, "file_path": path}

    def content(self, file_id: str) -> bytes:
        """Return the content of a file."""
        return self._files[file_id][1]

    # --- methods: what is there ---------------------------------------------------------------------------------------

    def _own(self, given: Parameters) -> Json:
        """Return a message of the bot that a request changes."""
        message = self._chat(given).messages.get(given.number("message_id"))
        if message is None:
            raise bad("message to edit not found")
        if message["from"]["id"] != self.bot["id"]:
            raise bad("message can't be edited")
        return message

    def _do_editmessagetext(self, given: Parameters) -> Json:
        message = self._own(given)
        text, entities = checked_text(given)
        if not text:
            raise bad("message text is empty")
        keyboard = checked_keyboard(given)
        if (text, keyboard) == (message.get("text"), message.get("reply_markup")):
            raise bad(
                "message is not modified: specified new message content and reply markup are exactly the same as a current "
                "content and reply markup of the message"
            )
        message |= {"text": text, "entities": entities or _detected(text), "edit_date": int(time.time())}
        return self._with_keyboard(message, keyboard)

    def _do_editmessagereplymarkup(self, given: Parameters) -> Json:
        return self._with_keyboard(self._own(given), checked_keyboard(given))

    def _with_keyboard(self, message: Json, keyboard: Json | None) -> Json:
        message.pop("reply_markup", None)
        message |= {"reply_markup": keyboard} if keyboard else {}
        return message

    def _do_deletemessage(self, given: Parameters) -> bool:
        chat = self._chat(given)
        deleted = chat.messages.pop(given.number("message_id"), None)
        if deleted is None:
            raise bad("message to delete not found")
        self.posts = [post for post in self.posts if post is not deleted]
        return True

    def _do_answercallbackquery(self, given: Parameters) -> bool:
        query = given.text("callback_query_id")
        if query not in self._queries:
            raise bad("query is too old and response timeout expired or query ID is invalid")
        if units(given.text("text")) > 200:
            raise bad("MESSAGE_TOO_LONG")
        self._queries.discard(query)
        self.answers[query] = {"text": given.text("text"), "show_alert": given.flag("show_alert")}
        return True

    def _do_setmessagereaction(self, given: Parameters) -> bool:
        message = self._chat(given).messages.get(given.number("message_id"))
        if message is None:
            raise bad("message to react not found")
        reactions = given.decoded("reaction", [])
        if any(each.get("type") == "emoji" and each.get("emoji") not in REACTIONS for each in reactions):
            raise bad("REACTION_INVALID")
        message["reactions"] = reactions
        return True

    def _do_sendchataction(self, given: Parameters) -> bool:
        chat, action = self._chat(given), given.text("action")
        if action not in ACTIONS:
            raise bad("wrong parameter action in request")
        self.actions.append((chat.id, action))
        return True

    def _do_sendmessagedraft(self, given: Parameters) -> bool:
        chat = self._chat(given)
        if chat.type != "private":
            raise bad("TEXTDRAFT_PEER_INVALID")
        if not given.number("draft_id"):
            raise bad("draft_id must be non-zero")
        text, entities = checked_text(given)
        self.drafts.append({"chat": chat.id, "draft_id": given.number("draft_id"), "text": text, "entities": entities})
        return True

    def _do_setmycommands(self, given: Parameters) -> bool:
        commands = given.decoded("commands", [])
        for command in commands:
            name, description = command.get("command", ""), command.get("description", "")
            if not (1 <= len(name) <= 32 and all(c.islower() or c.isdigit() or c == "_" for c in name) and name.isascii()):
                raise bad("BOT_COMMAND_INVALID")
            if not 1 <= len(description) <= 256:
                raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
        if len(commands) > 100:
            raise bad("BOT_COMMANDS_TOO_MUCH")
        self.commands = commands
        return True

    def _do_getmycommands(self, _: Parameters) -> list[Json]:
        return self.commands

    def _do_deletemycommands(self, _: Parameters) -> bool:
        self.commands = []
        return True

    def _do_getchat(self, given: Parameters) -> Json:
        return {
            **self._chat(given).as_json(),
            "accent_color_id": 0,
            "max_reaction_count": 11,
            "accepted_gift_types": {
                "unlimited_gifts": False,
                "limited_gifts": False,
                "unique_gifts": False,
                "premium_subscription": False,
                "gifts_from_channels": False,
            },
        }

    def called(self, method: str) -> int:
        """Return how often a method was called."""
        return Counter(name.lower() for name, _ in self.calls)[method.lower()]


def _detected(text: str) -> list[Json]:
    """Return the entities that the service finds by itself: a command at the beginning, and mentions."""
    found: list[Json] = []
    at = 0
    for word in text.split(" "):
        length = units(word)
        if (word.startswith("/") and len(word) > 1) or (word.startswith("@") and len(word) > 1):
            kind: Literal["bot_command", "mention"] = "bot_command" if word.startswith("/") else "mention"
            shown = word if kind == "bot_command" else word.rstrip(".,:!?")
            found.append({"type": kind, "offset": at, "length": units(shown.split("\n")[0])})
        at += length + 1
    return found

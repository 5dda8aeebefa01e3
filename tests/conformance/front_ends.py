"""A person who is asked whether a tool call may run, at each front end of the gateway."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import aiohttp
import openai
import pytest
from playwright.async_api import expect

from tests.console.browser import SHELL, chromium, visiting
from tests.gateway.elsewhere import Elsewhere
from tests.gateway.gateways import TOKEN, Client
from tests.gateway.person import ENVIRONMENT, Terminal
from tests.waiting import DEADLINE, deadline, until

Answer: TypeAlias = Literal["once", "session", "always", "deny"]


class Place(Protocol):
    """The surroundings of a front end: the address of the gateway, the service behind its channel, and a folder."""

    url: str
    elsewhere: Elsewhere
    folder: Path


class FrontEnd(Protocol):
    """A person at one front end. It stays open while the gateway is restarted on the same port."""

    channel: ClassVar[str]
    """The channel of its answers."""

    async def say(self, text: str) -> None:
        """Send a message."""

    async def sees(self, *texts: str) -> None:
        """Wait until all of these are shown with the newest question."""

    async def offers(self) -> set[Answer]:
        """Return the answers that the newest question offers."""

    async def answers(self, answer: Answer) -> None:
        """Answer the newest question."""

    async def hears(self, text: str) -> None:
        """Wait until this is shown."""

    async def restarted(self) -> None:
        """Go on after the gateway was restarted."""


class Websocket:
    """A client of the websocket that answers with frames."""

    channel: ClassVar[str] = "websocket"

    def __init__(self, place: Place, http: aiohttp.ClientSession) -> None:
        self._place, self._http = place, http
        self._client: Client | None = None
        self._session = ""
        self._seen = 0
        self._question: dict[str, Any] = {}

    async def client(self) -> Client:
        """Return the connection; a lost one is replaced, from the last event on."""
        if self._client is None:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            socket = await self._http.ws_connect(f"{self._place.url}/ws", headers=headers, max_msg_size=0)
            self._client = Client(socket)
            assert (await self._client.next())["type"] == "welcome"
            if self._session:
                position = {"session_id": self._session, "after": self._seen}
                await self._client.say("subscribe", session="main", **position)
        return self._client

    async def say(self, text: str) -> None:
        await (await self.client()).send(text)

    async def next_event(self, kind: str) -> dict[str, Any]:
        """Wait for the next event of a kind."""
        while True:
            frame = await (await self.client()).until_type("event", session="main")
            self._session, self._seen = frame["session_id"], frame["event"]["seq"]
            if frame["event"]["kind"] == kind:
                return dict(frame["event"])

    async def sees(self, *texts: str) -> None:
        if not self._question:
            self._question = await self.next_event("approval_asked")
        shown = "\n".join(str(self._question.get(field, "")) for field in ("what", "detail", "why", "pattern"))
        assert all(text in shown for text in texts), shown

    async def offers(self) -> set[Answer]:
        return {*self._question["choices"], "deny"}

    async def answers(self, answer: Answer) -> None:
        approval, self._question = self._question["approval"], {}
        decision = {"decision": "deny"} if answer == "deny" else {"decision": "approve", "scope": answer}
        client = await self.client()
        await client.say("approve", id=f"answer-{approval}", session="main", approval=approval, **decision)
        frame = await client.until(lambda f: f.get("id") == f"answer-{approval}")
        assert frame["type"] == "accepted", frame

    async def hears(self, text: str) -> None:
        while text not in (await self.next_event("model_replied"))["text"]:
            pass

    async def restarted(self) -> None:
        self._client, self._seen, self._question = None, self._question["seq"] - 1, {}


class Commands(Websocket):
    """The same, who types commands."""

    async def sees(self, *texts: str) -> None:
        await super().sees()
        shown = await self._command("/approvals")
        assert all(text in shown for text in texts), shown

    async def answers(self, answer: Answer) -> None:
        approval, self._question = self._question["approval"], {}
        text = f"/deny {approval}" if answer == "deny" else f"/approve {approval} {answer}"
        assert await self._command(text, session="elsewhere") in (
            "Denied.",
            "Approved this time.",
            "Approved for this session.",
            "Approved always.",
        )

    async def _command(self, text: str, session: str = "main") -> str:
        client = await self.client()
        await client.send(text, session=session)
        fits = {"type": "event", "session": session}
        frame = await client.until(
            lambda f: all(f.get(k) == v for k, v in fits.items()) and f["event"]["kind"] == "command_answered"
        )
        return str(frame["event"]["answer"])

    async def next_event(self, kind: str) -> dict[str, Any]:
        client = await self.client()
        for frame in client.frames:  # a command may have read past it
            if frame["type"] == "event" and frame["session"] == "main" and frame["event"]["seq"] > self._seen:
                self._session, self._seen = frame["session_id"], frame["event"]["seq"]
                if frame["event"]["kind"] == kind:
                    return dict(frame["event"])
        return await super().next_event(kind)


class AtTerminal:
    """Somebody with `exuvia chat` in a terminal with colours."""

    channel: ClassVar[str] = "websocket"
    keys: ClassVar[dict[Answer, str]] = {"once": "y", "session": "s", "always": "a", "deny": "n"}

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    async def say(self, text: str) -> None:
        self._terminal.types(text + "\r")

    async def sees(self, *texts: str) -> None:
        for text in texts:
            await self._terminal.sees(text)
        await self._terminal.sees("waiting for your answer: ")

    async def offers(self) -> set[Answer]:
        *_, line = (line for line in self._terminal.shown.splitlines() if "waiting for your answer: " in line)
        offered = {part.split()[0] for part in line.partition("answer: ")[2].split(", ")}
        return {answer for answer, key in self.keys.items() if key in offered}

    async def answers(self, answer: Answer) -> None:
        self._terminal.types(self.keys[answer])

    async def hears(self, text: str) -> None:
        await self._terminal.sees(text)

    async def restarted(self) -> None:
        await self._terminal.sees("(connected again)")


class AtConsole:
    """Somebody with the console in a browser."""

    channel: ClassVar[str] = "websocket"
    labels: ClassVar[dict[Answer, str]] = {
        "once": "Approve this time",
        "session": "For this session",
        "always": "Always",
        "deny": "Deny",
    }

    def __init__(self, page: Any) -> None:
        self._page = page
        self._card = page.get_by_role("group", name="May launch do this?")

    async def say(self, text: str) -> None:
        await self._page.get_by_role("textbox", name="Message").fill(text)
        await self._page.keyboard.press("Enter")

    async def sees(self, *texts: str) -> None:
        for text in texts:
            await expect(self._card.last).to_contain_text(text)
        await expect(self._page).to_have_title("(1) Waiting for you · Launch it. · Exuvia")
        await expect(self._page.get_by_role("navigation", name="Conversations")).to_contain_text("waits for you")
        await expect(self._card.last.get_by_role("button")).not_to_have_count(0)

    async def offers(self) -> set[Answer]:
        found = await self._card.last.get_by_role("button").all_text_contents()
        return {answer for answer, label in self.labels.items() if label in found}

    async def answers(self, answer: Answer) -> None:
        card = self._card.nth(await self._card.count() - 1)
        await card.get_by_role("button", name=self.labels[answer]).press("Enter")
        await expect(card).to_contain_text("Denied by owner" if answer == "deny" else "Approved")
        await expect(card.get_by_role("button")).to_have_count(0)
        await expect(card.locator("pre").first).to_be_hidden()
        await expect(card.locator("summary")).to_be_focused()

    async def hears(self, text: str) -> None:
        await expect(self._page.locator("article.assistant").last).to_contain_text(text)

    async def restarted(self) -> None:
        await self._page.reload()


class OnChannel:
    """Somebody in a chat of a service with buttons."""

    channel: ClassVar[str] = "lines"
    labels: ClassVar[dict[Answer, str]] = {
        "once": "Approve this time",
        "session": "Approve for this session",
        "always": "Approve always",
        "deny": "Deny",
    }

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._elsewhere, self._connections = elsewhere, 1
        self._numbers = itertools.count(1)
        self._question: dict[str, Any] = {}

    async def say(self, text: str, **fields: Any) -> None:
        await self._elsewhere.say(text, id_=f"m{next(self._numbers)}", **fields)

    async def sees(self, *texts: str) -> None:
        while "buttons" not in self._question:
            self._question = await self._elsewhere.hear()
        assert all(text in self._question["text"] for text in texts), self._question

    async def offers(self) -> set[Answer]:
        return {answer for answer, label in self.labels.items() if label in self._question["buttons"]}

    async def answers(self, answer: Answer) -> None:
        buttons, self._question = self._question["buttons"], {}
        await self.say("", choice=buttons[self.labels[answer]])

    async def hears(self, text: str) -> None:
        async with deadline():
            while text not in (await self._elsewhere.hear()).get("text", ""):
                pass

    async def restarted(self) -> None:
        connections = self._connections
        await until(lambda: self._elsewhere.connections > connections)
        self._connections = self._elsewhere.connections


class OpenAIProgram:
    """Somebody with a program for OpenAI's API, which ends each answer with the open question."""

    channel: ClassVar[str] = "api"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._shown = ""

    async def say(self, text: str) -> None:
        options = {"api_key": TOKEN, "max_retries": 0, "timeout": DEADLINE}
        async with openai.AsyncOpenAI(base_url=f"{self._place.url}/v1", **options) as client:  # type: ignore[arg-type]
            answer = await client.chat.completions.create(
                model="exuvia",
                messages=[{"role": "user", "content": text}],
                extra_headers={"X-Exuvia-Session": "main"},
            )
        assert answer.choices[0].finish_reason == "stop"
        self._shown = answer.choices[0].message.content or ""

    async def sees(self, *texts: str) -> None:
        if not self._shown:  # after a restart: any message is told what is waited for
            await self.say("Are you there?")
        assert all(text in self._shown for text in texts), self._shown

    async def offers(self) -> set[Answer]:
        return {answer for answer in ("once", "session", "always", "deny") if self._command(answer) in self._shown}

    async def answers(self, answer: Answer) -> None:
        await self.say(self._command(answer))

    async def hears(self, text: str) -> None:
        assert text in self._shown, self._shown

    async def restarted(self) -> None:
        self._shown = ""

    def _command(self, answer: Answer) -> str:
        approval = self._shown.rpartition("`/deny ")[2].partition("`")[0]
        return f"/deny {approval}" if answer == "deny" else f"/approve {approval} {answer}"


@asynccontextmanager
async def front_end(name: str, place: Place) -> AsyncIterator[FrontEnd]:
    """Open a front end at a gateway that runs."""
    async with AsyncExitStack() as stack:
        match name:
            case "websocket" | "commands":
                http = await stack.enter_async_context(aiohttp.ClientSession())
                yield (Websocket if name == "websocket" else Commands)(place, http)
            case "terminal":
                terminal = await stack.enter_async_context(Terminal(100, 40))
                wanted = {"TERM": "xterm-256color", "XDG_STATE_HOME": str(place.folder / "state")}
                coloured = {key: value for key, value in ENVIRONMENT.items() if key != "NO_COLOR"} | wanted
                process = await terminal.chat(place.url, environment=coloured)
                await terminal.sees("Ctrl-D leaves.")
                yield AtTerminal(terminal)
                terminal.types("\x04")
                async with deadline():
                    await process.wait()
            case "console":
                if SHELL is None:
                    pytest.skip("Chromium is missing (Debian: apt install chromium): the console was not tried in a browser")
                browser = await stack.enter_async_context(chromium())
                visit = await stack.enter_async_context(visiting(browser, place.url))
                await visit.sign_in()
                await visit.page.goto(f"{place.url}/#/chat/main")
                yield AtConsole(visit.page)
                assert visit.elsewhere == []
            case "channel":
                yield OnChannel(place.elsewhere)
            case "openai":
                yield OpenAIProgram(place)
            case _:
                raise AssertionError(name)


NAMES = ("websocket", "commands", "terminal", "console", "channel", "openai")

"""Kinds of channels: a table of the configuration opens one, and nothing is imported for those that no table names."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Self, cast

import msgspec
import pytest

from gateway.config import keys
from gateway.config.keys import load_config
from gateway.conversations.channels.channel_instances import ChannelInstance, channel_instances
from gateway.conversations.channels.channel_runner import ChannelRunner
from gateway.doctor.config_check import check
from gateway.support.errors import ConfigRefused
from plugins.api import channel
from plugins.api.channel import ChannelInbox, OutboundMessage
from plugins.api.context import PluginContext
from plugins.channels.service_library import import_library
from plugins.host import loading
from plugins.host.hooks import Hooks
from plugins.host.validation import InvalidPlugin
from plugins.host.validation import channel as validated
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import RecordingInbox
from tests.gateway.gateways import gateway
from tests.shelf import Shelf
from tests.waiting import VirtualTime, until

ROOT = Path(__file__).parents[2]

POSTS = '''
import asyncio
from typing import ClassVar
import msgspec
from exuvia import InboundMessage, Secret, hookimpl

class PostSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: str
    token: Secret | None = None

class Post:
    """A kind of channel that gives one message to its inbox, and keeps its contexts and the replies."""

    name = "post"
    Settings: ClassVar = PostSettings
    contexts, replies, known, states = {}, [], {}, []

    def __init__(self, context):
        self.context = self.contexts[context.name] = context

    async def __aenter__(self):
        self.states.append(("open", self.context.name, self.context.settings.address))
        return self

    async def __aexit__(self, *_):
        self.states.append(("closed", self.context.name, self.context.settings.address))

    async def run(self, inbox):
        name = self.context.name
        inbox.report("The line is cut;\\x1b mend it.")
        self.known[name] = [await inbox.knows(sender) for sender in ("ana", "eve")]
        self.known[name].append(await inbox.knows("ana", mentioned=False))
        await inbox.receive(InboundMessage(id="1", sender="ana", chat=name, text=f"from {name}"))
        await inbox.receive(InboundMessage(id="2", sender="ana", chat=name, text="in a group", group=True, mentioned=False))
        await asyncio.Event().wait()

    async def deliver(self, message):
        self.replies.append((self.context.name, message.text))
        return ""

@hookimpl
def register_channels():
    return [Post]
'''

TABLES = """
[plugins]
allow = ["posts"]
[channels.home]
kind = "post"
address = "a.example"
token = "env:POST_TOKEN"
people = { "ana" = "owner" }
[channels.work]
kind = "post"
address = "b.example"
people = { "*" = "owner" }
mention = false
"""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: str
    token: Secret | None = None


class Post:
    """A kind of channel that is never opened."""

    name: ClassVar[str] = "post"
    Settings: ClassVar[type[msgspec.Struct]] = Settings

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *_: object) -> None: ...
    async def run(self, inbox: object) -> None: ...
    async def deliver(self, message: object) -> str:
        return ""


class Lines(Post):
    """A class without settings of its own."""

    name = "lines"
    Settings = None  # type: ignore[assignment]


KINDS: Any = {"post": Post, "lines": Lines}


async def test_each_table_opens_a_channel_of_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_posts", "posts", POSTS)
    settings, variables = {"agent.model": "scripted:echo"}, {"POST_TOKEN": "a-token-of-the-post"}
    async with gateway(tmp_path / "home", file=TABLES, settings=settings, variables=variables) as g:
        kind = sys.modules["exuvia_posts"].Post
        await until(lambda: len(kind.replies) == 3)
        status = await (await g.connect()).command("/status")
    assert sorted(kind.replies) == [("home", "from home"), ("work", "from work"), ("work", "in a group")]
    assert kind.known == {"home": [True, False, False], "work": [True, True, True]}
    home, work = kind.contexts["home"], kind.contexts["work"]
    assert (home.settings.address, home.settings.token, home.folder) == (
        "a.example",
        Secret("a-token-of-the-post"),
        g.home / "channels" / "home",
    )
    assert (work.settings.address, work.settings.token) == ("b.example", None)
    assert "The channel 'home' is not connected: The line is cut; mend it." in status
    ids = {line["id"] for lines in g.journals().values() for line in lines if line["kind"] == "message_received"}
    assert {"home:1", "work:1"} <= ids


async def test_a_changed_table_reopens_its_channel_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_posts", "posts", POSTS)
    head = '[plugins]\nallow = ["posts"]\n'
    home, work, third = (
        f'[channels.{name}]\nkind = "post"\naddress = "{name}"\npeople = {{ "*" = "owner" }}\n'
        for name in ("home", "work", "third")
    )
    async with gateway(tmp_path / "home", file=head + home + work, settings={"agent.model": "scripted:echo"}) as g:
        states = sys.modules["exuvia_posts"].Post.states
        await until(lambda: len(states) == 2)
        config = g.home / "config.toml"
        config.write_text(head + home + work.replace('"work"', '"moved"') + third + "pairing = false\n")
        await until(lambda: len(states) == 5)
        config.write_text(head + home + "mention = false\n" + third + "pairing = false\n")
        await until(lambda: len(states) == 6)
        config.write_text(head + '[channels.home]\nkind = "pst"\n')
        await until(lambda: g.daemon.context.settings.fault is not None)
        assert "channels.home.kind is 'pst'" in str(g.daemon.context.settings.fault)
    assert states[:2] == [("open", "home", "home"), ("open", "work", "work")]
    assert states[2] == ("closed", "work", "work")
    assert sorted(states[3:5]) == [("open", "third", "third"), ("open", "work", "moved")]
    assert states[5] == ("closed", "work", "moved")
    assert sorted(states[6:]) == [("closed", "home", "home"), ("closed", "third", "third")]


class Registered:
    """Plugins with these channels."""

    def channels(self) -> Any:
        return KINDS


def instances(tmp_path: Path, text: str) -> dict[str, ChannelInstance]:
    (tmp_path / "config.toml").write_text(text)
    config = load_config(tmp_path / "config.toml", environment={}, overrides={})
    return channel_instances(config, cast(Hooks, Registered()))


def test_a_class_without_settings_is_opened_once_under_its_own_name(tmp_path: Path) -> None:
    assert instances(tmp_path, "") == {"lines": ChannelInstance(name="lines", kind=Lines)}
    assert instances(tmp_path, '[channels.lines]\nkind = "lines"\nmention = false') == instances(tmp_path, "")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ('[channels.home]\nkind = "telegrm"', "channels.home.kind is 'telegrm', which does not exist; choose one of "),
        ('[channels.home]\naddress = "a"', "channels.home.kind is missing."),
        ('[channels.home]\nkind = "post"', "channels.home.address is missing."),
        ('[channels.home]\nkind = "post"\nadress = "a"', "channels.home.adress is not a known key; did you mean"),
        ('[channels.home]\nkind = "post"\naddress = 3', "channels.home.address must be text, not a whole number."),
        ('[channels.home]\nkind = "post"\naddress = "a"\nmention = 3', "channels.home.mention must be true or false"),
        ('[channels.Home]\nkind = "post"\naddress = "a"', "channels.Home is not a name for a channel"),
        ('[channels.home]\nkind = "lines"', "channels.home is of a kind that is opened once"),
        ('[channels.lines]\nkind = "post"\naddress = "a"', "channels.lines has the name of a channel that a plugin opens"),
        ('[channels.lines]\nkind = "lines"\naddress = "a"', "channels.lines.address is not a known key"),
        ("channels = 3", "channels must be a table"),
        ("[channels]\nhome = 3", "channels.home must be"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_its_key(tmp_path: Path, table: str, reason: str) -> None:
    with pytest.raises(ConfigRefused) as refused:
        instances(tmp_path, table)
    assert reason in str(refused.value)


def test_a_check_finds_every_channel_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[channels.one]\nkind = "gone"\n[channels.two]\nkind = "gone"\n')
    checked = check(tmp_path / "config.toml", {})
    assert [fault.partition(": ")[2].split()[0] for fault in checked.faults] == ["channels.one.kind", "channels.two.kind"]
    assert checked.channels == {}


def test_the_keys_of_the_gateway_are_no_settings_of_a_kind() -> None:
    assert keys.GATEWAY_KEYS == channel.GATEWAY_KEYS

    class Taken(Post):
        Settings = msgspec.defstruct("Settings", [("people", dict), ("kind", str)])

    with pytest.raises(InvalidPlugin, match="Settings has kind, people, which the gateway reads itself"):
        validated(Taken)


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("fits", Post.run, "fits is an async function"),
        ("show_activity", lambda _: None, "show_activity is not an async function"),
        ("check", lambda _: "", "check is not an async function"),
        ("attempts_noted", "yes", "attempts_noted is neither True nor False"),
        ("activity_seconds", 0, "activity_seconds is not a number from 1 to 60"),
        ("Settings", dict, "Settings is not a msgspec Struct"),
    ],
)
def test_an_optional_member_that_cannot_be_used_is_refused(member: str, value: object, reason: str) -> None:
    with pytest.raises(InvalidPlugin, match=reason):
        validated(type("Odd", (Post,), {member: value}))


def test_nothing_is_imported_for_channels_that_no_table_names() -> None:
    code = (
        "import json, sys, gateway.wiring.daemon; from plugins.host.loading import load_plugins; load_plugins(());"
        " print(json.dumps([name for name in sys.modules if name.startswith('plugins.channels')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_a_built_in_channel_is_imported_when_a_reload_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "channels" / "owl").mkdir(parents=True)
    (tmp_path / "channels" / "owl" / "owl_channel.py").write_text("")
    monkeypatch.setattr(loading, "CHANNELS", tmp_path / "channels")
    module = ModuleType("plugins.channels.owl.owl_channel")
    monkeypatch.setattr(module, "register_channels", lambda: [Post], raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    hooks = cast(Hooks, Registered())
    assert loading.channel_kinds(hooks, ["owl", "post", "unknown"]) == {**KINDS, "owl": Post}
    assert loading.channel_kinds(hooks, ["post"]) == KINDS


def test_only_the_configured_built_in_channels_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("owl", "pigeon"):
        (tmp_path / "channels" / kind).mkdir(parents=True)
        (tmp_path / "channels" / kind / f"{kind}_channel.py").write_text("")
    monkeypatch.setattr(loading, "CHANNELS", tmp_path / "channels")
    imported = list[str]()
    monkeypatch.setattr(loading, "load_channel", lambda _, kind: imported.append(kind))
    loading.load_plugins((), channels=["owl", "other"])
    assert loading.built_in_channels() == ["owl", "pigeon"]
    assert imported == ["owl"]


async def test_a_missing_library_is_named_with_the_extra_that_installs_it() -> None:
    with pytest.raises(PluginError, match=r"no_such_library is missing\); run: pip install 'exuvia\[irc\]'"):
        await import_library("no_such_library.client", "irc")
    assert await import_library("json", "irc") is json


class Refused:
    """A channel whose password is wrong, or whose service is down."""

    name: ClassVar[str] = "refused"
    error: ClassVar[type[PluginError]] = SettingsRefused
    opened: ClassVar[list[float]] = []

    def __init__(self, context: PluginContext) -> None:
        pass

    async def __aenter__(self) -> Self:
        self.opened.append(asyncio.get_running_loop().time())
        raise self.error("The service does not let the channel in.")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, inbox: ChannelInbox) -> None: ...

    async def deliver(self, message: OutboundMessage) -> str:
        return ""


@pytest.mark.parametrize(("error", "times"), [(SettingsRefused, [0, 30, 330, 1230, 2130]), (PluginError, [0, 1, 6, 36, 96])])
async def test_a_channel_whose_settings_are_refused_is_not_tried_every_minute(
    error: type[PluginError], times: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Refused, "error", error)
    monkeypatch.setattr(Refused, "opened", [])
    with VirtualTime():
        runner = ChannelRunner(lambda _: cast(PluginContext, None), lambda: datetime.now(UTC))
        await runner.reconfigure({"refused": ChannelInstance(name="refused", kind=Refused)})
        running = asyncio.create_task(runner.run(lambda _: RecordingInbox()))
        await asyncio.sleep(times[-1] + 1)
        running.cancel()
        await asyncio.wait([running])
    assert [round(at - Refused.opened[0]) for at in Refused.opened] == times

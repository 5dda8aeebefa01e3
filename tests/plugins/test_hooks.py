"""What `Hooks` takes, and how it turns away what it does not take."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import msgspec
import pytest

from exuvia import (
    ChatRequest,
    CommandTime,
    ConversationView,
    Delta,
    ModelLimits,
    NoSettings,
    PluginContext,
    ProviderContext,
    Reply,
    ToolContext,
    ToolDefinition,
    ToolOutput,
    hookimpl,
)
from plugins.host import registry
from plugins.host.hooks import Hooks
from plugins.support.untrusted import SENTENCE


class Parrot:
    """A chat provider as an author writes it."""

    name: ClassVar[str] = "parrot"
    Settings: ClassVar[type] = NoSettings

    def __init__(self, context: ProviderContext) -> None: ...

    async def __aenter__(self) -> Parrot:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def default_model(self) -> str | None:
        return None

    def explain_default(self) -> str:
        return "it is a parrot"

    def limits(self, model: str) -> ModelLimits:
        return ModelLimits()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        yield Reply(text="", model="parrot", stop="end")


class Dice:
    """A tool as an author writes it."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="dice", description="Roll.", parameters={"type": "object", "properties": {}}
    )
    repeatable: ClassVar[bool] = False

    def __init__(self, context: PluginContext) -> None: ...

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        return ToolOutput(text="4")


class Ping:
    """A command as an author writes it."""

    name: ClassVar[str] = "ping"
    usage: ClassVar[str] = "/ping"
    summary: ClassVar[str] = "Answer."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        return "pong"


class Offers:
    """A plugin that offers what the test says, in each of the three hooks."""

    def __init__(self, providers: object = (), tools: object = (), commands: object = ()) -> None:
        self._offers = (providers, tools, commands)

    @hookimpl
    def register_chat_providers(self) -> Any:
        return self._given(0)

    @hookimpl
    def register_tools(self) -> Any:
        return self._given(1)

    @hookimpl
    def register_commands(self) -> Any:
        return self._given(2)

    def _given(self, index: int) -> object:
        given = self._offers[index]
        return given() if isinstance(given, Raises) else given


class Raises:
    """Raises when it is called."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self) -> object:
        raise self._error


def only_sentence(hooks: Hooks) -> str:
    (refusal,) = hooks.refused
    return refusal.sentence


def variant(kind: type, **changes: object) -> type:
    """The class with some of its attributes changed."""
    return type(kind.__name__, (kind,), changes)


def test_what_a_plugin_offers_is_there_under_its_name() -> None:
    hooks = Hooks()

    assert hooks.register("kit", Offers([Parrot], [Dice], [Ping]))

    assert hooks.chat_providers() == {"parrot": Parrot}
    assert hooks.tools() == {"dice": Dice}
    assert hooks.commands() == {"ping": Ping}
    assert hooks.refused == []


def test_of_two_things_with_one_name_the_first_stays_and_the_second_is_named() -> None:
    hooks = Hooks()
    hooks.register("first", Offers(tools=[Dice]))

    assert hooks.register("second", Offers(tools=[variant(Dice)], commands=[Ping]))

    assert hooks.tools() == {"dice": Dice}
    assert hooks.commands() == {"ping": Ping}
    assert only_sentence(hooks) == (
        "Part of the plugin 'second' (register_tools) is not used: the name 'dice' is already used by 'first'."
    )


def test_a_plugin_that_wants_to_be_first_does_not_get_the_name_of_an_earlier_one() -> None:
    class Pushy:
        @hookimpl(tryfirst=True)
        def register_tools(self) -> list[type]:
            return [variant(Dice)]

    class Sly:
        @hookimpl(trylast=True)
        def register_tools(self) -> list[type]:
            return [variant(Dice)]

    hooks = Hooks()
    hooks.register("ours", Offers(tools=[Dice]))
    hooks.register("pushy", Pushy())
    hooks.register("sly", Sly())

    assert hooks.tools() == {"dice": Dice}
    assert [refusal.plugin for refusal in hooks.refused] == ["pushy", "sly"]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("it broke\nin two lines"),
        SystemExit(3),
        KeyboardInterrupt("^C"),
        asyncio.CancelledError(),
        GeneratorExit(),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_hook_that_fails_is_named_and_the_others_go_on(error: BaseException) -> None:
    hooks = Hooks()

    hooks.register("bad", Offers([Parrot], Raises(error), [Ping]))
    hooks.register("good", Offers(tools=[Dice]))

    assert (hooks.chat_providers(), hooks.tools(), hooks.commands()) == (
        {"parrot": Parrot},
        {"dice": Dice},
        {"ping": Ping},
    )
    (refusal,) = hooks.refused
    assert (refusal.plugin, refusal.hook) == ("bad", "register_tools")
    assert type(error).__name__ in refusal.sentence
    assert "\n" not in refusal.sentence


def test_ctrl_c_while_a_hook_runs_is_the_persons_and_passes() -> None:
    class Slow:
        @hookimpl
        def register_tools(self) -> list[type]:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
            return []

    # A process that was started in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # a callback of a collection, as hypothesis has, would swallow the interrupt
    try:
        with pytest.raises(KeyboardInterrupt):
            Hooks().register("slow", Slow())
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, before)


def test_a_hook_that_never_says_what_it_offers_is_named_and_the_others_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SECONDS", 1.5)
    hang, hooks = threading.Event(), Hooks()

    class Sleeper:
        @hookimpl
        def register_tools(self) -> list[type]:
            hang.wait()
            return []

        @hookimpl
        def register_commands(self) -> list[type]:
            return [Ping]

    hooks.register("sleeper", Sleeper())
    hang.set()

    assert hooks.commands() == {"ping": Ping}
    assert only_sentence(hooks) == (
        "Part of the plugin 'sleeper' (register_tools) is not used: it did not return within 1.5 seconds."
    )


def test_an_error_that_cannot_even_be_shown_is_named_by_its_class() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise SystemExit

    hooks = Hooks()
    hooks.register("bad", Offers(Raises(Unspeakable())))
    assert only_sentence(hooks).endswith("is not used: Unspeakable.")


def test_an_error_of_many_lines_becomes_one_line_of_bounded_length() -> None:
    hooks = Hooks()
    hooks.register("bad", Offers(Raises(ValueError("first\nsecond\t\x1b[31m" + "x" * 10_000))))
    sentence = only_sentence(hooks)
    assert "ValueError: first second [31mxxx" in sentence
    assert sentence.isprintable()
    assert len(sentence) < SENTENCE + 200


def misspelt() -> object:
    class Plugin:
        @hookimpl
        def register_tool(self) -> list[type]:
            return []

    return Plugin()


def awaiting() -> object:
    class Plugin:
        @hookimpl
        async def register_tools(self) -> list[type]:
            return []

    return Plugin()


def generating() -> object:
    class Plugin:
        @hookimpl
        def register_tools(self) -> Any:
            yield Dice

    return Plugin()


def wrapping() -> object:
    class Plugin:
        @hookimpl(wrapper=True)
        def register_tools(self) -> Any:
            return (yield)

    return Plugin()


def asking_for_more() -> object:
    class Plugin:
        @hookimpl
        def register_tools(self, gateway: object) -> list[type]:
            return []

    return Plugin()


def two_for_one_hook() -> object:
    class Plugin:
        @hookimpl(specname="register_tools")
        async def a(self) -> list[type]:
            return []

        @hookimpl(specname="register_tools")
        def b(self) -> list[type]:
            return []

    return Plugin()


def unmarked() -> object:
    class Plugin:
        def register_tools(self) -> list[type]:
            return [Dice]

    return Plugin()


def not_an_instance() -> object:
    return Offers


def hostile() -> object:
    class Plugin:
        def __dir__(self) -> list[str]:
            raise SystemExit("never list me")

    return Plugin()


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (misspelt, "there is no hook 'register_tool'"),
        (
            awaiting,
            "register_tools must be a plain function, neither async nor a generator",
        ),
        (
            generating,
            "register_tools must be a plain function, neither async nor a generator",
        ),
        (
            two_for_one_hook,
            "register_tools must be a plain function, neither async nor a generator",
        ),
        (wrapping, "register_tools is a wrapper, which is not supported"),
        (
            asking_for_more,
            "pluggy rejects it: Argument(s) {'gateway'} are declared in the hookimpl but can not be found in the hookspec",
        ),
        (unmarked, "it implements no hook; is @hookimpl missing?"),
        (not_an_instance, "it is a class; register an instance of it, or a module"),
        (hostile, "SystemExit: never list me"),
        (lambda: None, "it implements no hook; is @hookimpl missing?"),
    ],
)
def test_a_plugin_that_keeps_no_promise_is_refused_whole_and_says_why(plugin: Callable[[], object], reason: str) -> None:
    hooks = Hooks()

    assert not hooks.register("odd", plugin())

    assert only_sentence(hooks) == f"The plugin 'odd' is not used: {reason}."
    assert hooks.register("odd", Offers(tools=[Dice])), "a refused plugin leaves nothing behind"
    assert hooks.tools() == {"dice": Dice}


def test_a_second_plugin_of_one_name_and_a_plugin_under_two_names_are_refused() -> None:
    hooks = Hooks()
    plugin = Offers(tools=[Dice])
    hooks.register("kit", plugin)

    assert not hooks.register("kit", Offers())
    assert not hooks.register("other", plugin)

    assert hooks.tools() == {"dice": Dice}
    assert [refusal.sentence for refusal in hooks.refused] == [
        "The plugin 'kit' is not used: a plugin of this name is already registered.",
        "The plugin 'other' is not used: it is already registered under another name.",
    ]


@pytest.mark.parametrize("answer", [None, Dice, {Dice}, "dice", 5])
def test_a_hook_that_returns_no_list_is_named(answer: object) -> None:
    hooks = Hooks()
    hooks.register("odd", Offers(tools=answer))
    assert only_sentence(hooks).endswith(f"it returned {type(answer).__name__} instead of a list.")


def test_a_hook_that_returns_a_coroutine_is_named_and_the_coroutine_closed() -> None:
    async def later() -> list[type]:
        return [Dice]

    hooks = Hooks()
    hooks.register("odd", Offers(tools=later()))
    assert only_sentence(hooks).endswith("it returned coroutine instead of a list.")


class NeedsKey(msgspec.Struct):
    key: str
    url: str = ""


class NeedsKeyAtTheEnd(msgspec.Struct, kw_only=True):
    url: str = ""
    key: str


def coroutine_stream() -> Any:
    async def stream(self: object, request: ChatRequest) -> None: ...

    return stream


@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        (variant(Parrot, name="Par:rot"), "Parrot.name is not lower-case letters, digits and _, up to 32"),
        (variant(Parrot, name=None), "Parrot.name is not lower-case letters, digits and _, up to 32"),
        (variant(Parrot, Settings=dict), "Parrot.Settings is not a msgspec Struct"),
        (variant(Parrot, Settings=NeedsKey), "Parrot.Settings has no default for key"),
        (variant(Parrot, Settings=NeedsKeyAtTheEnd), "Parrot.Settings has no default for key"),
        (variant(Parrot, stream=None), "Parrot is not a valid ChatProvider: it lacks stream"),
        (
            variant(Parrot, stream=coroutine_stream()),
            "Parrot.stream is an async function, and must be a plain one",
        ),
        (variant(Parrot, __aenter__=lambda self: self), "Parrot.__aenter__ is not an async function"),
        ("parrot", "it returned str instead of a class"),
    ],
)
def test_a_chat_provider_that_could_not_serve_is_refused_and_its_neighbour_is_not(offered: object, reason: str) -> None:
    hooks = Hooks()
    hooks.register("kit", Offers([offered, Parrot]))
    assert hooks.chat_providers() == {"parrot": Parrot}
    assert only_sentence(hooks) == f"Part of the plugin 'kit' (register_chat_providers) is not used: {reason}."


def defined(**changes: Any) -> ToolDefinition:
    return msgspec.structs.replace(Dice.definition, **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"definition": {"name": "dice"}}, "Dice.definition is not a ToolDefinition"),
        ({"repeatable": "no"}, "Dice.repeatable is neither True nor False"),
        (
            {"definition": defined(name="dice roll")},
            "'dice roll' is not a name for a tool: letters, digits, _ and -, up to 64",
        ),
        (
            {"definition": defined(parameters={"type": "array"})},
            "Dice.definition.parameters is not a JSON Schema of type object",
        ),
        ({"definition": defined(parameters={"type": "object", "x": object()})}, "Dice.definition is not JSON"),
        (
            {"definition": defined(description=None)},
            "Dice.definition has a description that is not text, or parameters that are not an object",
        ),
        ({"run": lambda self, arguments, call: None}, "Dice.run is not an async function"),
    ],
)
def test_a_tool_that_could_not_be_offered_to_a_model_is_refused(changes: dict[str, object], reason: str) -> None:
    hooks = Hooks()
    hooks.register("kit", Offers(tools=[variant(Dice, **changes)]))
    assert hooks.tools() == {}
    assert only_sentence(hooks) == f"Part of the plugin 'kit' (register_tools) is not used: {reason}."


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "/ping"}, "Ping.name is not lower-case letters, digits and _, up to 32"),
        ({"usage": ""}, "Ping.usage is not one line of up to 300 characters"),
        ({"summary": "two\nlines"}, "Ping.summary is not one line of up to 300 characters"),
        ({"when": "later"}, "Ping.when is neither 'now' nor 'between_turns'"),
        ({"when": []}, "Ping.when is neither 'now' nor 'between_turns'"),
        ({"run": lambda self, argument, conversation: "pong"}, "Ping.run is not an async function"),
    ],
)
def test_a_command_that_could_not_be_typed_is_refused(changes: dict[str, object], reason: str) -> None:
    hooks = Hooks()
    hooks.register("kit", Offers(commands=[variant(Ping, **changes)]))
    assert hooks.commands() == {}
    assert only_sentence(hooks) == f"Part of the plugin 'kit' (register_commands) is not used: {reason}."

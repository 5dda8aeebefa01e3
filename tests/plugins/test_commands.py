"""What each built-in command answers, on a conversation that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest

from exuvia import Command, CommandFailed, CommandHelp, HistoryEntry
from plugins.api.command import ContextItem, PruningReport
from plugins.commands.compaction_commands import Compact, Compactions, Revert
from plugins.commands.markdown import highlighted
from plugins.commands.memory_commands import Clear, Distill, EditFact, Forget, Memory, Pin, Remember, Unpin, Why
from plugins.commands.session_commands import MODES, Effort, Model, New, Queue, Reset, Stop, Temperature, Undo, Verbose
from plugins.commands.status_commands import Context, Help, History, Status, Usage, Whoami
from plugins.testing.command_checks import COMPACTED, StaticConversation
from sessions.events.messages import Usage as Tokens

ALL: list[Command] = [
    Compact(),
    Compactions(),
    Context(),
    Help(),
    History(),
    Memory(),
    Model(),
    New(),
    Queue(),
    Remember(),
    Pin(),
    Unpin(),
    EditFact(),
    Forget(),
    Clear(),
    Distill(),
    Why(),
    Reset(),
    Revert(),
    Effort(),
    Status(),
    Stop(),
    Temperature(),
    Undo(),
    Usage(),
    Verbose(),
    Whoami(),
]


class Conversation(StaticConversation):
    """One whose people live in Shanghai, with all commands."""

    def commands(self) -> Sequence[CommandHelp]:
        return [CommandHelp(name=c.name, usage=c.usage, summary=c.summary) for c in ALL]

    def local(self, at: str) -> datetime:
        return datetime.fromisoformat(at).astimezone(ZoneInfo("Asia/Shanghai"))


def entry(seq: int, text: str) -> HistoryEntry:
    return HistoryEntry(seq=seq, at="2026-11-21T03:12:41.000Z", who="person", text=text)


async def test_help_lists_every_command_once_by_subject() -> None:
    answer = await Help().run("", Conversation())
    lines = [line for line in answer.splitlines() if line.startswith("- ")]
    assert sorted(lines) == sorted(f"- `{c.usage}`: {c.summary}" for c in ALL)
    subjects = [line for line in answer.splitlines() if line.startswith("**")]
    assert subjects == ["**Conversation**", "**Context**", "**Memory**", "**Gateway**"], "these have no tools"
    assert answer.index("`/new`") < answer.index("**Context**") < answer.index("`/compact")


async def test_help_lists_the_commands_of_plugins_last() -> None:
    class WithPlugin(Conversation):
        def commands(self) -> Sequence[CommandHelp]:
            return [CommandHelp(name="dance", usage="/dance", summary="Dance."), *super().commands()]

    assert (await Help().run("", WithPlugin())).endswith("**From plugins**\n\n- `/dance`: Dance.")


@pytest.mark.parametrize("argument", ["stop", "/stop", "STOP"])
async def test_help_explains_one_command(argument: str) -> None:
    assert await Help().run(argument, Conversation()) == f"`/stop`: {Stop.summary}"


async def test_help_of_what_is_no_command_says_so() -> None:
    with pytest.raises(CommandFailed, match=r"Unknown command. `/help` lists"):
        await Help().run("dance", Conversation())


async def test_status_is_the_gateways_own_account() -> None:
    assert await Status().run("", Conversation()) == "all is well"


async def test_stop_says_whether_something_ran() -> None:
    assert await Stop().run("", Conversation(running=True)) == "Stopped."
    assert await Stop().run("", Conversation()) == "Nothing was running."


@pytest.mark.parametrize("command", [Status(), Stop(), Whoami()], ids=lambda command: command.name)
async def test_a_command_that_takes_nothing_refuses_something(command: Command) -> None:
    with pytest.raises(CommandFailed, match=f"^/{command.name} takes no argument.$"):
        await command.run("now", Conversation(running=True))


@pytest.mark.parametrize("command", [New(), Reset()], ids=lambda command: command.name)
@pytest.mark.parametrize("argument", ["", "and fresh"])
async def test_new_and_reset_open_the_next_session_whatever_follows(command: Command, argument: str) -> None:
    conversation = Conversation()
    answer = await command.run(argument, conversation)
    assert answer == "Started a new session: `20261121-031242-aaaaaa`. The old one is kept."
    assert conversation.done == ["anew"]


async def test_model_shows_what_is_in_use_why_and_how_to_change_it() -> None:
    conversation = Conversation()
    assert (await Model().run("", conversation)).splitlines() == [
        "- In use: local:smollm2, because it is installed",
        "- Available: `local:smollm2`, `openai:gpt`",
        "- openai has `openai:gpt`, `openai:gpt-mini`",
        "- To change it for this session: `/model provider:model`. To return to the configured one: `/model default`.",
    ]
    assert conversation.done == []


@pytest.mark.parametrize(("argument", "chosen"), [("openai:gpt", "openai:gpt"), ("auto", "auto"), ("default", None)])
async def test_model_with_a_name_changes_it(argument: str, chosen: str | None) -> None:
    conversation = Conversation()
    answer = await Model().run(argument, conversation)
    assert conversation.done == [("choose", chosen)]
    assert answer == f"From the next turn on: {chosen or 'auto'}, because it was chosen"


@pytest.mark.parametrize("argument", ["gpt", "openai:", ":gpt", "openai: gpt", "openai:gpt please"])
async def test_model_with_what_is_no_name_of_a_model_changes_nothing(argument: str) -> None:
    conversation = Conversation()
    with pytest.raises(CommandFailed, match=r"^Write /model provider:model"):
        await Model().run(argument, conversation)
    assert conversation.done == []


async def test_model_of_an_unknown_provider_gives_the_gateways_sentence() -> None:
    with pytest.raises(CommandFailed, match=r"no provider nobody"):
        await Model().run("nobody:x", Conversation())


@pytest.mark.parametrize(
    ("argument", "count", "commands"),
    [("", 10, False), ("1", 1, False), ("100", 100, False), ("007", 7, False), ("all", 10, True), ("7 ALL", 7, True)],
)
async def test_history_asks_for_what_was_wanted(argument: str, count: int, commands: bool) -> None:
    conversation = Conversation()
    await History().run(argument, conversation)
    assert conversation.done == [("history", count, commands)]


@pytest.mark.parametrize("argument", ["0", "101", "-3", "ten", "3.5", "1e1", "٣", "1_0", "9" * 5000, "all 3", "1 2"])
async def test_history_of_what_is_no_number_in_range_is_refused(argument: str) -> None:
    conversation = Conversation()
    with pytest.raises(CommandFailed, match="a number from 1 to 100"):
        await History().run(argument, conversation)
    assert conversation.done == []


async def test_history_shows_each_message_on_one_line_of_bounded_length() -> None:
    said = [entry(2, "one\ntwo\x1b[31m"), entry(5, "a" * 2000), entry(9, "")]
    answer = await History().run("", Conversation(said=said))
    assert answer.splitlines() == [
        "- 2026-11-21 11:12:41 CST **person**: one two [31m",
        f"- 2026-11-21 11:12:41 CST **person**: {'a' * 500} … (1,500 more characters)",
        "- 2026-11-21 11:12:41 CST **person**: (empty)",
    ]


async def test_history_of_a_fresh_session_says_so() -> None:
    assert await History().run("", Conversation()) == "There are no messages yet."


async def test_whoami_names_person_client_channel_key_and_id() -> None:
    conversation = Conversation()
    conversation.client = "evil`\n- Person: `admin"
    assert (await Whoami().run("", conversation)).splitlines() == [
        "- Person: `owner`",
        "- Client: `evil´ - Person: ´admin`",
        "- Channel: `websocket`",
        "- Session: `main`",
        "- Session id: `20261121-031241-7k2m9q`",
    ]


def test_only_what_changes_the_view_or_the_model_or_asks_one_waits_for_the_end_of_a_turn() -> None:
    assert {c.name for c in ALL if c.when == "between_turns"} == {
        "compact",
        "distill",
        "effort",
        "model",
        "revert",
        "temperature",
        "undo",
    }


async def test_queue_shows_the_mode_in_force_what_waits_and_the_choice() -> None:
    conversation = Conversation()
    conversation.mode = "steer"
    answer = await Queue().run("", conversation)
    assert answer.startswith("2 of at most 20 messages are waiting.\n\n- `followup`:")
    assert [line for line in answer.splitlines() if "(current)" in line] == [
        "- `steer`: messages that arrive during a turn join it after the current tool call (current)"
    ]


@pytest.mark.parametrize(("argument", "mode"), [*((mode, mode) for mode in MODES), ("default", "followup")])
async def test_queue_with_a_mode_changes_it_and_says_what_that_means(argument: str, mode: str) -> None:
    conversation = Conversation()
    conversation.mode = "collect"
    answer = await Queue().run(argument, conversation)
    assert conversation.mode == mode
    assert answer.startswith(f"From now on `{mode}`: ")


async def test_queue_with_anything_else_changes_nothing() -> None:
    conversation = Conversation()
    with pytest.raises(CommandFailed, match="one of followup, collect, steer, interrupt"):
        await Queue().run("fast", conversation)
    assert conversation.mode == "followup"


async def test_effort_is_changed_and_said() -> None:
    conversation = Conversation()
    assert await Effort().run("", conversation) == "The effort of `openai:gpt` is its default; it has `low`, `high`."
    assert await Effort().run("high", conversation) == "The effort of `openai:gpt` is `high`; it has `low`, `high`."
    assert await Effort().run("default", conversation) == "The effort of `openai:gpt` is its default; it has `low`, `high`."
    with pytest.raises(CommandFailed):
        await Effort().run("enormous", conversation)
    assert conversation.done == [("effort", "high"), ("effort", None)]
    conversation.efforts = ()
    assert await Effort().run("", conversation) == "`openai:gpt` has no levels of effort, or they are not known."


async def test_temperature_is_changed_and_said() -> None:
    conversation = Conversation()
    says = "The temperature of `openai:gpt` is {}; it may be from 0 to 2."
    assert await Temperature().run("0.70", conversation) == says.format("0.7")
    assert await Temperature().run("default", conversation) == says.format("its default")
    for wrong in ("hot", "-1", "1e3", "nan", "0x1", "1."):
        with pytest.raises(CommandFailed, match=r"such as 0\.7"):
            await Temperature().run(wrong, conversation)
    assert conversation.done == [("temperature", 0.7), ("temperature", None)]
    conversation.range = None
    assert await Temperature().run("", conversation) == "`openai:gpt` accepts no temperature."


@pytest.mark.parametrize(("argument", "on"), [("on", True), ("off", False), ("default", None)])
async def test_verbose_is_changed_and_said(argument: str, on: bool | None) -> None:
    conversation = Conversation()
    assert await Verbose().run(argument, conversation) == f"Verbose is {'on' if on else 'off'}."
    assert conversation.done == [("verbose", on)]


async def test_verbose_alone_only_says_what_is_in_force() -> None:
    conversation = Conversation()
    assert await Verbose().run("", conversation) == "Verbose is off."
    with pytest.raises(CommandFailed):
        await Verbose().run("loud", conversation)
    assert conversation.done == []


async def test_usage_is_a_table_by_purpose_and_model_with_its_sum() -> None:
    conversation = Conversation()
    assert await Usage().run("", conversation) == "No provider has reported any tokens for this session yet."
    conversation.tokens = {
        "answer": {"gpt|x": Tokens(input=1200, output=30, cached=1000), "b": Tokens(input=1, output=2)},
        "summary": {"b": Tokens(input=10, output=20)},
    }
    answer = await Usage().run("", conversation)
    assert answer.splitlines()[2:] == [
        "| answer | `gpt|x` | 1,200 | 1,000 | 30 |",
        "| answer | `b` | 1 | 0 | 2 |",
        "| summary | `b` | 10 | 0 | 20 |",
        "| **total** |  | 1,211 | 1,000 | 52 |",
    ]


async def test_usage_of_a_fork_tells_apart_what_it_came_with() -> None:
    conversation = Conversation()
    conversation.before = Tokens(input=1200, output=30, cached=1000)
    before = "This session is a fork. The 1,200 tokens in (1,000 cached) and 30 out of the original session up to the fork"
    came = f"{before} are not counted here."
    none = "No provider has reported any tokens for this session yet."
    assert await Usage().run("", conversation) == f"{none} {came}"
    conversation.tokens = {"answer": {"b": Tokens(input=1, output=2)}}
    assert (await Usage().run("", conversation)).splitlines()[2:] == ["| answer | `b` | 1 | 0 | 2 |", "", came]


async def test_context_sums_by_part_by_name_and_shows_the_largest() -> None:
    conversation = Conversation()
    conversation.items = (
        ContextItem(part="Instructions", name="", tokens=100, text="You are"),
        ContextItem(part="Tool results", name="read", tokens=300, text="a | b\nc"),
        ContextItem(part="Tool results", name="write", tokens=50, text="written"),
    )
    assert (await Context().run("", conversation)).splitlines() == [
        "**Context**: about 450 tokens of 1,000 (45 %).",
        "",
        "| part | items | tokens |",
        "|---|---:|---:|",
        "| Instructions | 1 | 100 |",
        "| Tool results | 2 | 350 |",
    ]
    assert "| Tool results: `read` | 1 | 300 |" in await Context().run("list", conversation)
    conversation.window, conversation.counted = None, 470
    detail = (await Context().run("detail", conversation)).splitlines()
    assert (
        detail[0]
        == "**Context**: about 450 tokens; the context window is unknown. The provider counted 470 for the last request."
    )
    assert detail[4] == "| 300 | Tool results: `read` | a ¦ b c |"
    with pytest.raises(CommandFailed):
        await Context().run("all", conversation)


@pytest.mark.parametrize(
    ("tokens", "line"),
    [
        (300, "`████████████░░░░░░░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒` 300 used, 500 free, 200 reserve"),
        (1, "`█░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒` 1 used, 799 free, 200 reserve"),
        (900, "`████████████████████████████████████▒▒▒▒` 900 used, 0 free, 100 reserve"),
        (5650, "`████████████████████████████████████████` 5,650 used, 4,650 more than the window, 0 free, 0 reserve"),
    ],
)
async def test_context_draws_what_is_used_free_and_kept_free(tokens: int, line: str) -> None:
    conversation = Conversation()
    conversation.items = (ContextItem(part="Answers", name="", tokens=tokens, text=""),)
    conversation.reserve = 200
    assert (await Context().run("", conversation)).splitlines()[2] == line


async def test_context_is_unknown_before_anything_was_sent() -> None:
    assert (await Context().run("", Conversation())).startswith("**Context**: unknown, since no request was sent yet.")


async def test_context_says_what_pruning_saved() -> None:
    conversation = Conversation()
    conversation.pruned = PruningReport(trimmed=12, cleared=3, saved=480_000)
    line = (await Context().run("", conversation)).splitlines()[2]
    assert line == "Pruned: 12 trimmed, 3 cleared, saving 480,000 characters (the journal still has them)."


async def test_compact_answers_with_the_summary_in_the_form_that_scripts_rely_on() -> None:
    conversation = Conversation()
    conversation.is_verbose = True
    assert await Compact().run("", conversation) == (
        "**Compact Complete!**\n\n- Messages compacted: 12\n**Compressed Summary:**\n## Goals\n\n- Paint the sky.\n"
        "- Summary task started in background"
    )
    assert not (await Compact().run("", Conversation())).endswith("background")
    with pytest.raises(CommandFailed, match="nothing to compact"):
        await Compact().run("nothing", conversation)


async def test_compactions_tells_when_why_how_large_and_which_identifiers() -> None:
    conversation = Conversation()
    assert await Compactions().run("", conversation) == "This session has no compactions yet."
    conversation.made = (msgspec.structs.replace(COMPACTED, in_force=False), COMPACTED)
    assert (await Compactions().run("", conversation)).split("\n")[-4:] == [
        "",
        "**2** 2026-11-21 20:00 CST (requested): 12 messages, 9,000 → 1,000 tokens, by model_summary",
        "- kept 2 identifiers: `src/a.py`, `#12`",
        "- lost 1 identifier: `v1.2`",
    ]
    assert "by model_summary, reverted" in await Compactions().run("", conversation)
    with pytest.raises(CommandFailed):
        await Compactions().run("3", conversation)


async def test_compactions_stays_short_however_much_was_kept_and_says_why_the_models_own_summary_was_not_taken() -> None:
    conversation = Conversation()
    many = tuple(f"id-{number}" for number in range(300))
    failed = "It names\nno identifier."
    conversation.made = (msgspec.structs.replace(COMPACTED, kept=many, lost=many[:9], checks=("bad",) * 50, failed=failed),)
    _, *told = (await Compactions().run("", conversation)).split("\n")
    eight = "`id-0`, `id-1`, `id-2`, `id-3`, `id-4`, `id-5`, `id-6`, `id-7`, …"
    assert told == [
        f"- kept 300 identifiers: {eight}",
        f"- lost 9 identifiers: {eight}",
        "- the model's summary was rejected: It names no identifier.",
    ]


@pytest.mark.parametrize("argument", ["", "one", "-1", "1.5", "²", "9999999999"])
async def test_revert_takes_a_number(argument: str) -> None:
    conversation = Conversation()
    with pytest.raises(CommandFailed, match="takes the number of a compaction"):
        await Revert().run(argument, conversation)
    assert conversation.done == []


async def test_revert_says_how_large_the_next_request_is_then() -> None:
    conversation = Conversation()
    answer = await Revert().run("02", conversation)
    assert answer == "Reverted compaction 2: the next request has about 12,345 tokens."
    assert conversation.done == [("revert", 2)]
    conversation.made = tuple(msgspec.structs.replace(COMPACTED, number=n, in_force=n != 3) for n in (1, 2, 3, 4))
    answer = await Revert().run("1", conversation)
    assert answer.startswith("Reverted compaction 1 and 2, 4, which built on it: ")


async def test_remember_tells_where_it_stands_now_and_asks_for_something_to_remember() -> None:
    conversation = Conversation()
    assert await Remember().run("I prefer Rust.", conversation) == "Remembered: `MEMORY.md#L3-L3`."
    assert conversation.done == [("remember", "I prefer Rust.")]
    with pytest.raises(CommandFailed, match="what to remember"):
        await Remember().run("", conversation)


async def test_memory_shows_what_there_is_and_what_a_query_finds() -> None:
    conversation = Conversation()
    assert (await Memory().run("", conversation)).splitlines() == [
        "**Memory**: 2 notes, 1 session, 7 chunks; found by words.",
        "",
        "- `memory/2026-11-20.md`, 1,234 bytes, changed 2 h ago",
        "",
        "It is behind.",
    ]
    assert await Memory().run("tea", conversation) == "1. `MEMORY.md#L3-L4` **tea** without milk"
    assert (await Memory().run("milk", conversation)).splitlines() == [
        "Nothing found.",
        "",
        "Nothing matches in 2 notes.",
    ]


async def test_memory_shows_the_text_of_a_citation() -> None:
    conversation = Conversation()
    shown = "`MEMORY.md#L3-L4`\n\n```\ntea\nwithout milk\n```"
    assert await Memory().run("MEMORY.md#L3-L4", conversation) == shown
    with pytest.raises(CommandFailed, match=r"There is nothing at memory/x\.md#L7-L7"):
        await Memory().run("memory/x.md#L7", conversation)


async def test_an_undo_says_of_each_file_what_was_done() -> None:
    conversation = Conversation()
    assert await Undo().run("", conversation) == (
        "Undone in part:\n\n- `notes.md` has its former content again.\n- `new.md` was new and is removed.\n"
        "- `memory/tea.md` is left as it is: it was changed since."
    )
    with pytest.raises(CommandFailed, match="takes no argument"):
        await Undo().run("notes.md", conversation)
    assert conversation.done == ["undo"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Green tea, teas, TEA", "Green **tea**, **teas**, **TEA**"),
        ("see `tea pot` or [tea](http://tea.example/tea)", "see `tea pot` or [tea](http://tea.example/tea)"),
        ("*tea* and tea_pot", "*tea* and tea_pot"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_the_words_of_a_query_are_bold_except_in_code_links_and_emphasis(line: str, shown: str) -> None:
    assert highlighted(line, "tea") == shown

"""The commands that control the session: `/new` and its alias `/reset`, `/agent`, `/spawn`, `/stop`, `/undo`, `/jobs`,
`/model`, `/effort`, `/temperature`, `/queue` and `/verbose`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from plugins.api.command import AgentEntry, CommandFailed, CommandTime, ConversationView, OfferedModels
from plugins.commands.markdown import code
from plugins.support.suggestions import did_you_mean

_NAMED = re.compile(r"[^\s:]+:\S+")
_TOOLS = re.compile(r"(?:--|—)tools(?:=| +)(\S+)(?: +|\n|\Z)")  # some keyboards join two hyphens
_NUMBER = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,6})?")

MODELS_LISTED = 30
"""Maximum models listed per provider when several providers are listed."""

AGENTS_LISTED, NAME_CHARACTERS = 8, 64
"""Maximum agents that an error names, and characters of an unknown name that it repeats."""

MODES = {
    "followup": "each message is answered by its own turn, in order",
    "collect": "messages that arrive during a turn are answered together by the next one",
    "steer": "messages that arrive during a turn join it after the current tool call",
    "interrupt": "a message that arrives during a turn stops the turn and its tools, and is answered next",
}


class New:
    """The `/new` command, which starts a new session under the same key."""

    name: ClassVar[str] = "new"
    usage: ClassVar[str] = "/new"
    summary: ClassVar[str] = "Start a new session; the old one is kept."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the new session's id.

        Any argument is ignored: later messages already wait for the new session, so the command may not fail because of its
        form.
        """
        return f"Started a new session: {code(await conversation.start_anew())}. The old one is kept."


class Reset(New):
    """The `/reset` command, an alias of `/new`."""

    name: ClassVar[str] = "reset"
    usage: ClassVar[str] = "/reset"
    summary: ClassVar[str] = "The same as /new."


class Agent:
    """The `/agent` command, which shows the agents or begins a new session with another one."""

    name: ClassVar[str] = "agent"
    usage: ClassVar[str] = "/agent [name]"
    summary: ClassVar[str] = "Show the agents, or start a new session with another one; the old one is kept."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Show the agent of this session and the others, or start a new session with the named one."""
        agents = conversation.agents()
        current = next(each.name for each in agents if each.current)
        if not argument:
            return _agents_overview(agents, current)
        if argument == current:
            raise CommandFailed(f"{argument} answers here already; /new starts a new session with it.")
        if argument not in {each.name for each in agents}:
            known = ", ".join(each.name for each in agents[:AGENTS_LISTED])
            raise CommandFailed(f"There is no agent {argument[:NAME_CHARACTERS]!r}; write /agent and one of {known}.")
        session = await conversation.start_anew(argument)
        return f"Started a new session with the agent {code(argument)}: {code(session)}. The old one is kept."


def _agents_overview(agents: Sequence[AgentEntry], current: str) -> str:
    others = [f"- {code(each.name)}" for each in agents if not each.current]
    if not others:
        return f"The agent {code(current)} answers here. There are no others; `[agents.NAME]` in the configuration adds one."
    heading = f"The agent {code(current)} answers here. `/agent NAME` starts a new session with one of these:"
    return "\n".join([heading, "", *others])


class Spawn:
    """The `/spawn` command, which gives a task to a subagent."""

    name: ClassVar[str] = "spawn"
    usage: ClassVar[str] = "/spawn [--tools NAME,…] TEXT"
    summary: ClassVar[str] = "Give a task to a subagent, which works at the same time; its result comes as a message."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Start the subagent, and answer with the key of its conversation.

        `--tools` before the task names the only tools that it has; `--tools none` leaves it none.
        """
        if not argument:
            raise CommandFailed("Write /spawn and the task.")
        tools, task = None, argument
        if (option := _TOOLS.match(argument)) is not None:
            tools, task = tuple(filter(None, option[1].split(","))), argument[option.end() :]
            tools = () if tools == ("none",) else tools
        return f"The subagent {code(await conversation.spawn(task, tools))} works on it. Its result comes as a message."


class Stop:
    """The `/stop` command, which cancels the running turn; waiting messages are still answered."""

    name: ClassVar[str] = "stop"
    usage: ClassVar[str] = "/stop"
    summary: ClassVar[str] = "Stop the current answer; waiting messages are still answered."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer whether a turn was stopped."""
        if argument:
            raise CommandFailed("/stop takes no argument.")
        return "Stopped." if conversation.stop_turn() else "Nothing was running."


class Jobs:
    """The `/jobs` command, which lists and stops the commands in the background."""

    name: ClassVar[str] = "jobs"
    usage: ClassVar[str] = "/jobs [stop NUMBER|stop all]"
    summary: ClassVar[str] = "List the commands that run in the background, or stop them."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """List the jobs of this session, after stopping one or all of those that run."""
        match argument.split():
            case []:
                pass
            case ["stop", "all"]:
                for job in await conversation.jobs():
                    if job.running:
                        await conversation.stop_job(job.number)
            case ["stop", number] if number.isascii() and number.isdecimal():
                await conversation.stop_job(int(number[:9]))
            case _:
                raise CommandFailed("Write /jobs, /jobs stop NUMBER or /jobs stop all.")
        lines = [
            f"{job.number}. {job.state}: {code(job.what)} (output: {code(job.output)})" for job in await conversation.jobs()
        ]
        return "\n".join(lines) or "Nothing runs in the background."


class Undo:
    """The `/undo` command, which puts back what tools changed in files during the last turn."""

    name: ClassVar[str] = "undo"
    usage: ClassVar[str] = "/undo"
    summary: ClassVar[str] = "Undo what the last turn changed in files, unless they were changed since."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer what was done with each file."""
        if argument:
            raise CommandFailed("/undo takes no argument.")
        files = await conversation.undo()
        kept = sum(file.outcome == "kept" for file in files)
        title = "Nothing was undone" if kept == len(files) else "Undone in part" if kept else "Undone"
        return "\n".join([f"{title}:", "", *(f"- {code(file.path)} {file.sentence}" for file in files)])


class Model:
    """The `/model` command, which shows or changes the session's model."""

    name: ClassVar[str] = "model"
    usage: ClassVar[str] = "/model [provider:model]"
    summary: ClassVar[str] = (
        "Show the model in use and those available, or change it. `/model default` returns to the configured one."
    )
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Show or change the model.

        Without an argument, show the model in use and the available ones; with a provider's name, list all its models; with
        `provider:model`, `auto` or `default`, change the model from the next turn on.
        """
        if not argument:
            return await _models_overview(conversation)
        if argument == "default":
            return f"From the next turn on: {await conversation.choose_model(None)}"
        if argument != "auto" and not _NAMED.fullmatch(argument):
            return await _models_of(argument, conversation)
        return f"From the next turn on: {await conversation.choose_model(argument)}"


async def _models_overview(conversation: ConversationView) -> str:
    names = ", ".join(code(name) for name in conversation.models()) or "none"
    return "\n".join(
        [
            f"- In use: {conversation.model()}",
            f"- Available: {names}",
            *_format_models(await conversation.offered_models(), MODELS_LISTED),
            "- To change it for this session: `/model provider:model`. To return to the configured one: `/model default`.",
        ]
    )


async def _models_of(name: str, conversation: ConversationView) -> str:
    """List all models of a provider; raise CommandFailed with a suggestion if it is unknown."""
    offered = await conversation.offered_models()
    if own := [each for each in offered if each.provider == name]:
        return "\n".join(_format_models(own, None))
    full = {model: f"{each.provider}:{model}" for each in offered for model in each.models}
    meant = full.get(name)
    guess = f"; did you mean `{meant}`?" if meant else did_you_mean(name, full.values(), mark="`") or "."
    raise CommandFailed(f"Write /model provider:model, such as /model openai:gpt-4.1, or /model default{guess}")


def _format_models(offered: Sequence[OfferedModels], most: int | None) -> Iterator[str]:
    for each in offered:
        names = ", ".join(code(f"{each.provider}:{model}") for model in each.models[:most])
        left = len(each.models) - len(each.models[:most])
        more = f" and {left:,} more: `/model {each.provider}`" if left else ""
        if each.failed:
            yield f"- {each.provider}: its models could not be listed ({each.failed})"
        else:
            yield f"- {each.provider} has {names or 'no chat model'}{more}"


class Effort:
    """The `/effort` command, which shows or changes how much the model reasons."""

    name: ClassVar[str] = "effort"
    usage: ClassVar[str] = "/effort [level|default]"
    summary: ClassVar[str] = "Show or choose how much the model reasons, if it has levels of effort."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Show the level and those that the model has, or change it from the next turn on."""
        if argument:
            await conversation.choose_effort(None if argument == "default" else argument)
        state = conversation.sampling()
        if not state.efforts:
            return f"{code(state.model)} has no levels of effort, or they are not known."
        levels = ", ".join(code(level) for level in state.efforts)
        chosen = "its default" if state.effort is None else code(state.effort)
        return f"The effort of {code(state.model)} is {chosen}; it has {levels}."


class Temperature:
    """The `/temperature` command, which shows or changes the sampling temperature."""

    name: ClassVar[str] = "temperature"
    usage: ClassVar[str] = "/temperature [number|default]"
    summary: ClassVar[str] = "Show or choose how varied the model's words are, if it accepts a temperature."
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Show the temperature and the range that the model has, or change it from the next turn on."""
        if argument and argument != "default" and _NUMBER.fullmatch(argument) is None:
            raise CommandFailed("Write /temperature and a number such as 0.7, or /temperature default.")
        if argument:
            await conversation.choose_temperature(None if argument == "default" else float(argument))
        state = conversation.sampling()
        if state.range is None:
            return f"{code(state.model)} accepts no temperature."
        chosen = "its default" if state.temperature is None else f"{state.temperature:g}"
        low, high = state.range
        return f"The temperature of {code(state.model)} is {chosen}; it may be from {low:g} to {high:g}."


class Queue:
    """The `/queue` command, which shows or changes the session's queue mode."""

    name: ClassVar[str] = "queue"
    usage: ClassVar[str] = "/queue [followup|collect|steer|interrupt|default]"
    summary: ClassVar[str] = "Show or choose how messages that arrive during a turn are handled."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Show the current mode and the others, or change the mode, also for messages that already wait."""
        if not argument:
            return _queue_overview(conversation)
        if argument != "default" and argument not in MODES:
            raise CommandFailed(f"Write /queue and one of {', '.join(MODES)}, or /queue default.")
        await conversation.choose_queue(None if argument == "default" else argument)
        mode = conversation.queue().mode
        return f"From now on `{mode}`: {MODES[mode]}."


def _queue_overview(conversation: ConversationView) -> str:
    queue = conversation.queue()
    modes = [f"- `{mode}`: {meaning}{' (current)' if mode == queue.mode else ''}" for mode, meaning in MODES.items()]
    return "\n".join([f"{queue.waiting} of at most {queue.limit} messages are waiting.", "", *modes])


class Verbose:
    """The `/verbose` command, which shows or changes how much clients show of a turn: tools, tokens and compactions."""

    name: ClassVar[str] = "verbose"
    usage: ClassVar[str] = "/verbose [on|off|default]"
    summary: ClassVar[str] = "Show tools, tokens and compactions in the chat, or hide them."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the current setting, after changing it if the argument is `on`, `off` or `default`."""
        if argument not in ("", "on", "off", "default"):
            raise CommandFailed("Write /verbose on, /verbose off or /verbose default.")
        if argument:
            await conversation.choose_verbose({"on": True, "off": False}.get(argument))
        return "Verbose is on." if conversation.verbose() else "Verbose is off."

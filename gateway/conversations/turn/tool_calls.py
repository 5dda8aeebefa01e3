"""The tools of a turn, limited by `agent.workspace_access`, and its calls: each runs once and gets exactly one result in the
log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec
import structlog

from gateway.config.settings import Settings
from gateway.conversations.approvals.gate import ApprovalGate
from gateway.conversations.approvals.policy import is_withheld
from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.conversations.turn.streaming_reply import StreamingReplies
from gateway.support.errors import sentence_of
from plugins.api.tool import ApprovalRequest, FileVersions, OutputFile, Tool, ToolContext, ToolOutput, ToolSource
from plugins.support import task_leaks
from plugins.support.errors import ToolFailed
from plugins.support.secrets import scrubbed
from plugins.support.untrusted import is_own_object
from plugins.tools.web.provenance import is_named
from sessions.events.codec import replace_surrogates
from sessions.events.errors import SessionsError
from sessions.events.events import MAIN_AGENT, ChangedFile, Outcome, PluginFailed, ToolCalled, ToolReturned
from sessions.events.messages import Attachment
from sessions.state.transcript import OpenCall, open_turn
from sessions.state.truncation import head_and_tail
from sessions.store.protocols import Blobs
from sessions.store.recorder import Recorder

log = structlog.get_logger("exuvia.tools")

OUTPUT_CHARS = 16 * 1024 * 1024
"""Maximum characters of a tool's output; the rest is discarded."""

THREAD_CHARS = 256 * 1024
"""An output with more characters is scrubbed in a thread."""

OUTPUT_LIMIT = 256 * 1024
"""Bytes of a tool's output in the log; a longer one is kept as an attachment."""

DIFF_LIMIT = 64 * 1024
"""Bytes of the longest diff in the log; of a longer one the beginning and the end are shown."""

FILES_LIMIT = 20
"""Maximum files that a tool returns."""

FILE_BYTES = 20 * 1024 * 1024
"""Maximum bytes of a file that a tool returns."""

TOOL_SECONDS = 300.0
"""Seconds after which a running tool is stopped."""

STOP_SECONDS = 5.0
"""Seconds that a stopped tool has to end."""

Access: TypeAlias = Literal["rw", "ro", "none"]

_WITHHELD: dict[Access, frozenset[str]] = {
    "rw": frozenset(),
    "ro": frozenset({"write", "edit", "write_memory"}),
    "none": frozenset({"read", "write", "edit", "memory_search", "memory_get", "write_memory"}),
}


class ToolCalls:
    """Runs the calls of a session's open turn."""

    def __init__(
        self,
        recorder: Recorder,
        tools: Mapping[str, Tool],
        attachments: Blobs,
        gate: ApprovalGate,
        streaming: StreamingReplies,
        *,
        config: ConversationConfig,
    ) -> None:
        self._recorder = recorder
        self._config = config
        self._tools = tools
        self._attachments = attachments
        self._gate = gate
        self._streaming = streaming
        self._stopping: set[asyncio.Task[ToolOutput | BaseException]] = set()

    async def run(self) -> None:
        """Run each call that has no result yet, one after the other, and record its result.

        Raises MustPark if a person is asked about one; after the answer, call it again.
        """
        for call in open_turn(self._recorder.transcript).calls:
            await self._run(call)

    async def _run(self, call: OpenCall) -> None:
        ordinal = open_turn(self._recorder.transcript).ordinal
        tool = self._tools.get(call.tool)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            self.record(call, "refused", f"There is no tool {call.tool!r}; available: {known}.")
            return
        try:
            arguments = parse_arguments(call.arguments)
        except ToolFailed as error:
            self.record(call, "refused", str(error))
            return
        context = self._context(call, ordinal)
        if reason := await self._gate.admit(call, tool, arguments, context):
            self.record(call, "refused", reason)
            return
        called = ToolCalled(call=call.ref, repeatable=tool.repeatable)
        if tool.repeatable:
            self._recorder.append(called, turn=ordinal)
        else:
            await self._recorder.append_durable(called, turn=ordinal)
        began = asyncio.get_running_loop().time()
        live = self._streaming.begin_output(ordinal, call.ref, self._recorder.transcript.head)
        try:
            context = msgspec.structs.replace(context, progress=live.add)
            outcome, output = await self._output(tool, arguments, call, context)
        finally:
            self._streaming.end_output()
        await self._record_output(call, outcome, output, round((asyncio.get_running_loop().time() - began) * 1000))

    def _context(self, call: OpenCall, ordinal: int) -> ToolContext:
        transcript = self._recorder.transcript
        turn = open_turn(transcript)
        return ToolContext(
            session=transcript.session,
            person=transcript.person,
            turn=ordinal,
            call=f"{transcript.session}/{call.ref.of}/{call.ref.index}",
            group=turn.group,
            agent=transcript.agent,
            channel=turn.reply_to.channel if turn.reply_to is not None else "",
            chat=transcript.key,
            reply_to=turn.reply_to.chat if turn.reply_to is not None else "",
            thread=turn.reply_to.thread if turn.reply_to is not None else "",
            began=turn.at,
            notes=self._config.rights_of(transcript.person).notes,
            names_url=self._names_url,
        )

    def _names_url(self, url: str) -> bool:
        view = self._recorder.transcript.view
        return is_named(url, view.without_recalled(int(view.summarised), len(view)))

    async def _output(
        self, tool: Tool, arguments: dict[str, object], call: OpenCall, context: ToolContext
    ) -> tuple[Outcome, ToolOutput]:
        """Return the outcome and output of a tool, stopped after it has run for `TOOL_SECONDS`, questions not counted."""
        deadline = asyncio.timeout(TOOL_SECONDS)
        running = asyncio.create_task(self._run_tool(tool, arguments, self._asking(context, call, deadline), call.tool))
        try:
            async with deadline:
                await asyncio.wait([running])
        except TimeoutError:
            await self._stop(running, call.tool)
            return "failed", ToolOutput(text=f"The tool did not return within {TOOL_SECONDS:.0f} seconds and was stopped.")
        except asyncio.CancelledError:
            await self._stop(running, call.tool)
            raise
        if running.cancelled():
            record_plugin_failure(self._recorder, call.tool, "run", asyncio.CancelledError())
            return "failed", ToolOutput(text="The tool cancelled itself.")
        match running.result():
            case ToolFailed() as error:
                return "failed", ToolOutput(text=sentence_of(error))
            case BaseException() as error:
                record_plugin_failure(self._recorder, call.tool, "run", error)
                return "failed", ToolOutput(text=f"The tool failed: {sentence_of(error)}")
            case output:
                return "returned", output

    def _asking(self, context: ToolContext, call: OpenCall, deadline: asyncio.Timeout) -> ToolContext:
        """Return the context with an `ask` that suspends the deadline."""
        loop = asyncio.get_running_loop()

        async def ask(question: ApprovalRequest) -> bool:
            when = deadline.when()
            left = None if when is None else when - loop.time()
            deadline.reschedule(None)
            try:
                return await self._gate.ask_during(call, question)
            finally:
                if left is not None:
                    deadline.reschedule(loop.time() + left)

        return msgspec.structs.replace(context, ask=ask)

    async def _run_tool(
        self, tool: Tool, arguments: dict[str, object], context: ToolContext, name: str
    ) -> ToolOutput | BaseException:
        def report(sentence: str) -> None:
            with suppress(SessionsError):  # the conversation may have ended
                self._recorder.append(PluginFailed(plugin=name, hook="run", sentence=sentence))

        with nullcontext() if is_own_object(tool) else task_leaks.cancelling_leaks(name, report):
            return await _output_or_error(tool, arguments, context)

    async def _stop(self, running: asyncio.Task[ToolOutput | BaseException], tool: str) -> None:
        """Stop a tool. One that does not end is abandoned: it keeps running, and its result is ignored."""
        self._stopping.add(running)
        running.add_done_callback(self._stopping.discard)
        running.cancel()
        await asyncio.wait([running], timeout=STOP_SECONDS)
        if not running.done():
            log.error("tool_does_not_stop", tool=tool)

    async def _record_output(self, call: OpenCall, outcome: Outcome, output: ToolOutput, millis: int) -> None:
        person, text = self._recorder.transcript.person, output.text
        encoded = text.encode()
        returned = ToolReturned(
            call=call.ref,
            outcome=outcome,
            output=text,
            millis=millis,
            exit_code=output.exit_code,
            diff=head_and_tail(output.diff, DIFF_LIMIT),
            attachments=await self._keep_files(output.attachments),
            changes=await self._keep_versions(output.changes),
        )
        if len(encoded) > OUTPUT_LIMIT:
            whole = (await self._attachments.keep(encoded, person)).sha256
            shown = head_and_tail(text, OUTPUT_LIMIT)
            returned = msgspec.structs.replace(returned, output=shown, cut_from=len(encoded), whole=whole)
        self._recorder.append(returned, turn=open_turn(self._recorder.transcript).ordinal)

    async def _keep_files(self, files: tuple[OutputFile, ...]) -> tuple[Attachment, ...]:
        """Store the files that a tool returned for the person."""
        person = self._recorder.transcript.person
        return tuple([await self._attachments.keep(f.content, person, media=f.media, name=f.name) for f in files])

    async def _keep_versions(self, changes: tuple[FileVersions, ...]) -> tuple[ChangedFile, ...]:
        """Store the contents of changed files before the change, and return both versions by their hashes."""
        person = self._recorder.transcript.person
        kept = []
        for change in changes:
            before = None if change.before is None else (await self._attachments.keep(change.before, person)).sha256
            after = None if change.after is None else sha256(change.after).hexdigest()
            kept.append(ChangedFile(path=change.path, before=before, after=after))
        return tuple(kept)

    def record(self, call: OpenCall, outcome: Outcome, output: str) -> None:
        self._recorder.append(
            ToolReturned(call=call.ref, outcome=outcome, output=output), turn=open_turn(self._recorder.transcript).ordinal
        )

    def close(self) -> None:
        """Record a result for each call that has none; the result says why."""
        for call in open_turn(self._recorder.transcript).calls:
            if call.began:
                self.record(call, "unknown", "This was interrupted; its outcome is unknown.")
            else:
                self.record(call, "refused", "The turn ended before this ran.")


class OfferedTools(Mapping[str, Tool]):
    """The tools of plugins and of sources by name, as far as `agent.workspace_access` and the approval rules allow them now:
    a newly allowed tool is offered from the next turn on, a newly forbidden one is refused at once. If two tools have the
    same name, the plugin's or the first source's counts. `offers` returns True for the tools that `agent` may have at all.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        settings: Settings,
        sources: Sequence[ToolSource] = (),
        *,
        agent: str = MAIN_AGENT,
        offers: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._tools = tools
        self._settings = settings
        self._sources = sources
        self._agent = agent
        self._offers = offers

    def __getitem__(self, name: str) -> Tool:
        if self._is_withheld(name):
            raise KeyError(name)
        for tools in self._all():
            if name in tools:
                return tools[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys(name for tools in self._all() for name in tools)
        return (name for name in names if not self._is_withheld(name))

    def items(self) -> ItemsView[str, Tool]:
        """Return the tools with their names, each examined once: every turn lists them."""
        found: dict[str, Tool] = {}
        for tools in self._all():
            for name, tool in tools.items():
                found.setdefault(name, tool)
        return {name: tool for name, tool in found.items() if not self._is_withheld(name)}.items()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _all(self) -> Iterator[Mapping[str, Tool]]:
        yield self._tools
        yield from (source.tools() for source in self._sources)

    def _is_withheld(self, name: str) -> bool:
        current = self._settings.current
        if name in _WITHHELD[current.agent.workspace_access] or not self._offers(name):
            return True
        return is_withheld(current.approvals, name, self._agent)


async def _output_or_error(tool: Tool, arguments: dict[str, object], context: ToolContext) -> ToolOutput | BaseException:
    """Return the output or the error of a tool. It is not raised, because a SystemExit raised in a task would end the
    process."""
    try:
        output = await tool.run(arguments, context)
        if not isinstance(output, ToolOutput):
            raise TypeError("it did not return a ToolOutput with a text")
        _check(output)
        text = output.text
        if len(text) > OUTPUT_CHARS:
            text = f"{text[:OUTPUT_CHARS]}\n[cut: the tool returned {len(text):,} characters]"
        text = replace_surrogates(text)
        text = scrubbed(text) if len(text) <= THREAD_CHARS else await asyncio.to_thread(scrubbed, text)
        return msgspec.structs.replace(output, text=text, diff=replace_surrogates(output.diff))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # a plugin may raise anything
        return error


def _check(output: ToolOutput) -> None:
    """Raise an error if a plugin has put something else into a field, or if there are too many files or too large ones."""
    msgspec.convert(msgspec.to_builtins(output, builtin_types=(bytes,)), ToolOutput)
    if len(output.attachments) > FILES_LIMIT or any(len(file.content) > FILE_BYTES for file in output.attachments):
        raise ValueError(f"it returned more than {FILES_LIMIT} files, or one of more than {FILE_BYTES >> 20} MiB")


def record_plugin_failure(recorder: Recorder, plugin: str, hook: str, error: BaseException) -> None:
    """Record in the log that a plugin's code failed."""
    sentence = f"{type(error).__name__}: {sentence_of(error)}"
    recorder.append(PluginFailed(plugin=plugin, hook=hook, sentence=sentence), turn=open_turn(recorder.transcript).ordinal)


def parse_arguments(text: str) -> dict[str, object]:
    """Return a call's arguments as an object. Raises ToolFailed with a sentence for the model."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ToolFailed(f"The arguments are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ToolFailed("The arguments must be a JSON object.")
    return value

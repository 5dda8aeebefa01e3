"""Slash commands, and the conversation as a command sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from sessions.events.events import ApprovalScope, UndoneFile
from sessions.events.messages import Usage

if TYPE_CHECKING:
    from plugins.api.fact_values import Fact, FactChange, FactHistory, FactLayer


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the conversation. `of_command` is true for commands and their answers, which the model does not see."""

    seq: int
    at: str
    who: Literal["person", "assistant", "tool", "gateway", "subagent"]
    text: str
    of_command: bool = False


class CommandHelp(msgspec.Struct, frozen=True, kw_only=True):
    """A command as listed by `/help`."""

    name: str
    usage: str
    summary: str


class AgentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that the gateway has.

    Attributes:
        name: Its name.
        current: It answers in this conversation.
    """

    name: str
    current: bool = False


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """The message queue of a session: its mode, the number of waiting messages, and the maximum."""

    mode: str
    waiting: int
    limit: int


class SamplingState(msgspec.Struct, frozen=True, kw_only=True):
    """How the model of a session is asked.

    Attributes:
        model: The model that answers, as `provider:model`.
        effort: The level of reasoning effort that the session chose; None for the configured one, or the service's default.
        efforts: The levels of the model, lowest first; empty if it has none or they are unknown.
        temperature: The temperature in force; None for the service's default.
        range: The lowest and the highest temperature of the model; None if it accepts none.
    """

    model: str
    effort: str | None
    efforts: tuple[str, ...]
    temperature: float | None
    range: tuple[float, float] | None


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """A budget that limits a person: of its `cap` in this `period` (`day`, `week` or `month`), `spent` is spent, in
    millionths of the currency. `whose` it is begins a sentence; it resets on the day `begins`."""

    whose: str
    period: str
    spent: int
    cap: int
    begins: str


class SpendingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has spent, in millionths of a currency.

    Attributes:
        currency: The currency, such as `USD`.
        session: The cost of the session, by purpose and then by model, as far as it was used this month or the last.
        day: The cost of today.
        week: The cost of this week, which begins on Monday.
        month: The cost of this month.
        forecast: What this month will have cost at its mean rate so far; None on its first day.
        purposes: The cost of this month by purpose, the most expensive first.
        models: The cost of this month by model, the most expensive first.
        unpriced: The number of this month's requests to models whose price is unknown; they are not in any sum.
        budgets: The budgets that limit the person's requests in this session.
    """

    currency: str
    session: Mapping[str, Mapping[str, int]] = {}
    day: int = 0
    week: int = 0
    month: int = 0
    forecast: int | None = None
    purposes: Mapping[str, int] = {}
    models: Mapping[str, int] = {}
    unpriced: int = 0
    budgets: Sequence[BudgetState] = ()


class ContextItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the next request.

    Attributes:
        part: The section it belongs to, such as `Tool results`.
        name: The name of the tool or note.
        tokens: The estimated size.
        text: The beginning of its text.
    """

    part: str
    name: str
    tokens: int
    text: str


class ConversationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of the person.

    Attributes:
        key: Its name.
        title: Its title, or the beginning of its first message, or "".
        at: The time of its last event.
        pinned: It is pinned in lists.
        archived: It is archived.
        running: A turn runs in it.
        parent: The key of the conversation that started it as a subagent, or "".
    """

    key: str
    title: str
    at: str
    pinned: bool = False
    archived: bool = False
    running: bool = False
    parent: str = ""


class JobEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A command that runs, or ran, in the background of the session.

    Attributes:
        number: Its number in the session.
        what: The command on one line.
        state: Its state in words, such as `running` or `exit code 0`.
        running: It has not ended.
        output: The path of its output in the workspace.
    """

    number: int
    what: str
    state: str
    running: bool
    output: str


class PruningReport(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of pruning on the next request: trimmed messages, cleared messages, and characters saved."""

    trimmed: int = 0
    cleared: int = 0
    saved: int = 0


class ContextReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the next request.

    Attributes:
        items: The items in the order in which the model reads them. The sum of their tokens is the size of the request.
        window: The context window in tokens; None if unknown.
        counted: The size of the last request as counted by the provider; None if unknown.
        reserve: The number of tokens that compaction keeps free; None if unknown.
        pruned: The effect of pruning.
    """

    items: tuple[ContextItem, ...]
    window: int | None
    counted: int | None
    reserve: int | None = None
    pruned: PruningReport = PruningReport()


class CompactionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction of the session.

    Attributes:
        number: Its number in the session.
        at: The time (RFC 3339).
        why: The reason.
        messages: The number of messages that were removed.
        tokens_before: The estimated size of the next request before the compaction.
        tokens_after: The same after it.
        by: The name of the summarizer.
        summary: The summary.
        model: The model that was asked for the summary.
        kept: Identifiers that the summary contains.
        lost: Identifiers that the summary does not contain.
        checks: Problems found in the summary.
        failed: The reason why the model's summary was not used, or "".
        noted: The summary is added to the daily note.
        in_force: The compaction has not been reverted.
    """

    number: int
    at: str
    why: str
    messages: int
    tokens_before: int
    tokens_after: int
    by: str
    summary: str
    model: str = ""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    failed: str = ""
    noted: bool = False
    in_force: bool = True


class NoteEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A note: its path in the workspace, its size in bytes, and the time of its last change as text for people."""

    path: str
    bytes: int
    changed: str


class OfferedModels(msgspec.Struct, frozen=True, kw_only=True):
    """The available models of one provider. `failed` gives the reason if the list is not available, else it is ""."""

    provider: str
    models: tuple[str, ...] = ()
    failed: str = ""


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the memory.

    Attributes:
        notes: The number of indexed notes.
        sessions: The number of indexed sessions.
        chunks: The number of chunks in the index.
        how: How the memory is searched, such as `by words`.
        latest: The notes that changed last.
        remarks: Messages about the state of the index.
        today: The current date in the local time zone; None if unknown.
    """

    notes: int
    sessions: int
    chunks: int
    how: str
    latest: tuple[NoteEntry, ...] = ()
    remarks: tuple[str, ...] = ()
    today: date | None = None


class MemoryMatches(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a search: pairs of location (`MEMORY.md#L3-L7`) and text, best first; messages about the index.

    `conversations` has the key of the conversation of each result, "" for notes; it may be shorter than the results.
    """

    hits: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...] = ()
    conversations: tuple[str, ...] = ()


class FactsView(Protocol):
    """The facts that one person may see in one chat: their own and shared ones; in a group, only shared ones.

    Every method raises `FactsError`: `NoSuchFact` if no fact matches, `FactsUnavailable` if the facts cannot be used now.
    """

    async def listed(self, layer: FactLayer | None = None) -> Sequence[Fact]:
        """Return the facts of a layer, or of both layers, oldest first."""
        ...

    async def pin(self, named: str, *, pinned: bool = True) -> Fact:
        """Pin a fact so that it is never dropped, or unpin it. Return the fact."""
        ...

    async def edit(self, named: str, change: FactChange) -> Fact:
        """Edit a fact and return it. Raise `FactNotEditable` for an invalid value, or if this person cannot edit it."""
        ...

    async def forget(self, named: str) -> Fact:
        """Delete a fact and return it."""
        ...

    async def daily(self) -> Sequence[Fact]:
        """Return the person's own daily facts, without shared ones."""
        ...

    async def clear(self) -> int:
        """Delete all daily facts that are not pinned, and return their number."""
        ...

    async def history(self, named: str) -> FactHistory:
        """Return the history of a fact."""
        ...


class SkillEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A skill in a list.

    Attributes:
        name: The name.
        state: `admitted`; `new` or `changed` if a person must admit it first; `refused` if it cannot be used.
        description: The description that was admitted; "" if none was.
        place: The folder, relative to the workspace if it lies there.
        reason: Why it is refused, as a sentence.
        in_catalogue: True if models see its description; others are found by a search.
    """

    name: str
    state: Literal["admitted", "new", "changed", "refused"]
    description: str
    place: str
    reason: str
    in_catalogue: bool


class ShownSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill as it is on disk: its text or its changes, and the beginning of the digest of all its files."""

    name: str
    text: str
    digest: str


class SkillsView(Protocol):
    """The skills as one person may see and admit them. Every method raises CommandFailed if it is not allowed."""

    async def listed(self) -> Sequence[SkillEntry]:
        """Return the skills; for others than the owner only the admitted ones."""
        ...

    async def show(self, name: str) -> ShownSkill:
        """Return a skill as it is on disk, with its changes if it was admitted before."""
        ...

    async def admit(self, name: str, digest: str) -> str:
        """Admit a skill if the digest of its files begins with `digest`, at least twelve digits. Return its name."""
        ...

    async def revoke(self, name: str) -> None:
        """Admit a skill no more."""
        ...


class McpServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server in a list.

    Attributes:
        name: Its name in the configuration.
        ready: It is connected.
        about: The name and version that it reports, and the version of the protocol.
        problem: Why it is not connected; "" if it is, or for others than the owner.
        tools: The names of its tools, as they are offered.
        changed: The server's own names of tools that are withheld because their definitions changed.
        prompts: Its prompts with their arguments, such as `review PATH [STYLE]`.
    """

    name: str
    ready: bool
    about: str = ""
    problem: str = ""
    tools: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


class ShownChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changed definitions of a server's tools, as a unified diff, and the beginning of their digest."""

    text: str
    digest: str


class McpView(Protocol):
    """The MCP servers as one person may see them. Its methods raise CommandFailed."""

    def listed(self) -> Sequence[McpServerEntry]:
        """Return the configured servers."""
        ...

    async def changes(self, server: str) -> ShownChanges:
        """Return the changed definitions that are withheld."""
        ...

    async def accept(self, server: str, digest: str) -> Sequence[str]:
        """Offer changed tools if their digest begins with `digest`, at least twelve digits. Return their names."""
        ...

    async def log_in(self, server: str, address: str = "") -> str:
        """Return the address that the person must open to log in, "" if the server asks for no login; or, with the address
        that the browser was then sent back to, log in."""
        ...

    async def run_prompt(self, server: str, prompt: str, arguments: Mapping[str, str]) -> None:
        """Send a prompt of a server as a message of the person."""
        ...


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question whether a tool call may run, which waits for an answer.

    Attributes:
        approval: Its id.
        key: The person's name for the conversation that waits.
        text: The question as people are shown it, in Markdown.
    """

    approval: str
    key: str
    text: str


class RememberedApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a person set by approving a call always.

    Attributes:
        id: Its id.
        at: The time (RFC 3339).
        text: The calls that it covers, in Markdown.
    """

    id: str
    at: str
    text: str


class ApprovalsView(Protocol):
    """The questions and remembered approvals that the sender of a command may see in this chat.

    In a group these are the questions of this conversation, and no remembered approvals.
    """

    async def questions(self) -> Sequence[OpenQuestion]:
        """Return the open questions, oldest first."""
        ...

    async def answer(self, approval: str, *, approve: bool, scope: ApprovalScope = "once") -> str:
        """Answer a question, and return a sentence that says what was decided.

        Args:
            approval: The id of the question.
            approve: False to deny.
            scope: Which later calls are approved too.

        Raises:
            CommandFailed: There is no such question, it was answered before, or the sender may not answer it.
        """
        ...

    async def remembered(self) -> Sequence[RememberedApproval]:
        """Return the remembered approvals, oldest first."""
        ...

    async def revoke(self, rule: str) -> str:
        """Revoke a remembered approval, and return the calls that it covered.

        Raises:
            CommandFailed: There is no such rule, or it cannot be revoked now.
        """
        ...


class AdmittedSender(msgspec.Struct, frozen=True, kw_only=True):
    """A sender who was admitted.

    Attributes:
        address: The channel and its name for the sender, such as `telegram:12345`.
        told: True if the channel has accepted a post that tells them so.
    """

    address: str
    told: bool


class PairedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address on a channel that is linked to a person.

    Attributes:
        address: The channel and its name for the sender, such as `telegram:12345`.
        person: The person.
        name: What the sender called themselves, on one line.
        at: The time (RFC 3339).
    """

    address: str
    person: str
    name: str
    at: str


class PairingCode(msgspec.Struct, frozen=True, kw_only=True):
    """A code that an unknown sender was told. `address` and `name` are as in `PairedAddress`; it is valid for `seconds`."""

    code: str
    address: str
    name: str
    seconds: float


class PairingsView(Protocol):
    """The addresses that may speak, for the owner in a private chat. Every method raises CommandFailed for others."""

    async def linked(self) -> Sequence[PairedAddress]:
        """Return the paired addresses, oldest first."""
        ...

    async def requests(self) -> Sequence[PairingCode]:
        """Return the codes that are valid, oldest first."""
        ...

    async def find(self, code: str) -> PairingCode:
        """Return a code that is valid, as the person typed it."""
        ...

    async def persons(self) -> Sequence[str]:
        """Return the persons that an address may be linked to."""
        ...

    async def admit(self, code: str, person: str) -> AdmittedSender:
        """Link the address that was told a code to a person, and tell its sender."""
        ...

    async def remove(self, address: str) -> str:
        """Unlink an address, and return its person."""
        ...


class ScheduleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule.

    Attributes:
        id: Its id.
        text: The text that is put into the conversation.
        rule: When, in short, such as `every 2 h` or `cron 0 9 * * 1-5`.
        words: The same in words.
        next: The next time (RFC 3339, UTC); empty if there is none.
        upcoming: The next times, where one schedule is shown.
        zone: The name of the time zone of its times of day; empty for the system's.
        key: The conversation.
        to: The channel and the chat that the answers go to, such as `telegram:1234`; empty for the conversation itself.
        reminder: True for a note to the person, False for a task.
        missed_policy: `once`, `skip` or `all`: what becomes of missed occurrences.
        within: How late the newest missed occurrence of a repeated task may come with `once`, in seconds.
        at: When it was set (RFC 3339, UTC).
        paused: True until it is resumed.
        handed, missed: How many occurrences became messages, and how many did not.
    """

    id: str
    text: str
    rule: str
    next: str
    key: str
    words: str = ""
    upcoming: tuple[str, ...] = ()
    zone: str = ""
    to: str = ""
    reminder: bool = False
    missed_policy: str = "once"
    within: int = 3600
    at: str = ""
    paused: bool = False
    handed: int = 0
    missed: int = 0


class HeartbeatEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The heartbeat, which wakes the model at an interval.

    Attributes:
        every: The interval in words, such as `every 30 min`.
        active: The active hours, such as `08:00-22:00`.
        zone: The name of their time zone; empty for the system's.
        key: The conversation.
        next: The next time (RFC 3339, UTC).
        last: What became of the last beat since the start: `sent`, `busy`, `empty` or `failed`; empty before the first.
        sent, skipped: How many beats there were since the start.
        cost: What its answers have cost this month, in millionths of the currency.
        currency: The currency.
    """

    every: str
    active: str
    zone: str
    key: str
    next: str
    last: str = ""
    sent: int = 0
    skipped: int = 0
    cost: int = 0
    currency: str = ""


class ScheduleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule does differently, as a person writes it; what is empty is as usual.

    Attributes:
        missed: `once`, `skip` or `all`: what becomes of missed occurrences.
        within: How late the newest missed occurrence of a repeated task may come with `once`, such as `2h`.
        zone: The name of the time zone of its times of day.
        session: The conversation.
        to: The channel and the chat that the answers go to, such as `telegram:1234`.
    """

    missed: str = ""
    within: str = ""
    zone: str = ""
    session: str = ""
    to: str = ""


class SchedulesView(Protocol):
    """A person's schedules. In a group only those of its conversation are shown. Every method raises CommandFailed."""

    @property
    def zone(self) -> str:
        """The name of the person's time zone; empty for the system's."""
        ...

    async def entries(self) -> Sequence[ScheduleEntry]:
        """Return the schedules, the next one first."""
        ...

    async def heartbeat(self) -> HeartbeatEntry | None:
        """Return the heartbeat; None if there is none, or if it is another person's or this is a group."""
        ...

    async def show(self, id_: str) -> ScheduleEntry:
        """Return a schedule with its next times."""
        ...

    async def add(self, text: str, *, reminder: bool, options: ScheduleOptions | None = None) -> ScheduleEntry:
        """Schedule a text, for this conversation unless the options name another one.

        Args:
            text: The time, such as `10m`, `18:00`, `every 2h` or a cron line, and the text after it.
            reminder: True for a note to the person, False for a task.
            options: What it does differently.
        """
        ...

    async def propose(self, text: str, *, reminder: bool, options: ScheduleOptions | None = None) -> ScheduleEntry | None:
        """Ask the model which time a text means. What it proposes is shown, and set by `confirm`.

        Returns:
            The proposal, without an id; None if the text was understood without the model, or not even by it.
        """
        ...

    async def confirm(self) -> ScheduleEntry:
        """Set what was proposed last to this person in this conversation."""
        ...

    async def remove(self, id_: str) -> ScheduleEntry:
        """Remove a schedule, and return it as it was."""
        ...

    async def run(self, id_: str) -> None:
        """Put the text into the conversation now, out of turn."""
        ...

    async def pause(self, id_: str) -> ScheduleEntry:
        """Pause a schedule: nothing of it is due until it is resumed."""
        ...

    async def resume(self, id_: str) -> ScheduleEntry:
        """Resume a paused schedule."""
        ...


class ConversationView(Protocol):
    """The conversation that a command was typed in."""

    @property
    def person(self) -> str: ...
    @property
    def client(self) -> str: ...
    @property
    def channel(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def session(self) -> str: ...

    def commands(self) -> Sequence[CommandHelp]:
        """Return all commands, sorted by name."""
        ...

    def local(self, at: str) -> datetime:
        """Convert the timestamp of an event (such as `HistoryEntry.at`) to the configured time zone."""
        ...

    def status(self) -> str:
        """Return the text of `/status`."""
        ...

    def model(self) -> str:
        """Return a sentence that names the model in use (`provider:model`) and the reason."""
        ...

    def models(self) -> Sequence[str]:
        """Return the default model (`provider:model`) of each configured provider."""
        ...

    async def offered_models(self) -> Sequence[OfferedModels]:
        """Return the available models of each configured provider that can list them. May send requests."""
        ...

    async def choose_model(self, name: str | None) -> str:
        """Switch to another model from the next turn on, or back to the configured one (None).

        Returns:
            A text with the model now in use and any warnings.

        Raises:
            CommandFailed: The provider does not exist, or does not list this model.
        """
        ...

    def sampling(self) -> SamplingState:
        """Return the level of effort and the temperature, and those that the model has.

        Raises:
            CommandFailed: There is no model.
        """
        ...

    async def choose_effort(self, level: str | None) -> None:
        """Change the level of reasoning effort from the next turn on, or return to the configured one (None).

        Raises:
            CommandFailed: The model does not have this level.
        """
        ...

    async def choose_temperature(self, value: float | None) -> None:
        """Change the temperature from the next turn on, or return to the configured one (None).

        Raises:
            CommandFailed: The model does not accept this temperature.
        """
        ...

    async def history(self, count: int, *, commands: bool = False) -> Sequence[HistoryEntry]:
        """Return the last `count` messages, oldest first, optionally with commands and their answers."""
        ...

    def queue(self) -> QueueState:
        """Return the state of the message queue."""
        ...

    async def choose_queue(self, mode: str | None) -> None:
        """Change the queue mode, or return to the configured one (None). The mode must be valid."""
        ...

    def verbose(self) -> bool:
        """Return True if clients show details such as tool calls."""
        ...

    async def choose_verbose(self, on: bool | None) -> None:
        """Show or hide details, or return to the configured value (None)."""
        ...

    def spent(self) -> Mapping[str, Mapping[str, Usage]]:
        """Return the token usage of the session by purpose and model, as counted by the providers."""
        ...

    async def spending(self) -> SpendingSummary:
        """Return what the person, and this session, have cost.

        Raises:
            CommandFailed: The log of it cannot be read.
        """
        ...

    def spent_by_plugins(self) -> Mapping[str, Mapping[str, Usage]]:
        """Return the token usage of plugins since the gateway started, by `plugin:NAME` and model."""
        ...

    def inherited(self) -> Usage:
        """Return the token usage that a forked session inherited."""
        ...

    async def context(self) -> ContextReport:
        """Return the content of the next request."""
        ...

    async def compact(self, focus: str) -> CompactionEntry:
        """Compact the conversation now.

        Raises:
            CommandFailed: Nothing was compacted.
        """
        ...

    async def compactions(self, count: int) -> Sequence[CompactionEntry]:
        """Return the last `count` compactions, newest last."""
        ...

    async def revert(self, number: int) -> int:
        """Revert a compaction and all later ones, and return the estimated size of the next request in tokens.

        Raises:
            CommandFailed: The compaction cannot be reverted.
        """
        ...

    async def remember(self, text: str) -> str:
        """Add a line to the notes and return its location, such as `MEMORY.md#L12-L12`.

        Raises:
            CommandFailed: The note cannot be written.
        """
        ...

    async def forget_lines(self, place: str) -> str:
        """Remove lines from a note, given as `MEMORY.md#L3-L4`, and return their text.

        Raises:
            CommandFailed: The lines cannot be removed.
        """
        ...

    async def distill(self) -> tuple[int, int]:
        """Distill the person's daily facts into long-term facts. Return the number of facts read and of facts written.

        Raises:
            CommandFailed: The facts cannot be distilled now.
        """
        ...

    @property
    def facts(self) -> FactsView:
        """The facts that may be shown here."""
        ...

    @property
    def pairings(self) -> PairingsView:
        """The addresses that may speak, as the person may see and change them here."""
        ...

    @property
    def schedules(self) -> SchedulesView:
        """The person's schedules."""
        ...

    @property
    def skills(self) -> SkillsView:
        """The skills, as the person may see and admit them."""
        ...

    @property
    def mcp(self) -> McpView:
        """The MCP servers, as the person may see them."""
        ...

    @property
    def approvals(self) -> ApprovalsView:
        """The questions about tool calls that may be shown here."""
        ...

    async def message(self, session: str, seq: int) -> str:
        """Return the message with this seq in one of the person's sessions; "" if there is none."""
        ...

    async def memory(self) -> MemoryReport:
        """Return the state of the memory."""
        ...

    async def search_memory(self, query: str) -> MemoryMatches:
        """Search the notes and conversations that may be shown here.

        Raises:
            CommandFailed: The memory is not available.
        """
        ...

    async def excerpt(self, path: str, first: int, lines: int) -> str:
        """Return lines of a note or messages of a session, as far as they may be shown here; "" if there are none.

        Args:
            path: The path of a citation: a note such as `MEMORY.md`, or `sessions/ID.jsonl`.
            first: The first line, counted from 1; of a session, the seq of the first event.
            lines: The number of lines or events; 400 at most are returned.
        """
        ...

    async def undo(self) -> Sequence[UndoneFile]:
        """Undo what tools changed in files during the last turn, and return what was done with each.

        Raises:
            CommandFailed: There is nothing to undo.
        """
        ...

    def stop_turn(self) -> bool:
        """Cancel the running turn. Return False if no turn is running."""
        ...

    async def jobs(self) -> Sequence[JobEntry]:
        """Return the commands in the background of this session, oldest first."""
        ...

    async def stop_job(self, number: int) -> None:
        """Stop a command in the background, with all its processes.

        Raises:
            CommandFailed: There is none with this number.
        """
        ...

    async def spawn(self, task: str, tools: Sequence[str] | None = None) -> str:
        """Start a subagent with a task, whose result comes as a message, and return the key of its conversation.

        Args:
            task: The task.
            tools: The names of the only tools of this conversation that it has; `*` matches any text. None for all.

        Raises:
            CommandFailed: It is not possible.
        """
        ...

    def agents(self) -> Sequence[AgentEntry]:
        """Return the agents, `main` first. The current one is among them even if it is not configured any more."""
        ...

    async def start_anew(self, agent: str | None = None) -> str:
        """Start the next session of this key and return its id.

        Args:
            agent: The agent of that session and of the following ones; None for the one that the person chose before, or
                else as the configured routes say.

        Raises:
            CommandFailed: A newer session was started before, or there is no such agent.
        """
        ...

    def title(self) -> str:
        """Return the title of the conversation, or ""."""
        ...

    async def rename(self, title: str) -> None:
        """Set the title of the conversation; an empty one removes it."""
        ...

    async def archive(self, *, archived: bool) -> None:
        """Archive the conversation, or bring it back."""
        ...

    async def conversations(self) -> Sequence[ConversationEntry]:
        """Return all conversations of the person, sorted by key. Raises CommandFailed in a group, where others read them."""
        ...

    async def delete(self, *, facts: bool) -> None:
        """Have the conversation deleted once nothing runs or waits in it; with `facts`, also the facts that came from it."""
        ...

    async def erase(self, message: int | None = None) -> None:
        """Have the message with this seq erased, or the whole conversation, with everything that came of it, once nothing
        runs or waits in the conversation."""
        ...


class CommandFailed(Exception):
    """A command failed; `str(error)` is a one-sentence message for the person."""


CommandTime: TypeAlias = Literal["now", "between_turns"]


@runtime_checkable
class Command(Protocol):
    """A slash command. Created without arguments."""

    name: ClassVar[str]
    """The name without the slash, in lower case."""
    usage: ClassVar[str]
    """The syntax, such as `/model [provider:model]`."""
    summary: ClassVar[str]
    """One sentence for `/help`."""
    when: ClassVar[CommandTime]
    """When the command runs.

    `now`: immediately, even during a turn, for at most 30 seconds. `between_turns`: after the running turn; `/stop` cancels
    it.
    """

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Run the command and return its answer in Markdown.

        Args:
            argument: The text after the name, without surrounding whitespace.
            conversation: The conversation that the command was typed in.

        Raises:
            CommandFailed: The command failed. The person sees the message.
        """
        ...

"""The configuration: every key, its type and its default, and how it is loaded.

Sources in order of precedence, lowest first: the defaults here, the file, `EXUVIA__SECTION__KEY`, the named variables
(`EXUVIA_HOST` and so on), the command line. `config.example.toml` lists every key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
import structlog

from gateway.config.agents import (
    AgentKeys,
    HeartbeatKeys,
    NamedAgentKeys,
    faults_of_names,
    faults_of_workspaces,
    with_inherited,
)
from gateway.config.approval_rules import ApprovalsKeys
from gateway.config.routes import RouteKeys, faults_of_routes
from gateway.config.secret_references import References
from gateway.config.sources import Sources, merge, misspelt_variables
from gateway.config.validation import Seconds, Timezone, Validator
from gateway.support import logs
from gateway.support.errors import ConfigRefused
from plugins.api.compaction import IdentifierPolicy
from plugins.api.memory_settings import AUTO, LOCAL, NONE, SQLITE, MemoryKeys
from plugins.api.pruning import PruningRules
from plugins.mcp.mcp_settings import ServerKeys, faults_of
from plugins.policies.languages import prompts as language
from plugins.sandbox.policy import SandboxKeys
from plugins.skills.skill_settings import SkillsKeys
from plugins.support.addresses import HostName, Origin
from plugins.support.secrets import Secret, hide_keys_of
from plugins.support.workspace import NotesAccess
from plugins.tools.execution.command_source import CommandKeys, ExecutionKeys
from plugins.tools.web.web_settings import FetchKeys, SearchKeys

if TYPE_CHECKING:
    from plugins.api.chat import ChatProvider

T = TypeVar("T")

_Text = Annotated[str, msgspec.Meta(min_length=1)]

log = structlog.get_logger("exuvia.config")


class GatewayKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[gateway]`: the address to listen on, and access. Without a token the one in `HOME/token` is used."""

    host: HostName = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 7117
    token: Secret | None = None
    allowed_hosts: tuple[HostName, ...] = ()
    allowed_origins: tuple[Origin, ...] = ()
    attachment_bytes: Annotated[int, msgspec.Meta(ge=1)] = 20 * 1024 * 1024
    stop_within: Seconds = Seconds(10)
    cluster_url: Origin | None = None


QueueMode: TypeAlias = Literal["followup", "collect", "steer", "interrupt"]


class SessionsKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[sessions]`: messages that arrive during a turn, the limits of queues, and turns interrupted by a crash."""

    queue: QueueMode = "followup"
    queue_limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20
    resume: Literal["auto", "offer", "never"] = "auto"
    resume_within: Seconds = Seconds(3600)


class StoreKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[store]`: where logs are kept: files in the home, or a PostgreSQL database, whose `url` may hold a password."""

    kind: Literal["files", "postgres"] = "files"
    url: Secret | None = None

    @property
    def database(self) -> Secret | None:
        """The URL of the database in use, None with files."""
        return self.url if self.kind == "postgres" else None


class PruningKeys(PruningRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[pruning]`: how old tool results are shortened in requests."""

    ttl: Seconds = Seconds(300)


class FlushKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[compaction.memory_flush]`: notes written to the day's file before a compaction.

    `force_bytes` is the growth of the journal in bytes after which a flush runs anyway; 0 is never. Prompts that are
    None mean the shipped ones.
    """

    enabled: bool = True
    by: _Text = "memory_flush"
    soft_threshold_tokens: Annotated[int, msgspec.Meta(ge=0)] = 4000
    force_bytes: Annotated[int, msgspec.Meta(ge=0)] = 2 * 1024 * 1024
    system_prompt: _Text | None = None
    prompt: _Text | None = None


class CompactionKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[compaction]`: when and how the beginning of a conversation is summarised.

    `threshold_tokens`, `ratio` and `messages` are off at 0; `model` None means the session's own. With
    `provider_side` a service that supports it compacts first.
    """

    enabled: bool = True
    provider_side: bool = False
    reserve_tokens_floor: Annotated[int, msgspec.Meta(ge=0)] = 20_000
    keep_recent_tokens: Annotated[int, msgspec.Meta(ge=0)] = 20_000
    keep_recent_messages: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    threshold_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    messages: Annotated[int, msgspec.Meta(ge=0)] = 0
    model: _Text | None = None
    summarizer: _Text = "model_summary"
    identifier_policy: IdentifierPolicy = "strict"
    identifier_instructions: str = ""
    memory_flush: FlushKeys = FlushKeys()


class ScheduleToolKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.schedule]`: offer the tool with which the model sets schedules."""

    enabled: bool = True


class SpawnKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.spawn]`: offer the tool `spawn`, which starts subagents, and the tokens that each of them may use."""

    enabled: bool = False
    tokens: Annotated[int, msgspec.Meta(ge=1)] = 200_000


class ToolsKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools]`: the optional tools."""

    shell: CommandKeys = CommandKeys()
    python: CommandKeys = CommandKeys()
    fetch: FetchKeys = FetchKeys()
    search: SearchKeys = SearchKeys()
    schedule: ScheduleToolKeys = ScheduleToolKeys()
    spawn: SpawnKeys = SpawnKeys()


class PluginsKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[plugins]`: the installed plugins that may be loaded, by the names of their entry points.

    A plugin that blocks the event loop for `hold_limit` ends the gateway; 0 is never. `senders` maps `channel:sender` to the
    person who speaks there, `*` matches any sender. `tables` holds `[plugins.NAME]`, whose schema is the plugin's.
    """

    allow: tuple[_Text, ...] = ()
    hold_limit: Seconds = Seconds(60)
    senders: dict[str, str] = {}
    tables: dict[str, dict[str, Any]] = {}


class ChannelKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[channels.NAME]`: a channel.

    `people` maps senders to people, `*` matches any sender; with `pairing` a stranger is given a code. With `mention` the
    messages of groups count only if they mention the assistant. `agent` answers in its new sessions, unless a route says
    otherwise. `settings` holds the other keys of the table, whose schema is the kind's.
    """

    kind: _Text
    people: dict[str, str] = {}
    pairing: bool = True
    mention: bool = True
    messages_per_minute: Annotated[int, msgspec.Meta(ge=1)] = 20
    agent: _Text | None = None
    settings: dict[str, Any] = {}


GATEWAY_KEYS = frozenset(ChannelKeys.__struct_fields__) - {"settings"}
"""The keys of `[channels.NAME]` that the gateway reads itself."""


Role: TypeAlias = Literal["member", "guest"]
"""The role of a person, whose rights stand in `[roles]`. The owner has none of them and may do everything."""


class RoleKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[roles.member]`: what people with this role may do.

    `tools` are the names of the tools that the model is offered in their conversations, and `models` are those,
    `provider:model`, that they may choose besides the configured ones; both may contain `*` and `?`. `notes` are the notes
    that they are shown.
    """

    tools: tuple[_Text, ...] = ("*",)
    models: tuple[_Text, ...] = ("*",)
    notes: NotesAccess = "all"

    def has_tool(self, name: str) -> bool:
        """Return True if the model may call this tool."""
        return "*" in self.tools or any(fnmatchcase(name, pattern) for pattern in self.tools)

    def has_model(self, name: str) -> bool:
        """Return True if this model may be chosen, whatever is configured."""
        return any(fnmatchcase(name, pattern) for pattern in self.models)


class GuestKeys(RoleKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[roles.guest]`: see `RoleKeys`; by default tools only read, and neither another model nor the notes for everybody."""

    tools: tuple[_Text, ...] = ("read", "memory_search", "memory_get")
    models: tuple[_Text, ...] = ()
    notes: NotesAccess = "own"


class RolesKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[roles]`: the rights of people, by their role."""

    member: RoleKeys = RoleKeys()
    guest: GuestKeys = GuestKeys()


class PersonKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[people.NAME]`: a person besides the owner.

    `name` is the displayed name, None for the name of the table. `timezone` is the zone of the times that this person
    writes and is shown, None for `agent.timezone`. `role` names their rights in `[roles]`. The table `owner` may set no
    token: the owner's is the gateway's.
    """

    token: Secret | None = None
    name: _Text | None = None
    timezone: Timezone | None = None
    role: Role = "member"


class SignInKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[sign_in]`: people who have signed in at a reverse proxy, which names their login in a header.

    `header` None is no such proxy. `addresses` are those from which the proxy connects, `secret` is what it sends to prove
    that it is the proxy, and `people` are the ids of people by their logins; other logins are nobody's.
    """

    header: Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9-]{0,63}$")] | None = None
    addresses: tuple[_Text, ...] = ()
    secret: Secret | None = None
    people: dict[str, _Text] = {}


Permission: TypeAlias = Literal["search", "read", "send"]


class McpAccessKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp_access.NAME]`: a program that uses the gateway's own MCP server at `/mcp` for a person.

    `allow` is what its token permits: to search the memory, to read notes and conversations, to send messages.
    """

    token: Secret | None = None
    person: _Text = "owner"
    allow: tuple[Permission, ...] = ("search", "read")


Price: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class PriceKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[prices."provider:model"]`: what a million tokens cost in the currency of `[usage]`: input, input from the
    vendor's cache (None for the same as other input) and output."""

    input: Price
    output: Price
    cached: Price | None = None


Money: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1_000_000_000)]


class BudgetKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[budgets.NAME]`: what may be spent, and how many requests may be sent. NAME is a person, `*` for each person, or
    `agent:NAME`, which has no rates.

    Amounts are in the currency of `[usage]`; None is no limit. `model` is the `provider:model` that is asked instead when a
    request no longer fits.
    """

    day: Money | None = None
    week: Money | None = None
    month: Money | None = None
    requests_per_minute: Annotated[int, msgspec.Meta(ge=1)] | None = None
    requests_per_hour: Annotated[int, msgspec.Meta(ge=1)] | None = None
    model: _Text | None = None


class UsageKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[usage]`: the currency of all amounts and of `[prices]`, and what everybody together may spend.

    `per_dollar` is the value of a US dollar in it: the shipped prices and those that providers report are in dollars. If it
    is None and the currency is not the dollar, they are not used. `day`, `week` and `month` are None for no limit.
    `reserved_output` are the tokens of an answer that a budget reserves if the request limits it no further.
    """

    currency: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")] = "USD"
    per_dollar: Annotated[float, msgspec.Meta(gt=0)] | None = None
    day: Money | None = None
    week: Money | None = None
    month: Money | None = None
    reserved_output: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 8192


RetentionAction: TypeAlias = Literal["archive", "delete"]

SHORTEST_RETENTION = 3600
"""The least `older_than` in seconds: nobody means to lose a conversation while it is going on."""


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `retention.rules`: conversations that nobody has used for `older_than`, and whose key matches `session`, which
    may contain `*` and `?`."""

    session: Annotated[str, msgspec.Meta(min_length=1)]
    older_than: Seconds
    action: RetentionAction

    def __post_init__(self) -> None:
        if self.older_than < SHORTEST_RETENTION:
            raise ValueError("older_than is at least 1h")


class RetentionKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[retention]`: the rules, of which the first that matches a conversation decides."""

    rules: tuple[RetentionRule, ...] = ()


class TranscriptionKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[transcription]`: the `provider:model` that turns speech into text; None for no transcription."""

    model: _Text | None = None


class LogKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[log]`: level and format; `auto` is text on a terminal and JSON elsewhere."""

    level: logs.Level = "info"
    format: logs.Format = "auto"


class Sections(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections. Each provider defines the schema of its own table in `providers`."""

    gateway: GatewayKeys = GatewayKeys()
    agent: AgentKeys = AgentKeys()
    agents: dict[str, NamedAgentKeys] = {}
    routes: tuple[RouteKeys, ...] = ()
    sessions: SessionsKeys = SessionsKeys()
    store: StoreKeys = StoreKeys()
    pruning: PruningKeys = PruningKeys()
    compaction: CompactionKeys = CompactionKeys()
    memory: MemoryKeys = MemoryKeys()
    skills: SkillsKeys = SkillsKeys()
    tools: ToolsKeys = ToolsKeys()
    providers: dict[str, dict[str, Any]] = {}
    plugins: PluginsKeys = PluginsKeys()
    mcp: dict[str, ServerKeys] = {}
    channels: dict[str, ChannelKeys] = {}
    people: dict[str, PersonKeys] = {}
    roles: RolesKeys = RolesKeys()
    sign_in: SignInKeys = SignInKeys()
    mcp_access: dict[str, McpAccessKeys] = {}
    approvals: ApprovalsKeys = ApprovalsKeys()
    sandbox: SandboxKeys = SandboxKeys()
    prices: dict[str, PriceKeys] = {}
    usage: UsageKeys = UsageKeys()
    budgets: dict[str, BudgetKeys] = {}
    retention: RetentionKeys = RetentionKeys()
    transcription: TranscriptionKeys = TranscriptionKeys()
    heartbeat: HeartbeatKeys = HeartbeatKeys()
    log: LogKeys = LogKeys()


class Config(Sections, frozen=True, kw_only=True):
    """A loaded configuration. `warnings` are sentences for the operator."""

    warnings: tuple[str, ...]
    sources: Sources
    references: References

    def __repr__(self) -> str:
        return f"Config({self.sources.file!r})"  # the providers' tables may hold secrets

    @property
    def digest(self) -> str:
        """The digest of all keys but `[gateway]`: gateways that share a database should have the same."""
        tree = {name: table for name, table in self.sources.tree.items() if name != "gateway"}
        return blake2b(msgspec.json.encode(tree, order="deterministic", enc_hook=str), digest_size=8).hexdigest()


def execution_keys(config: Config) -> ExecutionKeys:
    """Return what concerns the tools that run commands."""
    tools, agent = config.tools, config.agent
    return ExecutionKeys(
        shell=tools.shell.enabled, python=tools.python.enabled, sandbox=config.sandbox, access=agent.workspace_access
    )


def load_config(path: Path | None, *, environment: Mapping[str, str], overrides: Mapping[str, Any]) -> Config:
    """Load and validate the file (defaults if missing), the environment, and the command line's `overrides`.

    Raises:
        ConfigRefused: A source is invalid; the message names it, and the key or the line and column.
    """
    hide_keys_of(environment)
    return fit_config(merge(path, environment, overrides), References(environment, path.parent if path else Path()))


def fit_config(sources: Sources, references: References) -> Config:
    """Validate the merged sources; ConfigRefused at the first invalid key."""
    forms: dict[str, type[msgspec.Struct]] = {
        "agents": NamedAgentKeys,
        "people": PersonKeys,
        "mcp": ServerKeys,
        "channels": ChannelKeys,
        "prices": PriceKeys,
        "budgets": BudgetKeys,
    }
    tree = with_inherited(_with_channel_settings(_with_plugin_tables(sources.tree)))
    if "agents" in tree:  # what agents inherit is checked where it is written
        for section, inherited in (("agent", AgentKeys), ("skills", SkillsKeys), ("sandbox", SandboxKeys)):
            Validator(sources, references).fit(tree.get(section, {}), inherited, section)
    for section, form in forms.items():
        tables = tree.get(section)
        for name, table in (tables if isinstance(tables, dict) else {}).items():
            # Validated again below, where msgspec would not name the table of a fault.
            Validator(sources, references).fit(table, form, f"{section}.{name}")
    validator = Validator(sources, references)
    sections = validator.fit(tree, Sections)
    for key, reason in (*faults_of_names(sections.agents), *faults_of_routes(sections, sections.agents)):
        raise ConfigRefused(f"{sources.place(key)}: {key} {reason}.", key=key)
    known = {name: getattr(sections, name) for name in Sections.__struct_fields__}
    warnings = (
        *validator.warnings,
        *_about_store(sections.store, sources),
        *misspelt_variables(references.environment),
        *_unknown_language(sections.agent.language, sources),
    )
    return Config(**known, warnings=warnings, sources=sources, references=references)


def _about_store(store: StoreKeys, sources: Sources) -> list[str]:
    """Return a warning about what a database does not contain. Raises ConfigRefused if there is no URL."""
    if store.kind == "files":
        return []
    if not store.url:
        key = "store.url"
        raise ConfigRefused(f'{sources.place("store.kind")}: store.kind is "postgres", which needs {key}.', key=key)
    return [
        f"{sources.place('store.kind')}: the database contains all logs and attachments; notes, secrets and the folders"
        " of plugins and channels remain in the home, which needs a backup too."
    ]


def _unknown_language(code: str, sources: Sources) -> list[str]:
    """Return a warning if the language does not exist."""
    if language.known(code):
        return []
    key = "agent.language"
    there = ", ".join(language.CODES)
    return [f"{sources.place(key)}: {key} is {code!r}, which is not available; English is used. The languages are {there}."]


def _with_plugin_tables(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the tree with the tables of `[plugins]`, whose names are not in the schema, moved to one key."""
    plugins = tree.get("plugins")
    if not isinstance(plugins, dict):
        return tree
    tables = {name: inner for name, inner in plugins.items() if isinstance(inner, dict) and name not in ("allow", "senders")}
    others = {name: inner for name, inner in plugins.items() if name not in tables}
    return {**tree, "plugins": {**others, "tables": tables} if tables else others}


def _with_channel_settings(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the tree with the keys of each `[channels.NAME]` that are the kind's, not in the schema, moved to one key."""
    channels = tree.get("channels")
    if not isinstance(channels, dict):
        return tree
    return {
        **tree,
        "channels": {name: _divided(table) if isinstance(table, dict) else table for name, table in channels.items()},
    }


def _divided(table: dict[str, Any]) -> dict[str, Any]:
    ours = {key: value for key, value in table.items() if key in GATEWAY_KEYS}
    return {**ours, "settings": {key: value for key, value in table.items() if key not in ours}}


def provider_settings(config: Config, name: str, form: type[T]) -> T:
    """Return the table `[providers.<name>]` as the provider's own Struct, secrets resolved; warnings are logged.

    Raises:
        ConfigRefused: A value is invalid; the message names its key.
    """
    settings, warnings = fit_provider(config, name, form)
    for warning in warnings:
        log.warning("configuration", warning=warning)
    return settings


def fit_provider(config: Config, name: str, form: type[T]) -> tuple[T, list[str]]:
    """Return a provider's settings as `provider_settings` does, with the warnings about them."""
    validator = Validator(config.sources, config.references)
    return validator.fit(config.providers.get(name, {}), form, f"providers.{name}"), validator.warnings


def check_providers(config: Config, kinds: Mapping[str, type[ChatProvider]]) -> None:
    """Raise ConfigRefused if a provider's table is invalid, or its provider does not exist."""
    known = sorted(kinds)
    for name in config.providers:
        if name not in known:
            key = f"providers.{name}"
            known_names = f"{', '.join(known)}{_not_allowed(config, name)}"
            reason = f"is for a provider that does not exist; the providers are {known_names}."
            raise ConfigRefused(f"{config.sources.place(key)}: {key} {reason}", key=key)
    for name, kind in kinds.items():
        fit_provider(config, name, kind.Settings)


def check_summarizers(config: Config, summarizers: Collection[str], flushes: Collection[str]) -> None:
    """Raise ConfigRefused if `[compaction]` names a summarizer or flush that no plugin provides."""
    compaction = config.compaction
    for key, name, known in (
        ("compaction.summarizer", compaction.summarizer, summarizers),
        ("compaction.memory_flush.by", compaction.memory_flush.by, flushes),
    ):
        if name not in known:
            raise unknown_name(config, key, name, sorted(known))


def check_servers(config: Config) -> None:
    """Raise ConfigRefused if an entry of `[mcp]` is neither a program nor an address, or its name cannot be used."""
    for key, reason in faults_of(config.mcp):
        raise ConfigRefused(f"{config.sources.place(key)}: {key} {reason}.", key=key)


def check_workspaces(config: Config, home: Path) -> None:
    """Raise ConfigRefused if the workspaces of two agents overlap, or one contains files of the gateway. Blocks."""
    for key, reason in faults_of_workspaces(config.agent, config.agents, home) if config.agents else ():
        raise ConfigRefused(f"{config.sources.place(key)}: {key} {reason}.", key=key)


def check_backend(config: Config, known: Callable[[], Collection[str]]) -> None:
    """Raise ConfigRefused if `memory.backend` names one that no plugin provides."""
    name, key = config.memory.backend, "memory.backend"
    if name not in (AUTO, SQLITE) and name not in known():
        raise unknown_name(config, key, name, (AUTO, SQLITE, *known()))


def check_embedding(config: Config, known: Collection[str]) -> None:
    """Raise ConfigRefused if `[memory.embedding]` names an unknown provider, or no way to search is left."""
    name, key = config.memory.embedding.provider, "memory.embedding.provider"
    if name not in (AUTO, NONE, *known):
        raise unknown_name(config, key, name, (AUTO, *known, NONE))
    key = "memory.search.keywords"
    if not config.memory.search.keywords and not _may_embed(config, known):
        raise ConfigRefused(
            f"{config.sources.place(key)}: {key} is false and no key for embeddings is configured; one of them is needed:"
            " set EMBEDDING_API_KEY or memory.embedding.provider, or enable keyword search again.",
            key=key,
        )


def _may_embed(config: Config, known: Collection[str]) -> bool:
    """Return False if vectors are certainly unavailable.

    Where CoPaw's variable disables keyword search, vectors must be configured explicitly, as in CoPaw: the bundled
    model counts only if it is named.
    """
    from plugins.providers.hosted.accounts import VARIABLES  # noqa: PLC0415 - only without keyword search
    from plugins.providers.local.installable_models import BUNDLED  # noqa: PLC0415 - as above

    keys = config.memory.embedding
    account = keys.api_key or keys.base_url
    there = (
        keys.local_model_path and Path(keys.local_model_path).expanduser().is_file()
    )  # otherwise the next provider is tried
    if keys.provider != AUTO or account or there or not {LOCAL, "ollama", *VARIABLES}.issuperset(known):
        return True
    environment, tables = config.references.environment, config.providers
    if any(environment.get(variable) or tables.get(name, {}).get("api_key") for name, variable in VARIABLES.items()):
        return True
    return config.sources.origin("memory.search.keywords") != "FTS_ENABLED" and BUNDLED.missing() is None


def unknown_name(config: Config, key: str, name: str, known: Collection[str]) -> ConfigRefused:
    """Return the error for a key that names something that does not exist."""
    choices = f"{', '.join(known)}{_not_allowed(config, name)}"
    return ConfigRefused(
        f"{config.sources.place(key)}: {key} is {name!r}, which does not exist; choose one of {choices}.", key=key
    )


def _not_allowed(config: Config, name: str) -> str:
    """Return a remark that a plugin of that name is installed and not allowed; nothing of it is imported."""
    from plugins.host.loading import installed_plugins  # noqa: PLC0415 - only for an error
    from plugins.support.untrusted import PluginCallFailed  # noqa: PLC0415 - as above

    try:
        installed = {entry.name for entry in installed_plugins()}
    except PluginCallFailed:
        return ""
    if name not in installed or name in config.plugins.allow:
        return ""
    return f". A plugin {name!r} is installed, but not listed in plugins.allow"

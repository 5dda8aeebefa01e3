"""JSON endpoints for the configuration, for the owner: every key, changes that are checked, and changes that are written.

GET  /api/config         every key with its sentence, type, default, value and source; secrets as references
POST /api/config/check   `{"changes"}`: what a reload would say about these changes
POST /api/config         `{"changes", "digest", "confirmed"?, "move"?}`: write them if the file has this digest, and reload

`move` names keys whose secrets stand in the file itself and go into files of their own.

`changes` has values by dotted keys; null removes a key or a table. A secret is a reference such as `env:NAME`, or the secret
itself, which is written into a file of its own and never into the configuration. No response contains a secret.
"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog
from aiohttp import web

from gateway.auth.access import Access
from gateway.auth.people import Admission
from gateway.config.config_report import ConfigReport, Table, report_of, tables_of_config
from gateway.config.config_writing import (
    ConfigChanged,
    ConfigUnwritable,
    SecretFiles,
    digest_of,
    why_unwritable,
    write_config,
)
from gateway.config.key_kinds import ValueKind
from gateway.config.keys import Config
from gateway.config.rendering import CheckedConfig
from gateway.config.secret_references import is_reference
from gateway.config.settings import after_restart
from gateway.config.sources import join_key, read_file, split_key
from gateway.config.toml_editing import edited
from gateway.http.request_bodies import BodyRefused, read_body
from gateway.http.responses import answer, refusal
from gateway.status.instruments import GatewayContext
from gateway.support.errors import ConfigRefused
from plugins.host.hooks import Hooks
from plugins.support.secrets import HIDDEN

BODY_BYTES, BODY_SECONDS = 1024 * 1024, 30.0
"""The maximum size of a request in bytes, and the seconds for it."""

RELOAD_SECONDS = 20.0
"""Seconds that a response waits for the reload: a provider may be slow to open."""

Check = Callable[[str], CheckedConfig]
"""Checks the text of a configuration as a start would. Blocks."""

log = structlog.get_logger("exuvia.config")


class _Body(msgspec.Struct, frozen=True):
    changes: dict[str, Any]
    digest: str = ""
    confirmed: bool = False
    move: tuple[str, ...] = ()


class Fault(msgspec.Struct, frozen=True):
    """A fault of a change: the changed key that it is about, empty if it is about none, and a sentence."""

    key: str
    sentence: str


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload would say about changes. `asks` are sentences that the owner must confirm, `restart` the keys that take
    effect after a restart."""

    faults: list[Fault]
    warnings: list[str]
    asks: list[str]
    restart: list[str]


class WriteReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the reload said. `fault` is why the new file is not in force, `waiting` the keys that wait for a restart;
    `reloaded` is False if the reload has not ended yet."""

    digest: str
    fault: str | None
    waiting: tuple[str, ...]
    warnings: list[str]
    reloaded: bool


class _Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Checked changes. `text` is the file with them, which contains the secrets among them and is never written."""

    report: CheckReport
    tables: list[Table]
    before: str


class ConfigEndpoints:
    """The endpoints of one gateway; `check` uses the plugins that are loaded."""

    def __init__(self, context: GatewayContext, hooks: Hooks, access: Access, check: Check) -> None:
        self._context = context
        self._hooks = hooks
        self._access = access
        self._check = check
        self._writing = asyncio.Lock()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def config(self, _: web.Request, __: Admission) -> web.StreamResponse:
        """Return every key."""
        if (path := self._path) is None:
            return _without_file()
        try:
            return answer(200, await asyncio.to_thread(self._report, path))
        except (ConfigRefused, OSError) as error:
            return refusal(503, "config_unreadable", str(error))

    def _report(self, path: Path) -> ConfigReport:
        digest = digest_of(path)
        settings = self._context.settings
        report = report_of(self._check(read_file(path)), self._hooks)
        return msgspec.structs.replace(
            report,
            file=str(path),
            digest=digest,
            locked=why_unwritable(path),
            fault=settings.fault,
            waiting=settings.waiting,
        )

    @property
    def _path(self) -> Path | None:
        return self._context.config.sources.path

    # --- checking -----------------------------------------------------------------------------------------------------

    async def check(self, request: web.Request, _: Admission) -> web.StreamResponse:
        """Check changes."""
        if (path := self._path) is None:
            return _without_file()
        try:
            body = await _read(request)
            checked = await asyncio.to_thread(self._checked, path, body.changes, request.headers.get("Host"))
        except BodyRefused as refused:
            return refused.response
        except ConfigRefused as error:
            return answer(200, CheckReport(faults=[Fault(error.key, str(error))], warnings=[], asks=[], restart=[]))
        return answer(200, checked.report)

    def _checked(self, path: Path, changes: Mapping[str, Any], host: str | None) -> _Checked:
        """Check changes of the present file. Blocks.

        Raises:
            ConfigRefused: A key cannot be changed.
        """
        text = read_file(path)
        before, after = self._check(text), self._check(edited(text, changes))
        known = {_without_place(fault, path) for fault in before.faults}
        found = [sentence for fault in after.faults if (sentence := _without_place(fault, path)) not in known]
        faults = [Fault(_key_in(sentence, changes), sentence) for sentence in found]
        tables = tables_of_config(after, self._hooks)
        kinds = {key: _kind_at(tables, key) for key, value in changes.items() if value is not None}
        if not faults:  # a value of an unknown type may be a secret
            unknown = (key for key, kind in kinds.items() if kind is None)
            faults = [Fault(key, f"{key} can only be changed in the file itself.") for key in unknown]
        secrets = {key for key, kind in kinds.items() if kind is not None and _contains_secret(kind)}
        warnings = [_without_place(each, path) for each in after.warnings if each not in before.warnings]
        report = CheckReport(
            faults=faults,
            warnings=[each for each in warnings if not (each.partition(" ")[0] in secrets and "plain text" in each)],
            asks=[] if after.config is None else list(self._asks(after.config, changes, host)),
            restart=[] if after.config is None else list(after_restart(self._context.config, after.config)),
        )
        return _Checked(report=report, tables=tables, before=text)

    def _asks(self, after: Config, changes: Mapping[str, Any], host: str | None) -> Iterator[str]:
        """Yield a sentence for each change that may lock the owner out or gives a model or a program more rights."""
        before, now, then = self._context.config, self._context.config.gateway, after.gateway
        if "gateway.token" in changes:
            yield "gateway.token: all browsers and programs of the owner are signed out, this one too. Keep the new token."
        if (now.host, now.port) != (then.host, then.port):
            port = then.port or "any"
            yield f"gateway.host and gateway.port: after a restart the gateway listens on {then.host}, port {port}."
        if not self._access.would_allow_host(host, then):
            yield f"gateway.allowed_hosts: after a restart, requests to {host}, the address of this page, are refused."
        if after.approvals.default == "allow" != before.approvals.default:
            yield "approvals.default: tools run without a question unless a rule says otherwise."
        if after.sandbox.level == "none" != before.sandbox.level:
            yield "sandbox.level: commands that a model chooses run with all rights of the gateway."
        for name, server in after.mcp.items():
            known = before.mcp.get(name)
            if server.command and (known is None or (known.command, known.sandbox) != (server.command, server.sandbox)):
                yield f"mcp.{name}.command: the gateway runs the program {server.command[0]} on this machine."

    # --- writing ------------------------------------------------------------------------------------------------------

    async def write(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Write changes and return what the reload said."""
        if (path := self._path) is None:
            return _without_file()
        try:
            body = await _read(request)
            async with self._writing:
                return await self._written(path, body, request.headers.get("Host"), admission)
        except BodyRefused as refused:
            return refused.response
        except ConfigRefused as error:
            return _refused([Fault(error.key, str(error))])
        except ConfigChanged as error:
            return refusal(409, "conflict", str(error))
        except ConfigUnwritable as error:
            return refusal(403, "read_only", str(error))

    async def _written(self, path: Path, body: _Body, host: str | None, admission: Admission) -> web.Response:
        if await asyncio.to_thread(digest_of, path) != body.digest:
            raise ConfigChanged("The file was changed by somebody else meanwhile; nothing was written.")
        moved = await asyncio.to_thread(_plain_values, path, body.move)
        body = msgspec.structs.replace(body, changes=body.changes | moved)
        checked = await asyncio.to_thread(self._checked, path, body.changes, host)
        report = checked.report
        if report.faults:
            return _refused(report.faults)
        if wrong := [key for key in moved if not _is_secret(_kind_at(checked.tables, key))]:
            return _refused([Fault(key, f"{key} is not a secret.") for key in wrong])
        asks = [each for each in report.asks if each.partition(":")[0] not in moved]  # its value stays what it is
        if asks and not body.confirmed:
            return answer(409, {"code": "confirm", "message": "These changes must be confirmed.", "asks": asks})
        text, digest = await asyncio.to_thread(self._write, path, body, checked)
        log.info("configuration_written", keys=sorted(body.changes), by=admission.person.id)
        settings = self._context.settings
        try:
            async with asyncio.timeout(RELOAD_SECONDS):
                await settings.until_handled(text)
        except TimeoutError:
            return answer(200, WriteReport(digest=digest, fault=None, waiting=(), warnings=report.warnings, reloaded=False))
        return answer(
            200,
            WriteReport(
                digest=digest, fault=settings.fault, waiting=settings.waiting, warnings=report.warnings, reloaded=True
            ),
        )

    def _write(self, path: Path, body: _Body, checked: _Checked) -> tuple[str, str]:
        """Write secrets and the configuration, remove unused secrets, and return its text and digest. Blocks."""
        files = SecretFiles(self._context.home.secrets, path.parent)
        added: list[str] = []

        def stored(key: str, value: Any, kind: ValueKind | None) -> Any:
            """Return a value with its secrets replaced by references."""
            if kind is None or value is None:
                return value
            if kind.name == "secret" and isinstance(value, list):
                return [stored(key, each, kind) for each in value]
            if kind.name == "secret":
                if value == HIDDEN:
                    raise ConfigRefused(f"{key} must be entered again.", key=key)
                if is_reference(str(value)):
                    return value
                added.append(files.add(key, str(value)))
                return added[-1]
            if isinstance(value, dict):
                kinds = kind.fields or dict.fromkeys(value, kind.item)
                return {name: stored(f"{key}.{name}", inner, kinds.get(name)) for name, inner in value.items()}
            return value

        text = checked.before
        try:
            changes = {key: stored(key, value, _kind_at(checked.tables, key)) for key, value in body.changes.items()}
            text = edited(checked.before, changes)
            digest = write_config(path, text, body.digest)
        except BaseException:
            files.remove(added)
            raise
        files.remove_unused(checked.before, text)
        return text, digest


async def _read(request: web.Request) -> _Body:
    try:
        return msgspec.json.decode(await read_body(request, BODY_BYTES, BODY_SECONDS), type=_Body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise BodyRefused(400, "bad_request", "The body must be a JSON object with changes.") from None


def _refused(faults: list[Fault]) -> web.Response:
    return answer(422, {"code": "config_refused", "message": faults[0].sentence, "faults": faults})


def _without_file() -> web.Response:
    return refusal(409, "no_file", "This gateway runs without a configuration file.")


def _plain_values(path: Path, keys: tuple[str, ...]) -> dict[str, str]:
    """Return the values of keys that stand in the file itself, and are not references. Blocks.

    Raises:
        ConfigRefused: A key has no such value.
    """
    try:
        values = tomllib.loads(read_file(path)) if keys else {}
    except tomllib.TOMLDecodeError as error:
        raise ConfigRefused(f"{path}: {error}.") from None
    found: dict[str, str] = {}
    for key in keys:
        inner: Any = values
        for name in split_key(key):
            inner = inner.get(name) if isinstance(inner, dict) else None
        if not isinstance(inner, str) or is_reference(inner):
            raise ConfigRefused(f"{key} is not stored as plain text in the file.", key=key)
        found[key] = inner
    return found


def _is_secret(kind: ValueKind | None) -> bool:
    return kind is not None and kind.name == "secret"


def _without_place(sentence: str, path: Path) -> str:
    """Return a sentence without the place that it begins with: its line is that of a text that nobody has seen."""
    return re.sub(rf"\A{re.escape(str(path))}(?:, line \d+)?: ", "", sentence)


def _key_in(sentence: str, changes: Mapping[str, Any]) -> str:
    """Return the changed key that a sentence is about, the longest of several."""
    named = [name.strip(".") for name in re.findall(r"[A-Za-z0-9_.-]+", sentence)]
    found = (key for key in changes if any(name == key or name.startswith(f"{key}.") for name in named))
    return max(found, key=len, default="")


def _kind_at(tables: list[Table], key: str) -> ValueKind | None:
    """Return the kind of a key, of an entry of a key that is a table, or of a whole table; None if it is unknown."""
    above = join_key(split_key(key)[:-1])
    for table in tables:
        for field in table.fields:
            path = f"{table.name}.{field.name}"
            if path == key:
                return field.kind
            if path == above and field.kind.name == "table":
                return field.kind.item
    return None


def _contains_secret(kind: ValueKind) -> bool:
    inner = [*([kind.item] if kind.item else []), *kind.fields.values()]
    return kind.name == "secret" or any(map(_contains_secret, inner))

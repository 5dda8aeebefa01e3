"""The entry point of the command line.

Each command imports its modules when it runs, so that `exuvia --help` imports only click.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway import VERSION
from gateway.cli.memory.main_memory import memory
from gateway.cli.options import (
    agent_option,
    config_option,
    end,
    existing_home,
    home_at,
    home_option,
    invocation,
    json_option,
    person_option,
)
from gateway.cli.sessions.main_backup import backup, erase, restore

if TYPE_CHECKING:
    from gateway.config.keys import Role
    from gateway.support.session_export import ExportFormat
    from gateway.terminal.chat_client import PictureOption
    from plugins.host.loading import PluginFolder

KINDS = ("provider", "embedding", "tool", "command", "channel", "policy")
"""The kinds of `plugins new`, as in `plugins.testing.templates.packages`; that is not imported here, for quick help."""

IMPORTED = ("openclaw", "qwenpaw", "copaw", "coclaw", "nanobot", "hermes", "chatgpt", "claude", "llm", "open-webui")
"""The programs of `exuvia import`, as in its module `programs`, which is not imported here, for quick help."""


@click.group()
def plugins() -> None:
    """List, check and create plugins."""


@plugins.command("list")
@home_option
@config_option
@json_option
def list_plugins(home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """List the installed plugins and what they provide. Plugins that are not allowed are not imported. Exit code 1 if an
    allowed one cannot be used."""
    from gateway.cli import plugins as commands

    end(lambda: commands.list_plugins(file or home_at(home).config, os.environ, sys.stdout, as_json=as_json))


@plugins.command("check")
@click.argument("name")
@home_option
@config_option
@json_option
def check_plugin(name: str, home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Import a plugin and report on it. NAME is an installed plugin, allowed or not, or a folder. The report has what it
    provides, its settings in [plugins.NAME], and its problems. Exit code 1 if there is one."""
    from gateway.cli import plugins as commands

    end(lambda: commands.check_plugin(name, file or home_at(home).config, os.environ, sys.stdout, as_json=as_json))


@plugins.command("new")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="The folder to create [exuvia-NAME].")
def new_plugin(kind: str, name: str, into: Path | None) -> None:
    """Create a complete package with passing tests. It provides NAME: a chat provider, an embedding provider, a tool, a
    command, a channel or a policy."""
    from gateway.cli import plugins as commands

    end(lambda: commands.new_plugin(kind, name, into, sys.stdout))


@click.group()
def skills() -> None:
    """List, add and check skills. The gateway may be running."""


@skills.command("list")
@agent_option
@home_option
@config_option
@json_option
def list_skills(home: Path | None, file: Path | None, *, as_json: bool, agent: str) -> None:
    """List all skills: what they are for, and whether they are admitted. Exit code 1 if one is not used."""
    from gateway.cli import skills as commands

    end(lambda: commands.list_skills(invocation(existing_home(home), file, as_json=as_json, agent=agent)))


@skills.command("add")
@click.argument("source")
@agent_option
@home_option
@config_option
@json_option
@click.option("--yes", is_flag=True, help="Admit without a question what is shown.")
def add_skills(source: str, home: Path | None, file: Path | None, *, as_json: bool, yes: bool, agent: str) -> None:
    """Show the skills of SOURCE, then copy and admit them. They are copied to the first folder of skills.paths. SOURCE is a
    folder that is a skill or contains some, a .zip or .tar.gz archive, or the https address of one. A skill that lies in a
    folder of skills.paths already is only admitted. Exit code 1 if a skill was not admitted."""
    from gateway.cli import skills as commands

    end(lambda: commands.add_skills(invocation(existing_home(home), file, as_json=as_json, agent=agent), source, yes=yes))


@skills.command("check")
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@json_option
def check_skills(source: Path, *, as_json: bool) -> None:
    """Compare the skills of SOURCE with the convention. SOURCE is a folder or an archive, as for `add`. Exit code 1 if
    there is a fault."""
    from gateway.cli import skills as commands

    end(lambda: commands.check_skills(source, sys.stdout, as_json=as_json))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="exuvia", message="%(prog)s %(version)s")
def cli() -> None:
    """Exuvia, a chat gateway that never loses what it acknowledged."""


cli.add_command(memory)
cli.add_command(plugins)
cli.add_command(skills)
cli.add_command(backup)
cli.add_command(restore)
cli.add_command(erase)


def _import_without(extra: str, module: str) -> None:
    """Import a module as if an optional library were not installed.

    structlog would import rich to draw tracebacks that `logs` formats itself, which takes a tenth of the start.
    """
    if extra in sys.modules or module in sys.modules:
        return
    known: dict[str, Any] = sys.modules
    known[extra] = None  # an import of it fails
    try:
        importlib.import_module(module)
    finally:
        del known[extra]


@cli.command()
@home_option
@config_option
@click.option("--host", help="The address to listen on [127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="The port to listen on [7117].")
@click.option(
    "--plugin",
    "plugin_folders",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Load the plugin in this folder, and reload it each time it is saved.",
)
def run(home: Path | None, file: Path | None, host: str | None, port: int | None, plugin_folders: tuple[Path, ...]) -> None:
    """Run the gateway in the foreground."""
    gc.disable()  # saves a quarter of the start; the daemon enables it when it is ready
    _import_without("rich", "structlog")
    from gateway.wiring import daemon

    given = {"host": host, "port": port}
    overrides = {"gateway": {name: value for name, value in given.items() if value is not None}}
    sys.exit(daemon.run(home, file, overrides, [_plugin_in(folder) for folder in plugin_folders]))


@cli.command()
@home_option
@click.option("--url", help="The gateway's address [from HOME, or 127.0.0.1:7117].")
@click.option("--token", help="The gateway's token [$EXUVIA_TOKEN, or the file HOME/token].")
@click.option("--session", default="main", show_default=True, help="The name of the conversation.")
@click.option("--once", is_flag=True, help="Send all of the standard input as one message and print only the answer.")
@click.option("--json", "as_json", is_flag=True, help="Print each answer as one line of JSON.")
@click.option(
    "--pictures",
    type=click.Choice(["auto", "kitty", "iterm", "sixel", "off"]),
    default="auto",
    envvar="EXUVIA_PICTURES",
    show_default=True,
    help="How the terminal shows pictures; auto asks it [$EXUVIA_PICTURES].",
)
@click.argument("question", nargs=-1)
def chat(  # noqa: PLR0917 - click passes each option by its name
    home: Path | None,
    url: str | None,
    token: str | None,
    session: str,
    once: bool,
    as_json: bool,
    pictures: PictureOption,
    question: tuple[str, ...],
) -> None:
    """Chat with the gateway, or ask one QUESTION.

    Only the answer of a QUESTION is printed. The standard input follows it, if it is not a terminal: `git diff | exuvia chat
    "Review this."`
    """
    from gateway.terminal import chat_client as terminal
    from gateway.terminal.client import local_gateway

    def talk() -> int:
        endpoint = local_gateway.find_gateway(home_at(home), os.environ, url=url, token=token)
        options = terminal.ChatOptions(
            url=endpoint.url,
            token=endpoint.token,
            token_file=endpoint.token_file,
            session=session,
            once=once,
            as_json=as_json,
            pictures=pictures,
            question=" ".join(question),
        )
        return terminal.chat(options)

    end(talk)


@cli.command()
@home_option
@click.option("--url", help="The gateway's address [from HOME, or 127.0.0.1:7117].")
@click.option("--token", help="The gateway's token [$EXUVIA_TOKEN, or the file HOME/token].")
@json_option
def status(home: Path | None, url: str | None, token: str | None, as_json: bool) -> None:
    """Show whether the gateway runs, and its state. Exit code 1 if it does not run, or has a problem."""
    from gateway.cli import status as status_command

    end(lambda: status_command.status(home_at(home), os.environ, sys.stdout, url=url, token=token, as_json=as_json))


@cli.command("usage")
@home_option
@config_option
@click.option("--month", metavar="YYYY-MM", help="The month [this one].")
@click.option("--person", metavar="NAME", help="Only what this person spent.")
@json_option
def show_usage(home: Path | None, file: Path | None, month: str | None, person: str | None, *, as_json: bool) -> None:
    """Show what requests to models cost. A month is listed by person, agent, purpose, model and day. The gateway may be
    running."""
    from gateway.cli.people import usage_commands

    end(lambda: usage_commands.usage(invocation(existing_home(home), file, as_json=as_json), month, person))


@cli.group()
def cluster() -> None:
    """Show the gateways that share a database."""


@cluster.command("status")
@home_option
@config_option
@json_option
def show_cluster(home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Show the gateways that share the database. For each: what it has, and its last beat. No gateway needs to run. Exit
    code 1 if something should be looked at."""
    from gateway.cli.sessions import store_commands

    end(lambda: store_commands.show_cluster(invocation(existing_home(home), file, as_json=as_json)))


@cli.group()
def store() -> None:
    """Examine the logs' database; copy logs to it and back."""


@store.command("check")
@click.option("--url", metavar="URL", help="Examine this database, for example before moving there.")
@home_option
@config_option
@json_option
def check_store(url: str | None, home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Examine the database of the configuration. Reports on its replication, settings, version and times. URL is
    postgresql://… or a reference such as env:DATABASE_URL. Exit code 1 if it breaks the gateway's promises."""
    from gateway.cli.sessions import store_commands

    place = existing_home if url is None else home_at
    end(lambda: store_commands.check_store(invocation(place(home), file, as_json=as_json), url))


@store.command("copy")
@click.option("--from", "origin", required=True, metavar="HOME|URL", help="The home or database to copy from.")
@click.option("--to", "target", required=True, metavar="HOME|URL", help="The database or home to copy to.")
@json_option
def copy_store(origin: str, target: str, *, as_json: bool) -> None:
    """Copy all logs from a home to a database, or back, byte for byte. URL is postgresql://… or a reference such as
    env:DATABASE_URL. No gateway may run on either. What was copied before is only verified, so an interrupted copy is
    continued by the same command. Exit code 1 if a log could not be copied."""
    from gateway.cli.sessions import store_commands

    end(lambda: store_commands.copy_store(origin, target, sys.stdout, as_json=as_json))


@cli.group()
def sessions() -> None:
    """Inspect and change the stored sessions. The gateway may be running, except for `forget`."""


@sessions.command("list")
@home_option
@json_option
def list_sessions(home: Path | None, as_json: bool) -> None:
    """List all sessions, the most recent last."""
    from gateway.cli.sessions import session_commands

    end(lambda: session_commands.list_sessions(existing_home(home), sys.stdout, as_json=as_json))


@sessions.command("show")
@click.argument("session")
@home_option
@person_option
@json_option
@click.option("--limit", type=click.IntRange(min=1), help="Print only the last entries.")
def show_session(session: str, home: Path | None, person: str | None, as_json: bool, limit: int | None) -> None:
    """Print the transcript of SESSION. SESSION is an id, or a name such as `main`. A name is the owner's unless --person
    is given."""
    from gateway.cli.sessions import session_commands

    end(
        lambda: session_commands.show_session(
            existing_home(home), session, sys.stdout, person=person, as_json=as_json, limit=limit
        )
    )


@sessions.command("export")
@click.argument("session", required=False)
@home_option
@person_option
@click.option("--format", "form", type=click.Choice(["jsonl", "json", "markdown"]), default="jsonl", show_default=True)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write journals, attachments and the program that verifies them to this tar archive, signed.",
)
@click.option(
    "--sign", "key", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="The SSH key [HOME's own]."
)
@json_option
def export_session(  # noqa: PLR0917 - click passes each option by its name
    session: str | None,
    home: Path | None,
    person: str | None,
    form: ExportFormat,
    bundle: Path | None,
    key: Path | None,
    as_json: bool,
) -> None:
    """Export SESSION to standard output. The formats are that of the journal, JSON and Markdown. With --bundle, SESSION may
    be left out: then all sessions of --person are exported."""
    from gateway.cli.sessions import bundle_commands, session_commands

    if bundle is not None:
        call = invocation(existing_home(home), None, as_json=as_json)
        end(lambda: bundle_commands.export_bundle(call, session, bundle, person=person, key=key))
    if session is None:
        raise click.UsageError("Name the SESSION, or a --bundle for all sessions of a person.")
    end(lambda: session_commands.export_session(existing_home(home), session, sys.stdout.buffer, person=person, form=form))


@sessions.command("import")
@click.argument("bundle", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@home_option
@json_option
def import_sessions(bundle: Path, home: Path | None, as_json: bool) -> None:
    """Import the sessions of BUNDLE. They have the same bytes. It is verified first; a session that exists with other bytes
    is refused. The gateway must be stopped. Exit code 1 if a session was refused."""
    from gateway.cli.sessions import bundle_commands

    end(lambda: bundle_commands.import_bundle(invocation(existing_home(home), None, as_json=as_json), bundle))


_whose_option = click.option("--person", default="owner", show_default=True, help="The person whose conversation it is.")


@sessions.command("title")
@click.argument("key")
@click.argument("title")
@home_option
@_whose_option
def set_title(key: str, title: str, home: Path | None, person: str) -> None:
    """Set the title of the conversation KEY. An empty TITLE removes it."""
    from gateway.cli.sessions import session_changes

    end(lambda: session_changes.set_title(invocation(existing_home(home), None), key, title, person=person))


@sessions.command("archive")
@click.argument("key")
@home_option
@_whose_option
@click.option("--undo", is_flag=True, help="Bring it back.")
def archive_conversation(key: str, home: Path | None, person: str, undo: bool) -> None:
    """Archive the conversation KEY."""
    from gateway.cli.sessions import session_changes

    call = invocation(existing_home(home), None)
    end(lambda: session_changes.archive_conversation(call, key, person=person, archived=not undo))


@sessions.command("delete")
@click.argument("key")
@home_option
@_whose_option
@click.option("--facts", is_flag=True, help="Forget the facts that came from it too.")
@click.confirmation_option(prompt="This deletes the conversation with all its sessions and files. Continue?")
def delete_conversation(key: str, home: Path | None, person: str, facts: bool) -> None:
    """Delete the conversation KEY for good."""
    from gateway.cli.sessions import session_changes

    call = invocation(existing_home(home), None)
    end(lambda: session_changes.delete_conversation(call, key, person=person, facts=facts))


@sessions.command("retention")
@home_option
@config_option
@json_option
def show_retention(home: Path | None, file: Path | None, as_json: bool) -> None:
    """List what the rules in [retention] would do now. Nothing is changed; the running gateway does it."""
    from gateway.cli.sessions import session_changes

    end(lambda: session_changes.show_retention(invocation(existing_home(home), file, as_json=as_json)))


@sessions.command("verify")
@click.argument("session", required=False)
@home_option
@json_option
def verify_sessions(session: str | None, home: Path | None, as_json: bool) -> None:
    """Verify the journal of SESSION, or of all sessions. Checks the sequence, the checksums and the attachments. Exit
    code 1 if there is damage."""
    from gateway.cli.sessions import session_commands

    end(lambda: session_commands.verify_sessions(existing_home(home), session, sys.stdout, as_json=as_json))


@sessions.command("forget")
@click.argument("names", metavar="SESSION...", nargs=-1, required=True)
@home_option
@json_option
def forget_sessions(names: tuple[str, ...], home: Path | None, as_json: bool) -> None:
    """Accept the loss of journals, or of their ends. Each SESSION is one that `verify` reports. The gateway must be
    stopped."""
    from gateway.cli.sessions import session_commands

    end(lambda: session_commands.forget_sessions(existing_home(home), names, sys.stdout, as_json=as_json))


@sessions.command("compactions")
@click.argument("session")
@home_option
@person_option
@json_option
def list_compactions(session: str, home: Path | None, person: str | None, as_json: bool) -> None:
    """List the compactions of SESSION. Shows the time, reason and model of each, what was kept and lost, and whether it
    is in force."""
    from gateway.cli.sessions import session_commands

    end(lambda: session_commands.list_compactions(existing_home(home), session, sys.stdout, person=person, as_json=as_json))


@sessions.command("fork")
@click.argument("session")
@home_option
@json_option
@click.option("--at", type=click.IntRange(min=1), metavar="SEQ", help="The last event to keep [the end of the last turn].")
@click.option("--key", help="The name of the new conversation [SESSION-fork].")
def fork_session(session: str, home: Path | None, as_json: bool, at: int | None, key: str | None) -> None:
    """Start a new session from an earlier event of SESSION. SESSION is not changed."""
    from gateway.cli.sessions import session_changes

    call = invocation(existing_home(home), None, as_json=as_json)
    end(lambda: session_changes.fork_session(call, session, at=at, key=key))


@cli.group()
def people() -> None:
    """Add, disable and remove people while the gateway runs."""


@people.command("list")
@home_option
@json_option
def list_people(home: Path | None, as_json: bool) -> None:
    """List everybody who may use the gateway."""
    from gateway.cli.people import people_commands as commands

    end(lambda: commands.list_people(invocation(existing_home(home), None, as_json=as_json)))


@people.command("audit")
@home_option
@json_option
def audit_people(home: Path | None, as_json: bool) -> None:
    """List who did what about people, oldest first."""
    from gateway.cli.people import people_commands as commands

    end(lambda: commands.audit(invocation(existing_home(home), None, as_json=as_json)))


@people.command("add")
@click.argument("person")
@click.option("--name", default="", help="The displayed name [PERSON].")
@click.option(
    "--role", type=click.Choice(["member", "guest"]), default="member", show_default=True, help="What they may do."
)
@click.option("--invite", is_flag=True, help="Print an invitation, which works once, instead of a token.")
@home_option
@json_option
def add_person(person: str, *, name: str, role: Role, invite: bool, home: Path | None, as_json: bool) -> None:
    """Add PERSON and print their token, which is not shown again. PERSON is a short id such as `ana`."""
    from gateway.cli.people import people_commands as commands

    call = invocation(existing_home(home), None, as_json=as_json)
    end(lambda: commands.add(call, person, name=name, role=role, invite=invite))


@people.command("token")
@click.argument("person")
@home_option
@json_option
def replace_token(person: str, home: Path | None, as_json: bool) -> None:
    """Give PERSON a new token and print it. The old one, and all signed-in browsers, are refused at once."""
    from gateway.cli.people import people_commands as commands

    end(lambda: commands.replace_token(invocation(existing_home(home), None, as_json=as_json), person))


@people.command("disable")
@click.argument("person")
@click.option("--undo", is_flag=True, help="Admit the person again.")
@home_option
def disable_person(person: str, undo: bool, home: Path | None) -> None:
    """Refuse PERSON from now on, and end their connections."""
    from gateway.cli.people import people_commands as commands

    end(lambda: commands.disable(invocation(existing_home(home), None), person, enable=undo))


@people.command("role")
@click.argument("person")
@click.argument("role", type=click.Choice(["member", "guest"]))
@home_option
def change_role(person: str, role: Role, home: Path | None) -> None:
    """Make PERSON a member or a guest, for the tool calls from now on."""
    from gateway.cli.people import people_commands as commands

    end(lambda: commands.change_role(invocation(existing_home(home), None), person, role))


@people.command("remove")
@click.argument("person")
@home_option
def remove_person(person: str, home: Path | None) -> None:
    """Remove PERSON. Their conversations remain."""
    from gateway.cli.people import people_commands as commands

    end(lambda: commands.remove(invocation(existing_home(home), None), person))


@cli.group()
def approvals() -> None:
    """Show the approvals of tool calls, and how one is decided."""


@approvals.command("list")
@home_option
@json_option
def list_approvals(home: Path | None, as_json: bool) -> None:
    """List the open questions and the remembered approvals."""
    from gateway.cli.people import approvals as commands

    end(lambda: commands.list_approvals(invocation(existing_home(home), None, as_json=as_json)))


@approvals.command("explain")
@click.argument("action")
@home_option
@config_option
@click.option("--tool", default="shell", metavar="NAME", help="The tool that would be called [shell].")
@click.option("--agent", default="main", metavar="NAME", help="The agent that would call it [main].")
@click.option("--person", default="owner", metavar="NAME", help="The person in whose session [the owner].")
@json_option
def explain_approval(
    action: str, home: Path | None, file: Path | None, *, tool: str, agent: str, person: str, as_json: bool
) -> None:
    """Say what would be decided about a call, and which rule decides. Nothing is run or asked. ACTION is a command for
    `shell`, a URL for `fetch`, a path for `write` and `edit`. Approvals for single sessions are not considered."""
    from gateway.cli.people import approvals as commands

    call = invocation(existing_home(home), file, as_json=as_json)
    end(lambda: commands.explain_decision(call, action, tool=tool, agent=agent, person=person))


@cli.command()
@click.argument("session")
@home_option
@json_option
@click.option("--turn", type=click.IntRange(min=1), help="The number of the turn [the last].")
@click.option("--call", type=click.IntRange(min=1), help="Only this model call of the turn.")
def context(session: str, home: Path | None, as_json: bool, turn: int | None, call: int | None) -> None:
    """Rebuild the requests of a turn of SESSION. They are compared with what was sent. Exit code 1 if they differ."""
    from gateway.cli import context as context_command

    def show() -> int:
        return context_command.show_context(existing_home(home), session, sys.stdout, turn=turn, call=call, as_json=as_json)

    end(show)


@cli.group()
def mcp() -> None:
    """Use servers of the Model Context Protocol, or be one."""


@mcp.command("list")
@home_option
@config_option
@json_option
def list_servers(home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """List the configured servers. None of them is started or contacted."""
    from gateway.cli import mcp as commands

    end(lambda: commands.list_servers(invocation(home_at(home), file, as_json=as_json)))


@mcp.command("check")
@click.argument("name", required=False)
@home_option
@config_option
@json_option
def check_servers(name: str | None, home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Connect to the server NAME, or to all, and list their tools. Exit code 1 if one is not available or offers a tool
    that cannot be used."""
    from gateway.cli import mcp as commands

    end(lambda: commands.check_servers(invocation(home_at(home), file, as_json=as_json), name))


@mcp.command("login")
@click.argument("name")
@home_option
@config_option
@click.option("--paste", is_flag=True, help="Read the address that the browser is sent back to from the standard input.")
@click.option("--forget", is_flag=True, help="Delete the login instead.")
def log_in(name: str, home: Path | None, file: Path | None, *, paste: bool, forget: bool) -> None:
    """Log in to the server NAME in a browser. The tokens are kept in the home, where a running gateway finds them. With
    --paste the browser may be on another machine."""
    from gateway.cli import mcp as commands

    call = invocation(home_at(home), file)
    end(lambda: commands.forget_login(call, name) if forget else commands.log_in(call, name, paste=paste))


@mcp.command("serve")
@home_option
@click.option("--url", help="The gateway's address [from HOME, or 127.0.0.1:7117].")
@click.option("--token", help="A token of [mcp_access], or a person's [$EXUVIA_TOKEN, or the file HOME/token].")
def serve_mcp(home: Path | None, url: str | None, token: str | None) -> None:
    """Serve memory and conversations on standard input and output.

    The program that starts this speaks the Model Context Protocol with it; a gateway must run."""
    from gateway.cli import mcp_serve
    from gateway.terminal.client import local_gateway

    end(lambda: mcp_serve.run(local_gateway.find_gateway(home_at(home), os.environ, url=url, token=token)))


@cli.group()
def channels() -> None:
    """List and try the channels."""


@channels.command("list")
@home_option
@config_option
@json_option
def list_channels(home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """List the channels and their state.

    For each: whether it is connected and since when, what waits, and what failed. Exit code 1 if one is not connected."""
    from gateway.cli import channels as commands

    end(lambda: commands.list_channels(invocation(existing_home(home), file, as_json=as_json)))


@channels.command("check")
@click.argument("name", required=False)
@home_option
@config_option
@json_option
def check_channels(name: str | None, home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Say as whom the channel NAME is logged in, or each of them. The running gateway is asked; if none runs, they are
    opened and closed again, and no message is received. Exit code 1 if one is not available."""
    from gateway.cli import channels as commands

    end(lambda: commands.check(invocation(existing_home(home), file, as_json=as_json), name))


@channels.command("send")
@click.argument("name")
@click.argument("chat")
@click.argument("text")
@click.option("--thread", default="", help="The thread of the chat.")
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A file to send after the text. Repeat it for several.",
)
@home_option
@json_option
def send_post(name: str, home: Path | None, *, as_json: bool, **post: Any) -> None:
    """Send TEXT to CHAT on the channel NAME.

    The text is Markdown, and the running gateway sends it, in several posts if it is long. `-` reads it from the standard
    input. It is sent once and recorded nowhere."""
    from gateway.cli import channels as commands

    post["text"] = sys.stdin.read() if post["text"] == "-" else post["text"]
    call = invocation(existing_home(home), None, as_json=as_json)
    end(lambda: commands.send(call, name, **post))


@cli.command()
@click.argument("code", required=False)
@click.option("--as", "person", metavar="PERSON", help="The person for whom the sender speaks: owner, or one of [people].")
@click.option("--remove", "address", metavar="ADDRESS", help="Remove an address, such as telegram:12345, instead.")
@home_option
@json_option
def pair(code: str | None, person: str | None, address: str | None, home: Path | None, *, as_json: bool) -> None:
    """Decide who may speak on channels. Without CODE, list the senders who were told a code, and the admitted ones. With
    it, admit the sender who was told it. The gateway must be running."""
    from gateway.cli import channels as commands

    call = invocation(existing_home(home), None, as_json=as_json)
    if address is not None:
        if code is not None or person is not None:
            raise click.UsageError("--remove takes no CODE and no --as.")
        end(lambda: commands.remove(call, address))
    if code is None:
        if person is not None:
            raise click.UsageError("--as needs a CODE.")
        end(lambda: commands.list_pairings(call))
    else:
        end(lambda: commands.admit(call, code, person))


@cli.group()
def agents() -> None:
    """Show the agents."""


@agents.command("list")
@home_option
@config_option
@json_option
def list_agents(home: Path | None, file: Path | None, *, as_json: bool) -> None:
    """List the agents. For each: its model, tools and workspace."""
    from gateway.cli.sessions import agent_commands as commands

    end(lambda: commands.list_agents(invocation(home_at(home), file, as_json=as_json)))


@cli.group()
def route() -> None:
    """Show which agent answers where."""


@route.command("explain")
@click.argument("address")
@home_option
@config_option
@json_option
@click.option("--sender", default="", metavar="NAME", help="The sender, by the channel's name of them.")
@click.option("--person", default="", metavar="NAME", help="The person [the sender's, else the owner].")
def explain_route(address: str, home: Path | None, file: Path | None, *, as_json: bool, sender: str, person: str) -> None:
    """Say which agent answers ADDRESS, and why. It is about new conversations. ADDRESS is a channel, or
    CHANNEL:CHAT, such as telegram:-1001234; `websocket` is the channel of the gateway's own clients."""
    from gateway.cli.sessions import agent_commands as commands

    call = invocation(home_at(home), file, as_json=as_json)
    end(lambda: commands.explain(call, address, sender=sender, person=person))


@cli.group()
def schedule() -> None:
    """Schedule messages to the assistant. The gateway must be running."""


@schedule.command("list")
@home_option
@json_option
def list_schedules(home: Path | None, *, as_json: bool) -> None:
    """List what is scheduled, the next one first."""
    from gateway.cli.sessions import schedule_commands as commands

    end(lambda: commands.list_schedules(invocation(existing_home(home), None, as_json=as_json)))


@schedule.command("add")
@click.argument("time")
@click.argument("text", nargs=-1, required=True)
@click.option("--session", default="", metavar="KEY", help="The conversation; main if nothing else is named.")
@click.option("--to", default="", metavar="CHANNEL:CHAT", help="Where the answers go, such as telegram:1234.")
@click.option("--zone", default="", metavar="NAME", help="The time zone, such as Europe/Berlin.")
@click.option("--missed", type=click.Choice(("once", "skip", "all")), default="once", help="If it was missed.")
@click.option("--within", default="", metavar="TIME", help="How late a missed one may come with once, such as 2h.")
@click.option("--reminder", is_flag=True, help="A note to you instead of a task.")
@home_option
@json_option
def add_schedule(
    time: str, text: tuple[str, ...], home: Path | None, *, reminder: bool, as_json: bool, **options: str
) -> None:
    """Put TEXT into a conversation at a TIME.

    TIME is, for example, "10m", "18:00", "2026-12-24 18:00", "every 2h", or a cron line such as "0 9 * * 1-5"."""
    from gateway.cli.sessions import schedule_commands as commands
    from plugins.api.command import ScheduleOptions

    call = invocation(existing_home(home), None, as_json=as_json)
    end(lambda: commands.add(call, " ".join((time, *text)), ScheduleOptions(**options), reminder=reminder))


@schedule.command("show")
@click.argument("schedule_id", metavar="ID")
@home_option
@json_option
def show_schedule(schedule_id: str, home: Path | None, *, as_json: bool) -> None:
    """Show one schedule in full, with its next times."""
    from gateway.cli.sessions import schedule_commands as commands

    end(lambda: commands.show(invocation(existing_home(home), None, as_json=as_json), schedule_id))


@schedule.command("pause")
@click.argument("schedule_id", metavar="ID")
@home_option
@json_option
def pause_schedule(schedule_id: str, home: Path | None, *, as_json: bool) -> None:
    """Pause a schedule: nothing of it is due until it is resumed."""
    from gateway.cli.sessions import schedule_commands as commands

    end(lambda: commands.pause(invocation(existing_home(home), None, as_json=as_json), schedule_id))


@schedule.command("resume")
@click.argument("schedule_id", metavar="ID")
@home_option
@json_option
def resume_schedule(schedule_id: str, home: Path | None, *, as_json: bool) -> None:
    """Resume a paused schedule."""
    from gateway.cli.sessions import schedule_commands as commands

    end(lambda: commands.resume(invocation(existing_home(home), None, as_json=as_json), schedule_id))


@schedule.command("remove")
@click.argument("schedule_id", metavar="ID")
@home_option
@json_option
def remove_schedule(schedule_id: str, home: Path | None, *, as_json: bool) -> None:
    """Remove a schedule."""
    from gateway.cli.sessions import schedule_commands as commands

    end(lambda: commands.remove(invocation(existing_home(home), None, as_json=as_json), schedule_id))


@schedule.command("run")
@click.argument("schedule_id", metavar="ID")
@home_option
def run_schedule(schedule_id: str, home: Path | None) -> None:
    """Put the text of a schedule into its conversation now."""
    from gateway.cli.sessions import schedule_commands as commands

    end(lambda: commands.run(invocation(existing_home(home), None, as_json=False), schedule_id))


@cli.command("import")
@click.argument("program", metavar="KIND", type=click.Choice(IMPORTED))
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@home_option
@config_option
@click.option("--person", metavar="NAME", help="The person for whom it is imported [the owner].")
@click.option("--dry-run", is_flag=True, help="Only report what would be imported and what is left out.")
@json_option
def import_source(
    program: str, path: Path, home: Path | None, file: Path | None, *, person: str | None, dry_run: bool, as_json: bool
) -> None:
    """Import what another program has. That is conversations, notes, facts, schedules and skills.

    KIND is the program, and PATH its folder, its database, or its export, which may be a .zip file. PATH is only read. The
    same import again adds only what is new. A gateway may be running."""
    from gateway.cli.sessions import import_command as commands
    from plugins.support.workspace import OWNER

    call = invocation(home_at(home), file, as_json=as_json)
    end(lambda: commands.import_source(call, program, path, person=person or OWNER, dry_run=dry_run))


@cli.group()
def config() -> None:
    """Write, check and show the configuration."""


@config.command("init")
@home_option
@click.option(
    "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The file to write [HOME/config.toml]."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key, for example sessions.queue_limit=5.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init_config(home: Path | None, file: Path | None, settings: tuple[str, ...], force: bool) -> None:
    """Write a configuration with every key explained."""
    from gateway.cli import config_commands

    def init() -> int:
        pairs = [(key.strip(), value) for key, equals, value in (setting.partition("=") for setting in settings) if equals]
        if len(pairs) < len(settings):
            raise click.ClickException("--set takes KEY=VALUE, as in --set sessions.queue_limit=5.")
        return config_commands.init_config(file or home_at(home).config, pairs, os.environ, sys.stdout, force=force)

    end(init)


@config.command("check")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@home_option
@json_option
def check_config(file: Path | None, home: Path | None, as_json: bool) -> None:
    """Report every fault of the configuration. Checks FILE [HOME/config.toml] and the environment. Exit code 1 if there
    is a fault."""
    from gateway.cli import config_commands

    end(lambda: config_commands.check_config(file or home_at(home).config, os.environ, sys.stdout, as_json=as_json))


@config.command("show")
@home_option
@config_option
@json_option
@click.option("--sources", is_flag=True, help="Show the source of each value.")
def show_config(home: Path | None, file: Path | None, as_json: bool, sources: bool) -> None:
    """Print every value in force, secrets as references."""
    from gateway.cli import config_commands

    path = file or home_at(home).config
    end(lambda: config_commands.show_config(path, os.environ, sys.stdout, as_json=as_json, sources=sources))


@cli.group()
def token() -> None:
    """Manage the gateway's token."""


@token.command("rotate")
@home_option
@config_option
def rotate(home: Path | None, file: Path | None) -> None:
    """Create a new token. A running gateway applies it at once and closes the connections of the old one."""
    from gateway.auth.token import rotate_token
    from gateway.config.sources import merge_readable

    def make() -> int:
        place = home_at(home)
        if not place.root.is_dir():
            raise click.ClickException(f"There is no home at {place.root}; `exuvia run` creates one.")
        sources, fault = merge_readable(file or place.config, os.environ)
        if fault is not None and not place.token.exists():
            raise fault  # the token may be in the unreadable file
        rotate_token(place, sources, os.environ)
        click.echo(f"{place.token} holds a new token; the old one is no longer valid.")
        if fault is not None:
            click.echo(f"exuvia: {fault} If gateway.token is set there, that one still applies.", err=True)
        return 0

    end(make)


@cli.command()
@home_option
@config_option
@click.option("--offline", is_flag=True, help="Make no request to a vendor.")
@json_option
def doctor(home: Path | None, file: Path | None, offline: bool, as_json: bool) -> None:
    """Find problems around the gateway, and how to fix them. Exit code 1 if there is one."""
    from gateway.cli import doctor as doctor_command

    end(lambda: doctor_command.doctor(invocation(home_at(home), file, as_json=as_json), offline=offline))


@cli.command()
@click.argument("action", type=click.Choice(["list", "refresh"]), default="list")
@home_option
@config_option
@click.option("--offline", is_flag=True, help="Make no request to a vendor.")
@json_option
def models(action: str, home: Path | None, file: Path | None, offline: bool, as_json: bool) -> None:
    """List the available models, or refresh the list. `list` shows each model with its window and limits; `refresh` asks
    the vendors and stores their answers in HOME/models.json. Exit code 1 if a vendor could not be asked."""
    from gateway.cli import models as models_command

    def act() -> int:
        call = invocation(home_at(home), file, as_json=as_json)
        if action == "list":
            return models_command.list_models(call, offline=offline)
        if offline:
            raise click.ClickException("`refresh` asks the vendors; leave out --offline.")
        return models_command.refresh_models(call)

    end(act)


@cli.group()
def service() -> None:
    """Run the gateway under systemd."""


scope_option = click.option(
    "--user/--system", "for_user", default=True, show_default=True, help="A service of this user, or of the system."
)


@service.command("install")
@scope_option
@home_option
@click.option("--print", "only_print", is_flag=True, help="Print the unit and write nothing.")
def install_service(for_user: bool, home: Path | None, only_print: bool) -> None:
    """Write the systemd unit, and print how to start it."""
    from gateway.support import service_unit as units

    scope: units.Scope = "user" if for_user else "system"
    end(lambda: units.install(scope, Path(sys.executable), home, os.environ, sys.stdout, only_print=only_print))


@service.command("uninstall")
@scope_option
def uninstall_service(for_user: bool) -> None:
    """Remove the unit; the home is kept."""
    from gateway.support import service_unit as units

    end(lambda: units.uninstall("user" if for_user else "system", os.environ, sys.stdout))


def main() -> None:
    """Run the command line and exit with its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot show is replaced.
        sys.stdout.reconfigure(errors="replace")
    cli(prog_name="exuvia")


def _plugin_in(folder: Path) -> PluginFolder:
    """Return the plugin in a folder."""
    from plugins.host.loading import NoPlugin, PluginFolder

    try:
        return PluginFolder(folder)
    except NoPlugin as error:
        raise click.UsageError(f"{error}.") from error

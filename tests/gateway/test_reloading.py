"""Hot reload: real files, saved in every way that editors and operators use, under a running gateway."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gateway.config import reloading
from gateway.support import logs
from plugins.providers.scripted import Scripted
from plugins.testing.servers.openai_server import KEY, OpenAIServer
from tests.gateway.gateways import TOKEN, Client, Gateway, gateway
from tests.open_files import watched_inodes
from tests.waiting import deadline, until

ECHO = '[agent]\nmodel = "scripted:echo"\n'


class Stage:
    """A gateway on a configuration file, a client, and the log."""

    def __init__(self, running: Gateway, client: Client, output: io.StringIO) -> None:
        self.file = running.home / "config.toml"
        self.client = client
        self.daemon = running.daemon
        self.running = running
        self._output = output

    @property
    def fault(self) -> str | None:
        return self.daemon.context.settings.fault

    def logged(self, event: str) -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in self._output.getvalue().splitlines()]
        return [entry for entry in entries if entry["event"] == event]

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition)

    async def watches(self, folder: Path) -> None:
        """Wait until this folder is watched: a report about the home would have the files checked too."""
        await self.until(lambda: folder.stat().st_ino in watched_inodes())

    async def reloaded(self, save: Callable[[], object]) -> set[str]:
        """Save, wait until it is in force, and return the changed keys."""
        before = len(self.logged("configuration_reloaded"))
        save()
        await self.until(lambda: len(self.logged("configuration_reloaded")) > before)
        return set(self.logged("configuration_reloaded")[-1]["changed"])

    async def refused(self, save: Callable[[], object]) -> str:
        """Save, wait until it is refused, and return the sentence."""
        before = len(self.logged("configuration_refused"))
        save()
        await self.until(lambda: len(self.logged("configuration_refused")) > before)
        assert self.fault is not None
        return self.fault


looks: list[object] = []


@pytest.fixture(autouse=True)
def _by_reports_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the files only when the system reports a change, and count the checks."""
    plain = reloading.stamps

    def counted(files: Iterable[Path]) -> Any:
        looks.append(files)
        return plain(files)

    monkeypatch.setattr(reloading, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(reloading, "stamps", counted)


@contextlib.asynccontextmanager
async def stage(home: Path, text: str) -> AsyncIterator[Stage]:
    output = io.StringIO()
    logs.configure("info", "json", output)
    async with gateway(home, file=text) as running:
        looks.clear()
        async with deadline():
            while not looks:  # the folder is watched a moment after the gateway is ready
                (home / "knock").touch()
                await asyncio.sleep(0.02)
        yield Stage(running, await running.connect(), output)


def story(folder: Path, name: str, *lines: dict[str, Any]) -> str:
    """Write a script and return its path for the configuration."""
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def write_over(path: Path, text: str) -> None:
    path.write_text(text)


def rename_over(path: Path, text: str) -> None:
    """Save as most editors do."""
    new = path.with_name(".config.toml.swp")
    new.write_text(text)
    new.rename(path)


def remove_first(path: Path, text: str) -> None:
    path.rename(path.with_name("config.toml~"))
    path.write_text(text)


def link_elsewhere(path: Path, text: str) -> None:
    """Replace the target of a link, as configuration is mounted into containers."""
    version = path.parent / f"version-{time.monotonic_ns()}"
    version.mkdir()
    (version / "config.toml").write_text(text)
    link = path.with_name("link")
    link.symlink_to(version / "config.toml")
    link.rename(path)


SAVES = [write_over, rename_over, remove_first, link_elsewhere]


@pytest.mark.parametrize("save", SAVES)
async def test_a_saved_file_is_in_force_from_the_next_turn_on(save: Callable[[Path, str], None], tmp_path: Path) -> None:
    script = story(tmp_path, "script", {"text": "from the script"})
    async with stage(tmp_path / "home", ECHO) as on:
        assert await on.client.chat("hello") == "hello"
        changed = await on.reloaded(
            lambda: save(on.file, f'[agent]\nmodel = "scripted:script"\n[providers.scripted]\nscript = "{script}"\n')
        )
        assert changed == {"agent.model", "providers.scripted", "providers.scripted.script"}
        assert await on.client.chat("hello", session="other") == "from the script"
        await on.reloaded(lambda: save(on.file, ECHO))
        assert await on.client.chat("again") == "again"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[agent\nmodel = ", "line 1, column 7: Expected ']' at the end of a table declaration."),
        ('[agent]\nmodel = "scripted:script"\nmoddel = 1\n', "line 3: agent.moddel is not a known key"),
        ('[agent]\nmodel = "scripted:script"\n[providers.scripted]\nscirpt = "x"\n', "line 4: providers.scripted.scirpt is"),
        ('[agent]\nmodel = "scripted:script"\n[providers.nobody]\n', "providers.nobody is for a provider that does not"),
        ("", "config.toml is empty; delete it to use the defaults."),
    ],
)
async def test_a_bad_file_keeps_the_old_configuration_says_so_once_and_can_be_mended(
    text: str, reason: str, tmp_path: Path
) -> None:
    async with stage(tmp_path, ECHO) as on:
        assert reason in await on.refused(lambda: on.file.write_text(text))
        assert await on.client.chat("hello") == "hello"
        assert f"- Configuration: The configuration before the last change is in force: {on.fault}" in (
            await on.client.command("/status")
        )
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with on.running.http.get(f"{on.running.url}/status.json", headers=headers) as answer:
            assert any(str(on.fault) in sentence for sentence in (await answer.json())["troubles"])
        for number in range(3):  # a look that finds the same says nothing new
            seen = len(looks)
            (tmp_path / f"other-{number}").touch()
            await on.until(lambda: len(looks) > seen)  # noqa: B023 - it is awaited here
        assert len(on.logged("configuration_refused")) == 1
        assert await on.reloaded(lambda: on.file.write_text(ECHO + "tool_rounds = 3\n")) == {"agent.tool_rounds"}
        assert on.logged("configuration_reloaded")[-1]["mended"] is True
        assert "- Configuration" not in await on.client.command("/status")


async def test_a_deleted_file_means_the_defaults_and_one_that_comes_later_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "GONE", 0.3)
    rounds = ECHO + "tool_rounds = 3\n"
    async with stage(tmp_path, rounds) as on:
        assert await on.reloaded(on.file.unlink) == {"agent.model", "agent.tool_rounds"}
        assert (on.daemon.config.agent.model, on.daemon.config.agent.tool_rounds) == ("auto", 24)
        (gone,) = on.logged("configuration_deleted")
        assert (gone["file"], gone["in_force"]) == (str(on.file), "the defaults")
        assert on.fault is None
        assert await on.reloaded(lambda: on.file.write_text(rounds)) == {"agent.model", "agent.tool_rounds"}
        assert await on.client.chat("hello") == "hello"
        assert len(on.logged("configuration_deleted")) == 1


async def test_a_file_that_is_missing_while_it_is_saved_never_means_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "GONE", 3600.0)
    async with stage(tmp_path, ECHO + "tool_rounds = 3\n") as on:
        on.file.rename(tmp_path / "config.toml~")
        seen = len(looks)
        await on.until(lambda: len(looks) > seen + 5)  # it was looked for again and again
        assert on.daemon.config.agent.tool_rounds == 3
        changed = await on.reloaded(lambda: on.file.write_text(ECHO + "tool_rounds = 3\nverbose = true\n"))
        assert changed == {"agent.verbose"}
        assert (on.logged("configuration_deleted"), on.logged("configuration_refused")) == ([], [])


async def test_a_file_that_is_gone_with_its_folder_or_cannot_be_read_keeps_the_old_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "GONE", 0.3)
    monkeypatch.setattr(reloading, "POLL_SECONDS", 0.5)  # no report comes of a folder that is moved
    real = tmp_path / "mounted"
    real.mkdir()
    (real / "config.toml").write_text(ECHO)
    async with stage(tmp_path / "home", ECHO) as on:

        def link() -> None:
            on.file.unlink()
            on.file.symlink_to(real / "config.toml")

        await on.reloaded(link)
        assert await on.refused(lambda: real.rename(tmp_path / "away")) == f"{on.file} links to a file that does not exist."
        assert await on.reloaded(lambda: (tmp_path / "away").rename(real)) == set()

        def put_folder() -> None:
            on.file.unlink()
            on.file.mkdir()

        assert await on.refused(put_folder) == f"{on.file} cannot be read: Is a directory."
        assert await on.client.chat("hello") == "hello"

        def put_back() -> None:
            on.file.rmdir()
            on.file.write_text(ECHO)

        assert await on.reloaded(put_back) == set()
        assert on.fault is None


def put_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def put_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def put_link_into_a_loop(path: Path) -> None:
    (path.parent / "loop").symlink_to(path.parent / "loop")
    path.unlink()
    path.symlink_to(path.parent / "loop" / "config.toml")


@pytest.mark.parametrize("put", [put_loop, put_socket, put_link_into_a_loop])
async def test_what_cannot_be_followed_or_opened_is_said_and_the_file_is_watched_on(
    put: Callable[[Path], None], tmp_path: Path
) -> None:
    async with stage(tmp_path, ECHO) as on:
        assert f"{on.file} cannot be read: " in await on.refused(lambda: put(on.file))
        assert await on.client.chat("hello") == "hello"
        assert await on.reloaded(lambda: rename_over(on.file, ECHO + "tool_rounds = 3\n")) == {"agent.tool_rounds"}
        assert on.fault is None
        assert not on.logged("configuration_not_watched")


async def test_a_pipe_in_the_place_of_the_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with stage(tmp_path, ECHO) as on:

        def put_pipe() -> None:
            os.mkfifo(tmp_path / "pipe")
            (tmp_path / "pipe").rename(on.file)

        assert "is empty" in await on.refused(put_pipe)
        assert await on.client.chat("hello") == "hello"


async def test_a_file_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    async with stage(tmp_path, ECHO) as on:
        lines = [*ECHO.splitlines(), "tool_rounds = 7", "[sessions]", "queue_limit = 7", "[log]", 'level = "info"']

        def begin() -> None:
            on.file.write_text("")

        async def write_slowly() -> None:
            with on.file.open("a") as file:
                for line in lines:
                    for piece in (line[:3], line[3:] + "\n"):
                        file.write(piece)
                        file.flush()
                        await asyncio.sleep(reloading.QUIET / 3)

        begin()
        await write_slowly()
        await on.until(lambda: bool(on.logged("configuration_reloaded")))
        assert [entry["changed"] for entry in on.logged("configuration_reloaded")] == [
            ["agent.tool_rounds", "sessions.queue_limit"]
        ]
        assert on.logged("configuration_refused") == []


async def test_a_hundred_saves_in_a_row_end_with_the_last(tmp_path: Path) -> None:
    async with stage(tmp_path, ECHO) as on:
        for number in range(1, 101):
            rename_over(on.file, f"{ECHO}tool_rounds = {number}\n")
            await asyncio.sleep(0.005)
        await on.until(lambda: on.daemon.config.agent.tool_rounds == 100)
        assert on.fault is None


async def test_the_bound_of_the_queue_and_the_words_for_a_turn_change_while_running(tmp_path: Path) -> None:
    async with stage(tmp_path, ECHO + "[sessions]\nqueue_limit = 5\n") as on:
        assert "waiting of 5" in await on.client.command("/status")
        await on.reloaded(lambda: on.file.write_text(ECHO + 'instructions = "Be brief."\n[sessions]\nqueue_limit = 6\n'))
        assert "waiting of 6" in await on.client.command("/status")
        await on.client.chat("hello")
        (told,) = [event for _, event in on.client.events() if event["kind"] == "instructions_set"]
        assert "Be brief." in told["text"]


async def test_a_key_that_needs_a_restart_waits_and_is_named_once(tmp_path: Path) -> None:
    async with stage(tmp_path, ECHO) as on:
        text = f'{ECHO}workspace = "elsewhere"\ntool_rounds = 5\n[gateway]\nallowed_hosts = ["a:1"]\n'
        assert await on.reloaded(lambda: on.file.write_text(text)) == {"agent.tool_rounds"}
        (waits,) = on.logged("configuration_waits")
        assert waits["reason"] == ("These changes take effect after a restart: gateway.allowed_hosts, agent.workspace.")
        assert f"- Configuration: {waits['reason']}" in await on.client.command("/status")
        assert on.daemon.config.agent.workspace == "workspace"

        await on.reloaded(lambda: on.file.write_text(text.replace("= 5", "= 6")))
        assert len(on.logged("configuration_waits")) == 1
        assert await on.reloaded(lambda: on.file.write_text(ECHO)) == {"agent.tool_rounds"}
        assert "- Configuration" not in await on.client.command("/status")


async def test_the_level_of_the_log_changes_while_running(tmp_path: Path) -> None:
    async with stage(tmp_path, ECHO) as on:
        reloading.log.info("heard once, so that a logger might keep its level")
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            on.file.write_text(f'{ECHO}[log]\nlevel = "error"\nformat = "json"\n')
            await on.until(lambda: on.daemon.config.log.level == "error")
            reloading.log.warning("too quiet to be heard")
            reloading.log.error("loud enough")
        assert [json.loads(line)["event"] for line in stderr.getvalue().splitlines()] == ["loud enough"]


async def test_a_secret_in_a_file_is_rotated(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere" / "key"
    secret.parent.mkdir()
    secret.write_text("sk-not-right-0000000000")
    async with OpenAIServer().serving() as server:
        text = f'[agent]\nmodel = "openai:m"\n[providers.openai]\nbase_url = "{server.url}"\napi_key = "file:{secret}"\n'
        async with stage(tmp_path / "home", text) as on:
            await on.client.send("hello")
            assert (await on.client.until_event("turn_ended"))["outcome"] == "failed"
            await on.watches(secret.parent)
            assert await on.reloaded(lambda: rename_over(secret, KEY)) == {"providers.openai"}
            assert await on.client.chat("hello") == "hello"
            assert f"{secret} cannot be read" in await on.refused(secret.unlink)
            assert await on.client.chat("still") == "still"
            await on.reloaded(lambda: secret.write_text(KEY))


# --- who may speak ----------------------------------------------------------------------------------------------------

OLD, NEW = "the-old-token-of-somebody-4711", "the-new-token-of-somebody-0815"


def with_people(secret: Path) -> str:
    return f'{ECHO}[people.ana]\ntoken = "file:{secret}"\n'


async def test_a_token_is_changed_at_once_though_the_configuration_has_a_fault(tmp_path: Path) -> None:
    secret = tmp_path / "ana"
    secret.write_text(OLD)
    async with stage(tmp_path / "home", with_people(secret)) as on:
        ana = await on.running.connect(OLD)
        await on.refused(lambda: on.file.write_text(with_people(secret) + "[agent]\nmoddel = 1\n"))  # somebody is editing
        rename_over(secret, NEW)
        assert await ana.closed() == 4401
        assert await (await on.running.connect(NEW)).chat("hi") == "hi"
        assert await on.client.chat("the owner's connection stays") == "the owner's connection stays"
        assert on.fault is not None
        rename_over(secret, "short")
        await on.until(lambda: "people.ana.token is shorter than 24 characters" in str(on.fault))
        assert await (await on.running.connect(NEW)).chat("still") == "still"


async def test_a_person_is_shut_out_and_a_token_changed_while_a_provider_hangs_as_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "ben"
    secret.write_text(OLD)
    ana = f'[people.ana]\ntoken = "{NEW}"\n'
    release = asyncio.Event()

    async def hang(provider: Scripted) -> Scripted:
        await release.wait()
        return provider

    text = with_people(secret).replace("ana", "ben")
    async with stage(tmp_path / "home", text + ana) as on:
        ben, ana_s = await on.running.connect(OLD), await on.running.connect(NEW)
        monkeypatch.setattr(Scripted, "__aenter__", hang)
        script = story(tmp_path, "script", {"text": "from the script"})
        changed = text + f'[providers.scripted]\nscript = "{script}"\n'
        on.file.write_text(changed)
        assert await ana_s.closed() == 4401
        rename_over(secret, NEW)  # and the next change comes while it still hangs
        assert await ben.closed() == 4401
        on.file.write_text(changed + "[agnet]\n")
        await on.until(lambda: bool(on.logged("configuration_refused")))
        release.set()
        await on.until(lambda: len(on.logged("configuration_reloaded")) == 2)  # the provider, then the token
        assert "agnet" in str(on.fault)  # the fault that came meanwhile is not forgotten
        assert await on.reloaded(lambda: on.file.write_text(text)) >= {"providers.scripted"}


async def test_a_file_behind_a_link_is_watched_where_it_lies(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    async with stage(home, ECHO) as on:
        elsewhere.mkdir()
        (elsewhere / "real.toml").write_text(ECHO + "tool_rounds = 3\n")

        def link() -> None:
            on.file.unlink()
            on.file.symlink_to(elsewhere / "real.toml")

        await on.reloaded(link)
        await on.watches(elsewhere)
        changed = await on.reloaded(lambda: (elsewhere / "real.toml").write_text(ECHO + "tool_rounds = 4\n"))
        assert changed == {"agent.tool_rounds"}


async def test_a_turn_that_runs_keeps_the_provider_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Scripted] = []

    async def close(provider: Scripted, *_: object) -> None:
        closed.append(provider)

    monkeypatch.setattr(Scripted, "__aexit__", close)
    slow = story(tmp_path, "slow", {"text": "one two three four", "deltas": 4, "delay_ms": 400})
    fast = story(tmp_path, "fast", {"text": "fast"})
    text = '[agent]\nmodel = "scripted:script"\n[providers.scripted]\nscript = "{}"\n'
    async with stage(tmp_path / "home", text.format(slow)) as on:
        await on.client.send("go")
        await on.client.until_type("delta")
        await on.reloaded(lambda: on.file.write_text(text.format(fast)))
        assert await on.client.chat("go", session="other") == "fast"
        assert closed == []
        assert (await on.client.until_event("turn_ended"))["outcome"] == "replied"
        assert [e["text"] for _, e in on.client.events() if e["kind"] == "model_replied"] == ["one two three four"]
        await on.until(lambda: len(closed) == 1)


@pytest.mark.parametrize("kind", [OSError, RuntimeError])
async def test_without_reports_of_the_system_the_files_are_looked_at(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise kind("the limit is reached")  # of the whole machine, which a test cannot reach for itself

    monkeypatch.setattr("watchfiles.watch", refuse)
    monkeypatch.setattr(reloading, "POLL_SECONDS", 0.05)
    async with stage(tmp_path, ECHO) as on:
        assert await on.reloaded(lambda: on.file.write_text(ECHO + "tool_rounds = 3\n")) == {"agent.tool_rounds"}
        (told,) = on.logged("configuration_not_watched")
        assert told["reason"] == "the limit is reached"


async def test_a_gateway_that_watches_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "POLL_SECONDS", 3600.0)  # which it would wait for otherwise
    async with deadline(), stage(tmp_path, ECHO):
        pass


async def test_what_was_saved_between_being_read_and_being_watched_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "POLL_SECONDS", 0.2)
    async with gateway(tmp_path, file=ECHO) as running:
        rename_over(tmp_path / "config.toml", ECHO + "tool_rounds = 9\n")  # before anything watches the folder
        await until(lambda: running.daemon.config.agent.tool_rounds == 9)

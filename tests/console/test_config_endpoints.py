"""The configuration over HTTP: every key is reported, changes are checked as a reload checks them, written and reloaded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.config import config_writing
from gateway.config.config_writing import ConfigChanged, digest_of, write_config
from gateway.config.documented_keys import documented_keys
from gateway.config.sources import split_key
from sessions.files.fsync import write_new
from tests.console.asked import Answered, ask
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.waiting import DEADLINE, until

BEN = "a-token-for-ben-that-is-long-enough"
KEY = "sk-abcdefgh-0123456789-never-shown"
MINE = f"""\
# The configuration of the kitchen.
[agent]
model = "scripted:echo"   # do not touch

[people.ben]
token = "{BEN}"

[approvals]
default = "allow"
"""


async def config(running: Gateway) -> Any:
    answered = await ask(running, "/api/config")
    assert answered.status == 200, answered.body
    return answered.json


def keys_of(report: Any) -> dict[str, Any]:
    return {key["key"]: key for table in report["tables"] for key in table["keys"]}


async def post(running: Gateway, changes: dict[str, Any], **more: Any) -> Answered:
    """Write changes over the present file."""
    digest = sha256((running.home / "config.toml").read_bytes()).hexdigest()
    return await ask(running, "/api/config", "POST", json={"changes": changes, "digest": digest, **more})


async def checked(running: Gateway, changes: dict[str, Any], **headers: str) -> Any:
    answered = await ask(running, "/api/config/check", "POST", json={"changes": changes}, headers=headers)
    assert answered.status == 200, answered.body
    return answered.json


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_every_key_has_its_sentence_its_default_and_its_value(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=MINE) as running:
        report = await config(running)
    found = keys_of(report)
    assert [key for key, each in found.items() if not each.get("sentence")] == []
    templates = {f"{table['name']}.{key['name']}" for table in report["templates"] for key in table["keys"]}
    for key in documented_keys():
        section, *below = split_key(key.section)
        if section == "routes":  # a list of tables, which is edited in the file
            continue
        named = section in ("agents", "people", "mcp", "mcp_access", "channels", "prices", "budgets")
        path = ".".join((section, *below[1:], key.name)) if named else f"{key.section}.{key.name}"
        assert path in (templates if named else found), path
    model = found["agent.model"]
    assert (model["value"], model["default"], model["origin"]) == ("scripted:echo", "auto", "file")
    assert found["sessions.resume_within"]["default"] == found["sessions.resume_within"]["value"] == "1h"
    port = found["gateway.port"]
    assert (port["fixed"], port["origin"], port["restart"]) == (True, "EXUVIA__GATEWAY__PORT", True)
    assert "restart" not in model
    assert found["sessions.queue"]["kind"]["choices"] == ["followup", "collect", "steer", "interrupt"]
    assert (report["faults"], report["fault"], report["waiting"], report["locked"]) == ([], None, [], "")
    assert BEN not in json.dumps(report)
    assert TOKEN not in json.dumps(report)
    assert found["people.ben.token"]["value"] == "(hidden)"


async def test_only_the_owner_reads_and_writes_the_configuration(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=MINE) as running:
        for path, method in (("/api/config", "GET"), ("/api/config/check", "POST"), ("/api/config", "POST")):
            assert (await ask(running, path, method, token=BEN, json={"changes": {}})).status == 403
            assert (await ask(running, path, method, token="wrong", json={"changes": {}})).status == 401
    assert (tmp_path / "config.toml").read_text() == MINE


async def test_another_sites_page_cannot_write_with_the_owners_cookie(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=MINE) as running:
        origin = running.url
        signed_in = await ask(running, "/api/sign-in", "POST", json={"token": TOKEN}, headers={"Origin": origin})
        cookie = signed_in.headers["Set-Cookie"].partition(";")[0]
        body = {"changes": {"log.level": "debug"}, "digest": sha256(MINE.encode()).hexdigest()}
        for headers in ({"Origin": "https://evil.example.org"}, {"Sec-Fetch-Site": "same-site"}, {}):
            async with running.http.post(
                f"{running.url}/api/config", json=body, headers={"Cookie": cookie, **headers}
            ) as sent:
                assert sent.status in (401, 403)
        assert (tmp_path / "config.toml").read_text() == MINE
        async with running.http.post(
            f"{running.url}/api/config", json=body, headers={"Cookie": cookie, "Origin": origin}
        ) as sent:
            assert sent.status == 200


# --- checking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "key", "sentence"),
    [
        ({"sessions.queue_limit": 0}, "sessions.queue_limit", "sessions.queue_limit must be at least 1."),
        ({"sessions.queue_limit": "x"}, "sessions.queue_limit", "sessions.queue_limit must be a whole number, not text."),
        (
            {"agent.model": "nobody:x"},
            "agent.model",
            "agent.model names 'nobody:x', which is not provider:model with one of",
        ),
        ({"agent.modell": "x"}, "agent.modell", "agent.modell is not a known key; did you mean agent.model?"),
        ({"gateway.token": "short"}, "gateway.token", "gateway.token is shorter than 24 characters."),
        ({"people.cat.name": "Cat"}, "", "people.cat.token is missing."),
        (
            {"channels.x.kind": "nothing"},
            "channels.x.kind",
            "channels.x.kind is 'nothing', which does not exist; choose one",
        ),
        ({"agent.timezone": "Mars"}, "agent.timezone", "agent.timezone must be a time zone known to this machine"),
        ({"mcp.x.sandbox": True}, "", "mcp.x"),
        ({"a b.c": 1}, "a b.c", "'a b.c' can only be changed in the file itself."),
    ],
)
async def test_a_fault_is_the_sentence_of_the_reload_without_a_line(
    tmp_path: Path, changes: dict[str, Any], key: str, sentence: str
) -> None:
    file = MINE if "gateway.token" not in changes else MINE + f'[gateway]\ntoken = "{TOKEN}"\n'
    settings = {"gateway.token": None} if "gateway.token" in changes else None
    async with gateway(tmp_path, file=file, settings=settings) as running:
        (fault,) = (await checked(running, changes))["faults"]
        assert fault["key"] == key
        assert fault["sentence"].startswith(sentence)
        refused = await post(running, changes)
        assert (refused.status, refused.json["code"], refused.json["faults"]) == (422, "config_refused", [fault])
    assert (tmp_path / "config.toml").read_text() == file


async def test_changes_that_may_lock_the_owner_out_are_confirmed_first(tmp_path: Path) -> None:
    file = f'{MINE}[gateway]\nport = 0\nhost = "127.0.0.1"\nallowed_hosts = ["chat.example.org"]\ntoken = "{TOKEN}"\n'
    settings = {"gateway.port": None, "gateway.token": None}
    async with gateway(tmp_path, file=file, settings=settings) as running:

        async def asks(changes: dict[str, Any], **headers: str) -> list[str]:
            found: list[str] = (await checked(running, changes, **headers))["asks"]
            return [sentence.partition(":")[0] for sentence in found]

        assert await asks({"agent.verbose": True}) == []
        assert await asks({"gateway.token": KEY}) == ["gateway.token"]
        assert await asks({"gateway.host": "127.0.0.2"}) == ["gateway.host and gateway.port"]
        assert await asks({"gateway.port": 7200}) == ["gateway.host and gateway.port", "gateway.allowed_hosts"]
        assert await asks({"gateway.allowed_hosts": []}) == []
        assert await asks({"gateway.allowed_hosts": []}, Host="chat.example.org") == ["gateway.allowed_hosts"]
        assert await asks({"sandbox.level": "none"}) == ["sandbox.level"]
        assert await asks({"mcp.x.command": ["true"]}) == ["mcp.x.command"]
        refused = await post(running, {"gateway.host": "127.0.0.2"})
        assert (refused.status, refused.json["code"]) == (409, "confirm")
        assert len(refused.json["asks"]) == 1
        assert (tmp_path / "config.toml").read_text() == file
        assert (await checked(running, {"gateway.host": "127.0.0.2"}))["restart"] == ["gateway.host"]
        done = await post(running, {"gateway.host": "127.0.0.2"}, confirmed=True)
        assert (done.status, done.json["waiting"]) == (200, ["gateway.host"])


# --- writing ----------------------------------------------------------------------------------------------------------


async def test_a_change_is_written_and_in_force_when_the_answer_arrives(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=MINE) as running:
        done = await post(running, {"sessions.queue": "steer", "agent.verbose": True})
        text = (tmp_path / "config.toml").read_text()
        assert done.json == {
            "digest": sha256(text.encode()).hexdigest(),
            "fault": None,
            "waiting": [],
            "warnings": [],
            "reloaded": True,
        }
        in_force = running.daemon.config
        assert (in_force.sessions.queue, in_force.agent.verbose) == ("steer", True)
        assert (
            text == MINE.replace("# do not touch\n", "# do not touch\nverbose = true\n") + '\n[sessions]\nqueue = "steer"\n'
        )
        assert (await post(running, {"sessions.queue": None})).json["reloaded"]
        assert running.daemon.config.sessions.queue == "followup"


async def test_a_first_change_makes_the_file_for_its_owner_alone(tmp_path: Path) -> None:
    async with gateway(tmp_path, file="") as running:
        (tmp_path / "config.toml").unlink()
        body = {"changes": {"log.level": "warning"}, "digest": ""}
        assert (await ask(running, "/api/config", "POST", json=body)).json["reloaded"]
        assert running.daemon.config.log.level == "warning"
    assert (tmp_path / "config.toml").read_text() == '[log]\nlevel = "warning"\n'
    assert stat.S_IMODE((tmp_path / "config.toml").stat().st_mode) == 0o600


async def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=MINE) as running:
        digest = (await config(running))["digest"]
        (tmp_path / "config.toml").write_text(MINE + "# of an editor\n")
        refused = await ask(running, "/api/config", "POST", json={"changes": {"log.level": "debug"}, "digest": digest})
        assert (refused.status, refused.json["code"]) == (409, "conflict")
    assert (tmp_path / "config.toml").read_text() == MINE + "# of an editor\n"


def test_a_file_that_changes_while_it_is_written_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    path.write_text("a = 1\n")

    def interrupted(*arguments: Any) -> None:
        write_new(*arguments)
        path.write_text("a = 2\n")

    monkeypatch.setattr(config_writing, "write_new", interrupted)
    with pytest.raises(ConfigChanged):
        write_config(path, "a = 3\n", sha256(b"a = 1\n").hexdigest())
    assert path.read_text() == "a = 2\n"
    assert [each.name for each in tmp_path.iterdir()] == ["config.toml"]


async def test_a_fault_that_was_there_before_does_not_prevent_a_change(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=MINE) as running:
        (tmp_path / "config.toml").write_text(MINE + '[log]\nlevel = "loud"\n')
        await until(lambda: bool(running.daemon.context.settings.fault))
        report = await config(running)
        assert len(report["faults"]) == 1
        assert "log.level" in report["fault"]
        done = (await post(running, {"agent.verbose": True})).json
        assert "log.level" in done["fault"]
        done = (await post(running, {"log.level": "debug"})).json
        assert (done["fault"], running.daemon.config.log.level) == (None, "debug")
        assert running.daemon.config.agent.verbose


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_a_secret_is_written_into_a_file_of_its_own_and_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with gateway(tmp_path, file=MINE) as running:
        bodies = [
            (await ask(running, "/api/config/check", "POST", json={"changes": {"providers.openai.api_key": KEY}})).body
        ]
        assert not (tmp_path / "secrets").exists()
        changes = {
            "providers.openai.api_key": KEY,
            "mcp.x.url": "https://x.example.org",
            "mcp.x.headers.X-Key": f"Bearer {KEY}",
        }
        done = await post(running, changes)
        assert done.json["fault"] is None, done.body
        assert done.json["warnings"] == []
        text = (tmp_path / "config.toml").read_text()
        tree = tomllib.loads(text)
        reference = tree["providers"]["openai"]["api_key"]
        assert reference.startswith("file:secrets/providers.openai.api_key-")
        first = tmp_path / reference.removeprefix("file:")
        assert first.read_text() == f"{KEY}\n"
        assert stat.S_IMODE(first.stat().st_mode) == 0o600
        assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
        assert (tmp_path / tree["mcp"]["x"]["headers"]["X-Key"].removeprefix("file:")).read_text() == f"Bearer {KEY}\n"
        assert keys_of(await config(running))["providers.openai.api_key"]["value"] == reference
        bodies += [done.body, (await ask(running, "/api/config")).body]
        assert (await post(running, {"providers.openai.api_key": KEY + "2"})).status == 200
        assert not first.exists()
        assert (await post(running, {"providers.openai.api_key": None, "mcp.x": None})).status == 200
        assert list((tmp_path / "secrets").iterdir()) == []
        bodies.append((await post(running, {"providers.openai.api_key": "env:NOT_THERE"})).body)
        assert b"the environment variable NOT_THERE is not set" in bodies[-1]
    assert all(KEY.encode() not in body for body in bodies)
    assert KEY not in text
    printed = capfd.readouterr()
    assert KEY not in printed.out + printed.err


async def test_a_secret_that_stands_in_the_file_moves_into_one_of_its_own(tmp_path: Path) -> None:
    text = (
        MINE.replace(f'"{BEN}"', f'"{BEN}"  # from the shelf')
        + f'[mcp.x]\nurl = "https://x.example.org"\nheaders = {{ X-Key = "{KEY}" }}\n'
    )
    async with gateway(tmp_path, file=text) as running:
        assert (await ask(running, "/api/sign-ins", token=BEN)).status == 200
        done = await post(running, {}, move=["people.ben.token", "mcp.x.headers.X-Key"])
        assert (done.status, done.json["fault"], done.json["warnings"]) == (200, None, []), done.body
        assert BEN.encode() not in done.body
        written = (tmp_path / "config.toml").read_text()
        tree = tomllib.loads(written)
        moved = [tree["people"]["ben"]["token"], tree["mcp"]["x"]["headers"]["X-Key"]]
        assert [(tmp_path / each.removeprefix("file:")).read_text() for each in moved] == [f"{BEN}\n", f"{KEY}\n"]
        assert BEN not in written
        assert KEY not in written
        assert "# from the shelf" in written
        assert (await ask(running, "/api/sign-ins", token=BEN)).status == 200  # the token is the same
        for key in ("people.ben.token", "agent.model", "people.nobody.token", "nothing", "agent.model.x"):
            refused = await post(running, {}, move=[key])
            assert (refused.status, refused.json["code"]) == (422, "config_refused"), (key, refused.body)
        assert (tmp_path / "config.toml").read_text() == written
        (tmp_path / "config.toml").write_text("[agent")
        assert (await post(running, {}, move=["people.ben.token"])).status == 422


async def test_moving_the_gateways_own_token_asks_nothing_since_nobody_is_signed_out(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=f'[agent]\nmodel = "scripted:echo"\n[gateway]\ntoken = "{TOKEN}"\n') as running:
        assert (await post(running, {}, move=["gateway.token"])).status == 200
        assert TOKEN not in (tmp_path / "config.toml").read_text()
        assert (await ask(running, "/api/config")).status == 200


async def test_secrets_within_a_table_are_found(tmp_path: Path) -> None:
    oauth = {"token_url": "https://login.example.org/token", "client_id": "exuvia", "refresh_token": KEY}
    mail = {"address": "a@example.org", "imap": "imap.example.org", "smtp": "smtp.example.org", "authserv_id": "mx"}
    changes = {"channels.mail.kind": "email", **{f"channels.mail.{name}": value for name, value in mail.items()}}
    async with gateway(tmp_path, file=MINE) as running:
        report = await checked(running, {**changes, "channels.mail.oauth": oauth})
        assert report["faults"] == []
        endpoints_text = (await post(running, {**changes, "channels.mail.oauth": oauth})).body
        text = (tmp_path / "config.toml").read_text()
        assert KEY not in text
        assert KEY.encode() not in endpoints_text
        stored = tomllib.loads(text)["channels"]["mail"]["oauth"]
        assert stored == {**oauth, "refresh_token": stored["refresh_token"]}
        assert (tmp_path / stored["refresh_token"].removeprefix("file:")).read_text() == f"{KEY}\n"
        shown = keys_of(await config(running))["channels.mail.oauth"]["value"]
        assert shown["refresh_token"] == stored["refresh_token"]
        hidden = await post(running, {"channels.mail.oauth": {**oauth, "refresh_token": "(hidden)"}})
        assert (hidden.status, hidden.json["message"]) == (422, "channels.mail.oauth.refresh_token must be entered again.")


async def test_a_key_of_unknown_type_is_refused_since_it_might_be_a_secret(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=MINE) as running:
        refused = await post(running, {"plugins.absent.token": KEY})
        assert (refused.status, refused.json["message"]) == (
            422,
            "plugins.absent.token can only be changed in the file itself.",
        )
    assert (tmp_path / "config.toml").read_text() == MINE


async def test_no_file_of_a_secret_stays_if_the_configuration_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path, file=MINE) as running:

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(config_writing, "_take_over", full)
        refused = await post(running, {"providers.openai.api_key": KEY})
        assert (refused.status, refused.json["code"]) == (403, "read_only")
        assert "No space left on device" in refused.json["message"]
    assert list((tmp_path / "secrets").iterdir()) == []
    assert (tmp_path / "config.toml").read_text() == MINE


# --- the file ---------------------------------------------------------------------------------------------------------


def test_links_permissions_line_breaks_and_a_byte_order_mark_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "etc" / "real.toml", tmp_path / "config.toml"
    real.parent.mkdir()
    real.write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    real.chmod(0o640)
    if os.getuid() == 0:
        os.chown(real, 1234, 1235)
    owner = real.stat().st_uid, real.stat().st_gid
    link.symlink_to("etc/real.toml")
    digest = write_config(link, "a = 2\n", sha256(real.read_bytes()).hexdigest())
    assert real.read_bytes() == b"\xef\xbb\xbfa = 2\r\n"
    assert digest == sha256(real.read_bytes()).hexdigest()
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert (real.stat().st_uid, real.stat().st_gid) == owner


def test_a_written_configuration_is_durable_before_and_after_it_has_its_name(tmp_path: Path, steps: list[str]) -> None:
    (tmp_path / "config.toml").write_text("")
    write_config(tmp_path / "config.toml", "a = 1\n", sha256(b"").hexdigest())
    assert steps == ["sync content", "sync folder", "sync", "replace", "sync folder"]


@contextlib.contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Mount a folder read-only, as a service of systemd sees it."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a folder read-only")
    try:
        subprocess.run(["mount", "--bind", place, place], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
    except subprocess.CalledProcessError:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


async def test_a_read_only_configuration_is_reported_in_one_sentence(tmp_path: Path) -> None:
    place = tmp_path / "etc"
    place.mkdir()
    async with gateway(tmp_path / "home", file=MINE) as running:
        file = tmp_path / "home" / "config.toml"
        file.replace(place / "config.toml")
        file.symlink_to(place / "config.toml")
        with read_only(place):
            locked = (await config(running))["locked"]
            assert locked.startswith(f"{file} cannot be written (")
            refused = await post(running, {"log.level": "debug"})
            assert (refused.status, refused.json["code"]) == (403, "read_only")
            assert refused.json["message"] == (
                f"{file} cannot be written (Read-only file system): change it where it comes from."
            )
        assert (await post(running, {"log.level": "debug"})).json["reloaded"]
    assert file.is_symlink()
    assert file.read_text() == MINE + '\n[log]\nlevel = "debug"\n'


async def test_two_writers_at_once_do_not_lose_a_change(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=MINE) as running:
        digest = sha256(MINE.encode()).hexdigest()
        bodies = [{"changes": {"sessions.queue_limit": number}, "digest": digest} for number in (3, 4, 5)]
        answers = await asyncio.gather(*(ask(running, "/api/config", "POST", json=body) for body in bodies))
        assert sorted(each.status for each in answers) == [200, 409, 409]


# --- crashes ----------------------------------------------------------------------------------------------------------

KILLED = """
import asyncio, os, signal, sys
from hashlib import sha256
from pathlib import Path

from tests.console.test_config_endpoints import KEY, post
from tests.gateway.gateways import gateway

home, call, number, before = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "before"
whole, left = getattr(os, call), [number]


def killing(*arguments, **named):
    left[0] -= 1
    if left[0] == 0 and before:
        os.kill(os.getpid(), signal.SIGKILL)
    made = whole(*arguments, **named)
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return made


async def main():
    async with gateway(home, file=(home / "config.toml").read_text()) as running:
        setattr(os, call, killing)
        await post(running, {"providers.openai.api_key": KEY, "agent.verbose": True})
        setattr(os, call, whole)

asyncio.run(main())
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("call", "number"), [("fdatasync", 1), ("fdatasync", 2), ("fchmod", 1), ("replace", 1), ("fsync", 5)]
)
def test_a_gateway_killed_while_it_writes_leaves_the_old_or_the_new_configuration(
    tmp_path: Path, call: str, number: int, when: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(MINE)
    command = [sys.executable, "-c", KILLED, str(tmp_path), call, str(number), when]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=DEADLINE, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    tree = tomllib.loads(path.read_text())
    if path.read_text() != MINE:
        assert tree["agent"]["verbose"]
        secret = tmp_path / tree["providers"]["openai"]["api_key"].removeprefix("file:")
        assert secret.read_text() == f"{KEY}\n"
    assert (path.read_text() == MINE) == ((call, number, when) not in NEW)
    write_config(path, "", digest_of(path))
    assert path.read_text() == ""


NEW = {("replace", 1, "after"), ("fsync", 5, "before"), ("fsync", 5, "after")}
"""The kills after which the new configuration is there."""

"""Attacks of one person on another: every frame and every HTTP route, aimed at what somebody else has."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from gateway.protocol.frames import ClientFrame
from tests.attacks.test_identity import ANA, BEN, asked, routed
from tests.gateway.gateways import gateway

SECRET = "the-word-that-only-ana-knows"
BOTH = {"people.ana.token": ANA, "people.ben.token": BEN}

FIELDS: dict[str, Any] = {
    "id": "x", "session": "main", "text": "hello", "after": 0, "before": 100, "limit": 500, "upto": 3, "key": "mine",
    "title": "stolen", "protocol": 1, "token": ANA, "client": "ana", "person": "ana", "sender": "ana",
    "approval": "0a1b2c", "decision": "approve", "scope": "always", "pinned": True, "archived": True, "facts": True,
    "follow": True,
    "name": "verbose", "value": "on",
}  # fmt: skip
"""Values for every field that a frame may have; those that it does not have are sent too."""

KINDS = sorted(each.__struct_config__.tag for each in get_args(ClientFrame))


@pytest.mark.parametrize("kind", KINDS)
async def test_no_frame_shows_or_changes_somebody_elses_session(kind: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BOTH) as g:
        ana, ben = await g.connect(ANA), await g.connect(BEN)
        await ana.chat(SECRET)
        (hers,) = g.journals()
        path = g.home / "sessions" / f"{hers}.jsonl"
        before = path.read_bytes()
        (frame,) = (each for each in get_args(ClientFrame) if each.__struct_config__.tag == kind)
        unknown = set(frame.__struct_fields__) - FIELDS.keys() - {"session_id", "attachments"}
        assert not unknown, "a field was added: say here with what it is attacked"
        named = ({}, {"session_id": hers}) if "session_id" in frame.__struct_fields__ else ({},)
        for number, more in enumerate(named):
            await ben.say(kind, **{**FIELDS, "id": f"x{number}", **more})
        await ben.say("ping", id="last")
        await ben.until_type("pong", id="last")
        await ben.say("sessions", id="all")
        rows = (await ben.until_type("sessions", id="all"))["sessions"]
        assert SECRET not in json.dumps(ben.frames)
        assert hers not in json.dumps(rows)
        assert path.read_bytes() == before
        assert await ana.chat("still mine") == "still mine"


async def test_no_route_shows_or_changes_somebody_elses_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "workspace" / "people" / "ana"
    notes.mkdir(parents=True)
    (notes / "MEMORY.md").write_text(f"- {SECRET}\n")
    async with routed(tmp_path, monkeypatch) as (g, routes):
        ana = await g.connect(ANA)
        await ana.chat(f"{SECRET} {SECRET}")
        headers = {token: {"Authorization": f"Bearer {token}"} for token in (ANA, BEN)}
        async with g.http.post(f"{g.url}/attachments", data=SECRET.encode(), headers=headers[ANA]) as response:
            sha256 = (await response.json())["sha256"]
        (hers,) = g.journals()
        before = {path: path.read_bytes() for path in (*(g.home / "sessions").glob("*.jsonl"), *notes.iterdir())}
        places = {"{key}": ["main"], "{sha256}": [sha256], "{path}": ["people/ana/MEMORY.md", "MEMORY.md"]}
        shown: dict[str, int] = {}
        asked_for: set[str] = set()
        for method, route in routes:
            aims = [route]
            for part, values in places.items():
                aims = [aim.replace(part, value) for aim in aims for value in values]
            for aim in (each for each in aims if each != "/ws"):
                for query in ("", f"?session={hers}&person=ana&q={SECRET[:8]}", "?key=main&person=ana"):
                    status, body = await asked(g, (method, aim), headers[BEN] | {"X-Exuvia-Session": "main"}, query)
                    asked_for.add(aim)
                    # A refusal may repeat the session that was asked for.
                    if SECRET.encode() in body or (status == 200 and hers.encode() in body):
                        shown[f"{method} {aim}{query}"] = status
        assert shown == {}
        assert len(asked_for) > 25
        assert {path: path.read_bytes() for path in before} == before
        async with g.http.get(f"{g.url}/attachments/{sha256}", headers=headers[ANA]) as response:
            assert response.status == 200, "hers is there, for her"


async def test_a_race_for_one_name_gives_each_person_a_session(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BOTH) as g:
        clients = [await g.connect(token) for token in (ANA, BEN) * 4]
        said = [f"{'ana' if number % 2 == 0 else 'ben'} {number}" for number in range(len(clients))]
        ids = await asyncio.gather(*(each.send(text) for each, text in zip(clients, said, strict=True)))
        answers = await asyncio.gather(*(each.until_answered(id_) for each, id_ in zip(clients, ids, strict=True)))
        assert {answer["type"] for answer in answers} == {"accepted"}
        journals = g.journals()
        assert sorted(lines[0]["person"] for lines in journals.values()) == ["ana", "ben"]
        for lines in journals.values():
            texts = [line["text"] for line in lines if line["kind"] == "message_received"]
            assert {text.split()[0] for text in texts} == {lines[0]["person"]}

"""What the console asks for to write a message: the models."""

from __future__ import annotations

from pathlib import Path

from tests.console.asked import ask
from tests.gateway.gateways import gateway
from tests.servers.ollama_server import MODEL, OllamaServer

FILE = """
[agent]
model = "openai:gpt-4.1"
fallback_models = ["anthropic:claude-opus-4-8"]
[providers.openai]
api_key = "a-key-for-tests"
base_url = "http://127.0.0.1:9/v1"
[providers.ollama]
base_url = "{ollama}"
[prices."openai:gpt-4.1"]
input = 1.5
output = 6.0
"""


async def test_the_models_are_listed_with_what_is_known_about_them(tmp_path: Path) -> None:
    async with (
        OllamaServer().serving() as server,
        gateway(tmp_path, file=FILE.format(ollama=server.url)) as running,
    ):
        told = (await ask(running, "/api/models")).json
    assert told["default"] == "openai:gpt-4.1"
    assert told["failures"] == [{"provider": "openai", "reason": "unreachable"}]
    models = {each["id"]: each for each in told["models"]}
    assert models["openai:gpt-4.1"]["price"] == {"input": 1.5, "cached": 1.5, "output": 6.0, "currency": "USD"}
    opus = models["anthropic:claude-opus-4-8"]
    assert (opus["window"], opus["output"], opus["vision"]) == (1_000_000, 128_000, True)
    assert opus["efforts"] == ["low", "medium", "high", "xhigh", "max"]
    assert opus["price"] == {"input": 5.0, "cached": 0.5, "output": 25.0, "currency": "USD", "at": "2026-10-24"}
    assert "temperature" not in opus
    assert {"price", "efforts"}.isdisjoint(models[f"ollama:{MODEL}"])
    assert models[f"ollama:{MODEL}"]["temperature"] == [0.0, 2.0]


async def test_people_see_the_models_and_strangers_do_not(tmp_path: Path) -> None:
    bob = "a-token-for-bob-that-is-long-enough"
    async with gateway(tmp_path, settings={"people.bob.token": bob}) as running:
        told = (await ask(running, "/api/models", token=bob)).json
        assert (await ask(running, "/api/models", token="wrong")).status == 401
    assert told["default"] == "scripted:echo"
    assert {"id": "scripted:echo", "provider": "scripted", "vision": False, "temperature": [0.0, 2.0]} in told["models"]


BOB = "a-token-for-bob-that-is-long-enough"


def write(folder: Path, *names: str, text: str = "x") -> None:
    """Write files into a folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


async def test_files_are_found_by_their_paths_the_best_first(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    write(workspace, "MEMORY.md", "memory/garden.md", "plans/garden/tulips.txt", "garden.csv", ".git/garden", "my garden.md")
    (workspace / "garden-link").symlink_to("/etc/passwd")
    async with gateway(tmp_path) as running:
        found = (await ask(running, "/api/files?q=GARDEN")).json["files"]
        assert found == [
            {"path": "memory/garden.md", "note": True},
            {"path": "garden.csv"},
            {"path": "my garden.md"},
            {"path": "plans/garden/tulips.txt"},
        ]
        assert {"path": "MEMORY.md", "note": True} in (await ask(running, "/api/files")).json["files"]
        assert (await ask(running, "/api/files?q=../../etc")).json["files"] == []
        assert (await ask(running, "/api/files", token="wrong")).status == 401


async def test_people_find_their_own_files_and_everybodys_and_no_others(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    write(
        workspace,
        "secret.md",
        "AGENTS.md",
        "shared/rules.md",
        "people/bob/own.md",
        "people/bob/MEMORY.md",
        "people/ana/anas.md",
    )
    async with gateway(tmp_path, settings={"people.bob.token": BOB}) as running:
        bobs = [each["path"] for each in (await ask(running, "/api/files", token=BOB)).json["files"]]
        owners = [each["path"] for each in (await ask(running, "/api/files")).json["files"]]
    assert sorted(bobs) == ["AGENTS.md", "MEMORY.md", "own.md", "shared/rules.md"]
    assert sorted(owners) == ["AGENTS.md", "secret.md", "shared/rules.md"]


async def test_templates_are_those_of_the_person_and_of_everybody(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    write(workspace, "prompts/review.md", text='---\ntitle: "Review"\nx: y\n---\n\nReview {{text}}.\n')
    write(workspace, "shared/prompts/plain.md", "people/bob/prompts/bobs.md", text="Say {{what}}.\r\n")
    write(workspace, "shared/prompts/review.md", "prompts/no name.md", "prompts/other.txt", text="Everybody's.")
    (workspace / "prompts" / "link.md").symlink_to("/etc/passwd")
    async with gateway(tmp_path, settings={"people.bob.token": BOB}) as running:
        assert (await ask(running, "/api/prompts")).json["prompts"] == [
            {"name": "plain", "title": "plain", "text": "Say {{what}}."},
            {"name": "review", "title": "Review", "text": "Review {{text}}."},
        ]
        bobs = (await ask(running, "/api/prompts", token=BOB)).json["prompts"]
    assert [each["name"] for each in bobs] == ["bobs", "plain", "review"]


async def test_a_model_that_may_not_read_files_is_offered_none(tmp_path: Path) -> None:
    write(tmp_path / "workspace", "MEMORY.md", "prompts/review.md")
    async with gateway(tmp_path, settings={"agent.workspace_access": "none"}) as running:
        assert (await ask(running, "/api/files")).json == {"files": []}
        assert (await ask(running, "/api/prompts")).json == {"prompts": []}

"""Attacks on files: reading what is private, and changing what is protected or outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.scene import Scene

READING = {
    "the token": "print('BREACH', open(home + '/token').read())",
    "the token through a symbolic link in the workspace": """
        os.symlink(home + "/token", "notes/link")
        print("BREACH", open("notes/link").read())
    """,
    "the token through the root of the gateway's process": "print('BREACH', open(f'/proc/{pid}/root{home}/token').read())",
    "the folder that the gateway's process works in": "os.chdir(f'/proc/{pid}/cwd'); print('BREACH', os.listdir())",
    "the token through a hard link in the workspace": """
        os.link(home + "/token", "notes/link")
        print("BREACH", open("notes/link").read())
    """,
    "the list of files in the home": "print('BREACH', os.listdir(home))",
    "the names in the folder above the home": "assert 'home' in os.listdir(os.path.dirname(home)); print('BREACH')",
}


@pytest.mark.parametrize("attack", READING)
def test_a_command_cannot_read(scene: Scene, level: str, attack: str) -> None:
    result = scene.run(READING[attack], level)
    assert not result.breached, result.output
    assert result.exit_code != 0


@pytest.mark.parametrize("attack", READING)
def test_without_the_sandbox_it_reads(scene: Scene, attack: str) -> None:
    assert scene.run(READING[attack], "none").breached


CHANGING = {
    "AGENTS.md": "open('AGENTS.md', 'a').write('changed')",
    "AGENTS.md, truncated by its path": "os.truncate('AGENTS.md', 0)",
    "AGENTS.md, removed": "os.remove('AGENTS.md')",
    "AGENTS.md, replaced": "open('notes/new', 'w').write('changed'); os.rename('notes/new', 'AGENTS.md')",
    "AGENTS.md, moved away": "os.rename('AGENTS.md', 'notes/AGENTS.md')",
    "AGENTS.md through a hard link": "os.link('AGENTS.md', 'notes/link'); open('notes/link', 'a').write('changed')",
    "AGENTS.md through a symbolic link": """
        os.symlink("../AGENTS.md", "notes/link")
        open("notes/link", "a").write("changed")
    """,
    "AGENTS.md through its descriptor": """
        file = open("AGENTS.md")
        open(f"/proc/self/fd/{file.fileno()}", "a").write("changed")
    """,
    "AGENTS.md after a change of its mode": "os.chmod('AGENTS.md', 0o777); open('AGENTS.md', 'a').write('changed')",
    "the mode of AGENTS.md": "os.chmod('AGENTS.md', 0o777)",
    "SOUL.md, which does not exist": "open('SOUL.md', 'x').write('changed')",
    "SOUL.md, by a rename": "open('notes/new', 'w').write('changed'); os.rename('notes/new', 'SOUL.md')",
    "a skill": "open('skills/one/SKILL.md', 'a').write('changed')",
    "a new skill": "os.mkdir('skills/two')",
    "the skills, moved away": "os.rename('skills', 'notes/skills'); os.mkdir('skills')",
    "a hook of git": "open('project/.git/hooks/pre-commit', 'w').write('changed')",
    "a hook, in a folder that does not exist": """
        os.makedirs("deep/down/project/.git/hooks", exist_ok=True)
        open("deep/down/project/.git/hooks/pre-commit", "w").write("changed")
    """,
    "a hook, after a rename of the repository": """
        os.rename("project", "notes/project")
        os.makedirs("project/.git/hooks")
        open("project/.git/hooks/pre-commit", "w").write("changed")
    """,
    "a hook, after a rename of a folder above the repository": """
        os.rename("deep", "notes/deep")
        os.makedirs("deep/down/project/.git/hooks")
        open("deep/down/project/.git/hooks/pre-commit", "w").write("changed")
    """,
    "a hook, after a rename of .git": """
        os.rename("project/.git", "project/old")
        os.makedirs("project/.git/hooks")
        open("project/.git/hooks/pre-commit", "w").write("changed")
    """,
    "a hook, through a symbolic link": """
        os.symlink("../project/.git", "notes/link")
        open("notes/link/hooks/pre-commit", "w").write("changed")
    """,
    "the configuration of git": "open('project/.git/config', 'a').write('[core]\\nfsmonitor = changed')",
    "the configuration of git, by a rename": """
        open("project/.git/new", "w").write("[core]\\nfsmonitor = changed")
        os.rename("project/.git/new", "project/.git/config")
    """,
    "the folder that git takes hooks from": "open('project/.git/commondir', 'w').write('../../notes')",
    "what a work tree belongs to": "open('linked/.git', 'w').write('gitdir: ../notes')",
    "what a work tree belongs to, by a rename": """
        open("notes/new", "w").write("gitdir: ../notes")
        os.rename("notes/new", "linked/.git")
    """,
}
PROTECTED = (
    "AGENTS.md",
    "SOUL.md",
    "skills",
    "linked/.git",
    *(
        f"{repository}/.git/{name}"
        for repository in ("project", "deep/down/project")
        for name in ("hooks", "config", "commondir")
    ),
)


def state(workspace: Path) -> dict[str, object]:
    """The content and mode of everything that is protected."""
    found: dict[str, object] = {}
    for path in PROTECTED:
        top = workspace / path
        for each in [top, *sorted(top.rglob("*"))] if top.exists() else []:
            found[str(each.relative_to(workspace))] = (each.stat().st_mode, each.read_bytes() if each.is_file() else None)
    return found


@pytest.mark.parametrize("attack", CHANGING)
def test_a_command_cannot_change(scene: Scene, level: str, attack: str) -> None:
    workspace = scene.workspace()
    before = state(workspace)
    result = scene.run(CHANGING[attack], level, workspace)
    assert state(workspace) == before, result.output


@pytest.mark.parametrize("attack", CHANGING)
def test_without_the_sandbox_it_changes(scene: Scene, attack: str) -> None:
    workspace = scene.workspace()
    before = state(workspace)
    result = scene.run(CHANGING[attack], "none", workspace)
    assert state(workspace) != before, result.output


def test_a_command_changes_what_is_not_protected(scene: Scene, level: str) -> None:
    workspace = scene.workspace()
    result = scene.run("open('notes/a.md', 'a').write('more'); open('notes/b.md', 'w').write('new')", level, workspace)
    assert result.exit_code == 0, result.output
    assert (workspace / "notes/a.md").read_text() == "as it was\nmore"
    assert (workspace / "notes/b.md").read_text() == "new"


def test_a_command_works_with_git_at_the_level_full(scene: Scene) -> None:
    workspace = scene.workspace()
    before = state(workspace)
    steps = (
        "init -q new; cd project; echo more >> file.txt; git commit -qam more; git status --short; git log --oneline | wc -l"
    )
    commands = f"set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b; git {steps}"
    result = scene.run(f"os.execvp('sh', ['sh', '-c', {commands!r}])", "full", workspace)
    assert (result.exit_code, result.output.strip()) == (0, "2"), result.output
    assert state(workspace) == before

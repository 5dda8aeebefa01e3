"""Keys of a configuration changed in its text: comments, order and layout stay."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.documented_keys import EXAMPLE, DocumentedKey, documented_keys
from gateway.config.toml_editing import edited
from gateway.support.errors import ConfigRefused

MINE = """\
# The configuration of the kitchen.

[agent]
# my favourite
model = "scripted:echo"   # do not touch

# what people may do
[people.ana] # my sister
token = "env:ANA"

# the log comes last
[log]
level = "info"
"""


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the lines that are only in the first, and those that are only in the second."""
    one, other = before.splitlines(), after.splitlines()
    return [line for line in one if line not in other], [line for line in other if line not in one]


@pytest.mark.parametrize(
    ("changes", "gone", "new"),
    [
        ({"agent.model": "a:b"}, ['model = "scripted:echo"   # do not touch'], ['model = "a:b"   # do not touch']),
        ({"agent.verbose": True}, [], ["verbose = true"]),
        ({"log.level": None}, ['level = "info"'], []),
        ({"people.ana": None}, ["[people.ana] # my sister", 'token = "env:ANA"'], []),
        ({"people.ana.name": "Ana"}, [], ['name = "Ana"']),
        ({"people.ben.token": "env:BEN", "people.ben.name": "B"}, [], ["[people.ben]", 'token = "env:BEN"', 'name = "B"']),
        ({"agent.model": "scripted:echo"}, [], []),
        ({"sessions.queue": None}, [], []),
        ({'prices."openai:gpt-4.1".input': 2.0}, [], ['[prices."openai:gpt-4.1"]', "input = 2.0"]),
    ],
)
def test_a_change_changes_only_its_lines(changes: dict[str, Any], gone: list[str], new: list[str]) -> None:
    after = edited(MINE, changes)
    assert changed_lines(MINE, after) == (gone, new)
    assert [line for line in after.splitlines() if line.startswith("#")] == [
        line for line in MINE.splitlines() if line.startswith("#")
    ]


def test_a_new_key_stands_below_the_last_one_of_its_table_and_not_below_the_next_heading() -> None:
    lines = edited(MINE, {"agent.verbose": True}).splitlines()
    assert lines[lines.index("verbose = true") - 1].startswith("model = ")


IN_TABLES = [key for key in documented_keys() if f"\n[{key.section}]\n" in EXAMPLE.read_text()]
"""The shipped keys whose table is no example itself."""


@pytest.mark.parametrize("key", IN_TABLES, ids=lambda key: f"{key.section}.{key.name}")
def test_each_shipped_key_is_set_in_its_own_line_and_restored(key: DocumentedKey) -> None:
    shipped, path = EXAMPLE.read_text(), f"{key.section}.{key.name}"
    value: Any = "\n a text\n of lines\n" if isinstance(key.value, str) else 7
    value = ["x"] if isinstance(key.value, list) else value
    after = edited(shipped, {path: value})
    lines = after.splitlines()
    assert lines[lines.index(f"# {key.sentence}", lines.index(f"[{key.section}]")) + 1].startswith(f"{key.name} = ")
    tree: Any = tomllib.loads(after)
    for name in path.split("."):
        tree = tree[name]
    assert tree == value
    assert edited(after, {path: None}) == shipped


UNUSUAL = """\
agent = { model = "a" } # inline
sessions.queue = "steer"   # dotted
text = '''
[log]
level = "not a key"
'''

[[approvals.rules]]
tool = "write"
decision = "ask"

["log"]
format = "text"
"""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("agent.model", "b"),
        ("agent.model", None),
        ("agent.verbose", True),
        ("sessions.queue", "collect"),
        ("sessions.queue", None),
        ("sessions.queue_limit", 4),
        ("approvals.rules", [{"tool": "read", "decision": "deny"}]),
        ("approvals.rules", None),
        ("approvals.expire", "1h"),
        ("log.level", "debug"),
        ("log.format", None),
        ("gateway.port", 1),
    ],
)
def test_an_unusual_layout_is_understood_and_every_other_value_stays(key: str, value: Any) -> None:
    section, name = key.split(".")
    wanted: Any = tomllib.loads(UNUSUAL)
    wanted.setdefault(section, {})[name] = value
    if value is None:
        del wanted[section][name]
    after = edited(UNUSUAL, {key: value})
    found = tomllib.loads(after)
    assert {each: table for each, table in found.items() if table} == {
        each: table for each, table in wanted.items() if table
    }
    assert after.count("#") == UNUSUAL.count("#") or value is None


names = st.sampled_from(["agent.model", "agent.verbose", "log.level", "people.ana.name", "sessions.queue", "mcp.x.env.KEY"])
values: Any = st.one_of(
    st.text(max_size=40),
    st.integers(-(2**53), 2**53),
    st.booleans(),
    st.lists(st.text(max_size=9), max_size=4),
    st.none(),
)


@given(st.lists(st.tuples(names, values), max_size=6))
def test_any_changes_give_exactly_these_values(steps: list[tuple[str, Any]]) -> None:
    text, wanted = MINE, tomllib.loads(MINE)
    for key, value in steps:
        text = edited(text, {key: value})
        *above, last = key.split(".")
        table: Any = wanted
        for name in above:
            table = table.setdefault(name, {})
        table.pop(last, None)
        if value is not None:
            table[last] = value
    assert without_empty(tomllib.loads(text)) == without_empty(wanted)
    assert "# the log comes last\n" in text


def without_empty(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {name: inner for name, value in tree.items() if (inner := without_empty(value)) != {}}


@pytest.mark.parametrize(
    "key", ["model", "agent.", ".model", "agent.mo del", 'people."x.y.token', 'people."x\\y".token', "agent\n.model", ""]
)
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ConfigRefused, match="can only be changed in the file itself"):
        edited(MINE, {key: "x"})


def test_a_table_in_the_place_of_a_value_is_refused() -> None:
    with pytest.raises(ConfigRefused, match=r"agent\.model\.x cannot be changed here"):
        edited(MINE, {"agent.model.x": 1, "agent.model.y": None})

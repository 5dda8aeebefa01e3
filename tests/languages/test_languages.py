"""A language is one file, which has every text."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.config.keys import load_config
from gateway.support.errors import ConfigRefused
from plugins.policies.languages import prompts as module
from plugins.policies.languages.prompts import CODES, language

PLACE = re.compile(r"\{[a-z]+\}|YYYY-MM-DD|NO_REPLY|\"[a-z]+\":")


def texts(of: msgspec.Struct, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text, with its path in the file."""
    for field, value in msgspec.structs.asdict(of).items():
        if isinstance(value, str):
            yield f"{name}{field}", value
        else:
            yield from texts(value, f"{name}{field}.")


@pytest.mark.parametrize("code", CODES)
def test_every_language_has_every_text_with_all_that_is_filled_in(code: str) -> None:
    english = dict(texts(language("en")))
    for name, text in texts(language(code)):
        assert text.strip()
        expected = set(PLACE.findall(english[name])) - {"{weekday}"}
        assert set(PLACE.findall(text)) - {"{weekday}"} == expected, name


def test_english_and_chinese_are_there_and_an_unknown_one_is_told_in_english() -> None:
    assert {"en", "zh"} <= set(CODES)
    assert language("xx") == language("en")
    shared = [name for name, text in texts(language("zh")) if text == dict(texts(language("en")))[name]]
    assert shared == []


def test_a_language_that_lacks_a_text_or_has_one_too_many_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(module.FOLDER, tmp_path / "languages")
    whole = (tmp_path / "languages" / "en.toml").read_text()
    for name, text in {"aa": whole.replace("wish = ", "hope = "), "bb": whole.replace("\nwish = ", "\n# wish = ")}.items():
        (tmp_path / "languages" / f"{name}.toml").write_text(text)
    monkeypatch.setattr(module, "FOLDER", tmp_path / "languages")
    monkeypatch.setattr(module, "CODES", ("aa", "bb", "en"))
    for name in ("aa", "bb"):
        with pytest.raises(msgspec.ValidationError, match=r"wish|hope"):
            language(name)


@pytest.mark.parametrize("code", [*CODES, "zh-CN", "ZH", "en_GB"])
def test_the_configuration_takes_a_language_that_there_is_in_every_usual_spelling(code: str) -> None:
    chosen = load_config(None, environment={"EXUVIA__AGENT__LANGUAGE": json.dumps(code)}, overrides={})
    assert chosen.warnings == ()
    assert language(chosen.agent.language) == language(code[:2].lower())


@pytest.mark.parametrize("code", ["xx", "Chinese", ""])
def test_an_unknown_language_in_the_configuration_is_english_with_a_warning(code: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"[agent]\nlanguage = {json.dumps(code)}\n")
    chosen = load_config(tmp_path / "config.toml", environment={}, overrides={})
    assert language(chosen.agent.language) == language("en")
    place = f"{tmp_path}/config.toml, line 2"
    assert chosen.warnings == (
        f"{place}: agent.language is {code!r}, which is not available; English is used. The languages are en, zh.",
    )


def test_a_language_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigRefused, match=r"agent\.language must be text"):
        load_config(None, environment={}, overrides={"agent": {"language": 5}})

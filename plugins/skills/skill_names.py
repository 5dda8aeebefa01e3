"""The names of skills: their form, and names that look like others.

The convention allows lower-case letters, digits and single hyphens, up to 64 characters. Its reference validator accepts
letters of every script, so a name can imitate another with letters that look the same. Here a name has the letters of one
script, does not consist of letters that look Latin, and no two skills may have names that look alike. Pure functions.
"""

from __future__ import annotations

import unicodedata

from plugins.support.text.bounded_cache import bounded_cache

LONGEST = 64
"""Maximum characters of a name."""

_SCRIPTS = {
    **{name: name for name in ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC", "THAI", "HANGUL")},
    **{name: name for name in ("DEVANAGARI", "BENGALI", "TAMIL", "TELUGU", "ETHIOPIC")},
    **dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC"), "CJK"),
}
"""Allowed scripts by the first word of their characters' names; Japanese is written in three that count as one."""

_LATIN = frozenset("æœßøđłþð")
"""Latin letters that are neither ASCII nor an ASCII letter with a mark. Others, such as ı and ɡ, look like ASCII."""

_LOOKS = {
    **dict(zip("аеорсухіјѕԁһԛԝӏѵүгкмтвнпьґ", "aeopcyxijsdhqwlvyrkmtbhnbr", strict=True)),  # Cyrillic
    **dict(zip("αεικνορςτυχγηωϲϳ", "aeiknopctuxynwcj", strict=True)),  # Greek
    **dict(zip("սոօհզցյտ", "unohqgjm", strict=True)),  # Armenian
    "0": "o",
    "1": "l",
}
"""Characters and the ASCII letters that they look like, as in Unicode's table of confusables (UTS 39)."""


def name_fault(name: str) -> str:
    """Return why a text cannot be the name of a skill, as the end of a sentence; "" if it can."""
    if len(name) > LONGEST:
        return f"has {len(name):,} characters; {LONGEST} are allowed"
    letters = [character for character in name if character not in "0123456789-"]
    faults = (
        (not name, "is empty"),
        (name != unicodedata.normalize("NFKC", name), "contains a character that Unicode replaces by another one"),
        (name != name.lower(), "has upper-case letters; only lower-case ones are allowed"),
        (name.startswith("-") or name.endswith("-"), "begins or ends with a hyphen"),
        ("--" in name, "has two hyphens in a row"),
        (not all(map(str.isalpha, letters)), "may only contain letters, digits and hyphens"),
    )
    return next((fault for is_fault, fault in faults if is_fault), "") or _script_fault(letters)


def _script_fault(letters: list[str]) -> str:
    scripts = {_script(letter) for letter in letters}
    if "" in scripts:
        return "contains a letter that may look like another one"
    if len(scripts) > 1:
        return f"mixes letters of several scripts ({', '.join(sorted(scripts)).title()})"
    if letters and "LATIN" not in scripts and all(letter in _LOOKS for letter in letters):
        return f"looks like {''.join(_LOOKS[letter] for letter in letters)!r} without being it"
    return ""


def _script(letter: str) -> str:
    """Return the script of a letter, "" if it is not allowed."""
    if letter.isascii():
        return "LATIN"
    script = _SCRIPTS.get(unicodedata.name(letter, "").partition(" ")[0], "")
    if script == "LATIN" and letter not in _LATIN and not unicodedata.normalize("NFD", letter)[0].isascii():
        return ""
    return script


@bounded_cache(4096)
def skeleton(name: str) -> str:
    """Return a text that is the same for names that look alike, such as `git-helper` and `git-he1per`."""
    plain = (
        character for character in unicodedata.normalize("NFD", name[: 4 * LONGEST]) if not unicodedata.combining(character)
    )
    return "".join(_LOOKS.get(character, character) for character in plain).replace("rn", "m").replace("vv", "w")

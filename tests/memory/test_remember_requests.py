"""Requests to remember something are recognised in several languages."""

from __future__ import annotations

import pytest

from plugins.memory.remember_requests import text_to_remember


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("Remember that my preferred language is Rust", "my preferred language is Rust"),
        ("please remember: the door code is on the fridge.", "the door code is on the fridge."),
        ("Remember this: I am left-handed", "I am left-handed"),
        ("Don't forget that Ada comes on Monday!", "Ada comes on Monday!"),
        ("Keep in mind that we ship on Fridays.", "we ship on Fridays."),
        ("Merk dir, dass ich Tee ohne Milch trinke", "ich Tee ohne Milch trinke"),
        ("Merke dir bitte: Rust ist meine Sprache", "Rust ist meine Sprache"),
        ("Souviens-toi que je préfère Rust", "je préfère Rust"),
        ("Retiens qu'Ada habite à Lyon", "Ada habite à Lyon"),
        ("Recuerda que mi lenguaje preferido es Rust", "mi lenguaje preferido es Rust"),
        ("Lembre-se de que gosto de chá", "gosto de chá"),
        ("Ricordati che preferisco Rust", "preferisco Rust"),
        ("Запомни, что мой любимый язык Rust", "мой любимый язык Rust"),
        ("تذكر أن لغتي المفضلة هي Rust", "لغتي المفضلة هي Rust"),
        ("请记住我最喜欢的语言是Rust", "我最喜欢的语言是Rust"),
        ("记住：会议在周五", "会议在周五"),
        ("私の好きな言語はRustだと覚えておいて", "私の好きな言語はRustだと"),
        ("내가 좋아하는 언어는 Rust라는 것을 기억해 줘", "내가 좋아하는 언어는 Rust"),
        ("Save this for later: the door code is 4711", "the door code is 4711"),
        ("save this for later - the door code is 4711", "the door code is 4711"),
        ("Please save this for later.\n\nThe door code is 4711.", "The door code is 4711."),
        ("Can you save that for later: the door code is 4711", "the door code is 4711"),
        ("Remember this for later: I am left-handed", "I am left-handed"),
        ("Save the following for later: the door code is 4711", "the door code is 4711"),
        ("The door code is 4711. Save this for later.", "The door code is 4711."),
        ("The door code is 4711, please save this for later", "The door code is 4711"),
        ("The door code is 4711 - save it for later!", "The door code is 4711"),
        ("The door code is 4711.\nSave this for later", "The door code is 4711."),
        ("I am left-handed. Remember this.", "I am left-handed."),
        ("I am left-handed; please remember that for later", "I am left-handed"),
        ("We ship on Fridays! Don't forget this.", "We ship on Fridays!"),
        ("(We ship on Fridays.) Keep this in mind.", "(We ship on Fridays.)"),
        ("Speichere das für später: der Code ist 4711", "der Code ist 4711"),
        ("Merk dir das für später: der Code ist 4711", "der Code ist 4711"),
        ("Der Code ist 4711, merk dir das bitte.", "Der Code ist 4711"),
        ("Der Code ist 4711. Heb das für später auf!", "Der Code ist 4711."),
        ("Le code est 4711. Garde ça pour plus tard.", "Le code est 4711."),
        ("El código es 4711, guarda esto para más tarde", "El código es 4711"),
        ("门的密码是4711，请记住这个。", "门的密码是4711"),
    ],
)
def test_an_order_to_remember_is_understood(message: str, what: str) -> None:
    assert text_to_remember(message) == what


@pytest.mark.parametrize(
    "message",
    [
        "Do you remember that my preferred language is Rust?",
        "Remember when we were in Lisbon",
        "I remember that you said so",
        "remember that",
        "Remember me",
        "What should I remember?",
        "Remember that I like tea?",
        "你还记得我最喜欢的语言吗？",
        "note the difference between these two",
        "Take note of this file and summarise it",
        "覚えていますか",
        "save this for later",
        "Please remember this.",
        "How do I boil an egg? Save this for later.",
        "I do not want you to save this for later",
        "You can save this for later",
        "They told me to remember this",
        "Where did you save this for later?",
        "",
    ],
)
def test_what_is_no_order_is_left_alone(message: str) -> None:
    assert text_to_remember(message) is None


def test_a_long_message_is_looked_at_in_no_time() -> None:
    assert text_to_remember("a b " * 250_000) is None
    assert text_to_remember("Remember that " + "を" * 500_000) is not None
    assert text_to_remember("a b " * 250_000 + ". Save this for later.") is not None

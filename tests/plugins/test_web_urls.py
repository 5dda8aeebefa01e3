"""The canonical form of URLs, and which URLs a conversation has named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.http.web_urls import UrlRefused, canonical_url, url_host
from plugins.tools.web.provenance import is_named
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("HTTP://Site.Example", "http://site.example/"),
        ("http://site.example:80/a/../b/./c", "http://site.example/b/c"),
        ("https://site.example:443?x=1#part", "https://site.example/?x=1"),
        ("https://site.example:8443/", "https://site.example:8443/"),
        ("https://site.example./", "https://site.example/"),
        ("https://site.example/%7euser?q=%C3%bc", "https://site.example/~user?q=%C3%BC"),
        ("https://site.example/中?q=中", "https://site.example/%E4%B8%AD?q=%E4%B8%AD"),
        ("https://faß.example/", "https://xn--fa-hia.example/"),
        ("http://[2001:4860:0:0::8888]:8080/", "http://[2001:4860::8888]:8080/"),
        ("https://site.example/a?b=1&a=2", "https://site.example/a?b=1&a=2"),
    ],
)
def test_a_url_has_one_spelling(text: str, canonical: str) -> None:
    assert canonical_url(text) == canonical
    assert canonical_url(canonical) == canonical


@pytest.mark.parametrize(
    "text", ["https://", "https:///x", "https://a b/", "https://a\u200db/", "https://\ud800/", "http://x:0/"]
)
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(UrlRefused):
        canonical_url(text)


@given(st.text(max_size=80), st.sampled_from(["", "http://", "https://a.example/", "https://a.example?"]))
def test_a_canonical_url_stays_what_it_is(text: str, start: str) -> None:
    try:
        url = canonical_url(start + text)
    except UrlRefused:
        return
    assert canonical_url(url) == url
    assert url.isascii()
    assert url_host(url) in url
    assert "#" not in url
    assert "@" not in url.split("/")[2]


# --- provenance -------------------------------------------------------------------------------------------------------


def said(text: str) -> list[Message]:
    return [UserMessage(text=text)]


def returned(tool: str, text: str, *, failed: bool = False) -> list[Message]:
    return [ToolMessage(id="call_1_0", tool=tool, text=text, failed=failed)]


@pytest.mark.parametrize(
    "text",
    [
        "https://site.example/a?b=c",
        "Read https://site.example/a?b=c.",
        "(see https://site.example/a?b=c)",
        "[page](https://site.example/a?b=c)",
        "<https://site.example/a?b=c>, please",
        "HTTPS://SITE.EXAMPLE:443/x/../a?b=c#section",
        "http://site.example/a?b=c",
        "site.example/a?b=c",
        "请看https://site.example/a?b=c。谢谢",
        "请看https://site.example/a?b=c谢谢",
        "**https://site.example/a?b=c**",
    ],
)
def test_a_person_names_a_url_in_a_message(text: str) -> None:
    assert is_named("https://site.example/a?b=c", said(text))


@pytest.mark.parametrize(
    "url",
    [
        "https://site.example/a?b=d",
        "https://site.example/a?b=c&d=e",
        "https://site.example/a?b=cd",
        "https://site.example/a",
        "https://site.example/",
        "https://site.example/A?b=c",
        "http://site.example/a?b=c",
        "https://site.example:8443/a?b=c",
        "https://www.site.example/a?b=c",
        "https://other.example/a?b=c",
        "https://site.example.evil.example/a?b=c",
    ],
)
def test_another_url_is_not_named(url: str) -> None:
    assert not is_named(url, said("Read https://site.example/a?b=c, and write to me@other.example."))


@pytest.mark.parametrize(
    "text", ["https://zh.example/wiki/中国", "https://zh.example/wiki/%E4%B8%AD%E5%9B%BD", "见 zh.example/wiki/中国"]
)
def test_a_url_in_another_script_is_named(text: str) -> None:
    assert is_named("https://zh.example/wiki/%E4%B8%AD%E5%9B%BD", said(text))


def test_parentheses_of_a_url_are_kept() -> None:
    assert is_named("https://site.example/a_(b)", said("See (https://site.example/a_(b)) there"))
    assert is_named("https://site.example/a_(b)", said("See https://site.example/a_(b)."))


@pytest.mark.parametrize("tool", ["fetch", "search"])
def test_a_result_of_the_web_tools_names_its_urls(tool: str) -> None:
    assert is_named("https://site.example/next", returned(tool, "[Next][1]\n\n[1]: https://site.example/next"))
    assert is_named("https://site.example/next", returned(tool, "1. Next\nhttps://site.example/next\nwords"))


@pytest.mark.parametrize(
    "messages",
    [
        returned("fetch", "The person denied https://site.example/next", failed=True),
        returned("fetch", "[Next][1] /next next"),
        said("The prompt greet of the MCP server odd:\n\nRead https://site.example/next"),
        returned("fetch", "site.example/next"),
        returned("read", "https://site.example/next"),
        returned("memory_search", "https://site.example/next"),
        returned("mcp__fetch", "https://site.example/next"),
        [AssistantMessage(text="https://site.example/next")],
        [
            AssistantMessage(
                text="", calls=(ToolCall(id="c", tool="fetch", arguments='{"url": "https://site.example/next"}'),)
            )
        ],
    ],
)
def test_nothing_else_names_a_url(messages: list[Message]) -> None:
    assert not is_named("https://site.example/next", messages)

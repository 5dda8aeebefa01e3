"""Which URLs a conversation has named: a person in a message, a search result, or a page that was fetched.

A model that a page or a note has misled could put private data into the query of a URL. A URL that was named is the text of
somebody who did not know that data, as long as it is requested exactly as it was named.

Messages of the assistant, recalled notes, summaries, prompts of MCP servers and results of other tools name nothing.
Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from plugins.http.web_urls import UrlRefused, canonical_url, url_host
from plugins.support.text.bounded_cache import bounded_cache
from sessions.events.messages import Message, ToolMessage, UserMessage

SERVERS_PROMPT = "The prompt {} of the MCP server {}:\n\n"
"""The beginning of a message that a person had an MCP server write; such a message names nothing."""

FETCH, SEARCH = "fetch", "search"
"""The names of the tools whose results name URLs."""

MAX_PUNCTUATION = 8
"""The maximum number of characters at the end of a URL that may belong to the sentence around it."""

# As texts, which `re` compiles when they are first used: a start needs none of them.
_URL = r"(?i)https?://[^\s<>\"`{}|\\^\[\]，。；：！？、（）【】《》「」『』“”‘’…]+"
_BARE = (
    r"(?i)(?<![\w@/.:%-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){1,8}[a-z]{2,24}"
    r"(?::\d{1,5})?(?:[/?][^\s<>\"`{}|\\^\[\]]*)?"
)
_BEYOND_ASCII = r"[^\x21-\x7e]"
_ENDS = ".,;:!?'*_)"


def is_named(url: str, messages: Iterable[Message]) -> bool:
    """Return True if one of the messages names a URL.

    Args:
        url: The canonical URL. One of https is also named by the same URL of http.
        messages: The messages that the model is shown, without recalled ones and summaries.
    """
    host = url_host(url)
    candidates = dict.fromkeys(text for message in messages for text in _named_in(message))
    # Most URLs of a page name other hosts; those need no parsing. In another script a host may be spelled in many ways.
    return any(url in _meanings(text) for text in candidates if host in text.lower() or not text.isascii())


def _named_in(message: Message) -> Iterator[str]:
    """Yield the texts in a message that may be URLs."""
    match message:
        case UserMessage() if not re.match(SERVERS_PROMPT.format(".{1,200}", ".{1,200}"), message.text):
            yield from re.findall(_URL, message.text)
            yield from (f"http://{found}" for found in re.findall(_BARE, message.text))
        case ToolMessage() if message.tool in (FETCH, SEARCH) and not message.failed:
            yield from re.findall(_URL, message.text)


@bounded_cache(8192)
def _meanings(text: str) -> set[str]:
    """Return the canonical URLs that a text may mean: with all or less of the punctuation at its end, and up to its first
    character outside of ASCII."""
    found = set()
    for whole in {text, re.split(_BEYOND_ASCII, text, maxsplit=1)[0]}:
        for end in range(len(whole), max(len(whole) - MAX_PUNCTUATION, len(whole.rstrip(_ENDS))) - 1, -1):
            with suppress(UrlRefused):
                url = canonical_url(whole[:end])
                found |= {url, re.sub("^http:", "https:", url)}
    return found

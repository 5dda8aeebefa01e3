"""Pages of the web as text: HTML in Markdown, other text as it is, kept for a few minutes.

Imported with the first page: a start does not need it.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections import OrderedDict
from collections.abc import Collection

import msgspec

from plugins.api.context import Clock
from plugins.http.web_client import WebClient, WebFailed, WebResponse
from plugins.support.errors import ToolFailed
from plugins.tools.web.extractor import ExtractionFailed, Extractor

CACHE_SECONDS = 300.0
"""How long a page is kept, so that its next part is of the same version."""
CACHE_CHARACTERS = 16 * 1024 * 1024
"""The maximum size of all kept pages in characters."""

_HTML = ("text/html", "application/xhtml+xml")
_TEXT = re.compile(
    r"text/[\w.+-]+|application/(?:json|xml|javascript|x-javascript|ecmascript|yaml|x-yaml|toml|x-sh|sql|x-ndjson|graphql|rtf"
    r"|x-subrip|mbox|x-tex|x-latex|[\w.-]+\+(?:json|xml|yaml|json-seq))|image/svg\+xml|message/[\w.+-]+"
)
_CHARSETS = re.compile(
    r"utf-?(?:8|16|32)|ascii|iso8859|latin|cp\d+|koi8|mac|gb|big5|euc|shift_jis|iso2022|hz|johab|tis_?620|ptcp|kz1048"
)
"""The beginnings of encodings of texts; Python has others, which are conversions."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_XML_ENCODING = re.compile(rb"<\?xml[^>]{0,100}encoding=[\"']([\w.:-]{1,40})")
_LIKE_HTML = re.compile(rb"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream", "application/x-unknown")
_SIGNATURES = (
    (b"%PDF-", "a PDF file"),
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"\x1f\x8b", "a compressed file"),
)
_FAMILIES = {"image": "a picture", "audio": "a sound file", "video": "a video", "font": "a font"}
_SNIFFED = 2048


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a page. `links` are the URLs that its numbered links refer to."""

    url: str
    kind: str
    title: str = ""
    text: str
    links: tuple[str, ...] = ()


class DocumentCache:
    """The documents of the last minutes by key, bounded by their size; the least recently used is dropped first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, bool], tuple[float, Document]] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: tuple[str, bool]) -> Document | None:
        """Return a document that was put there less than `CACHE_SECONDS` ago."""
        kept = self._kept.get(key)
        if kept is None or self._clock.monotonic() - kept[0] > CACHE_SECONDS:
            return None
        self._kept.move_to_end(key)
        return kept[1]

    def put(self, key: tuple[str, bool], document: Document) -> None:
        """Keep a document, and drop others for it."""
        self._drop(key)
        self._kept[key] = self._clock.monotonic(), document
        self._characters += _size(document)
        while self._characters > CACHE_CHARACTERS or self._is_old(next(iter(self._kept), None)):
            self._drop(next(iter(self._kept)))

    def _is_old(self, key: tuple[str, bool] | None) -> bool:
        return key is not None and self._clock.monotonic() - self._kept[key][0] > CACHE_SECONDS

    def _drop(self, key: tuple[str, bool]) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._characters -= _size(kept[1])


class PageReader:
    """Reads pages. `close` ends the extraction process."""

    def __init__(self, clock: Clock) -> None:
        self._client = WebClient()
        self._extractor = Extractor()
        self._cache = DocumentCache(clock)

    async def read(self, url: str, private_hosts: Collection[str] = (), *, whole: bool = False) -> Document:
        """Return a page.

        Args:
            url: Its canonical URL.
            private_hosts: Hosts whose addresses need not be public.
            whole: Keep what is around the main content.

        Raises:
            ToolFailed: The page cannot be requested, is not text, or cannot be converted.
        """
        key = url, whole
        document = self._cache.get(key)
        if document is None:
            try:
                response = await self._client.get(url, private_hosts)
            except WebFailed as error:
                raise ToolFailed(str(error)) from error
            document = await _read(response, self._extractor, whole=whole)
            self._cache.put(key, document)
        return document

    async def close(self) -> None:
        """End the extraction process."""
        await self._extractor.close()


async def _read(response: WebResponse, extractor: Extractor, *, whole: bool) -> Document:
    """Return the text of a response."""
    if response.media in _HTML or (response.media in _UNKNOWN and _LIKE_HTML.match(response.body[:_SNIFFED])):
        return await _read_html(response, extractor, whole=whole)
    text = await asyncio.to_thread(_decode, response) if _may_be_text(response) else None
    if text is None:
        raise ToolFailed(f"The address returns {_describe(response)}, which this tool cannot read.")
    if not text.strip():
        raise ToolFailed("The address returns an empty text.")
    return Document(url=response.url, kind="text", text=text)


async def _read_html(response: WebResponse, extractor: Extractor, *, whole: bool) -> Document:
    try:
        page = await extractor.extract(response.body, charset=response.charset, url=response.url, whole=whole)
    except ExtractionFailed as error:
        raise ToolFailed("The page cannot be converted to text: that takes too much time or memory.") from error
    if not page.text.strip():
        raise ToolFailed("The page contains no text; perhaps a script in the browser writes it.")
    return Document(url=response.url, kind="HTML as Markdown", title=page.title, text=page.text, links=page.links)


def _may_be_text(response: WebResponse) -> bool:
    if response.media not in _UNKNOWN and not _TEXT.fullmatch(response.media):
        return False
    return not any(response.body.startswith(signature) for signature, _ in _SIGNATURES)


def _decode(response: WebResponse) -> str | None:
    """Return the text of a body, None if it is not text."""
    body = response.body
    marked = next((name for mark, name in _MARKS if body.startswith(mark)), "")
    declared = _XML_ENCODING.match(body[:200])
    for name in (marked, response.charset, declared[1].decode() if declared else "", "utf-8"):
        text = _decoded(body, name)
        if text is not None:
            return None if "\0" in text[:_SNIFFED] else text
    if response.media in _UNKNOWN:
        return None
    return None if b"\0" in body[:_SNIFFED] else body.decode("cp1252", "replace")


def _decoded(body: bytes, charset: str) -> str | None:
    """Return a text in a charset, None if it is not in it, or if it is not the name of a charset."""
    try:
        name = codecs.lookup(charset).name
        return body.decode(name) if _CHARSETS.match(name) else None
    except (LookupError, ValueError):
        return None


def _describe(response: WebResponse) -> str:
    """Return what a response is, without words of the server."""
    size = f"{len(response.body):,} bytes"
    for signature, what in _SIGNATURES:
        if response.body.startswith(signature):
            return f"{what} ({size})"
    kind = response.media.partition("/")[0]
    return f"{_FAMILIES.get(kind, 'a file that is not text')} ({size})"


def _size(document: Document) -> int:
    return len(document.text) + sum(len(link) for link in document.links)

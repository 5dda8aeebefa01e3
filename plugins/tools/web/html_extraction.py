"""The extraction process: converts HTML to Markdown. Runs as a program and imports nothing of the project.

It reads requests from its standard input and answers on its standard output, one after the other, until its input ends: a
line of JSON with the length of what follows, then that many bytes. A hostile page may make it slow, large or crash: it
limits its own memory and CPU time, and the program that started it limits the time and starts another one.

resiliparse parses the page and chooses the main content. Two things that it would drop are kept: lists that are not mostly
links, and the marks of code in a sentence.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
from resiliparse.parse.html import HTMLTree

MEMORY = 1024 * 1024 * 1024
"""The maximum size of the address space in bytes."""
CPU_SECONDS = 15
"""The maximum CPU time of a request."""
LINK_SHARE = 0.2
"""A list with a larger share of its text in links is navigation. Measured on 181 pages: F1 of the main text 0.930; 0.934
without any list, 0.653 for whole pages."""
LITTLE = 250
"""If the main content has fewer characters than this and less than half of the page, the whole page is used."""
MAX_LISTS = 5000
"""The maximum number of lists and marks of code that are examined."""
MAX_TITLE = 300
MAX_LINK = 1000
"""Longer links are left out."""


def convert(body: bytes, charset: str, url: str, *, whole: bool) -> dict[str, Any]:
    """Return title, Markdown and links of a page; `whole` keeps navigation and all else around the main content."""
    tree = HTMLTree.parse(_decode(body, charset))
    base = tree.head.query_selector("base[href]") if tree.head else None
    with suppress(ValueError):
        url = urljoin(url, (base.getattr("href") or "") if base else "")
    everything = extract_plain_text(tree, preserve_formatting="minimal_html", links=True, alt_texts=False)
    chosen = everything if whole else _main_content(tree)
    if len(chosen) < LITTLE and len(chosen) < len(everything) / 2:
        chosen = everything
    markdown = Markdown(url)
    markdown.feed(chosen)
    return {"title": " ".join((tree.title or "").split())[:MAX_TITLE], "text": markdown.text(), "links": markdown.links}


def _decode(body: bytes, charset: str) -> str:
    known = map_encoding_to_html5(charset, fallback_utf8=False) if charset else None
    if known is None and b"\x1b" not in body:  # the Japanese encodings with escapes are valid UTF-8, too
        with suppress(UnicodeDecodeError):
            return body.decode("utf-8-sig")
    encoding = known or detect_encoding(body, from_html_meta=True) or "utf-8"
    return bytes_to_str(body, encoding, errors="replace")


def _main_content(tree: Any) -> str:
    body = tree.body
    for code in body.query_selector_all(":not(pre) > code")[:MAX_LISTS] if body else ():
        code.text = f"`{code.text}`"
    # The library drops each `ul` as navigation.
    for listed in list(body.query_selector_all("ul"))[:MAX_LISTS] if body else ():
        links = sum(len((link.text or "").strip()) for link in listed.query_selector_all("a"))
        if links <= LINK_SHARE * len((listed.text or "").strip()):
            kept = tree.create_element("ol")
            for item in list(listed.child_nodes):
                kept.append_child(item)
            listed.replace_with(kept)
    return extract_plain_text(
        tree,
        preserve_formatting="minimal_html",
        main_content=True,
        links=True,
        alt_texts=False,
        comments=False,
        post_meta=False,
    )


class Markdown(HTMLParser):
    """Converts the few elements that the library leaves to Markdown, with numbered links."""

    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self._base = base
        self._numbers: dict[str, int] = {}
        self._blocks: list[str] = []
        self._inline = ""
        self._prefix = ""
        self._lists: list[int] = []
        self._listing = False
        self._link: tuple[int, str] | None = None

    def text(self) -> str:
        """Return the text. Items of a list follow each other without an empty line."""
        self._flush()
        lines: list[str] = []
        for block in self._blocks:
            item = _ITEM.match(block) is not None
            lines += [""] * bool(lines and not (item and _ITEM.match(lines[-1]))) + [block]
        return "\n".join(lines)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, an item or a link."""
        if tag == "a":
            href = dict(attrs).get("href") or ""
            self._link = (len(self._inline), href)
            return
        if tag == "br":
            self._inline += "\n"
            return
        self._flush()
        if tag in _HEADINGS:
            self._prefix = f"{'#' * int(tag[1])} "
        elif tag in ("ol", "ul"):
            self._lists.append(0)
        elif tag == "li":
            self._prefix = f"{'  ' * (len(self._lists) - 1)}- "
        elif tag == "pre":
            self._listing = True

    def handle_endtag(self, tag: str) -> None:
        """End what `handle_starttag` began."""
        if tag == "a":
            self._end_link()
            return
        self._flush()
        if tag in ("ol", "ul") and self._lists:
            self._lists.pop()
        elif tag == "pre":
            self._listing = False

    def handle_data(self, data: str) -> None:
        """Add text to the block."""
        self._inline += data

    def _end_link(self) -> None:
        if self._link is None:
            return
        (start, href), self._link = self._link, None
        label = " ".join(self._inline[start:].split())
        target = self._target(href) if label and not self._listing else ""
        if target:
            number = self._numbers.setdefault(target, len(self.links) + 1)
            if number > len(self.links):
                self.links.append(target)
            self._inline = f"{self._inline[:start]}[{label}][{number}]"

    def _target(self, href: str) -> str:
        """Return the absolute address of a link to another page, or ""."""
        with suppress(ValueError):
            target = urljoin(self._base, href.strip()).partition("#")[0]
            if target.startswith(("http://", "https://")) and len(target) <= MAX_LINK and target != self._base:
                return re.sub(r"\s", "%20", target)
        return ""

    def _flush(self) -> None:
        text, self._inline, self._link = self._inline, "", None
        if self._listing:
            if text.strip():
                fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
                self._blocks.append(f"{fence}\n{text.strip(chr(10))}\n{fence}")
            return
        lines = [" | ".join(filter(None, map(str.strip, line.split("\t")))) for line in text.split("\n")]
        if block := "\n".join(re.sub(r" {2,}", " ", line) for line in lines if line):
            self._blocks.append(self._prefix + block)
            self._prefix = ""


_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_ITEM = re.compile(r" *- ")


def serve() -> None:
    """Answer requests until the input ends."""
    for limit, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        with suppress(OSError, ValueError):  # not every system has each limit
            resource.setrlimit(limit, (most, most))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        request = json.loads(line)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + CPU_SECONDS, resource.RLIM_INFINITY))
        body = source.read(request["bytes"])
        page = convert(body, request["charset"], request["url"], whole=request["whole"])
        answer = json.dumps(page).encode()
        sink.write(b"%d\n%b" % (len(answer), answer))
        sink.flush()


if __name__ == "__main__":
    serve()

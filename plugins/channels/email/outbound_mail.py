"""Composing mails: the answer as plain text and as HTML, its files, and the fields that keep a conversation together."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from datetime import datetime
from email import policy
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from functools import cache
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

import msgspec
from markdown_it import MarkdownIt

from plugins.api.tool import OutputFile

REFERENCES = 20
"""Maximum ids in `References`: the first, and the last ones."""

SUBJECT_CHARS = 200

_STYLE = {
    "pre": "background:#f4f4f4;padding:8px;white-space:pre-wrap",
    "blockquote": "margin:0 0 0 8px;padding-left:8px;border-left:2px solid #ccc",
    "table": "border-collapse:collapse",
    "td": "border:1px solid #ccc;padding:2px 6px",
    "th": "border:1px solid #ccc;padding:2px 6px",
}
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}")
_REPLY_MARK = re.compile(
    r"(?:\s{0,9}(?:re|aw|sv|antw|odp|rif|vs|回复|答复|返信)\s{0,9}(?:\[\d{1,9}\])?\s{0,9}[:：])+\s*", re.I
)


class ThreadState(msgspec.Struct, frozen=True, kw_only=True):
    """What the next mail of a conversation needs: its subject, and the Message-IDs of the mails before, oldest first."""

    subject: str = ""
    references: tuple[str, ...] = ()


def subject_without_marks(subject: str) -> str:
    """Return a subject without marks such as `Re:` at its beginning."""
    return _REPLY_MARK.sub("", subject, count=1).strip() if _REPLY_MARK.match(subject) else subject.strip()


def message_id(outbound_id: str, thread: str, domain: str) -> str:
    """Return the Message-ID of a reply: always the same for a reply, and with the name of its thread in it."""
    digest = blake2b(outbound_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"<exuvia.{thread or 'none'}.{digest}@{domain}>"


def our_ids(domain: str) -> re.Pattern[str]:
    """Return a pattern for the Message-IDs that `message_id` makes, which finds the name of the thread."""
    return re.compile(rf"<exuvia\.([0-9a-z]{{1,40}})\.[0-9a-f]{{24}}@{re.escape(domain)}>")


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A mail to be composed."""

    message_id: str
    sender: str
    sender_name: str
    recipient: str
    text: str
    thread: ThreadState
    date: datetime
    files: Sequence[OutputFile] = ()


def compose(draft: Draft) -> bytes:
    """Return a mail as it is sent, with lines that end with CRLF.

    Raises:
        ValueError: The recipient is no address.
    """
    if not _ADDRESS.fullmatch(draft.recipient):
        raise ValueError(f"{draft.recipient!r} is no address")
    mail = EmailMessage(policy=policy.SMTP.clone(cte_type="7bit"))
    local, _, domain = draft.sender.rpartition("@")
    mail["From"] = Address(_field(draft.sender_name), local, domain)
    local, _, domain = draft.recipient.rpartition("@")
    mail["To"] = Address("", local, domain)
    subject = _field(subject_without_marks(draft.thread.subject))[:SUBJECT_CHARS]
    mail["Subject"] = f"Re: {subject}" if draft.thread.references else subject or "A message from your assistant"
    mail["Date"] = format_datetime(draft.date)
    mail["Message-ID"] = draft.message_id
    if known := [each for each in draft.thread.references if each.isascii() and len(each) < 900]:
        mail["In-Reply-To"] = f"<{known[-1]}>"
        shown = known if len(known) <= REFERENCES else [known[0], *known[1 - REFERENCES :]]
        mail["References"] = " ".join(f"<{each}>" for each in shown)
    mail["Auto-Submitted"] = "auto-replied"
    mail["X-Auto-Response-Suppress"] = "All"
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", draft.text.replace("\r\n", "\n")).encode("utf-8", "replace").decode()
    mail.set_content(text or " ", cte="quoted-printable")
    if text.strip():
        mail.add_alternative(html_of_markdown(text), subtype="html", cte="quoted-printable")
    for file in draft.files:
        kind, _, subtype = file.media.partition("/")
        if kind in ("", "text", "message", "multipart") or not re.fullmatch(r"[a-z]+/[A-Za-z0-9.+-]+", file.media):
            kind, subtype = "application", "octet-stream"
        mail.add_attachment(file.content, maintype=kind, subtype=subtype, filename=_field(file.name) or "file")
    return mail.as_bytes(policy=mail.policy.clone(max_line_length=300))  # some servers do not read a folded Message-ID


def _field(text: str) -> str:
    """Return a text that may stand in a field."""
    shown = "".join(mark if mark.isprintable() else " " for mark in text)
    return " ".join(shown.split())


def html_of_markdown(text: str) -> str:
    """Return Markdown as a document in HTML that loads nothing: HTML in the text is shown, pictures are links."""
    body = _markdown().render(text)
    return (
        f'<!DOCTYPE html><html><body style="font-family:sans-serif;font-size:15px;line-height:1.45">\n{body}</body></html>\n'
    )


@cache
def _markdown() -> Any:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    markdown.add_render_rule("image", _image)
    markdown.add_render_rule("link_open", _link_open)
    markdown.add_render_rule("link_close", _link_close)
    for name in ("blockquote", "table", "td", "th"):
        markdown.add_render_rule(f"{name}_open", _styled)
    markdown.add_render_rule("fence", _code)
    markdown.add_render_rule("code_block", _code)
    return markdown


def _image(renderer: Any, tokens: Any, number: int, options: Any, environment: Any) -> str:
    source = str(tokens[number].attrs.get("src", ""))
    shown = html.escape(tokens[number].content or "picture")
    return f'<a href="{html.escape(source)}">{shown}</a>' if _is_safe(source) else shown


def _link_open(renderer: Any, tokens: Any, number: int, options: Any, environment: Any) -> str:
    target = str(tokens[number].attrs.get("href", ""))
    return f'<a href="{html.escape(target)}">' if _is_safe(target) else "<span>"


def _link_close(renderer: Any, tokens: Any, number: int, options: Any, environment: Any) -> str:
    """End a link. One whose text names another address than its target shows its target, too."""
    begin = next(each for each in range(number - 1, -1, -1) if tokens[each].type == "link_open")
    target = str(tokens[begin].attrs.get("href", ""))
    if not _is_safe(target):
        return "</span>"
    shown = "".join(token.content for token in tokens[begin + 1 : number])
    host = urlsplit(target).hostname or target
    misleading = re.search(r"\S\.\w|:/|@", shown) is not None and host.lower() not in shown.lower()
    return f"</a> ({html.escape(target)})" if misleading else "</a>"


def _is_safe(target: str) -> bool:
    return re.match(r"(?:https?://|mailto:)", target, re.I) is not None


def _styled(renderer: Any, tokens: Any, number: int, options: Any, environment: Any) -> str:
    tag = tokens[number].tag
    return f'<{tag} style="{_STYLE[tag]}">'


def _code(renderer: Any, tokens: Any, number: int, options: Any, environment: Any) -> str:
    return f'<pre style="{_STYLE["pre"]}"><code>{html.escape(tokens[number].content)}</code></pre>\n'

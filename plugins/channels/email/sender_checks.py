"""Who really sent a mail, and whether a program did.

A `From` says what its writer liked. It is believed if the operator's own mail server has verified it: the server says so in
a field `Authentication-Results` (RFC 8601) under its own name. Mails of programs are never answered: two programs that
answer each other do so for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from plugins.channels.email.mime_reading import Headers, Mail, decoded_words, one_line

_ADDRESS = re.compile(r"[^\s@<>\"(),:;\\\[\]]{1,64}@[^\s@<>\"(),:;\\\[\]]{1,253}")
_FROM = re.compile(rf"(?P<name>[^<>]{{0,1000}})<\s*(?P<address>{_ADDRESS.pattern})\s*>(?:\s*\([^()]{{0,500}}\))?")
_RESULT = re.compile(r"([a-z0-9-]+)(?:\s*/\s*\d+)?\s*=\s*([a-z]+)\b(.*)", re.I | re.S)
_PROPERTY = re.compile(r"(?<![a-z0-9_.-])([a-z-]{1,40}\.[a-z0-9_-]{1,40})\s{0,9}=\s{0,9}(\"[^\"]*\"|[^\s;]+)", re.I)

_AUTOMATIC_NAMES = re.compile(
    r"(?:mailer-daemon|postmaster|no[-_.]?reply|do[-_.]?not[-_.]?reply|bounces?|auto-?reply|auto-?responder)(?:[-+=.].*)?@",
    re.I,
)
_AUTOMATIC_FIELDS = frozenset(
    [
        "list-id",
        "list-post",
        "list-unsubscribe",
        "list-help",
        "x-auto-response-suppress",
        "x-autoreply",
        "x-autorespond",
        "x-autoresponder",
        "x-mail-autoreply",
        "x-loop",
        "feedback-id",
    ]
)


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the field `From` names: an address in lower case, and the name that they chose."""

    address: str
    name: str


def author_of(headers: Headers) -> Author | None:
    """Return the author; None unless the mail has exactly one field `From`, with exactly one address."""
    fields = headers.all("from")
    if len(fields) != 1:
        return None
    value = fields[0].strip()
    if _ADDRESS.fullmatch(value):
        return Author(address=value.lower(), name="")
    if (found := _FROM.fullmatch(_with_quotations_masked(value))) is None:
        return None
    name = decoded_words(value[: found.end("name")].strip().strip('"'))
    return Author(address=found["address"].lower(), name=one_line(name)[:200])


def why_not_believed(headers: Headers, author: Author, authserv_id: str) -> str:
    """Return why the author is not believed, as the end of a sentence; "" if the mail server has verified the domain.

    Only the topmost field of the server counts: a sender can add others below it. The server must have removed fields under
    its name from what it received.

    Args:
        headers: The mail's headers.
        author: The author.
        authserv_id: The name under which the operator's mail server writes its results.
    """
    for value in headers.all("authentication-results"):
        server, results = _authentication_results(value)
        if server == authserv_id.lower():
            return _fault_of(results, author.address.rpartition("@")[2])
    return f"no field Authentication-Results of {authserv_id} says who sent it"


def _fault_of(results: list[tuple[str, str, dict[str, str]]], domain: str) -> str:
    verdicts = [(result, properties) for method, result, properties in results if method == "dmarc"]
    if verdicts:
        result, properties = verdicts[0]
        if result == "pass" and properties.get("header.from", "") == domain:
            return ""
        if result not in ("none", "pass"):
            return f"its mail server says dmarc={result}"
    spf = any(
        method == "spf" and result == "pass" and properties.get("smtp.mailfrom", "").rpartition("@")[2] == domain
        for method, result, properties in results
    )
    dkim = any(
        method == "dkim"
        and result == "pass"
        and domain in (properties.get("header.d"), _domain(properties.get("header.i", "")))
        for method, result, properties in results
    )
    return "" if spf and dkim else "its mail server found neither dmarc=pass nor SPF and DKIM of the author's own domain"


def _domain(identity: str) -> str | None:
    return identity.rpartition("@")[2] or None


def _authentication_results(value: str) -> tuple[str, list[tuple[str, str, dict[str, str]]]]:
    """Return the server's name, and method, result and properties of each check, all in lower case."""
    first, *others = _without_comments(value).split(";")
    results = []
    for each in others:
        if found := _RESULT.fullmatch(each.strip()):
            properties: dict[str, str] = {}
            for name, given in _PROPERTY.findall(found[3]):
                properties.setdefault(name.lower(), given.strip('"').lower())
            results.append((found[1].lower(), found[2].lower(), properties))
    return (first.split() or [""])[0].strip('"').lower(), results


def _without_comments(value: str) -> str:
    """Remove comments; what stands in quotation marks keeps no character with a meaning."""
    kept: list[str] = []
    depth, quoted, escaped = 0, False, False
    for mark in value:
        if escaped:
            escaped = False
        elif mark == "\\":
            escaped = True
        elif mark == '"' and not depth:
            quoted = not quoted
        elif not quoted and mark in "()":
            depth = max(depth + (1 if mark == "(" else -1), 0)
        elif not depth and not (quoted and not (mark.isalnum() or mark in "@.-_+")):
            kept.append(mark)
    return "".join(kept)


def _with_quotations_masked(value: str) -> str:
    """Return the value with `_` for what stands in quotation marks, of the same length."""
    return re.sub(r'"(?:[^"\\]|\\.)*"', lambda found: "_" * len(found[0]), value)


def why_automatic(headers: Headers, author: Author, own: frozenset[str]) -> str:
    """Return what shows that a program sent the mail; "" if nothing does.

    Args:
        headers: The mail's headers.
        author: The author.
        own: Our own addresses, in lower case.
    """
    submitted = headers.get("auto-submitted").partition(";")[0].strip().lower()
    precedence = headers.get("precedence").strip().lower()
    fields = headers.names() & _AUTOMATIC_FIELDS
    signs = (
        (author.address in own, "it is from our own address"),
        (submitted not in ("", "no"), f"Auto-Submitted: {submitted[:40]}"),
        (precedence in ("bulk", "junk", "list", "auto_reply"), f"Precedence: {precedence[:40]}"),
        (bool(fields), f"it has the field {min(fields, default='')}"),
        (any(path.strip() == "<>" for path in headers.all("return-path")), "its return path is empty"),
        (headers.get("content-type").lower().startswith("multipart/report"), "it is a report"),
        (_AUTOMATIC_NAMES.match(author.address) is not None, "its author takes no answers"),
    )
    return next((reason for shown, reason in signs if shown), "")


class Bounce(msgspec.Struct, frozen=True, kw_only=True):
    """A report that one of our mails was not delivered: its Message-ID, to whom it went, and why it failed."""

    message_id: str
    recipient: str
    reason: str


def bounces(mail: Mail, is_ours: re.Pattern[str]) -> Iterator[Bounce]:
    """Yield what a report says about our mails.

    Args:
        mail: The report.
        is_ours: Matches our Message-IDs.
    """
    found = is_ours.search(mail.original)
    if found is None:
        return
    for report in mail.reports:
        for block in re.split(r"\n\s*\n", report):
            fields = {
                name.strip().lower(): one_line(value)
                for name, mark, value in (line.partition(":") for line in block.split("\n"))
                if mark
            }
            if fields.get("action", "").lower() == "failed":
                recipient = fields.get("final-recipient", "").rpartition(";")[2].strip()
                reason = fields.get("diagnostic-code", "").partition(";")[2].strip() or fields.get(
                    "status", "no reason given"
                )
                yield Bounce(message_id=found[0].strip("<>"), recipient=recipient[:320], reason=reason[:300])

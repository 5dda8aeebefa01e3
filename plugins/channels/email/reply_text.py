"""The new text of a reply, without what it quotes and without its signature.

The libraries for this are not used: `mail-parser-reply` strips the indentation of code, `quotequail` needs lxml and knows no
signatures. When in doubt the text is kept: a quotation that somebody answers line by line stays, and a mail that consists of
nothing else, too.
"""

from __future__ import annotations

import re

ATTRIBUTION_LINES = 4
"""Maximum lines of what introduces a quotation."""

LINE_CHARS = 500
"""Longer lines introduce nothing."""

_WROTE = re.compile(
    r"(?:wrote|writes|schrieb(?: .{1,100})?|schreef(?: .{1,100})?|geschreven|a écrit|ha scritto|escribió|escreveu"
    r"|skrev(?: .{1,100})?|kirjoitti|napisał(?:\(a\)|a)?|napsal(?:\(a\)|a)?"
    r"|написал\(?а?\)?|пишет|写道|寫道|のメール|님이 작성)\s{0,9}[:：]\s{0,9}\Z",
    re.I,
)
_QUOTED_LINE = re.compile(r"\s{0,3}>")
_SEPARATOR = re.compile(
    r"\s*(?:-{2,}\s*(?:original message|original appointment|ursprüngliche nachricht|originalnachricht|message d'origine"
    r"|mensaje original|mensagem original|messaggio originale|oorspronkelijk bericht|original meddelande|исходное сообщение"
    r"|原始邮件|原邮件)\s*-{2,}|_{25,})\s*\Z",
    re.I,
)
_HEADER_FIELD = re.compile(
    r"\s{0,99}[*_]{0,2}(?P<field>from|von|de|da|van|från|fra|от|发件人|寄件者|差出人|sent|gesendet|envoyé|enviado|inviato|verzonden|date|datum"
    r"|fecha|data|skickat|дата|发送时间|日期|to|an|à|para|a|aan|till|til|кому|收件人|subject|betreff|objet|asunto|assunto|oggetto|onderwerp"
    r"|ämne|emne|тема|主题|cc|kopie)\s{0,9}(?:[*_]{0,2}\s{0,9}[:：]|[:：]\s{0,9}[*_]{0,2})",
    re.I,
)
_FROM = frozenset(["from", "von", "de", "da", "van", "från", "fra", "от", "发件人", "寄件者", "差出人"])
_PHONE = re.compile(
    r"\s*[*_(\[]{0,2}(?:sent (?:from|with|via) (?:my |the |outlook|yahoo|proton|mailspring|gmail|samsung|iphone|ipad|mail )"
    r"|get \[?outlook for|sent from \[?outlook|von meinem .{1,40} gesendet|gesendet (?:von|mit) "
    r"|envoyé (?:de|depuis|à partir de) mon "
    r"|enviado (?:desde|do) m(?:i|eu) |inviato da(?:l mio)? |verstuurd vanaf mijn |verzonden vanaf mijn |skickat från min "
    r"|отправлено с |发自我的|從我的).{0,100}\Z",
    re.I,
)


def new_text(text: str, *, reply: bool) -> str:
    """Return what the author of a mail wrote.

    Args:
        text: The text of the mail, with lines that begin with `>` where it quotes.
        reply: The mail is a reply. Otherwise only its signature is removed.
    """
    lines = [line.rstrip() for line in text.split("\n")]
    if not reply:
        kept = _without_signature(lines)
        return "\n".join(kept if any(kept) else lines).strip("\n")
    kept = _without_quotation_below(lines)
    if not any(line.strip() and not _QUOTED_LINE.match(line) for line in kept):
        kept = lines  # the answer stands below what it quotes, or there is none
    kept = _without_quotation_above(_without_signature(kept))
    if not any(line.strip() for line in kept):
        kept = lines
    return "\n".join(kept).strip("\n")


def _without_quotation_below(lines: list[str]) -> list[str]:
    """Remove a quotation that nothing follows but a signature, with what introduces it."""
    for number, line in enumerate(lines):
        if _SEPARATOR.match(line[:LINE_CHARS]) or _is_header_block(lines, number):
            lines = lines[:number]
            break
    end = len(_without_signature(lines))
    while end and not lines[end - 1].strip():
        end -= 1
    if end and _QUOTED_LINE.match(lines[end - 1]):
        begin = end
        while begin and (_QUOTED_LINE.match(lines[begin - 1]) or not lines[begin - 1].strip()):
            begin -= 1
        return _without_attribution(lines[:begin])
    for number in range(end):  # a client that does not mark what it quotes
        if _is_attribution(lines, number) and _QUOTED_LINE.match(_next_text(lines, number)) is None and number:
            return _without_attribution(lines[: number + 1])
    return lines


def _without_quotation_above(lines: list[str]) -> list[str]:
    """Remove one quotation at the beginning, where nothing further is quoted."""
    begin = 0
    while begin < len(lines) and not lines[begin].strip():
        begin += 1
    for number in range(begin, min(begin + ATTRIBUTION_LINES, len(lines))):
        if _is_attribution(lines, number):
            begin = number + 1
            break
    end = begin
    while end < len(lines) and (_QUOTED_LINE.match(lines[end]) or not lines[end].strip()):
        end += 1
    rest = lines[end:]
    quoted = any(_QUOTED_LINE.match(line) for line in lines[begin:end])
    return rest if quoted and rest and not any(_QUOTED_LINE.match(line) for line in rest) else lines


def _without_attribution(lines: list[str]) -> list[str]:
    """Remove the lines at the end that introduce a quotation."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    if not end or not _is_attribution(lines, end - 1):
        return lines[:end]
    begin = end - 1
    while begin and lines[begin - 1].strip() and end - begin < ATTRIBUTION_LINES and not _begins_attribution(lines[begin]):
        begin -= 1
    if not _begins_attribution(lines[begin]):
        begin = end - 1
    return lines[:begin]


def _is_attribution(lines: list[str], number: int) -> bool:
    return len(lines[number]) <= LINE_CHARS and _WROTE.search(lines[number]) is not None


def _begins_attribution(line: str) -> bool:
    return re.match(r"\s*(?:(?:on|am|le|el|em|il|op|den|dne|w dniu)\b|\d{1,4}[./-]|在|于)", line, re.I) is not None


def _next_text(lines: list[str], number: int) -> str:
    return next((line for line in lines[number + 1 :] if line.strip()), "")


def _is_header_block(lines: list[str], number: int) -> bool:
    """Return True if lines like `From: …`, `Sent: …`, `Subject: …` begin here, as Outlook puts them above a quotation."""
    first = _HEADER_FIELD.match(lines[number][:LINE_CHARS])
    if first is None or first["field"].lower() not in _FROM:
        return False
    fields = [found for line in lines[number : number + 8] if (found := _HEADER_FIELD.match(line[:LINE_CHARS]))]
    return len({found["field"].lower() for found in fields}) >= 3


def _without_signature(lines: list[str]) -> list[str]:
    """Remove a signature below the delimiter `-- `, and lines that telephones add."""
    for number, line in enumerate(lines):
        if line == "--" and number and not any(_QUOTED_LINE.match(later) for later in lines[number + 1 :]):
            lines = lines[:number]
            break
    end = len(lines)
    while end and (not lines[end - 1].strip() or _PHONE.match(lines[end - 1][:LINE_CHARS])):
        end -= 1
    return lines[:end]

"""Reading mails: headers, texts and files of whatever was sent, however broken.

Nothing here raises an exception because of a mail's content, and everything takes time in proportion to its size. The
standard library's parser splits a mail into its parts; headers and texts are decoded here, because its own decoding fails at
much that is really sent: 8-bit headers, characters split between encoded words, wrong or unknown names of character sets.
"""

from __future__ import annotations

import codecs
import re
from base64 import b64decode
from binascii import Error as Base64Error
from binascii import a2b_qp
from collections.abc import Iterator
from contextlib import suppress
from email import policy
from email.message import Message
from email.parser import BytesHeaderParser, BytesParser
from email.utils import getaddresses, parsedate_to_datetime
from urllib.parse import unquote_to_bytes

import msgspec

from plugins.api.channel import InboundFile

PARTS = 500
"""Maximum parts of a mail; the rest is left out."""

DEPTH = 30
"""Maximum nesting of parts; what is nested deeper is left out."""

HEADER_BYTES = 512 * 1024
"""Maximum bytes of a mail's header that are read."""

LOGO_BYTES = 10 * 1024
"""Size of an inline picture up to which it is left out, as a logo of a signature."""

_ALIASES = {
    # what senders mean by the names on the left
    "ascii": "cp1252", "us-ascii": "cp1252", "iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252",
    "iso8859-1": "cp1252", "ansi": "cp1252", "x-ansi": "cp1252", "iso-8859-9": "cp1254", "iso-8859-8-i": "iso-8859-8",
    "iso-8859-8-e": "iso-8859-8", "iso-8859-11": "cp874", "windows-874": "cp874", "tis-620": "cp874", "gb2312": "gb18030",
    "gbk": "gb18030", "x-gbk": "gb18030", "ks_c_5601-1987": "cp949", "ks_c_5601": "cp949", "euc-kr": "cp949",
    "shift_jis": "cp932", "shift-jis": "cp932", "x-sjis": "cp932", "iso-2022-jp": "iso2022_jp_ext", "big5": "big5hkscs",
    "x-big5": "big5hkscs", "utf8mb4": "utf-8", "unicode-1-1-utf-7": "utf-7", "x-mac-roman": "mac-roman",
    "macintosh": "mac-roman",
}  # fmt: skip

_GUESSED = {"", "ascii", "us-ascii", "unknown-8bit", "x-unknown", "default", "8bit", "binary", "none"}
"""Names that say nothing: the text is UTF-8 if it is valid UTF-8."""

_ENCODED_WORD = re.compile(r"=\?([^?\s*]{1,60})(?:\*[^?\s]*)?\?([bBqQ])\?([^?]{0,50000})\?=")
_CONTINUED = re.compile(r"([^*=\s]+)\*(?:(\d{1,3})(\*)?)?\Z")
_PARAMETER = re.compile(r';\s*([^\s=;"]{1,100})\s*=\s*(?:"((?:[^"\\]|\\.)*)"?|([^;]*))')
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([A-Za-z0-9_-]{1,40})", re.I)


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """A mail.

    Attributes:
        text: The text of its plain parts; "" if it has only HTML.
        html: The HTML of the parts that have no plain text.
        files: The attachments.
        reports: The texts of parts of the type `message/delivery-status`.
        original: The header of the mail that a report returns, or "".
    """

    text: str = ""
    html: str = ""
    files: tuple[InboundFile, ...] = ()
    reports: tuple[str, ...] = ()
    original: str = ""


class Headers:
    """The headers of a mail. Names are case-insensitive; values are one line of text without control characters."""

    def __init__(self, raw: bytes) -> None:
        message = BytesHeaderParser(policy=policy.compat32).parsebytes(raw[:HEADER_BYTES])
        self._fields = [(name.lower(), _unfolded(value)) for name, value in message.raw_items()]

    def all(self, name: str) -> list[str]:
        """Return all values of a field, topmost first, without decoding encoded words."""
        return [value for each, value in self._fields if each == name.lower()]

    def get(self, name: str) -> str:
        """Return the topmost value of a field, decoded; "" if there is none."""
        return decoded_words(next(iter(self.all(name)), ""))

    def names(self) -> set[str]:
        """Return the names of all fields in lower case."""
        return {name for name, _ in self._fields}

    def addresses(self, *names: str) -> list[tuple[str, str]]:
        """Return the names and addresses of these fields. Encoded words count in names alone, never in addresses."""
        values = [value for name in names for value in self.all(name)]
        return [
            (one_line(decoded_words(name)), address.strip().lower()) for name, address in getaddresses(values) if address
        ]

    def sent_at(self) -> float:
        """Return the time in the field `Date`, in seconds since the epoch; 0 if it has none."""
        try:
            return parsedate_to_datetime(self.get("date")).timestamp()
        except (ValueError, TypeError, OverflowError):
            return 0.0

    def message_ids(self, *names: str) -> list[str]:
        """Return the ids in these fields, without angle brackets."""
        return [found for name in names for value in self.all(name) for found in re.findall(r"<([^<>\s]{1,900})>", value)]


def read_mail(raw: bytes) -> Mail:
    """Return the texts and files of a mail."""
    try:
        message = BytesParser(policy=policy.compat32).parsebytes(raw)
    except RecursionError:  # parts nested a hundred deep
        return Mail(text=decoded_text(raw.partition(b"\r\n\r\n")[2], ""))
    reader = _Reader()
    reader.read(message)
    return Mail(
        text="\n\n".join(text for text in reader.plain if text.strip()),
        html="\n".join(text for text in reader.html if text.strip()),
        files=tuple(reader.files),
        reports=tuple(reader.reports),
        original=reader.original,
    )


class _Reader:
    def __init__(self) -> None:
        self.plain: list[str] = []
        self.html: list[str] = []
        self.files: list[InboundFile] = []
        self.reports: list[str] = []
        self.original = ""
        self._parts = 0

    def read(self, part: Message, depth: int = 0, *, related: bool = False) -> None:
        """Collect what a part and its own parts contain."""
        self._parts += 1
        if self._parts > PARTS or depth > DEPTH:
            return
        kind = part.get_content_type()
        if part.is_multipart() and not kind.startswith("message/"):
            children = [child for child in part.get_payload() if isinstance(child, Message)]
            if kind == "multipart/alternative":
                self._read_alternatives(children, depth)
            else:
                for child in children:
                    self.read(child, depth + 1, related=related or kind == "multipart/related")
            return
        if kind in ("message/delivery-status", "message/global-delivery-status"):
            self.reports.append("\n".join(_nested(part)))
        elif kind in ("text/rfc822-headers", "message/rfc822-headers", "message/global-headers"):
            self.original = self.original or decoded_text(_content(part), "")
        else:
            self._read_leaf(part, kind, related=related)

    def _read_alternatives(self, children: list[Message], depth: int) -> None:
        """Read the plain text if there is one that says something, else the HTML; files of all of them."""
        tried = []
        for child in children:
            each = _Reader()
            each._parts = self._parts
            each.read(child, depth + 1)
            self._parts = each._parts
            tried.append(each)
        texts = next((each for each in tried if any(text.strip() for text in each.plain)), None)
        texts = texts or next((each for each in reversed(tried) if each.html), None)
        if texts is not None:
            self.plain += texts.plain
            self.html += texts.html
        for each in tried:
            self.files += each.files
            self.reports += each.reports

    def _read_leaf(self, part: Message, kind: str, *, related: bool) -> None:
        name, disposition = _file_name(part), _header(part, "content-disposition").partition(";")[0].strip().lower()
        if kind.startswith("message/") and part.is_multipart():
            child = part.get_payload(0)
            assert isinstance(child, Message)
            self.original = self.original or "\n".join(f"{field}: {value}" for field, value in child.raw_items())
            self._add_file(_bytes_of(child), name or "message.eml", "message/rfc822")
            return
        is_text = kind in ("text/plain", "text/html") or (kind.startswith("multipart/") and not part.is_multipart())
        if is_text and disposition != "attachment" and not name:
            text = decoded_text(_content(part), _parameter(part, "content-type", "charset"), html=kind == "text/html")
            if kind != "text/html" and _parameter(part, "content-type", "format").lower() == "flowed":
                text = _unflowed(text, delsp=_parameter(part, "content-type", "delsp").lower() == "yes")
            (self.html if kind == "text/html" else self.plain).append(text)
            return
        if kind in ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"):
            return
        content = _content(part)
        if related and kind.startswith("image/") and disposition != "attachment" and len(content) <= LOGO_BYTES:
            return
        self._add_file(content, name, kind)

    def _add_file(self, content: bytes, name: str, kind: str) -> None:
        if content:
            self.files.append(InboundFile(content=content, name=name, media=kind))


def _nested(part: Message) -> Iterator[str]:
    """Yield the lines of a part that the parser took for a mail, or for several."""
    payload = part.get_payload()
    if isinstance(payload, list):
        for block in payload:
            if isinstance(block, Message):
                yield from (f"{name}: {_unfolded(value)}" for name, value in block.raw_items())
                yield ""
    else:
        yield decoded_text(_content(part), "")


def _bytes_of(message: Message) -> bytes:
    try:
        return message.as_bytes()
    except (ValueError, LookupError, UnicodeError, RecursionError, AttributeError, TypeError):
        return b""


def _content(part: Message) -> bytes:
    """Return the bytes of a part that has no parts."""
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _base64(raw: bytes) -> bytes:
    """Decode Base64 up to its end or its first invalid quantum."""
    clean = re.sub(rb"[^A-Za-z0-9+/=]", b"", raw)
    end = re.search(rb"=+", clean)
    clean = clean[: end.start()] if end else clean
    if len(clean) % 4 == 1:
        clean = clean[:-1]
    try:
        return b64decode(clean + b"=" * (-len(clean) % 4))
    except Base64Error:
        return b""


# --- headers ----------------------------------------------------------------------------------------------------------


def _unfolded(value: object) -> str:
    """Return a header's value as one line. Bytes outside of ASCII are UTF-8 or else Windows-1252."""
    text = str(value)
    if not text.isascii():
        raw = text.encode("utf-8", "surrogateescape")
        text = decoded_text(raw, "")
    return one_line(text)


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters."""
    if text.isprintable():
        return text.strip()
    return " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())


def _header(part: Message, name: str) -> str:
    wanted = name.lower()
    return next((_unfolded(value) for field, value in part.raw_items() if field.lower() == wanted), "")


def decoded_words(value: str) -> str:
    """Return a header's value with its encoded words (RFC 2047) decoded.

    The bytes of neighbouring words with the same character set are joined first, because many senders split characters.
    Words inside of other text count too, although they should not.
    """
    if "=?" not in value:
        return value
    found: list[str] = []
    charset, joined, end = "", b"", 0
    for word in _ENCODED_WORD.finditer(value):
        between = value[end : word.start()]
        if end and not between.strip() and word[1].lower() == charset:
            joined += _word_bytes(word)
        else:
            found.append(decoded_text(joined, charset))
            if not end or between.strip():
                found.append(between)
            charset, joined = word[1].lower(), _word_bytes(word)
        end = word.end()
    return one_line("".join([*found, decoded_text(joined, charset), value[end:]]))


def _word_bytes(word: re.Match[str]) -> bytes:
    content = word[3].encode("utf-8", "replace")
    return _base64(content) if word[2] in "bB" else a2b_qp(content, header=True)


def _parameters(value: str) -> dict[str, str]:
    """Return the parameters of a header, with continuations and encodings of RFC 2231 and the encoded words of others."""
    plain: dict[str, str] = {}
    pieces: dict[str, dict[int, tuple[str, bool]]] = {}
    for found in _PARAMETER.finditer(value[:50_000]):
        name = found[1].lower()
        text = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3].strip()
        if continued := _CONTINUED.match(name):
            number = int(continued[2] or 0)
            pieces.setdefault(continued[1], {})[number] = (text, not continued[2] or bool(continued[3]))
        else:
            plain.setdefault(name, decoded_words(text))
    for name, numbered in pieces.items():
        charset, encoded = "", b""
        for number in sorted(numbered):
            text, is_encoded = numbered[number]
            if number == 0 and is_encoded and text.count("'") >= 2:
                charset, _, text = text.split("'", 2)
            encoded += unquote_to_bytes(text) if is_encoded else text.encode("utf-8", "replace")
        plain[name] = one_line(decoded_text(encoded, charset))
    return plain


def _parameter(part: Message, header: str, name: str) -> str:
    return _parameters(_header(part, header)).get(name, "")


def _file_name(part: Message) -> str:
    return _parameter(part, "content-disposition", "filename") or _parameter(part, "content-type", "name")


# --- texts ------------------------------------------------------------------------------------------------------------


def decoded_text(raw: bytes, charset: str, *, html: bool = False) -> str:
    """Return bytes as text with line breaks as `\\n`, in the character set that was probably meant.

    Args:
        raw: The bytes.
        charset: The declared character set, or "".
        html: The text may declare its character set itself.
    """
    charset = charset.strip().strip("\"'").lower()
    if raw.startswith(codecs.BOM_UTF8):
        raw, charset = raw[3:], "utf-8"
    elif raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        charset = "utf-16"
    if html and charset in _GUESSED and (declared := _META_CHARSET.search(raw[:4096])):
        charset = declared[1].decode("ascii").lower()
    name = _ALIASES.get(charset, charset)
    likely = ["utf-8", name] if charset in _GUESSED or name.startswith(("cp125", "iso-8859", "iso8859")) else [name, "utf-8"]
    for each in likely:  # hardly any text in a character set of one byte is valid UTF-8
        with suppress(LookupError, ValueError):
            return _lines(raw.decode(_text_codec(each)))
    if name == "utf-8":
        text = raw.decode("utf-8", "replace")
        if text.count("\ufffd") * 3 <= sum(mark > "\x7f" for mark in text):
            return _lines(text)
        name = "cp1252"
    try:
        return _lines(raw.decode(_text_codec(name), "replace"))
    except (LookupError, ValueError):
        return _lines(raw.decode("cp1252", "replace"))


def _text_codec(name: str) -> str:
    """Return the name of a codec. Raises LookupError for what is no character set."""
    if name in _GUESSED or name.replace("-", "_") in (
        "punycode",
        "idna",
        "unicode_escape",
        "raw_unicode_escape",
        "undefined",
    ):
        raise LookupError(name)
    return name


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")


def _unflowed(text: str, *, delsp: bool) -> str:
    """Join the lines of a text in the format of RFC 3676."""
    lines: list[str] = []
    open_depth = -1
    for line in text.split("\n"):
        content = line.lstrip(">")
        depth = len(line) - len(content)
        content = content[1:] if content.startswith(" ") else content
        flowing = content.endswith(" ") and content != "-- "
        if flowing and delsp:
            content = content[:-1]
        if open_depth == depth and content != "-- ":
            lines[-1] += content
        else:
            lines.append((">" * depth + " " if depth else "") + content)
        open_depth = depth if flowing else -1
    return "\n".join(lines)

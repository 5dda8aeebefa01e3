"""Reading mails as they are really sent, and whom to believe."""

from __future__ import annotations

import time
from base64 import b64encode
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.channels.email.html_text import markdown_of_html
from plugins.channels.email.mime_reading import Headers, Mail, decoded_words, read_mail
from plugins.channels.email.outbound_mail import html_of_markdown, our_ids, subject_without_marks
from plugins.channels.email.reply_text import new_text
from plugins.channels.email.sender_checks import author_of, bounces, why_automatic, why_not_believed


def read(header: str, body: bytes) -> Mail:
    return read_mail(header.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("charset", "raw", "text"),
    [
        ("utf-8", "Grüße 😀".encode(), "Grüße 😀"),
        ("iso-8859-1", "„Grüße“ – €".encode("cp1252"), "„Grüße“ – €"),
        ("iso-8859-1", "Grüße".encode(), "Grüße"),
        ("us-ascii", "Grüße".encode(), "Grüße"),
        ("utf-8", "Grüße".encode("cp1252"), "Grüße"),
        ("utf-8", "日本語".encode() + b"\xff", "日本語\ufffd"),
        ("unknown-8bit", "Grüße".encode(), "Grüße"),
        ("no-such-charset", "Grüße".encode("cp1252"), "Grüße"),
        ("punycode", b"Gre-qja4f", "Gre-qja4f"),
        ("hex", b"Hello", "Hello"),
        ("gb2312", "中文—囍".encode("gb18030"), "中文—囍"),
        ("iso-2022-jp", "日本語".encode("iso2022_jp"), "日本語"),
        ("koi8-r", "Привет, как дела".encode("koi8-r"), "Привет, как дела"),
        ("windows-874", "สวัสดี".encode("cp874"), "สวัสดี"),
        ("utf-16", "Hi".encode("utf-16"), "Hi"),
        ("", b"\xef\xbb\xbfGr\xc3\xbc\xc3\x9fe", "Grüße"),
    ],
)
def test_a_text_is_read_in_the_character_set_that_was_meant(charset: str, raw: bytes, text: str) -> None:
    declared = f'; charset="{charset}"' if charset else ""
    assert read(f"Content-Type: text/plain{declared}\nContent-Transfer-Encoding: 8bit", raw).text == text
    assert read(f"Content-Type: text/plain{declared}\nContent-Transfer-Encoding: base64", b64encode(raw)).text == text


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        ("=?utf-8?b?R3LD?= =?utf-8?b?vMOfZQ==?=", "Grüße"),
        ("=?UTF-8?Q?a?=\r\n =?utf-8?q?_b?= c", "a b c"),
        ("Re: =?iso-8859-1?Q?Gr=FC=DFe?= !", "Re: Grüße !"),
        ("=?utf-8?b?####?= =?x?q?a?= =?utf-8?z?a?=", "a =?utf-8?z?a?="),
        ("=?utf-8?q?a=0D=0ABcc:_x?=", "a Bcc: x"),
        ("Gr\u00fc\u00dfe", "Grüße"),
        ("=?utf-8*de?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
    ],
)
def test_a_field_is_decoded_however_it_was_encoded(raw: str, value: str) -> None:
    assert Headers(f"Subject: {raw}\r\n\r\n".encode()).get("subject") == value
    assert Headers(f"Subject: {raw}\r\n\r\n".encode("cp1252")).get("subject") == value


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ("filename=plain.txt", "plain.txt"),
        ('filename="two words; and \\"more\\".txt"', 'two words; and "more".txt'),
        ("filename*=utf-8''t%C3%A4glich%20%F0%9F%98%80.txt", "täglich 😀.txt"),
        ("filename*0*=utf-8''t%C3; filename*1*=%A4glich; filename*2=\".txt\"", "täglich.txt"),
        ('filename="=?utf-8?q?t=C3=A4glich.txt?="', "täglich.txt"),
        ('filename="täglich.txt"', "täglich.txt"),
        ('filename="../../etc/passwd"', "../../etc/passwd"),
        ('filename="unterminated.txt', "unterminated.txt"),
    ],
)
def test_a_file_has_the_name_that_it_was_given_in_any_notation(disposition: str, name: str) -> None:
    (file,) = read(f"Content-Type: text/plain\nContent-Disposition: attachment; {disposition}", b"x").files
    assert (file.name, file.content) == (name, b"x")


ALTERNATIVES = b"""--b
Content-Type: multipart/alternative; boundary=c

--c
Content-Type: text/plain

plain
--c
Content-Type: multipart/related; boundary=d

--d
Content-Type: text/html

<p>html</p>
--d
Content-Type: image/png
Content-ID: <logo>

small
--d--
--c--
--b
Content-Type: application/pgp-signature

x
--b
Content-Type: message/rfc822

Subject: inner

inner text
--b--
"""


def test_of_alternatives_the_plain_text_counts_and_files_are_kept_without_logos_and_signatures() -> None:
    mail = read("Content-Type: multipart/mixed; boundary=b", ALTERNATIVES)
    assert (mail.text.strip(), mail.html) == ("plain", "")
    assert [(file.name, file.media) for file in mail.files] == [("message.eml", "message/rfc822")]
    html = read("Content-Type: multipart/mixed; boundary=b", ALTERNATIVES.replace(b"\nplain\n", b"\n\n"))
    assert (html.text, html.html.strip()) == ("", "<p>html</p>")


@pytest.mark.parametrize(
    ("header", "body", "text"),
    [
        ("Content-Type: multipart/mixed", b"no boundary", "no boundary"),
        ("Content-Type: multipart/mixed; boundary=b", b"never begins", "never begins"),
        ("Content-Type: multipart/mixed; boundary=b", b"--b\r\n\r\nnever ends", "never ends"),
        ("Content-Type: nonsense", b"hello", "hello"),
        ("Content-Type: text/plain\nContent-Transfer-Encoding: base64", b"aGVsbG8!", "hello"),
        ("Content-Type: text/plain\nContent-Transfer-Encoding: quoted-printable", b"he=6Clo=", "hello"),
        ("Content-Type: text/plain\nContent-Transfer-Encoding: nonsense", b"hello", "hello"),
        ("X-Other: x", b"hello", "hello"),
        (
            "Content-Type: text/plain; format=flowed; delsp=yes",
            b"> a \r\n> b\r\nc d \r\ne\r\n-- \r\nx",
            "> ab\nc de\n-- \nx",
        ),
    ],
)
def test_a_broken_mail_has_a_text(header: str, body: bytes, text: str) -> None:
    assert read(header, body).text == text


def test_parts_without_end_are_read_up_to_a_limit() -> None:
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(2000))
    read_mail(deep)
    many = read("Content-Type: multipart/mixed; boundary=b", b"--b\r\n\r\nx\r\n" * 5000)
    assert many.text.count("x") < 1000


@given(
    st.binary(max_size=2000), st.sampled_from(["text/plain", "text/html", "multipart/mixed; boundary=b", "message/rfc822"])
)
def test_no_mail_raises_an_error(body: bytes, kind: str) -> None:
    raw = f"Content-Type: {kind}; charset=iso-2022-kr\r\nContent-Transfer-Encoding: uuencode\r\n\r\n".encode() + body
    mail = read_mail(raw)
    markdown_of_html(mail.html)
    new_text(mail.text, reply=True)
    headers = Headers(body)
    author = author_of(headers)
    if author is not None:
        why_not_believed(headers, author, "x")


@given(st.text(max_size=200))
def test_no_field_raises_an_error(text: str) -> None:
    decoded_words(text)
    decoded_words(f"=?{text}?=")


# --- HTML -------------------------------------------------------------------------------------------------------------


def test_html_becomes_markdown_without_what_is_not_seen() -> None:
    html = """<head><title>x</title><style>p {}</style></head><div style="display:none">preview</div>
        <p>Hello <b>Ana</b>, see <a href="https://x.org/a">this</a> &amp; <a href="javascript:x">that</a>.<img src="http://t/1">
        <ul><li>one<li>two<ol><li>deep</ol></ul><pre>a
  b</pre><script>x</script><table><tr><td>1<td>2</table><blockquote>said<br>before</blockquote><!-- c -->1 < 2"""
    assert markdown_of_html(html) == (
        "Hello **Ana**, see [this](https://x.org/a) & that.\n\n- one\n- two\n  1. deep\n\n"
        "```\na\n  b\n```\n\n1 | 2\n\n> said\n> before\n\n1 < 2"
    )


@pytest.mark.parametrize(
    "piece",
    ["<", "<!--", '<a b="', "<a b=", "&#9", "<!", "<b>", "<ul><li>", "<blockquote>", "<br>", "</p>", "<a href=x>y", " "],
)
def test_hostile_html_takes_time_in_proportion(piece: str) -> None:
    began = time.process_time()
    markdown_of_html(piece * (500_000 // len(piece)))
    assert time.process_time() - began < 10  # what grows with the square takes minutes


def test_an_answer_in_html_loads_and_runs_nothing_and_shows_where_links_lead() -> None:
    html = html_of_markdown(
        "<script>x</script> ![pixel](https://t/1.png) [bank.example](https://evil.example/) [here](https://x.org/)"
        " [x](javascript:x) <https://x.org/?a=1&b=2>\n\n```html\n<b>\n```"
    )
    assert "<script" not in html
    assert "<img" not in html
    assert "javascript:x</a>" not in html
    assert '<a href="https://evil.example/">bank.example</a> (https://evil.example/)' in html
    assert '<a href="https://x.org/">here</a> ' in html
    assert '<a href="https://x.org/?a=1&amp;b=2">https://x.org/?a=1&amp;b=2</a></p>' in html
    assert "<code>&lt;b&gt;\n</code>" in html


# --- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("Yes.\n\nOn Mon, Nov 23, 2026 at 7:00 PM Bot <bot@x.org> wrote:\n\n> a\n>\n> b\n", "Yes."),
        ("Yes.\n\nOn Mon, Nov 23, 2026 at 7:00 PM Bot\n<bot@x.org> wrote:\n> a\n\n-- \nAna", "Yes."),
        ("> question\n\nYes below.\n-- \nAna", "Yes below."),
        ("On Monday Bot wrote:\n> one\nfirst\n> two\nsecond", "On Monday Bot wrote:\n> one\nfirst\n> two\nsecond"),
        ("Yes\n\n-----Original Message-----\nFrom: Bot\nold", "Yes"),
        ("Ja\n\nVon: Bot <b@x>\nGesendet: Montag\nAn: Ana\nBetreff: AW: x\n\nalt", "Ja"),
        ("Ja\n________________________________\nVon: x\nalt", "Ja"),
        ("/approve k3f9 once\n\nSent from my iPhone", "/approve k3f9 once"),
        ("Gut:\n    x = 1\n\nAm 23.11.26 um 19:00 schrieb Bot:\n> alt", "Gut:\n    x = 1"),
        ("> only quoted", "> only quoted"),
        ("A list:\n--\nno", "A list:"),
        ("From: me\nto you", "From: me\nto you"),
        ("", ""),
    ],
)
def test_of_a_reply_the_new_text_counts(text: str, new: str) -> None:
    assert new_text(text, reply=True) == new


def test_of_a_first_mail_only_the_signature_is_removed() -> None:
    assert new_text("Look:\n> quoted\n\n-- \nAna", reply=False) == "Look:\n> quoted"


def test_marks_of_replies_are_removed_from_subjects() -> None:
    assert [subject_without_marks(each) for each in ("Re: AW: Tea", "RE[2]: Tea", "Regarding tea", "Re:")] == [
        "Tea",
        "Tea",
        "Regarding tea",
        "",
    ]


# --- senders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "address", "name"),
    [
        ("From: ana@x.org", "ana@x.org", ""),
        ("From: Ana <ANA@X.org>", "ana@x.org", "Ana"),
        ('From: "ana@x.org" <eve@y.org>', "eve@y.org", "ana@x.org"),
        ('From: "<ana@x.org>" <eve@y.org>', "eve@y.org", "<ana@x.org>"),
        ("From: =?utf-8?q?=22ana=40x=2Eorg=22?= <eve@y.org>", "eve@y.org", '"ana@x.org"'),
        ("From: Ana <ana@x.org> (at home)", "ana@x.org", "Ana"),
        ("From: ana@x.org, eve@y.org", None, ""),
        ("From: <ana@x.org> <eve@y.org>", None, ""),
        ("From: ana@x.org\r\nFrom: eve@y.org", None, ""),
        ("From: =?utf-8?q?ana=40x=2Eorg?=", None, ""),
        ("From: Ana", None, ""),
        ("To: ana@x.org", None, ""),
    ],
)
def test_the_author_is_the_one_address_of_the_one_field(field: str, address: str | None, name: str) -> None:
    author = author_of(Headers(f"{field}\r\n\r\n".encode()))
    assert (author and author.address, author.name if author else "") == (address, name)


@pytest.mark.parametrize(
    ("results", "believed"),
    [
        (["mx.test; dmarc=pass (p=none) header.from=x.org"], True),
        (["MX.test 1;\r\n spf=fail smtp.mailfrom=y.org;\r\n dmarc=pass header.from=X.org"], True),
        (["mx.test; dkim=pass header.d=x.org; spf=pass smtp.mailfrom=bounce@x.org"], True),
        (["mx.test; dmarc=none header.from=x.org; dkim=pass header.i=@x.org; spf=pass smtp.mailfrom=x.org"], True),
        ([], False),
        (["mx.test; none"], False),
        (["other.test; dmarc=pass header.from=x.org"], False),
        (["mx.test.evil; dmarc=pass header.from=x.org"], False),
        (["mx.test; dmarc=pass header.from=y.org"], False),
        (["mx.test; dmarc=pass"], False),
        (["mx.test; dmarc=fail header.from=x.org", "mx.test; dmarc=pass header.from=x.org"], False),
        (["mx.test; dmarc=fail header.from=x.org; dkim=pass header.d=x.org; spf=pass smtp.mailfrom=x.org"], False),
        (["mx.test; dmarc=fail (dmarc=pass header.from=x.org) header.from=x.org"], False),
        (['mx.test; dmarc=fail reason="; dmarc=pass header.from=x.org" header.from=x.org'], False),
        (["mx.test; spf=fail (; dmarc=pass header.from=x.org"], False),
        (["mx.test; dkim=pass header.d=x.org"], False),
        (["mx.test; spf=pass smtp.mailfrom=x.org"], False),
        (["mx.test; dkim=pass header.d=evil-x.org; spf=pass smtp.mailfrom=x.org"], False),
        (["mx.test; dkim=pass header.d=y.org; spf=pass smtp.mailfrom=x.org@y.org"], False),
        (["(mx.test; dmarc=pass header.from=x.org) evil; dmarc=pass header.from=x.org"], False),
    ],
)
def test_an_author_is_believed_only_if_the_own_server_says_so(results: list[str], believed: bool) -> None:
    fields = "".join(f"Authentication-Results: {each}\r\n" for each in results)
    headers = Headers(f"{fields}From: ana@x.org\r\n\r\n".encode())
    author = author_of(headers)
    assert author is not None
    assert (why_not_believed(headers, author, "mx.test") == "") is believed


@pytest.mark.parametrize(
    "field",
    [
        "Auto-Submitted: auto-generated",
        "Auto-Submitted: auto-replied; owner-email=x",
        "Precedence: bulk",
        "Precedence: Junk",
        "List-Id: <x>",
        "List-Unsubscribe: <x>",
        "X-Auto-Response-Suppress: OOF",
        "X-Autoreply: yes",
        "Return-Path: <>",
        "Content-Type: multipart/report; report-type=delivery-status",
    ],
)
def test_a_mail_of_a_program_is_recognised(field: str) -> None:
    headers = Headers(f"{field}\r\nFrom: ana@x.org\r\n\r\n".encode())
    author = author_of(headers)
    assert author is not None
    assert why_automatic(headers, author, frozenset({"bot@x.org"}))


@pytest.mark.parametrize(
    ("address", "automatic"),
    [
        ("bot@x.org", True),
        ("MAILER-DAEMON@x.org", True),
        ("no-reply@x.org", True),
        ("noreply+1@x.org", True),
        ("postmaster@x.org", True),
        ("ana@x.org", False),
        ("norepl@x.org", False),
        ("bouncer@x.org", False),
    ],
)
def test_some_addresses_are_never_answered(address: str, automatic: bool) -> None:
    headers = Headers(f"From: {address}\r\nAuto-Submitted: no\r\nReturn-Path: <ana@x.org>\r\n\r\n".encode())
    author = author_of(headers)
    assert author is not None
    assert bool(why_automatic(headers, author, frozenset({"bot@x.org"}))) is automatic


REPORT = """--b

Your mail failed.
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.test

Final-Recipient: rfc822; ana@x.org
Action: {action}
Status: 5.1.1
Diagnostic-Code: smtp; 550 No such user

--b
Content-Type: text/rfc822-headers

Message-ID: {id}
--b--
"""


@pytest.mark.parametrize(
    ("action", "message_id", "noted"),
    [
        ("failed", f"<exuvia.none.{'0' * 24}@x.org>", ["550 No such user"]),
        ("delayed", f"<exuvia.none.{'0' * 24}@x.org>", []),
        ("failed", "<somebody.else@x.org>", []),
    ],
)
def test_a_report_about_our_mail_is_understood(action: str, message_id: str, noted: list[str]) -> None:
    body = REPORT.format(action=action, id=message_id).encode()
    mail = read("Content-Type: multipart/report; report-type=delivery-status; boundary=b", body)
    found = list(bounces(mail, our_ids("x.org")))
    assert [bounce.reason for bounce in found] == noted
    assert all(bounce.recipient == "ana@x.org" for bounce in found)


def test_every_notation_of_a_thread_is_found_in_our_ids() -> None:
    for thread, domain in product(("none", "0123456789abcdef"), ("x.org", "a-b.x.org")):
        found = our_ids(domain).fullmatch(f"<exuvia.{thread}.{'a' * 24}@{domain}>")
        assert found is not None
        assert found[1] == thread
    assert our_ids("x.org").fullmatch(f"<exuvia.none.{'a' * 24}@x-org>") is None

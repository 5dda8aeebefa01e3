"""What a request of a webhook contains, and its signature.

The signature is the HMAC-SHA256 of the body as it is sent, in the header `X-Signature-256: sha256=` and hexadecimal digits.
The body contains the time at which it was signed, so that an old request cannot be sent again by somebody who has seen it.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from plugins.api.channel import InboundFile, InboundMessage, OutboundMessage

SIGNATURE = "x-signature-256"
"""The header, in lower case."""

TOLERANCE_SECONDS = 300.0
"""The largest difference between the time of a request and that of the gateway, in seconds."""


class HookFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file; its content is base64 in JSON."""

    content: bytes
    name: str = ""
    media: str = ""


class InboundHook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to the assistant. `timestamp` is in seconds since 1970; the other fields are those of `InboundMessage`."""

    id: str
    timestamp: float
    sender: str
    chat: str
    text: str = ""
    name: str = ""
    thread: str = ""
    group: bool = False
    mentioned: bool = True
    reply: str = ""
    choice: str = ""
    edits: str = ""
    deletes: str = ""
    reaction: str = ""
    reacts_to: str = ""
    files: tuple[HookFile, ...] = ()

    def message(self) -> InboundMessage:
        """Return the message."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("timestamp", "files")}
        files = tuple(InboundFile(content=file.content, name=file.name, media=file.media) for file in self.files)
        return InboundMessage(**fields, attachments=files)


class HookChoice(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that can be selected: send its `id` as `choice`."""

    id: str
    label: str


class OutboundHook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reply of the assistant. `id` is the same whenever it is sent again, as in the header `Idempotency-Key`."""

    id: str
    timestamp: float
    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""
    again: bool = False
    choices: tuple[HookChoice, ...] = ()
    files: tuple[HookFile, ...] = ()


def encode_reply(message: OutboundMessage, now: float) -> bytes:
    """Return the body of a request for a reply; `now` is the Unix time."""
    return msgspec.json.encode(
        OutboundHook(
            id=message.id,
            timestamp=round(now, 3),
            chat=message.chat,
            text=message.text,
            thread=message.thread,
            reply_to=message.reply_to,
            again=message.again,
            choices=tuple(HookChoice(id=choice.id, label=choice.label) for choice in message.choices),
            files=tuple(HookFile(content=file.content, name=file.name, media=file.media) for file in message.attachments),
        )
    )


def signature_of(body: bytes, secret: str) -> str:
    """Return the value of the header for a body."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def is_signature(text: str) -> bool:
    """Return True if a header has the form of a signature, whoever made it."""
    return len(text) == len("sha256=") + 64 and text.startswith("sha256=") and text.isascii()


def is_signed(body: bytes, signature: str, secret: str) -> bool:
    """Return True if a body has this signature. Takes the same time for every wrong one."""
    return hmac.compare_digest(signature_of(body, secret), signature)

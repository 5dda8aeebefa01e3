"""What servers return, as outputs of tools: texts for the model, pictures and files for the person, all within bounds."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import mcp_types
import msgspec

from plugins.api.tool import OutputFile, ToolOutput
from plugins.mcp.definitions import one_visible_line
from plugins.support.errors import ToolFailed

TEXT_LENGTH = 4 * 1024 * 1024
"""Characters of a result; the rest is cut."""

FAILURE_LENGTH = 8_000
"""Characters of a result that reports a failure."""

FILES = 20
"""Files of a result; the others are named."""

BLOCKS = 10_000
"""Parts of a result that are read."""


class _Page:
    """The output of one result while it is put together."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.files: list[OutputFile] = []
        self._room = TEXT_LENGTH

    def write(self, text: str) -> None:
        """Add a text as far as there is room."""
        if text and self._room > 0:
            whole = len(text) <= self._room
            self.texts.append(text if whole else f"{text[: self._room]}\n[cut: the result is too long]")
            self._room -= len(text)

    def keep(self, encoded: str, media: str | None, name: str) -> None:
        """Add a file in base64, and a line about it."""
        media = one_visible_line(media or "application/octet-stream", 100)
        try:
            content = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            self.write(f"[{media}: it is not base64]")
            return
        kept = len(self.files) < FILES
        if kept:
            self.files.append(OutputFile(content=content, media=media, name=one_visible_line(name, 100)))
        self.write(f"[{media}, {len(content):,} bytes{', shown to the person' if kept else ', left out'}]")

    def output(self) -> ToolOutput:
        """Return all of it."""
        return ToolOutput(text="\n\n".join(self.texts), attachments=tuple(self.files))


def tool_output(result: mcp_types.CallToolResult) -> ToolOutput:
    """Return the output of a call.

    Raises:
        ToolFailed: The server reports a failure.
    """
    page = _Page()
    _write_blocks(page, result.content)
    if result.structured_content is not None and not _repeats(page.texts, result.structured_content):
        page.write(_json(result.structured_content))
    output = page.output()
    if result.is_error:
        raise ToolFailed(output.text[:FAILURE_LENGTH] or "The tool failed without a reason.")
    return output


def resource_output(result: mcp_types.ReadResourceResult) -> ToolOutput:
    """Return the content of a resource."""
    page = _Page()
    for content in result.contents[:BLOCKS]:
        _write_resource(page, content)
    return page.output()


def prompt_text(result: mcp_types.GetPromptResult) -> str:
    """Return the messages of a prompt as one text; what is no text is named."""
    page = _Page()
    for message in result.messages[:BLOCKS]:
        _write_blocks(page, [message.content])
    return page.output().text


def _write_blocks(page: _Page, blocks: Sequence[Any]) -> None:
    for block in blocks[:BLOCKS]:
        match block:
            case mcp_types.TextContent(text=text):
                page.write(text)
            case mcp_types.ImageContent(data=data, mime_type=media) | mcp_types.AudioContent(data=data, mime_type=media):
                page.keep(data, media, "")
            case mcp_types.ResourceLink(uri=uri, name=name):
                page.write(f"[resource {one_visible_line(name, 200)}: {one_visible_line(str(uri), 2000)}]")
            case mcp_types.EmbeddedResource(resource=resource):
                _write_resource(page, resource)
            case _:
                page.write(f"[content of the type {one_visible_line(str(getattr(block, 'type', '')), 50)}, not shown]")
    if len(blocks) > BLOCKS:
        page.write(f"[cut: {len(blocks):,} parts]")


def _write_resource(page: _Page, resource: mcp_types.TextResourceContents | mcp_types.BlobResourceContents) -> None:
    if isinstance(resource, mcp_types.TextResourceContents):
        page.write(resource.text)
    else:
        page.keep(resource.blob, resource.mime_type, str(resource.uri).rpartition("/")[2])


def _repeats(texts: Sequence[str], structured: object) -> bool:
    """Return True if the texts are this value already: as JSON, as servers add it for older clients, or as they are, which
    the Python SDK wraps into an object."""
    wrapped = structured.get("result") if isinstance(structured, dict) and len(structured) == 1 else None
    if wrapped is not None and wrapped in ("\n".join(texts), list(texts)):
        return True
    for text in texts:
        if text.lstrip()[:1] in ("{", "["):
            try:
                if msgspec.json.decode(text) in (structured, wrapped):
                    return True
            except (msgspec.MsgspecError, RecursionError):
                continue
    return False


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return "[structured content that is not JSON]"

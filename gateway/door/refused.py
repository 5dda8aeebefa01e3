"""Why a frame was not done, as the client is told."""

from __future__ import annotations

from gateway.door import frames
from gateway.door.uploads import UnknownAttachment
from gateway.errors import Busy, Conflict, sentence_of


class Refused(Exception):
    """A frame asks what cannot be done; `code` and fields go into the `error` frame."""

    def __init__(self, code: str, sentence: str, **fields: int) -> None:
        super().__init__(sentence)
        self.code = code
        self.fields = fields


def error_frame(error: Exception, frame_id: str | None) -> bytes:
    """The `error` frame for what went wrong with the frame of this id."""
    match error:
        case Refused():
            return frames.error(error.code, str(error), frame_id, **error.fields)
        case UnknownAttachment():
            return frames.error("bad_request", str(error), frame_id)
        case Conflict():
            return frames.error("conflict", str(error), frame_id)
        case Busy():
            return frames.error("busy", str(error), frame_id, retry_after=1)
        case _:
            return frames.error("storage_failed", sentence_of(error), frame_id)

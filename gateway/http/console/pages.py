"""The console's files: the page, and what it loads, from this gateway alone.

All are read once, when the first is asked for. Their paths hold a digest of the whole, so that a browser keeps them for
good and yet never mixes two versions.
"""

from __future__ import annotations

import asyncio
import gzip
from hashlib import sha256
from pathlib import Path

import msgspec
from aiohttp import web

from gateway.http.responses import HEADERS, refusal

FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        # No string ever becomes markup, by whatever slip: what strangers wrote is shown, and never run.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""What a page of ours may do: load and call the gateway, and nothing else."""

PAGE_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}

KEPT = "public, max-age=31536000, immutable"
_SMALLEST_PACKED = 1024
_MEDIA = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}


class File(msgspec.Struct, frozen=True):
    """One file: its bytes, as they are and packed by gzip, and its media type."""

    body: bytes
    packed: bytes | None
    media: str


class Files(msgspec.Struct, frozen=True):
    """All of them by their paths under the folder; `digest` names this state of them."""

    by_path: dict[str, File]
    digest: str


def read_files(folder: Path = FOLDER) -> Files:
    """Read all files of a folder that a browser can use. In the page, `{digest}` becomes the digest of all."""
    bodies = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.suffix in _MEDIA
    }
    digest = sha256(b"".join(name.encode() + sha256(body).digest() for name, body in bodies.items())).hexdigest()[:16]
    bodies[PAGE] = bodies[PAGE].replace(b"{digest}", digest.encode())
    return Files({name: _file(name, body) for name, body in bodies.items()}, digest)


def _file(name: str, body: bytes) -> File:
    packed = gzip.compress(body, mtime=0) if len(body) >= _SMALLEST_PACKED else None
    return File(body, packed, _MEDIA[Path(name).suffix])


class Pages:
    """Gives the files out."""

    def __init__(self) -> None:
        self._files: asyncio.Future[Files] | None = None

    async def page(self, request: web.Request) -> web.Response:
        """The page itself, which is asked for anew each time."""
        return _given(request, (await self._read()).by_path[PAGE], PAGE_HEADERS)

    async def file(self, request: web.Request) -> web.Response:
        """What it loads; 404 for everything else, also for files of another version."""
        files = await self._read()
        found = files.by_path.get(request.match_info["path"]) if request.match_info["digest"] == files.digest else None
        if found is None:
            return refusal(404, "unknown_file", "The console has no such file; load the page again.")
        return _given(request, found, {**PAGE_HEADERS, "Cache-Control": KEPT})

    async def _read(self) -> Files:
        if self._files is None:
            self._files = asyncio.ensure_future(asyncio.to_thread(read_files))
        return await asyncio.shield(self._files)


def _given(request: web.Request, file: File, headers: dict[str, str]) -> web.Response:
    headers = {**headers, "Vary": "Accept-Encoding"}
    body = file.body
    if file.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        body, headers["Content-Encoding"] = file.packed, "gzip"
    return web.Response(body=body, content_type=file.media, charset="utf-8", headers=headers)

"""The console's public routes: its static files, from this gateway only, and sign-in.

The files are read once, at the first request. Their paths contain a digest of all files, so a browser can cache them
permanently and never mixes two versions.
"""

from __future__ import annotations

import asyncio
import gzip
import posixpath
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from aiohttp import web

from gateway.auth.people_log import PeopleLog
from gateway.http.console.signing_in import SignInEndpoints
from gateway.http.responses import HEADERS, refusal
from gateway.http.websocket_connection import ConnectionServices

FOLDER = Path(__file__).parent / "static"
PAGE, SHARED, SCRIPT, WORKER = "index.html", "shared/shared.html", "app.js", "service_worker.js"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        # No string ever becomes markup: untrusted text is shown and never executed. The one policy names the service worker.
        "require-trusted-types-for 'script'",
        "trusted-types service-worker",
    )
)
"""The content security policy: pages load from and connect to the gateway only."""

PAGE_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(self)",
    "X-Frame-Options": "DENY",
}

FRAME = "answer/diagram_frame.html"
FRAME_SCRIPTS = ("vendor/mermaid.js", "answer/diagram_frame.js")
FRAME_POLICY = "; ".join(
    (
        "sandbox allow-scripts",
        "default-src 'none'",
        "script-src {scripts}",
        "style-src 'unsafe-inline'",
        "form-action 'none'",
        "frame-ancestors 'self'",
        "base-uri 'none'",
    )
)
"""The policy of the document in which Mermaid draws, which writes markup and styles. The document has an origin of its own,
runs the scripts that it contains, by their digests, and loads nothing."""

KEPT = "public, max-age=31536000, immutable"
_IMPORT = re.compile(rb'^(?:im|ex)port\b[^;"]*"(\.[^"]+)";', re.MULTILINE)
_PRELOAD = '<link rel="modulepreload" href="/console/{digest}/%s">'
_SMALLEST_PACKED = 1024
_LARGEST_OFFLINE = 256 * 1024
_MEDIA = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
_INCOMPRESSIBLE = ("image/png", "font/woff2")


class File(msgspec.Struct, frozen=True):
    """One file: its bytes and its media type."""

    body: bytes
    media: str

    @property
    def compressible(self) -> bool:
        """True if the file is worth being compressed."""
        return len(self.body) >= _SMALLEST_PACKED and self.media not in _INCOMPRESSIBLE


class Files(msgspec.Struct, frozen=True):
    """All files by their paths below the folder, the digest that identifies this version, and the policy of the frame."""

    by_path: dict[str, File]
    digest: str
    frame_policy: str


def read_files(folder: Path = FOLDER) -> Files:
    """Read all files of a folder that browsers use. In the pages and the worker, `{digest}` becomes the digest of all,
    and `{files}` the paths of those that the page needs without a connection; in the frame, `{scripts}` becomes its
    scripts. `{modules}` become links that load the page's modules at once, not one after the other as they are found."""
    bodies = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.suffix in _MEDIA
    }
    digest = sha256(b"".join(name.encode() + sha256(body).digest() for name, body in bodies.items())).hexdigest()[:16]
    scripts = [bodies.pop(name) for name in FRAME_SCRIPTS]
    modules = "\n".join(_PRELOAD % name for name in imported(bodies, SCRIPT))
    bodies[PAGE] = bodies[PAGE].replace(b"{modules}", modules.encode())
    offline = " ".join(name for name, body in bodies.items() if _is_kept_offline(name, body))
    for name in (PAGE, SHARED, WORKER):
        bodies[name] = bodies[name].replace(b"{digest}", digest.encode()).replace(b"{files}", offline.encode())
    bodies[FRAME] = bodies[FRAME].replace(b"{scripts}", b"".join(b"<script>%b</script>" % script for script in scripts))
    policy = FRAME_POLICY.format(
        scripts=" ".join(f"'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    )
    return Files({name: File(body, _MEDIA[Path(name).suffix]) for name, body in bodies.items()}, digest, policy)


def imported(bodies: Mapping[str, bytes], script: str) -> list[str]:
    """Return the modules that a script imports when it starts, directly or not."""
    found = [script]
    for name in found:  # which grows
        paths = (
            posixpath.normpath(posixpath.join(posixpath.dirname(name), path.decode()))
            for path in _IMPORT.findall(bodies[name])
        )
        found += [path for path in dict.fromkeys(paths) if path not in found]
    return found[1:]


def _is_kept_offline(name: str, body: bytes) -> bool:
    return name.endswith((".js", ".css", ".svg")) and name != WORKER and len(body) <= _LARGEST_OFFLINE


class Pages:
    """Serves the files. Each is compressed at the first request for it: some are large and rarely needed."""

    def __init__(self) -> None:
        self._files: asyncio.Future[Files] | None = None
        self._packed: dict[str, asyncio.Future[bytes]] = {}

    async def page(self, request: web.Request) -> web.Response:
        """Return the page itself, which is never cached."""
        return await self._response(request, PAGE, (await self._read()).by_path[PAGE], PAGE_HEADERS)

    async def worker(self, request: web.Request) -> web.Response:
        """Return the service worker, which is never cached. Its path is above all paths that it serves."""
        return await self._response(request, WORKER, (await self._read()).by_path[WORKER], PAGE_HEADERS)

    async def shared(self, request: web.Request) -> web.Response:
        """Return the page of a link to a conversation, the same for every link."""
        return await self._response(request, SHARED, (await self._read()).by_path[SHARED], PAGE_HEADERS)

    async def file(self, request: web.Request) -> web.Response:
        """Return a file; 404 for unknown ones and for those of another version."""
        files = await self._read()
        path = request.match_info["path"]
        found = files.by_path.get(path) if request.match_info["digest"] == files.digest else None
        if found is None:
            return refusal(404, "unknown_file", "Not found; reload the page.")
        frame = {"Content-Security-Policy": files.frame_policy, "X-Frame-Options": "SAMEORIGIN"} if path == FRAME else {}
        return await self._response(request, path, found, {**PAGE_HEADERS, **frame, "Cache-Control": KEPT})

    async def _read(self) -> Files:
        if self._files is None:
            self._files = asyncio.ensure_future(asyncio.to_thread(read_files))
        return await asyncio.shield(self._files)

    async def _response(self, request: web.Request, path: str, file: File, headers: dict[str, str]) -> web.Response:
        headers = {**headers, "Vary": "Accept-Encoding"}
        body = file.body
        if file.compressible and "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = await self._compressed(path, body), "gzip"
        charset = None if file.media in _INCOMPRESSIBLE else "utf-8"
        return web.Response(body=body, content_type=file.media, charset=charset, headers=headers)

    async def _compressed(self, path: str, body: bytes) -> bytes:
        if path not in self._packed:
            self._packed[path] = asyncio.ensure_future(asyncio.to_thread(gzip.compress, body, mtime=0))
        return await asyncio.shield(self._packed[path])


def console_routes(services: ConnectionServices, people: PeopleLog) -> list[web.RouteDef]:
    """Return the public routes; `wiring` has those for authenticated requests."""
    pages, signing_in = Pages(), SignInEndpoints(services.access, services.program, people)
    return [
        web.get("/", pages.page),
        web.get("/shared/{secret:[A-Za-z0-9_-]{1,100}}", pages.shared),
        web.get("/service-worker.js", pages.worker),
        web.get(r"/console/{digest:[0-9a-f]{1,64}}/{path:[A-Za-z0-9_./-]{1,100}}", pages.file),
        web.get("/api/session", signing_in.session),
        web.post("/api/sign-in", signing_in.sign_in),
        web.post("/api/sign-out", signing_in.sign_out),
    ]

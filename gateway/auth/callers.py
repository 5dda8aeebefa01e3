"""Callers: who sends a request, by its token, or by the cookie that a browser has instead.

A browser sends a cookie along with every request to its host, whoever's page asks. So a cookie counts only where the browser
says that the page is the gateway's own: another program on the same host, at another port, is the same *site* to it.
"""

from __future__ import annotations

from aiohttp import web

from gateway.auth.access import Access, NotAuthorized
from gateway.auth.people import Admission

_READING = ("GET", "HEAD")


def caller(request: web.Request, access: Access) -> Admission:
    """Who sends a request: by its header `Authorization` where it has one, else by its cookie. NotAdmitted."""
    if "Authorization" in request.headers or (admission := by_cookie(request, access)) is None:
        return access.admit_by_header(request.headers.get("Authorization", ""), request.remote or "")
    return admission


def by_cookie(request: web.Request, access: Access) -> Admission | None:
    """Whom the cookie of a request names, if one of our own pages sent it; None otherwise."""
    cookie = request.cookies.get(access.cookie)
    if cookie is None or not _is_ours(request, access):
        return None
    try:
        return access.admit_by_cookie(cookie)
    except NotAuthorized:
        return None


def _is_ours(request: web.Request, access: Access) -> bool:
    """Whether the browser says that a page of ours asks. Only what is merely read may come without an `Origin`."""
    if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("Origin")
    if origin is None:
        return request.method in _READING and "Upgrade" not in request.headers
    return access.is_own_page(origin, request.headers.get("Host"))

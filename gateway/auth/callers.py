"""Identify the sender of an HTTP request by its token or its session cookie.

A browser sends a cookie with every request to its host, whichever page makes it. So a cookie is accepted only if the browser
reports that the page is the gateway's own: to it, another program on the same host at another port is the same *site*.
"""

from __future__ import annotations

from aiohttp import web

from gateway.auth.access import Access, NotAuthorized
from gateway.auth.people import Admission

_READING = ("GET", "HEAD")


def caller(request: web.Request, access: Access) -> Admission:
    """Return the admission of a request's sender, by the header `Authorization` or else by the cookie.

    Raises:
        NotAuthorized: Neither grants access.
    """
    if "Authorization" in request.headers or (admission := by_cookie(request, access)) is None:
        return access.admit_by_header(request.headers.get("Authorization", ""), request.remote or "")
    return admission


def by_cookie(request: web.Request, access: Access) -> Admission | None:
    """Return the admission that a request's cookie grants, if one of our own pages sent it; None otherwise."""
    cookie = request.cookies.get(access.cookie)
    if cookie is None or not _is_ours(request, access):
        return None
    try:
        return access.admit_by_cookie(cookie)
    except NotAuthorized:
        return None


def _is_ours(request: web.Request, access: Access) -> bool:
    """Return True if the browser reports that one of our pages made the request. Only reads may lack an `Origin`."""
    if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("Origin")
    if origin is None:
        return request.method in _READING and "Upgrade" not in request.headers
    return access.is_own_page(origin, request.headers.get("Host"))

"""Requests that a browser makes for the pages of another site.

Where no key is needed whoever reaches the port may do everything, and every site can have its visitors'
browsers reach this machine. They say for whom they ask; what carries a key was given it by somebody.
"""

from __future__ import annotations

import re

from starlette.types import Scope

from service.api.problems import Problem

TELLING = b"origin", b"sec-fetch-site"  # headers only browsers send
# Hosts that no other site can have lead here: a name is whatever its owner says it is.
LASTING = re.compile(rb"(?:(?:[^:/@]+\.)?localhost|[0-9.]+|\[[0-9a-f:.]+\])(?::[0-9]+)?")


async def refuse_foreign(scope: Scope) -> None:
    """403 for what a page of another site asks, unless it has a key or only leads here."""
    headers = {name: value.lower() for name, value in reversed(scope["headers"])}
    if not any(name in headers for name in TELLING):
        return
    # A key that is none says nothing: scripts of a name that leads here now may send what they like.
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    if await scope["app"].state.gate.knows(given.decode("latin-1")):
        return
    site = headers.get(b"sec-fetch-site")
    if site is None:
        is_own = _is_own(headers[b"origin"], headers.get(b"host", b""))
    else:
        leads_here = headers.get(b"sec-fetch-mode") == b"navigate" and scope["path"] != "/next"
        is_own = site in (b"same-origin", b"none") or (leads_here and scope["method"] in ("GET", "HEAD"))
    if not is_own:
        raise Problem(403, "a page of another site asked for this: it needs a key")


def _is_own(origin: bytes, host: bytes) -> bool:
    """Whether a browser that says no more (an old one, or over plain HTTP) asks for a page of this service.

    Only where the host is an address or this machine's own name: another may have led to the page of another
    site before, and here since. Whoever knows the service by such a name has a key, or HTTPS in front of it.
    """
    return origin.partition(b"://")[2] == host and LASTING.fullmatch(host) is not None

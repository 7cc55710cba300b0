"""GET /: the operator's page. Static files, read once; everything it shows comes from the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

# Nothing inline and nothing from elsewhere: markup that slipped into a page could neither run nor load.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
FILES = {
    "/": ("index.html", "text/html"),
    "/dashboard/app.js": ("app.js", "text/javascript"),
    "/dashboard/style.css": ("style.css", "text/css"),
    "/dashboard/icon.svg": ("icon.svg", "image/svg+xml"),
}

router = APIRouter()


def _serve(name: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    """A route that answers with one file of the dashboard."""
    content = (files("service") / "dashboard" / name).read_bytes()

    async def answer() -> Response:
        return Response(content, headers=HEADERS, media_type=media_type)

    return answer


for _path, _file in FILES.items():
    router.add_api_route(_path, _serve(*_file), methods=["GET", "HEAD"], include_in_schema=False)

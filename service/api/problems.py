"""Errors as RFC 9457 problem documents; never a stack trace."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from service.errors import SchedulerError, StoreUnavailable, VersionMoved

log = logging.getLogger("freshet.api")
MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "Malformed request",
    401: "Key needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    412: "Changed meanwhile",
    413: "Body too large",
    422: "Invalid input",
    431: "Head too large",
    500: "Internal error",
    503: "Store unavailable",
}


class Problem(Exception):
    """An answer that refuses; raised by handlers, rendered once."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: list[dict[str, Any]] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.headers = headers or {}


def invalid(loc: list[str | int], msg: str) -> Problem:
    """A 422 that names the place."""
    return Problem(422, msg, errors=[{"loc": loc, "msg": msg}])


def render(problem: Problem) -> Response:
    title = TITLES.get(problem.status, "Error")
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": title,
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.errors is not None:
        body["errors"] = problem.errors
    content = msgspec.json.encode(body)
    return Response(content, problem.status, problem.headers, MEDIA_TYPE)


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Every way a request can fail ends in a problem document."""

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 405:  # where the framework names only the methods of the first route
            headers["Allow"] = ", ".join(_methods_of(routes, request.scope))
        return render(Problem(error.status_code, str(error.detail), headers=headers))

    @app.exception_handler(RequestValidationError)
    async def on_validation(_: Request, error: RequestValidationError) -> Response:
        errors = [{"loc": list(e["loc"]), "msg": e["msg"]} for e in error.errors()]
        return render(Problem(422, errors[0]["msg"] if errors else "invalid", errors=errors))

    @app.exception_handler(Problem)
    @app.exception_handler(SchedulerError)
    @app.exception_handler(Exception)
    async def on_failure(request: Request, error: Exception) -> Response:
        return render(problem_of(error, request.url.path))


def _methods_of(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """What may be done at the path of a request."""
    found = (route for route in routes if route.matches(scope)[0] is not Match.NONE)
    methods = {method for route in found for method in getattr(route, "methods", None) or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def problem_of(error: Exception, path: str) -> Problem:
    """What to answer where a handler failed."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, SchedulerError):
        return _from_scheduler(error)
    if isinstance(error, ClientDisconnect):  # nobody will read it, and nothing went wrong here
        return Problem(400, "the caller hung up before the body was whole")
    log.exception("request_failed", extra={"path": path}, exc_info=error)
    return Problem(500, "the request could not be completed; the log has the cause")


def _from_scheduler(error: SchedulerError) -> Problem:
    if isinstance(error, StoreUnavailable):
        log.warning("store_unavailable", extra={"cause": str(error)})
        return Problem(503, str(error), headers={"Retry-After": "1"})
    if isinstance(error, VersionMoved):
        return Problem(412, str(error))
    return Problem(422, str(error))

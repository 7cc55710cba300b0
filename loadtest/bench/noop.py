"""Endpoints that do nothing, served as the product is: what HTTP alone costs.

`python -m loadtest.bench.noop bare|fastapi PORT`
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from loadtest.bench.servers import Service, free_port, listening
from service.transport import UVICORN

BODY = b'{"pages":[{"url":"%s"}]}' % (b"x" * 370)  # as large as an answer of one page
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))],
}
END = {"type": "http.response.body", "body": BODY}


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """The least an ASGI application can do."""
    del receive
    if scope["type"] == "http":
        await send(START)
        await send(END)


def with_framework() -> FastAPI:
    """The same behind FastAPI's routing."""
    app = FastAPI()

    @app.get("/next")
    async def nothing() -> Response:
        return Response(BODY, media_type="application/json")

    return app


@contextmanager
def noop(kind: str) -> Iterator[Service]:
    """A process that serves one of them; wait for it."""
    port = free_port()
    with listening("loadtest.bench.noop", kind, str(port), port=port, path="/next") as service:
        yield service


def main() -> None:
    kind, port = sys.argv[1:]
    app = bare if kind == "bare" else with_framework()
    gc.collect()
    gc.freeze()  # as the product does
    uvicorn.run(app, host="127.0.0.1", port=int(port), lifespan="off", **UVICORN)


if __name__ == "__main__":
    main()

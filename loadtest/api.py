"""The routes of the service a driver needs, called as ASGI: no socket, no client library.

What an HTTP client would add is time, not behaviour.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
from fastapi import FastAPI

from loadtest.population import Population

PAGES_AT_ONCE = 1000
SIGNALS_AT_ONCE = 500
Knowledge = Literal["known", "nothing"]  # what the service is told of the pages' models


class UnexpectedAnswer(RuntimeError):
    """The service answered what a driver on its own clock must never see."""


class Api:
    """Calls the application and decodes its answers."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def call(self, method: str, path: str, body: bytes = b"", query: str = "") -> Any:
        """The decoded answer; UnexpectedAnswer unless it has a body and says success."""
        status, answer = 0, b""
        finished = asyncio.Event()
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if unread:
                return unread.pop()
            await finished.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status, answer
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                answer += message.get("body", b"")

        await self._app(_scope(method, path, query, len(body)), receive, send)
        finished.set()
        if not 200 <= status < 300 or not answer:
            raise UnexpectedAnswer(f"{method} {path}: {status} {answer.decode()[:200]}")
        return msgspec.json.decode(answer)

    async def put_pages(self, population: Population, knowledge: Knowledge = "known") -> None:
        """Register every page with the truth about it, or with nothing but its importance."""
        pages = _page_items(population, knowledge)
        for begin in range(0, len(pages), PAGES_AT_ONCE):
            body = msgspec.json.encode({"pages": pages[begin : begin + PAGES_AT_ONCE]})
            answer = await self.call("PUT", "/pages", body)
            if answer["rejected"]:
                raise UnexpectedAnswer(f"PUT /pages rejected {answer['rejected'][:3]}")

    async def signal(self, items: list[dict[str, Any]]) -> None:
        for begin in range(0, len(items), SIGNALS_AT_ONCE):
            part = items[begin : begin + SIGNALS_AT_ONCE]
            answer = await self.call("POST", "/signals", msgspec.json.encode({"signals": part}))
            if answer["accepted"] != len(part):
                raise UnexpectedAnswer(f"POST /signals took not all of {len(part)}: {answer}")

    async def next(self) -> dict[str, Any]:
        answer: dict[str, Any] = (await self.call("GET", "/next"))["pages"][0]
        return answer

    async def outcome(self, lease: str, fetched_at: float, changed: bool) -> None:
        item = {"lease": lease, "fetched_at": fetched_at, "status": 200, "changed": changed}
        answer = await self.call("POST", "/outcomes", msgspec.json.encode({"outcomes": [item]}))
        if answer["accepted"] != 1:
            raise UnexpectedAnswer(f"POST /outcomes: {answer}")

    async def set_bandwidth(self, crawls_per_second: float) -> None:
        body = msgspec.json.encode({"crawls_per_second": crawls_per_second})
        await self.call("PUT", "/admin/bandwidth", body)

    async def set_policy(self, **changes: float | str) -> None:
        """Change some fields of the policy, such as `explore`; the others stay as they are."""
        policy = {**await self.call("GET", "/admin/policy"), **changes}
        await self.call("PUT", "/admin/policy", msgspec.json.encode(policy))

    async def page(self, url: str) -> dict[str, Any]:
        answer: dict[str, Any] = await self.call("GET", "/pages", query=urlencode({"url": url}))
        return answer


def _scope(method: str, path: str, query: str, size: int) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % size),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }


def _page_items(population: Population, knowledge: Knowledge) -> list[dict[str, Any]]:
    columns: dict[str, list[Any]] = {"url": population.urls, "importance": population.importance.tolist()}
    if knowledge == "known":
        columns |= {
            "change_rate_per_day": population.change_rate.tolist(),
            "precision": population.precision.tolist(),
            "recall": population.recall.tolist(),
            "fixed": [True] * population.size,
        }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

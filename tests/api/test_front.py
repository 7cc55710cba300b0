"""The hot routes answer before the framework just as they would behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from service import telemetry
from service.api.body import MAX_BODY_BYTES
from service.clock import ManualClock
from tests.api.calls import key_of, lease, put, report, signal

PAGE = "https://one.example/"
Said = tuple[int, dict[str, str], bytes]

QUERIES = [
    *("", "n=1", "n=5", "n=1000", "wait=0", "wait=0.0", "crawler=c-1", "n=2&wait=0&crawler=a.b:c~d"),
    *("n=1&n=2", "other=1", "n=%35", "n=+5", "n=05", "n=5.0", "crawler=a%20b", "crawler=", "&", "n=1&"),
    *("n=0", "n=1001", "n=9999", "n=x", "n=1.5", "n=", "n", "n=-1", "wait=-1", "wait=31", "wait=30.5"),
    *("wait=nan", "wait=inf", "wait=1e1", "wait=", "crawler=" + "x" * 129, "n=0&wait=99", "N=5", "n=1;n=2"),
    *("n=\u0665", "crawler=\u00e9"),
]
BODIES = [
    *(b"", b"{", b"[]", b"null", b"{}", b'{"other": 1}', b"\xff", b"[" * 100_000),
    *(b'{"%s": []}', b'{"%s": {}}', b'{"%s": 5}', b'{"%s": [5]}', b'{"%s": [{}]}', b'{"%s": [{"x": 1}]}'),
    *(b'{"%s": [], "other": 1}', b'{"%s": [5], "%s": []}', b'{"%s": [], "%s": [5]}'),
    *(b'{"%s": [{"url": "nonsense"}]}', b'{"%s": [{"url": "https://two.example/"}, {"url": 5}]}'),
    *(b'{"%s": [{"url": "https://two.example/", "x": "{{{"}]}', b'{"%s": [{"url": "\\ud800"}]}'),
    *(b'{"%s": [' + b"{}," * 1000 + b"{}]}", b'{"%s": [' + b"{}," * 999 + b"{}]}"),
    b'{"%s": []}' + b" " * MAX_BODY_BYTES,
]


def framework_of(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """The same application without what stands before the framework."""
    app: FastAPI = client.app  # type: ignore[attr-defined]

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        await FastAPI.__call__(app, scope, receive, send)

    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=behind, raise_app_exceptions=False), base_url="http://freshet.test"
    )


@pytest.fixture
async def behind(client: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    async with framework_of(client) as framework:
        yield framework


async def both(
    client: httpx.AsyncClient, behind: httpx.AsyncClient, method: str, path: str, **request: Any
) -> tuple[Said, Said]:
    """What each says, with one request id."""
    headers = {"X-Request-Id": "same", **request.pop("headers", {})}
    found = []
    for asked in (client, behind):
        answer = await asked.request(method, path, headers=headers, **request)
        found.append((answer.status_code, dict(answer.headers), answer.content))
    return found[0], found[1]


@pytest.mark.parametrize("query", QUERIES)
async def test_next_reads_its_parameters_alike(
    client: httpx.AsyncClient, behind: httpx.AsyncClient, query: str
) -> None:
    await put(client, *(f"https://h{at}.example/" for at in range(6)))
    front, framework = await both(client, behind, "GET", f"/next?{query}")
    assert front == framework
    assert front[0] in (200, 422)


async def test_every_field_of_a_page_is_written_alike(
    client: httpx.AsyncClient, behind: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    (found,) = await lease(client)
    await report(client, {"lease": found["lease"], "etag": '"\\ \'"', "last_modified": 1.7e9})
    clock.advance(12.3456)
    front, framework = await both(client, behind, "GET", "/next")
    assert front == framework
    assert b'"last_crawled_at":"2023-11-14T22:13:20.000Z"' in front[2]


async def test_nothing_is_said_alike(client: httpx.AsyncClient, behind: httpx.AsyncClient) -> None:
    front, framework = await both(client, behind, "GET", "/next")
    assert front == framework
    assert (front[0], front[1]["x-empty-reason"]) == (204, "no-pages")


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:30].decode("latin-1"))
@pytest.mark.parametrize("route", ["outcomes", "signals"])
async def test_bodies_are_read_alike(
    client: httpx.AsyncClient, behind: httpx.AsyncClient, route: str, body: bytes
) -> None:
    content = body.replace(b"%s", route.encode())
    front, framework = await both(client, behind, "POST", f"/{route}", content=content)
    assert front == framework


async def test_good_items_are_taken_alike(client: httpx.AsyncClient, behind: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    (found,) = await lease(client)
    outcomes, signals = [{"lease": found["lease"], "changed": True}], [{"url": PAGE, "id": "1"}]
    await report(client, *outcomes)
    await signal(client, *signals)
    for route, items in (("outcomes", outcomes), ("signals", signals)):
        front, framework = await both(client, behind, "POST", f"/{route}", json={route: [*items, {"url": 1}]})
        assert front == framework
        assert b'"duplicates":1' in front[2]
        assert b'"index":1' in front[2]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["/next", "/outcomes", "/signals", "/next/", "/%6eext", "//next"])
async def test_methods_and_paths_are_told_apart_alike(
    client: httpx.AsyncClient, behind: httpx.AsyncClient, method: str, path: str
) -> None:
    front, framework = await both(client, behind, method, f"http://freshet.test{path}")
    assert front == framework


@pytest.mark.parametrize("role", ["crawler", "sender", "reader", "operator", ""])
async def test_keys_open_the_same_doors(
    client: httpx.AsyncClient, behind: httpx.AsyncClient, role: str
) -> None:
    header = await key_of(client, role or "operator")
    given = [header, {"Authorization": header["Authorization"].lower()}] if role else [{}]
    for headers in [*given, {"Authorization": "Basic x"}, {"Authorization": "Bearer"}]:
        for method, path in (("GET", "/next"), ("POST", "/outcomes"), ("POST", "/signals")):
            front, framework = await both(client, behind, method, path, headers=headers)
            assert front == framework, (headers, path)


@pytest.mark.parametrize("given", ["abc", "x" * 128, "x" * 129, "a b", "\u00e9", ""])
async def test_request_ids_are_echoed_and_remembered_alike(
    client: httpx.AsyncClient, behind: httpx.AsyncClient, given: str
) -> None:
    await put(client, *(f"https://h{at}.example/" for at in range(4)))
    headers = [(b"X-Request-Id", given.encode("latin-1"))]
    first, second = [await asked.get("/next", headers=headers) for asked in (client, behind)]
    assert (first.content == second.content) == (given != "")
    ids = first.headers["x-request-id"], second.headers["x-request-id"]
    assert (ids == (given, given)) == (given in ("abc", "x" * 128))


async def test_a_handler_that_fails_is_a_500_without_the_cause(
    client: httpx.AsyncClient, behind: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise ZeroDivisionError("secret")

    frontier = client.app.state.frontier  # type: ignore[attr-defined]
    for name in ("next", "record_outcomes", "record_signals"):
        monkeypatch.setattr(frontier, name, fail)
    for method, path, body in (
        ("GET", "/next", None),
        ("POST", "/outcomes", {"outcomes": []}),
        ("POST", "/signals", {"signals": []}),
    ):
        front, framework = await both(client, behind, method, path, json=body)
        assert front[0] == framework[0] == 500
        assert front[2] == framework[2]
        assert b"secret" not in front[2]


async def test_plain_requests_never_reach_the_framework(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(client, PAGE)

    async def unreachable(*_: Any) -> None:
        raise AssertionError("asked the framework")

    monkeypatch.setattr(FastAPI, "__call__", unreachable)
    for query in ("", "?n=5&wait=0.25&crawler=c-1"):
        assert (await client.get(f"/next{query}", headers={"X-Request-Id": "a"})).status_code == 200
    assert (await client.post("/outcomes", json={"outcomes": [{"url": PAGE}]})).status_code == 200
    assert (await client.post("/signals", json={"signals": [{"url": PAGE}]})).status_code == 202


async def test_the_time_of_every_request_is_counted(client: httpx.AsyncClient) -> None:
    def counted(route: str) -> float:
        sample = telemetry.REGISTRY.get_sample_value("freshet_request_seconds_count", {"route": route})
        return sample or 0.0

    for method, path in (("GET", "/next"), ("GET", "/next?n=0"), ("POST", "/outcomes"), ("POST", "/signals")):
        route = path.partition("?")[0]
        before = counted(route)
        await client.request(method, path)
        assert counted(route) == before + 1

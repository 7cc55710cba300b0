"""Short forms of requests, and what every refusal has in common."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx


async def put(client: httpx.AsyncClient, *urls: str, **fields: Any) -> dict[str, Any]:
    body = {"pages": [{"url": url, **fields} for url in urls]}
    response = await client.put("/pages", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def lease(client: httpx.AsyncClient, n: int = 1, **headers: str) -> list[dict[str, Any]]:
    response = await client.get("/next", params={"n": n}, headers=headers)
    assert response.status_code in (200, 204), response.text
    return list(response.json()["pages"]) if response.status_code == 200 else []


async def report(client: httpx.AsyncClient, *outcomes: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/outcomes", json={"outcomes": list(outcomes)})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def signal(client: httpx.AsyncClient, *signals: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/signals", json={"signals": list(signals)})
    assert response.status_code == 202, response.text
    return dict(response.json())


async def request(client: httpx.AsyncClient, *requests: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = await client.post("/requests", json={"requests": list(requests), **fields})
    assert response.status_code == 202, response.text
    return dict(response.json())


async def page(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    response = await client.get("/pages", params={"url": url})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def key_of(client: httpx.AsyncClient, role: str, name: str = "") -> dict[str, str]:
    """The header of a new key; to be made before the first request, which settles whether keys are needed."""
    keyring = client.app.state.gate._keyring  # type: ignore[attr-defined]
    secret, _ = await keyring.create(name or role, role)
    return {"Authorization": f"Bearer {secret}"}


async def somebody_waits(client: httpx.AsyncClient) -> None:
    """Until a request for pages stands in the queue."""
    dispatcher = client.app.state.frontier._dispatcher  # type: ignore[attr-defined]
    for _ in range(1000):
        if dispatcher._patient:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits")


def assert_problem(response: httpx.Response, status: int) -> dict[str, Any]:
    """A refusal as RFC 9457 has it; bad input names its places."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = dict(response.json())
    assert {"type", "title", "status", "detail"} <= body.keys()
    assert body["status"] == status
    assert "Traceback" not in response.text
    if status == 422:
        assert body["errors"]
        assert all({"loc", "msg"} <= error.keys() for error in body["errors"])
    return body

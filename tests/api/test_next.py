"""GET /next."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest

from service.clock import ManualClock, ServerClock
from tests.api.calls import assert_problem, lease, put, report, somebody_waits
from tests.api.conftest import MakeClient

PAGE = "https://one.example/"
FIELDS = {
    "url",
    "host",
    "lease",
    "lease_expires_at",
    "not_before",
    "value",
    "freshness",
    "effective_elapsed_s",
    "signals",
    "last_crawled_at",
    "etag",
    "last_modified",
}


async def test_a_page_comes_with_everything_the_contract_names(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    (new,) = await lease(client)
    assert new.keys() == FIELDS
    assert (new["url"], new["host"]) == (PAGE, "one.example")
    assert (new["last_crawled_at"], new["etag"], new["last_modified"]) == (None, None, None)
    modified = "2023-01-01T00:00:00Z"
    await report(client, {"lease": new["lease"], "etag": '"v1"', "last_modified": modified})
    clock.advance(10)
    (known,) = await lease(client)
    assert known["last_crawled_at"] == "2023-11-14T22:13:20.000Z"
    assert (known["etag"], known["last_modified"]) == ('"v1"', "2023-01-01T00:00:00.000Z")
    assert known["effective_elapsed_s"] == pytest.approx(10, abs=0.01)
    assert 0 <= known["freshness"] <= 1


async def test_instants_are_rfc_3339_in_utc_with_milliseconds(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    (found,) = await lease(client)
    for name in ("lease_expires_at", "not_before"):
        assert found[name].endswith("Z")
        assert len(found[name]) == len("2023-11-14T22:13:20.000Z")
        assert datetime.fromisoformat(found[name]).utcoffset() is not None
    assert found["not_before"] == "2023-11-14T22:13:20.000Z"
    assert found["lease_expires_at"] == "2023-11-14T22:14:20.000Z"


async def test_a_batch_carries_a_slot_for_each_page(make_client: MakeClient) -> None:
    client = await make_client(bandwidth=10.0)
    await put(client, *(f"https://h{at}.example/" for at in range(20)))
    pages = await lease(client, 20)
    starts = [datetime.fromisoformat(found["not_before"]).timestamp() for found in pages]
    gaps = [b - a for a, b in pairwise(starts)]
    assert len(pages) == 11
    assert gaps == pytest.approx([0.1] * 10, abs=0.0011)


@pytest.mark.parametrize(
    ("setting", "pages", "reason"),
    [
        ({"bandwidth": 0.0}, 1, "paused"),
        ({"bandwidth": 10.0}, 0, "no-pages"),
        ({"bandwidth": 0.1}, 3, "pace"),
        ({"bandwidth": 1000.0, "min_delay_s": 30.0, "lookahead_s": 0.0}, 3, "politeness"),
    ],
)
async def test_nothing_is_204_with_a_reason_and_when_to_ask_again(
    make_client: MakeClient, clock: ManualClock, setting: dict[str, float], pages: int, reason: str
) -> None:
    client = await make_client(**setting)
    await put(client, *(f"https://one.example/{at}" for at in range(pages)))
    await lease(client)
    clock.advance(0.05)
    response = await client.get("/next")
    assert response.status_code == 204
    assert response.content == b""
    assert response.headers["x-empty-reason"] == reason
    assert response.headers["cache-control"] == "no-store"
    assert int(response.headers["retry-after"]) >= 1


async def test_retry_after_reaches_the_next_slot(make_client: MakeClient, clock: ManualClock) -> None:
    client = await make_client(bandwidth=0.1)
    await put(client, "https://a.example/", "https://b.example/")
    await lease(client)
    response = await client.get("/next")
    clock.advance(int(response.headers["retry-after"]))
    assert len(await lease(client)) == 1


async def test_an_answer_is_not_stored(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    response = await client.get("/next")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-type"] == "application/json"


async def test_head_leases_nothing(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    response = await client.head("/next")
    assert response.status_code in (200, 204)
    assert response.headers["cache-control"] == "no-store"
    assert len(await lease(client)) == 1


@pytest.mark.parametrize(
    "query",
    ["n=0", "n=1001", "n=x", "n=1.5", "n=", "wait=-1", "wait=31", "wait=nan", "crawler=" + "x" * 200],
)
async def test_parameters_out_of_bounds_are_refused(client: httpx.AsyncClient, query: str) -> None:
    body = assert_problem(await client.get(f"/next?{query}"), 422)
    assert body["errors"][0]["loc"] == ["query", query.split("=")[0]]


@pytest.mark.parametrize("query", ["n=1", "n=1000", "wait=0", "crawler=c-1", "n=1&n=2", "other=1"])
async def test_parameters_within_bounds_are_taken(client: httpx.AsyncClient, query: str) -> None:
    assert (await client.get(f"/next?{query}")).status_code == 204


async def test_the_same_request_id_gets_the_same_leases(client: httpx.AsyncClient) -> None:
    await put(client, *(f"https://h{at}.example/" for at in range(5)))
    first = await lease(client, 2, **{"X-Request-Id": "retry-1"})
    again = await lease(client, 2, **{"X-Request-Id": "retry-1"})
    assert again == first
    assert await lease(client, 2, **{"X-Request-Id": "retry-2"}) != first


async def test_a_hundred_requests_at_once_get_different_pages(make_client: MakeClient) -> None:
    client = await make_client(bandwidth=1e6)
    await put(client, *(f"https://h{at}.example/" for at in range(100)))
    answers = await asyncio.gather(*(lease(client) for _ in range(100)))
    found = [page["url"] for answer in answers for page in answer]
    assert len(found) == len(set(found)) == 100


async def test_wait_holds_the_request_until_the_slot_is_free(
    make_client: MakeClient, clock: ManualClock
) -> None:
    client = await make_client(bandwidth=2.0, lookahead_s=0.0)
    await put(client, "https://a.example/", "https://b.example/", "https://c.example/")
    assert len(await lease(client)) == 1
    assert (await client.get("/next")).status_code == 204
    waiting = asyncio.create_task(client.get("/next", params={"wait": 30}))
    await somebody_waits(client)
    assert not waiting.done()
    clock.advance(0.5)
    async with asyncio.timeout(10):
        assert (await waiting).status_code == 200


async def test_wait_holds_the_request_until_the_store_s_own_clock_frees_the_slot(
    make_client: MakeClient,
) -> None:
    """Real time is the subject."""
    client = await make_client(bandwidth=2.0, clock=ServerClock(), lookahead_s=0.0)
    await put(client, "https://a.example/", "https://b.example/")
    (first,) = await lease(client)
    (second,) = (await client.get("/next", params={"wait": 10})).json()["pages"]
    slot = datetime.fromisoformat(second["not_before"])
    assert slot - datetime.fromisoformat(first["not_before"]) >= timedelta(seconds=0.499)
    now_at = await client.app.state.frontier.control.now()  # type: ignore[attr-defined]
    assert now_at >= slot.timestamp() - 0.010  # of grace


async def test_wait_ends_empty_when_its_time_is_over(make_client: MakeClient) -> None:
    """Real time is the subject."""
    client = await make_client(clock=ServerClock())
    started = time.monotonic()
    response = await client.get("/next", params={"wait": 0.4})
    assert response.status_code == 204
    assert response.headers["x-empty-reason"] == "no-pages"
    assert 0.35 <= time.monotonic() - started < 5


async def test_who_waits_is_served_when_a_page_is_added(make_client: MakeClient) -> None:
    client = await make_client(clock=ServerClock())
    waiting = asyncio.create_task(client.get("/next", params={"wait": 20}))
    await somebody_waits(client)
    await put(client, PAGE)
    assert (await waiting).json()["pages"][0]["url"] == PAGE


async def test_ids_that_differ_only_far_behind_are_different_requests(client: httpx.AsyncClient) -> None:
    await put(client, *(f"https://h{at}.example/" for at in range(3)))
    ids = ["x" * 128 + end for end in ("1", "1", "2")]
    first, again, other = [await lease(client, 1, **{"X-Request-Id": each}) for each in ids]
    assert first == again
    assert other[0]["url"] != first[0]["url"]


@pytest.mark.parametrize("unusable", ["", "a b", "x" * 129])
async def test_of_two_ids_the_one_that_is_echoed_makes_a_retry_safe(
    client: httpx.AsyncClient, unusable: str
) -> None:
    await put(client, *(f"https://h{at}.example/" for at in range(3)))
    found = []
    for usable in ("one", "one", "two"):
        headers = [("X-Request-Id", unusable), ("X-Request-Id", usable)]
        response = await client.get("/next", headers=headers)
        assert response.headers["x-request-id"] == usable
        found.append(response.json()["pages"][0]["url"])
    assert found[0] == found[1] != found[2]


async def test_pages_of_a_caller_that_hung_up_are_given_back_also_without_wait(
    client: httpx.AsyncClient,
) -> None:
    await put(client, *(f"https://h{at}.example/" for at in range(200)))
    await client.put("/admin/bandwidth", json={"crawls_per_second": 1e6})
    came = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        return came.pop(0) if came else {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        pass

    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": "GET",
        "path": "/next",
        "raw_path": b"/next",
        "query_string": b"n=200",
        "root_path": "",
        "headers": [(b"host", b"x"), (b"connection", b"close")],
        "server": ("x", 80),
        "client": ("x", 1),
    }
    await client._transport.app(scope, receive, send)  # type: ignore[attr-defined]
    while (await client.get("/admin/status")).json()["leases"]:  # noqa: ASYNC110 - until they are
        await asyncio.sleep(0.01)
    assert len(await lease(client, n=200)) == 200

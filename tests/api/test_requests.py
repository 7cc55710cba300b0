"""POST /requests."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.clock import ManualClock
from tests.api.calls import assert_problem, key_of, put, request

PAGE, OTHER = "https://one.example/", "https://two.example/"


async def test_requests_are_counted_and_told_apart(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    answer = await request(
        client,
        {"url": PAGE, "count": 3},
        {"url": "https://unknown.example/", "count": 1},
        {"url": "mailto:a@b", "count": 1},
        {"url": PAGE},
        {"count": 1},
    )
    rejected = [item["index"] for item in answer.pop("rejected")]
    assert answer == {"accepted": 2, "unknown": 1, "duplicate": False}
    assert rejected == [2, 4]


async def test_the_same_batch_twice_counts_once(client: httpx.AsyncClient, clock: ManualClock) -> None:
    """However its addresses are spelled."""
    await put(client, PAGE, OTHER)
    batch = [{"url": PAGE, "count": 3}, {"url": OTHER, "count": 4}]
    assert (await request(client, *batch))["accepted"] == 2
    clock.advance(599)
    again = [{"url": "https://ONE.example:443/#part", "count": 3}, batch[1]]
    assert await request(client, *again) == {"accepted": 0, "unknown": 0, "duplicate": True, "rejected": []}
    assert (await request(client, *again, id=""))["duplicate"] is True
    assert (await request(client, batch[0]))["duplicate"] is False


async def test_with_an_id_a_batch_counts_once_by_it(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    item = {"url": PAGE, "count": 3}
    assert (await request(client, item, id="minute-1"))["accepted"] == 1
    assert (await request(client, item, id="minute-2"))["accepted"] == 1
    assert (await request(client, item))["accepted"] == 1
    assert (await request(client, {"url": PAGE, "count": 9}, id="minute-1"))["duplicate"] is True


async def test_an_id_is_not_taken_for_a_signals(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    await client.post("/signals", json={"signals": [{"url": PAGE, "id": "7"}]})
    assert (await request(client, {"url": PAGE}, id=f"api\n7\n{PAGE[8:]}"))["duplicate"] is False


@pytest.mark.parametrize("count", [-1, 10**9 + 1, 1.5, "3", None, True, 10**30])
async def test_a_senseless_count_is_rejected(client: httpx.AsyncClient, count: Any) -> None:
    await put(client, PAGE)
    answer = await request(client, {"url": PAGE, "count": count}, {"url": PAGE, "count": 10**9})
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (1, [0])


@pytest.mark.parametrize("id_", [b"5", b"[]", b"{}", b'"' + b"x" * 257 + b'"'])
async def test_a_senseless_id_is_refused(client: httpx.AsyncClient, id_: bytes) -> None:
    response = await client.post("/requests", content=b'{"requests": [], "id": %s}' % id_)
    assert assert_problem(response, 422)["errors"][0]["loc"] == ["body", "id"]


@pytest.mark.parametrize("id_", [b'"\\ud800"', b'"\xff"', b'"\\x"'])
async def test_an_id_that_is_no_text_is_refused(client: httpx.AsyncClient, id_: bytes) -> None:
    response = await client.post("/requests", content=b'{"requests": [], "id": %s}' % id_)
    assert response.status_code in (400, 422)
    assert_problem(response, response.status_code)


async def test_a_thousand_pages_are_taken_and_one_more_is_refused(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    items = [{"url": PAGE, "count": at} for at in range(1001)]
    assert_problem(await client.post("/requests", json={"requests": items}), 422)
    assert (await request(client, *items[:1000]))["accepted"] == 1000


async def test_an_empty_batch_is_fine(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        answer = await request(client)
        assert answer == {"accepted": 0, "unknown": 0, "duplicate": False, "rejected": []}


@pytest.mark.parametrize(
    ("role", "status"), [("sender", 202), ("operator", 202), ("reader", 403), ("crawler", 403)]
)
async def test_senders_and_operators_may_send(client: httpx.AsyncClient, role: str, status: int) -> None:
    key = await key_of(client, role)
    response = await client.post("/requests", json={"requests": []}, headers=key)
    assert response.status_code == status

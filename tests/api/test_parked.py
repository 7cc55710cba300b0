"""GET /admin/parked and POST /admin/parked/release."""

from __future__ import annotations

import httpx
import pytest

from service.clock import ManualClock
from tests.api.calls import assert_problem, lease, page, put, report

PAGE = "https://one.example/a"


async def parked(client: httpx.AsyncClient, cursor: str = "") -> dict[str, object]:
    response = await client.get("/admin/parked", params={"cursor": cursor} if cursor else {})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_nothing_is_parked_at_first(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    assert await parked(client) == {"total": 0, "pages": [], "cursor": None}


async def test_a_page_given_up_is_listed_with_its_reason_until_it_is_released(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    for _ in range(2):
        (found,) = await lease(client)
        await report(client, {"lease": found["lease"], "status": 404})
        clock.advance(3600)
    assert (await client.get("/admin/status")).json()["parked"] == 1
    (row,) = (await parked(client))["pages"]  # type: ignore[misc]
    assert row == {
        "url": PAGE,
        "host": "one.example",
        "parked_at": "2023-11-14T23:13:20.000Z",
        "reason": "it answered 404 or 410 twice and was given up on",
    }
    assert (await page(client, PAGE))["reason"] == row["reason"]
    response = await client.post(
        "/admin/parked/release", json={"urls": [PAGE, "https://two.example/", "no-url"]}
    )
    assert response.status_code == 200
    answer = response.json()
    assert answer["released"] == 1
    assert [row["index"] for row in answer["rejected"]] == [1, 2]
    assert answer["rejected"][0]["reason"] == "no such page is registered"
    assert (await parked(client))["total"] == 0
    response = await client.post("/admin/parked/release", json={"urls": [PAGE]})
    assert response.json() == {"released": 0, "rejected": [{"index": 0, "reason": "the page is not parked"}]}
    assert [found["url"] for found in await lease(client)] == [PAGE]


async def test_a_page_whose_crawlers_do_not_report_says_so(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    for _ in range(5):
        assert len(await lease(client)) == 1
        clock.advance(61)
    assert await lease(client) == []
    found = await page(client, PAGE)
    assert found["state"] == "waiting"
    assert found["reason"].startswith("the last 5 crawlers that had it did not report; it is tried again at ")


@pytest.mark.parametrize("cursor", ["x", "-1", "²", "9" * 24, "1" * 30])
async def test_what_is_no_cursor_is_refused(client: httpx.AsyncClient, cursor: str) -> None:
    assert_problem(await client.get("/admin/parked", params={"cursor": cursor}), 422)


async def test_a_cursor_of_another_time_is_the_end_or_goes_on(client: httpx.AsyncClient) -> None:
    assert await parked(client, "123456") == {"total": 0, "pages": [], "cursor": None}


async def test_what_is_no_list_of_urls_is_refused(client: httpx.AsyncClient) -> None:
    assert_problem(await client.post("/admin/parked/release", json={"pages": []}), 422)
    assert_problem(await client.post("/admin/parked/release", json={"urls": [PAGE] * 1001}), 422)
    assert_problem(await client.post("/admin/parked/release", content=b"{"), 400)

"""GET /admin/forecast."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.clock import ManualClock
from service.frontier import Frontier
from tests.api.calls import assert_problem, put
from workers.reprice import Repricer


async def sweep(client: httpx.AsyncClient, clock: ManualClock) -> None:
    frontier: Frontier = client.app.state.frontier  # type: ignore[attr-defined]
    server = frontier._pages._server
    await Repricer(server, frontier.settings, clock).sweep_all(clock.now_at)


async def forecast(client: httpx.AsyncClient, rates: str = "") -> dict[str, Any]:
    response = await client.get("/admin/forecast", params={"rates": rates} if rates else {})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_before_the_first_sweep_there_is_none(client: httpx.AsyncClient) -> None:
    await put(client, "https://one.example/")
    assert await forecast(client, "1,2") == {"sampled_pages": 0, "forecasts": []}


async def test_more_crawls_bring_more_freshness_at_a_lower_price(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    urls = [f"https://h{at}.example/" for at in range(50)]
    for at, url in enumerate(urls):
        await put(client, url, importance=1 + at, change_rate_per_day=1 + at % 7)
    await sweep(client, clock)
    answer = await forecast(client, "0,0.0001,0.001,0.01,1000")
    assert answer["sampled_pages"] == 50
    found = answer["forecasts"]
    assert [row["crawls_per_second"] for row in found] == [0, 0.0001, 0.001, 0.01, 1000]
    freshness = [row["expected_freshness"] for row in found]
    assert freshness == sorted(freshness)
    assert (freshness[0], freshness[-1]) == (0, pytest.approx(1, abs=1e-3))
    prices = [row["price"] for row in found]
    assert prices == sorted(prices, reverse=True)
    assert found[0]["never_crawled"] == 1
    assert found[-1]["never_crawled"] == 0


async def test_without_rates_it_is_around_the_current_bandwidth(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, "https://one.example/")
    await sweep(client, clock)
    response = await client.put("/admin/bandwidth", json={"crawls_per_second": 8})
    assert response.status_code == 200
    found = (await forecast(client))["forecasts"]
    assert [row["crawls_per_second"] for row in found] == [2, 4, 8, 16, 32]


@pytest.mark.parametrize("rates", ["x", "1,,2", "-1", "nan", "inf", "1e7", ",".join("1" * 21), "1" * 500])
async def test_what_are_no_rates_is_refused(client: httpx.AsyncClient, rates: str) -> None:
    assert_problem(await client.get("/admin/forecast", params={"rates": rates}), 422)

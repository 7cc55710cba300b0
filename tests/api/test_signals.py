"""POST /signals."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.clock import ManualClock
from tests.api.calls import assert_problem, lease, page, put, report, signal

PAGE = "https://one.example/"


async def test_signals_are_counted_and_told_apart(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    answer = await signal(
        client,
        {"url": PAGE, "source": "cdn", "id": "1"},
        {"url": PAGE, "source": "cdn", "id": "1"},
        {"url": "https://unknown.example/"},
        {"url": "mailto:a@b"},
        {"url": PAGE, "source": ""},
        {"url": PAGE, "at": -5},
        {"url": PAGE, "source": "sitemap", "at": "2023-11-14T22:13:20Z"},
    )
    rejected = [item["index"] for item in answer.pop("rejected")]
    assert answer == {"accepted": 2, "duplicates": 1, "unknown": 1}
    assert rejected == [3, 4, 5]
    known = await page(client, PAGE)
    assert known["signals"] == 2
    assert known["model"]["sources"] == {"cdn": {"signals": 1}, "sitemap": {"signals": 1}}


async def test_the_same_batch_twice_counts_once(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    batch = [{"url": PAGE, "id": str(at)} for at in range(10)] + [{"url": PAGE}]
    assert (await signal(client, *batch))["accepted"] == 11
    assert (await signal(client, *batch))["duplicates"] == 11
    assert (await page(client, PAGE))["signals"] == 11


async def test_one_id_counts_once_per_page_and_source(client: httpx.AsyncClient) -> None:
    await put(client, PAGE, "https://two.example/")
    answer = await signal(
        client,
        {"url": PAGE, "id": "7", "source": "a"},
        {"url": PAGE, "id": "7", "source": "b"},
        {"url": "https://two.example/", "id": "7", "source": "a"},
        {"url": "https://ONE.example:443/#part", "id": "7", "source": "a"},
    )
    assert (answer["accepted"], answer["duplicates"]) == (3, 1)


async def test_a_signal_with_only_an_instant_counts_once_per_instant(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    clock.advance(100)
    batch = [{"url": PAGE, "at": clock.now_at - age} for age in (50, 40, 50)]
    answer = await signal(client, *batch)
    assert (answer["accepted"], answer["duplicates"]) == (2, 1)


async def test_a_signal_from_before_the_last_crawl_is_no_news(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    (found,) = await lease(client)
    await report(client, {"lease": found["lease"]})
    answer = await signal(client, {"url": PAGE, "at": clock.now_at - 60, "id": "old"})
    assert answer == {"accepted": 0, "duplicates": 1, "unknown": 0, "rejected": []}


async def test_a_signal_for_an_unknown_page_adds_none(client: httpx.AsyncClient) -> None:
    await signal(client, {"url": PAGE})
    assert (await client.get("/pages", params={"url": PAGE})).status_code == 404


@pytest.mark.parametrize("source", ["a b", "é", "x" * 65, "line\nbreak", "trailing\n", "", 5, None])
async def test_a_source_is_a_short_plain_name(client: httpx.AsyncClient, source: Any) -> None:
    await put(client, PAGE)
    answer = await signal(client, {"url": PAGE, "source": source})
    assert (answer["accepted"], len(answer["rejected"])) == (0, 1)


async def test_a_thousand_signals_are_taken_and_one_more_is_refused(
    client: httpx.AsyncClient,
) -> None:
    await put(client, PAGE)
    signals = [{"url": PAGE, "id": str(at)} for at in range(1001)]
    assert_problem(await client.post("/signals", json={"signals": signals}), 422)
    assert (await signal(client, *signals[:1000]))["accepted"] == 1000


async def test_an_empty_batch_is_fine(client: httpx.AsyncClient) -> None:
    assert (await signal(client))["accepted"] == 0

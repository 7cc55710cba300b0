"""PUT, GET and DELETE /pages."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.address import parse_url, shard_of
from service.clock import ManualClock
from service.domain import Policy
from service.frontier import Frontier
from tests.api.calls import assert_problem, lease, page, put, report

PAGE = "https://one.example/"
FIELDS = {
    "url",
    "host",
    "state",
    "importance",
    "model",
    "last_crawled_at",
    "effective_elapsed_s",
    "signals",
    "freshness",
    "value",
    "price",
    "due_at",
    "host_rests_until",
    "reason",
}
MODEL_FIELDS = {
    "change_rate_per_day",
    "silent_rate_per_day",
    "signal_rate_per_day",
    "precision",
    "recall",
    "fixed",
    "sources",
}


async def test_pages_are_added_once_and_updated_after(client: httpx.AsyncClient) -> None:
    assert await put(client, PAGE) == {"added": 1, "updated": 0, "rejected": []}
    assert await put(client, PAGE) == {"added": 0, "updated": 1, "rejected": []}


async def test_a_new_page_is_explained(client: httpx.AsyncClient) -> None:
    await put(client, PAGE, importance=2.5, change_rate_per_day=4, precision=0.8, recall=0.6)
    found = await page(client, PAGE)
    assert found.keys() >= FIELDS
    assert found["model"].keys() >= MODEL_FIELDS
    assert (found["url"], found["host"], found["state"]) == (PAGE, "one.example", "due")
    assert found["importance"] == 2.5
    assert found["model"]["change_rate_per_day"] == pytest.approx(4, rel=1e-5)
    assert found["model"]["precision"] == pytest.approx(0.8, rel=1e-5)
    assert found["model"]["recall"] == pytest.approx(0.6, rel=1e-5)
    assert found["last_crawled_at"] is None
    assert "never crawled" in found["reason"]


async def test_everything_the_contract_names_is_answered(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    found = await page(client, PAGE)
    assert found.keys() >= FIELDS | {"outcomes"}
    assert found["model"].keys() >= MODEL_FIELDS | {"change_rate_low", "change_rate_high"}


async def test_every_field_the_contract_names_is_taken(client: httpx.AsyncClient) -> None:
    answer = await put(
        client,
        PAGE,
        importance=1,
        change_rate_per_day=2,
        precision=0.5,
        recall=0.5,
        signal_rate_per_day=2,
        fixed=True,
    )
    assert answer == {"added": 1, "updated": 0, "rejected": []}


async def test_the_state_follows_the_page(client: httpx.AsyncClient, clock: ManualClock) -> None:
    await put(client, PAGE)
    (found,) = await lease(client)
    leased = await page(client, PAGE)
    assert leased["state"] == "leased"
    assert "2023-11-14T22:14:20.000Z" in leased["reason"]
    await report(client, {"lease": found["lease"], "changed": True})
    waiting = await page(client, PAGE)
    assert (waiting["state"], waiting["last_crawled_at"]) == ("waiting", "2023-11-14T22:13:20.000Z")
    clock.advance(86400 * 30)
    due = await page(client, PAGE)
    assert due["state"] == "due"
    assert due["value"] > waiting["value"]
    assert due["freshness"] < waiting["freshness"]


@pytest.mark.parametrize(
    "rate", [0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-3, 1, 1e3, 1e6, 1e9], ids=lambda rate: f"{rate:g}"
)
async def test_a_page_of_any_change_rate_is_taken_served_and_explained(
    client: httpx.AsyncClient, clock: ManualClock, rate: float
) -> None:
    await put(client, PAGE, change_rate_per_day=rate)
    (found,) = await lease(client)
    await report(client, {"lease": found["lease"], "changed": True})
    clock.advance(10)
    known = await page(client, PAGE)
    assert known["model"]["change_rate_per_day"] == pytest.approx(rate, rel=1e-4)
    assert len(await lease(client)) == 1


@pytest.mark.parametrize("rate", [1e-300, 1e-60, 1e-40, 1e-30, 1e-20])
async def test_a_change_rate_next_to_zero_is_harmless(
    client: httpx.AsyncClient, clock: ManualClock, rate: float
) -> None:
    """Whatever it is rounded to, the numbers that follow from it stay numbers."""
    await put(client, PAGE, change_rate_per_day=rate, importance=1e12)
    for _ in range(2):
        (found,) = await lease(client)
        assert found["value"] is not None
        assert found["value"] >= 0
        await report(client, {"lease": found["lease"], "changed": True})
        clock.advance(60)
        assert (await page(client, PAGE))["value"] is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"importance": 1e-9},
        {"importance": 1e12},
        {"precision": 0},
        {"precision": 1, "recall": 1},
        {"recall": 0},
        {"recall": 1},
        {"precision": 0.001, "recall": 1, "change_rate_per_day": 1e9},
        {"signal_rate_per_day": 0},
        {"signal_rate_per_day": 1e-3, "precision": 1},
    ],
    ids=str,
)
async def test_extreme_beliefs_are_taken_served_and_explained(
    client: httpx.AsyncClient, clock: ManualClock, fields: dict[str, float]
) -> None:
    assert (await put(client, PAGE, **fields))["rejected"] == []
    for _ in range(2):
        (found,) = await lease(client)
        assert found["value"] >= 0
        await report(client, {"lease": found["lease"], "changed": True})
        await page(client, PAGE)
        clock.advance(60)


async def test_bad_items_come_back_with_their_place_and_the_good_ones_are_taken(
    client: httpx.AsyncClient,
) -> None:
    bad: list[Any] = [
        {"url": "nonsense"},
        {"url": PAGE},
        {},
        {"url": PAGE, "importance": 0},
        {"url": PAGE, "importance": -1},
        {"url": PAGE, "importance": "5"},
        {"url": PAGE, "precision": 1.5},
        {"url": PAGE, "change_rate_per_day": -1},
        {"url": PAGE, "surprise": 1},
        {"url": 5},
        None,
        {"url": PAGE, "precision": 0.9, "recall": 0.9, "signal_rate_per_day": 1e6},
        {"url": "https://two.example/"},
    ]
    response = await client.put("/pages", json={"pages": bad})
    answer = response.json()
    assert (answer["added"], answer["updated"]) == (2, 0)
    assert [item["index"] for item in answer["rejected"]] == [0, *range(2, 12)]


async def test_ten_thousand_pages_are_taken_and_one_more_is_refused(
    client: httpx.AsyncClient,
) -> None:
    pages = [{"url": f"https://h{at % 500}.example/{at}"} for at in range(10_001)]
    assert_problem(await client.put("/pages", json={"pages": pages}), 422)
    answer = (await client.put("/pages", json={"pages": pages[:10_000]})).json()
    assert answer == {"added": 10_000, "updated": 0, "rejected": []}


async def test_pages_are_removed_once(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    body = {"urls": [PAGE, "https://never.example/", "nonsense", 5]}
    response = await client.request("DELETE", "/pages", json=body)
    answer = response.json()
    assert (answer["deleted"], answer["unknown"]) == (1, 1)
    assert [item["index"] for item in answer["rejected"]] == [2, 3]
    again = await client.request("DELETE", "/pages", json={"urls": [PAGE]})
    assert again.json() == {"deleted": 0, "unknown": 1, "rejected": []}
    assert_problem(await client.get("/pages", params={"url": PAGE}), 404)


async def test_a_host_is_listed_page_by_page(client: httpx.AsyncClient) -> None:
    urls = {f"https://one.example/{at}" for at in range(700)}
    await put(client, *urls)
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        response = await client.get("/pages", params={"host": "one.example", "cursor": cursor})
        body = response.json()
        found += [row["url"] for row in body["pages"]]
        cursor = body["cursor"]
    assert len(found) == 700
    assert set(found) == urls


async def test_a_listing_of_an_unknown_host_is_404(client: httpx.AsyncClient) -> None:
    assert_problem(await client.get("/pages", params={"host": "never.example"}), 404)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?url=https://a.example/&host=a.example",
        "?url=nonsense",
        "?url=ftp://a.example/",
        "?host=a.example/path",
        "?host=",
        "?host=a.example&cursor=x",
        "?host=a.example&cursor=%C2%B2",
        "?host=a.example&cursor=" + "9" * 30,
        "?url=https://a.example/" + "x" * 60_000,
    ],
)
async def test_questions_that_cannot_be_answered_are_refused(client: httpx.AsyncClient, query: str) -> None:
    await put(client, "https://a.example/")
    assert_problem(await client.get("/pages" + query), 422)


async def test_a_cursor_beyond_the_end_is_an_empty_listing(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    response = await client.get("/pages?host=one.example&cursor=99999999999999999999")
    assert response.json() == {"pages": [], "cursor": None}


async def test_an_update_keeps_what_it_does_not_name(client: httpx.AsyncClient) -> None:
    await put(client, PAGE, importance=3, change_rate_per_day=5, precision=0.7, recall=0.4)
    await put(client, PAGE, importance=4)
    model = (await page(client, PAGE))["model"]
    assert model["change_rate_per_day"] == pytest.approx(5, rel=1e-4)
    assert model["precision"] == pytest.approx(0.7, rel=1e-4)
    assert (await page(client, PAGE))["importance"] == 4


async def test_fixed_is_shown(client: httpx.AsyncClient) -> None:
    await put(client, PAGE, fixed=True)
    assert (await page(client, PAGE))["model"]["fixed"] is True
    await put(client, PAGE, fixed=False)
    assert (await page(client, PAGE))["model"]["fixed"] is False


async def listed(client: httpx.AsyncClient, host: str) -> dict[str, str]:
    """The states of a host's pages, as its listing has them."""
    rows = (await client.get("/pages", params={"host": host})).json()["pages"]
    return {row["url"]: row["state"] for row in rows}


async def crawl(client: httpx.AsyncClient, **outcome: Any) -> None:
    (found,) = await lease(client)
    await report(client, {"lease": found["lease"], **outcome})


def frontier_of(client: httpx.AsyncClient) -> Frontier:
    frontier: Frontier = client.app.state.frontier  # type: ignore[attr-defined]
    return frontier


async def reason_at(client: httpx.AsyncClient, price: float) -> str:
    await frontier_of(client).control.open_price(price, Policy().value_name)
    return str((await page(client, PAGE))["reason"])


@pytest.mark.parametrize("rate", [1e-9, 1e-3, 1, 1e3, 1e6], ids=lambda rate: f"{rate:g}")
async def test_the_interval_holds_the_change_rate_that_is_shown(
    client: httpx.AsyncClient, clock: ManualClock, rate: float
) -> None:
    await put(client, PAGE, change_rate_per_day=rate)
    for _ in range(2):
        model = (await page(client, PAGE))["model"]
        assert model["change_rate_low"] < model["change_rate_per_day"] < model["change_rate_high"]
        await crawl(client, changed=True)
        clock.advance(86400)


async def test_a_change_rate_of_zero_may_be_as_large_as_what_was_seen_allows(
    client: httpx.AsyncClient,
) -> None:
    await put(client, PAGE, change_rate_per_day=0)
    model = (await page(client, PAGE))["model"]
    assert (model["change_rate_per_day"], model["change_rate_low"]) == (0, 0)
    assert model["change_rate_high"] > 0


@pytest.mark.parametrize("rate", [0, 7])
async def test_a_fixed_change_rate_is_certain(client: httpx.AsyncClient, rate: float) -> None:
    await put(client, PAGE, change_rate_per_day=rate, fixed=True)
    model = (await page(client, PAGE))["model"]
    assert model["change_rate_low"] == model["change_rate_per_day"] == model["change_rate_high"]


async def test_before_anything_was_served_by_value_no_reason_names_a_price(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    await crawl(client, changed=True)
    for seconds, state in ((1, "waiting"), (3600, "due")):
        clock.advance(seconds)
        found = await page(client, PAGE)
        assert (found["state"], found["price"]) == (state, 0)
        assert found["value"] > 0
        assert found["reason"].startswith(f"{state}: by the time since its last crawl its crawl is worth")
        assert found["reason"].endswith("; nothing has been served by this value yet, so there is no price")


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.02, "above the price"),
        (0.95, "about the price"),
        (1.05, "about the price"),
        (3, "less than the price"),
    ],
)
async def test_the_reason_of_a_due_page_agrees_with_its_numbers(
    client: httpx.AsyncClient, clock: ManualClock, share: float, words: str
) -> None:
    """`share`: the price as a share of what the page is worth."""
    await put(client, PAGE)
    await crawl(client, changed=True)
    clock.advance(3600)
    reason = await reason_at(client, share * (await page(client, PAGE))["value"])
    assert reason.startswith("due: ")
    assert f", {words} of " in reason
    assert ("stands ready behind better pages" in reason) == (share > 1.1)


@pytest.mark.parametrize(("share", "words"), [(0.02, "above the price"), (3, "less than the price")])
async def test_the_reason_of_a_waiting_page_agrees_with_its_numbers(
    client: httpx.AsyncClient, clock: ManualClock, share: float, words: str
) -> None:
    await put(client, PAGE)
    await crawl(client, changed=True)
    clock.advance(1)
    reason = await reason_at(client, share * (await page(client, PAGE))["value"])
    assert reason.startswith("waiting: ")
    assert f", {words} of " in reason
    assert ("an earlier price or its host's own" in reason) == (share < 1)


async def test_a_promoted_page_is_not_said_to_be_due_by_its_value(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    await crawl(client, changed=True)
    frontier, address = frontier_of(client), parse_url(PAGE)
    state = await frontier.inspect(address)
    assert state is not None
    shard = shard_of(address.host_id, frontier.settings.shards)
    assert await frontier.shards.promote(shard, [(address.host_id, state.page_id)]) == 1
    found = await page(client, PAGE)
    assert found["state"] == "due"
    assert "whatever it is worth" in found["reason"]


async def test_a_listing_and_the_page_itself_agree_on_the_state(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    urls = [f"{PAGE}{name}" for name in ("leased", "held", "crawled", "new")]
    for importance, url in zip((4, 3, 2, 1), urls, strict=True):
        await put(client, url, importance=importance)
    leases = [found["lease"] for found in await lease(client, 3)]
    await report(client, {"lease": leases[1], "error": "reset"}, {"lease": leases[2], "changed": True})
    states = await listed(client, "one.example")
    assert [states[url] for url in urls] == ["leased", "waiting", "waiting", "due"]
    assert states == {url: (await page(client, url))["state"] for url in urls}
    clock.advance(86400)
    states = await listed(client, "one.example")
    assert states[urls[2]] == "due"
    assert states == {url: (await page(client, url))["state"] for url in urls}


async def test_a_hold_that_has_ended_is_told_in_the_past(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    await crawl(client, error="reset")
    assert "it is tried again at 2023-11-14T22:13:50.000Z" in (await page(client, PAGE))["reason"]
    clock.advance(31)
    reason = (await page(client, PAGE))["reason"]
    assert reason == (
        "its last fetch failed; it was held back until 2023-11-14T22:13:50.000Z and may be tried again now"
    )


async def test_a_lease_that_has_run_out_is_told_in_the_past(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    await lease(client)
    clock.advance(3600)
    reason = (await page(client, PAGE))["reason"]
    assert reason.startswith("a crawler had it until 2023-11-14T22:14:20.000Z")


async def test_a_page_never_crawled_whose_fetch_failed_says_so(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    await crawl(client, error="reset")
    clock.advance(31)
    await put(client, f"{PAGE}better", importance=9)
    (other,) = await lease(client)  # which ends the hold, too
    assert other["url"] == f"{PAGE}better"
    found = await page(client, PAGE)
    assert found["state"] == "due"
    assert found["reason"] == (
        "never crawled, and its last fetch failed: tried again at once, in the order of importance"
    )

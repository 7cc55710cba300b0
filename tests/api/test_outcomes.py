"""POST /outcomes and the leases they settle."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.clock import ManualClock
from tests.api.calls import assert_problem, lease, page, put, report, signal

PAGE = "https://one.example/"


async def leased(client: httpx.AsyncClient, url: str = PAGE) -> str:
    await put(client, url)
    (found,) = await lease(client)
    return str(found["lease"])


async def test_an_outcome_is_accepted_once_and_then_a_duplicate(client: httpx.AsyncClient) -> None:
    key = await leased(client)
    outcome = {"lease": key, "status": 200, "changed": True}
    first = await report(client, outcome)
    assert first == {"accepted": 1, "duplicates": 0, "rejected": []}
    for _ in range(4):
        assert await report(client, outcome) == {"accepted": 0, "duplicates": 1, "rejected": []}


async def test_a_conflicting_outcome_is_rejected(client: httpx.AsyncClient) -> None:
    key = await leased(client)
    await report(client, {"lease": key, "changed": True})
    answer = await report(client, {"lease": key, "changed": False})
    assert [rejected["index"] for rejected in answer["rejected"]] == [0]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({}, "crawled"),
        ({"changed": True}, "changed"),
        ({"changed": False}, "unchanged"),
        ({"status": 200, "changed": True}, "changed"),
        ({"status": 304}, "unchanged"),
        ({"status": 404}, "gone"),
        ({"status": 410}, "gone"),
        ({"status": 429}, "busy"),
        ({"status": 503}, "busy"),
        ({"status": 500}, "failed"),
        ({"status": 401, "digest": "login"}, "failed"),
        ({"status": 403, "changed": True}, "failed"),
        ({"status": 408}, "failed"),
        ({"status": 451}, "failed"),
        ({"status": 404, "error": "reset"}, "failed"),
        ({"error": "timeout"}, "failed"),
        ({"error": "reset", "status": 200}, "failed"),
    ],
)
async def test_what_an_outcome_says_is_read_from_its_fields(
    client: httpx.AsyncClient, outcome: dict[str, Any], expected: str
) -> None:
    key = await leased(client)
    await report(client, {"lease": key, **outcome})
    assert (await page(client, PAGE))["outcomes"][-1]["result"] == expected


async def test_change_is_told_by_the_digest(client: httpx.AsyncClient, clock: ManualClock) -> None:
    found = []
    await put(client, PAGE)
    for digest in ("a", "a", "b"):
        clock.advance(60)
        (known,) = await lease(client)
        await report(client, {"lease": known["lease"], "digest": digest})
        found.append((await page(client, PAGE))["outcomes"][-1]["result"])
    assert found == ["crawled", "unchanged", "changed"]


async def test_a_crawl_without_a_lease_is_reported_by_url(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, PAGE)
    outcome = {"url": PAGE, "fetched_at": clock.now_at - 5, "changed": True}
    assert (await report(client, outcome))["accepted"] == 1
    assert (await report(client, outcome))["duplicates"] == 1
    assert (await page(client, PAGE))["last_crawled_at"] == "2023-11-14T22:13:15.000Z"


async def test_bad_items_come_back_with_their_place_and_the_good_ones_are_taken(
    client: httpx.AsyncClient,
) -> None:
    key = await leased(client)
    answer = await report(
        client,
        {"lease": "nonsense"},
        {"lease": key, "changed": True},
        {"status": 200},
        {"lease": key, "status": 99},
        {"url": "https://unknown.example/"},
        {"url": "ftp://one.example/"},
        {"lease": key, "fetched_at": "yesterday"},
        {"lease": key, "unknown_field": 1},
        "not an object",  # type: ignore[arg-type]
    )
    assert answer["accepted"] == 1
    assert [rejected["index"] for rejected in answer["rejected"]] == [0, 2, 3, 4, 5, 6, 7, 8]
    assert all(rejected["reason"] for rejected in answer["rejected"])


async def test_the_whole_batch_may_be_sent_again(client: httpx.AsyncClient) -> None:
    await put(client, *(f"https://h{at}.example/" for at in range(5)))
    batch = [{"lease": found["lease"], "changed": True} for found in await lease(client, 5)]
    assert (await report(client, *batch))["accepted"] == 5
    assert (await report(client, *batch)) == {"accepted": 0, "duplicates": 5, "rejected": []}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a.b.c",
        "AAAAAAAAAAA.1.0",
        "AAAAAAAAAAA.1.1000000000000",
        "AAAAAAAAAAA.80000000.1",
        "AAAAAAAAAAA.-1.1",
        "é" * 11 + ".1.1",
        "AAAAAAAAAAA.1.1.1",
        "\u0000" * 11 + ".1.1",
        "AAAAAAAAAAA.1.1",
        "x" * 300,
    ],
)
async def test_a_forged_lease_is_rejected(client: httpx.AsyncClient, text: str) -> None:
    key = await leased(client)
    before = await page(client, PAGE)
    answer = await report(client, {"lease": text, "changed": True})
    assert answer["accepted"] == 0
    assert len(answer["rejected"]) == 1
    assert await page(client, PAGE) == before
    assert (await report(client, {"lease": key}))["accepted"] == 1


async def test_a_lease_with_the_url_of_another_page_is_rejected(client: httpx.AsyncClient) -> None:
    """On the same host as well as on another."""
    key = await leased(client)
    await put(client, "https://one.example/other", "https://two.example/")
    for other in ("https://two.example/", "https://one.example/other"):
        answer = await report(client, {"lease": key, "url": other, "changed": True})
        assert (answer["accepted"], len(answer["rejected"])) == (0, 1), other


async def test_gone_twice_parks_the_page(client: httpx.AsyncClient, clock: ManualClock) -> None:
    await put(client, PAGE)
    for expected in ("waiting", "parked"):
        (found,) = await lease(client)
        await report(client, {"lease": found["lease"], "status": 404})
        assert (await page(client, PAGE))["state"] == expected
        clock.advance(3600)
    assert await lease(client) == []


async def test_retry_after_makes_the_host_rest(client: httpx.AsyncClient, clock: ManualClock) -> None:
    await put(client, "https://one.example/a", "https://one.example/b")
    (found,) = await lease(client)
    await report(client, {"lease": found["lease"], "status": 429, "retry_after_s": 100})
    assert (await page(client, found["url"]))["host_rests_until"] == "2023-11-14T22:15:00.000Z"
    clock.advance(99)
    assert await lease(client) == []


async def test_a_thousand_outcomes_are_taken_and_one_more_is_refused(
    client: httpx.AsyncClient,
) -> None:
    outcomes = [{"url": f"https://one.example/{at}"} for at in range(1001)]
    assert_problem(await client.post("/outcomes", json={"outcomes": outcomes}), 422)
    answer = await report(client, *outcomes[:1000])
    assert len(answer["rejected"]) == 1000


async def test_a_lease_is_extended_and_released(client: httpx.AsyncClient, clock: ManualClock) -> None:
    key = await leased(client)
    clock.advance(30)
    response = await client.post("/leases/extend", json={"leases": [key, "x"], "seconds": 90})
    assert response.status_code == 200
    answer = response.json()
    assert answer["extended"] == [{"lease": key, "lease_expires_at": "2023-11-14T22:15:20.000Z"}]
    assert [rejected["index"] for rejected in answer["rejected"]] == [1]
    response = await client.post("/leases/release", json={"leases": ["x", key, key]})
    answer = response.json()
    assert answer["released"] == 1
    assert [rejected["index"] for rejected in answer["rejected"]] == [0, 2]
    assert len(await lease(client)) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/leases/extend", {"leases": ["a"], "seconds": 0}),
        ("/leases/extend", {"leases": ["a"], "seconds": 1e9}),
        ("/leases/extend", {"leases": "a"}),
        ("/leases/extend", {}),
        ("/leases/extend", {"leases": ["a"] * 1001}),
        ("/leases/release", {"leases": {"a": 1}}),
        ("/leases/release", {"leases": ["a"] * 1001}),
        ("/leases/release", {"leases": [], "more": 1}),
    ],
)
async def test_bodies_about_leases_that_do_not_fit_are_refused(
    client: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    assert_problem(await client.post(path, json=body), 422)


@pytest.mark.parametrize("bad", [None, 1, ["a"], "a", "x" * 1000])
async def test_a_lease_that_is_none_does_not_spoil_the_others(client: httpx.AsyncClient, bad: Any) -> None:
    await put(client, "https://one.example/")
    (page,) = await lease(client)
    rejected = [{"index": 0, "reason": "not a lease of this service"}]
    body = {"leases": [bad, page["lease"]]}
    extended = (await client.post("/leases/extend", json=body)).json()
    assert [each["lease"] for each in extended["extended"]] == [page["lease"]]
    assert extended["rejected"] == rejected
    assert (await client.post("/leases/release", json=body)).json() == {"released": 1, "rejected": rejected}
    assert len(await lease(client)) == 1


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"etag": "e" * 129}, {"etag": None}),
        ({"etag": '"é"'}, {"etag": None}),
        ({"etag": '"a"\n'}, {"etag": None}),
        ({"etag": "e" * 128}, {"etag": "e" * 128}),
        ({"last_modified": "0"}, {"last_modified": None}),
        ({"last_modified": "Thu, 01 Jan 1903 00:00:00 GMT"}, {"last_modified": None}),
        ({"last_modified": 1e300}, {"last_modified": None}),
        ({"digest": "d" * 5000}, {"etag": None}),
    ],
)
async def test_whatever_a_web_server_said_the_outcome_counts(
    client: httpx.AsyncClient, clock: ManualClock, said: dict[str, Any], kept: dict[str, Any]
) -> None:
    await put(client, "https://one.example/")
    (page,) = await lease(client)
    answer = await client.post(
        "/outcomes", json={"outcomes": [{"lease": page["lease"], "status": 200, "changed": True, **said}]}
    )
    assert answer.json() == {"accepted": 1, "duplicates": 0, "rejected": []}
    clock.advance(86400 * 30)
    (again,) = await lease(client)
    assert {name: again[name] for name in kept} == kept


async def test_a_status_no_standard_knows_is_a_failed_fetch(client: httpx.AsyncClient) -> None:
    await put(client, "https://one.example/")
    (page,) = await lease(client)
    outcome = {"lease": page["lease"], "status": 999, "error": "x" * 5000}
    assert (await client.post("/outcomes", json={"outcomes": [outcome]})).json()["accepted"] == 1
    found = (await client.get("/pages", params={"url": "https://one.example/"})).json()
    assert found["outcomes"] == [{"result": "failed"}]


async def test_an_outcome_of_a_page_removed_while_leased_is_rejected(
    client: httpx.AsyncClient,
) -> None:
    key = await leased(client)
    await client.request("DELETE", "/pages", json={"urls": [PAGE]})
    answer = await report(client, {"lease": key})
    assert "gone" in answer["rejected"][0]["reason"]
    assert (await client.get("/pages", params={"url": PAGE})).status_code == 404


async def test_a_signal_after_the_fetch_survives_the_outcome(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    key = await leased(client)
    fetched_at = clock.now_at + 1
    clock.advance(5)
    await signal(client, {"url": PAGE, "at": fetched_at - 0.5}, {"url": PAGE, "at": fetched_at + 2})
    await report(client, {"lease": key, "fetched_at": fetched_at})
    assert (await page(client, PAGE))["signals"] == 1

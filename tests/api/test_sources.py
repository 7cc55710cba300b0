"""GET and PUT /admin/sources."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from service.api.sources import Tally, render_source
from service.clock import ManualClock
from service.store.control import Control
from service.store.wire import pack
from tests.api.calls import assert_problem, key_of, lease, put, report, signal
from tests.api.conftest import MakeClient
from workers.learn import Learner

PAGE = "https://one.example/"
KEYS = (("operator", "op"), ("sender", "acme"), ("sender", "bolt"))
NOTHING_LEARNED = {"precision": None, "recall": None, "weight": None, "share_of_crawls": None, "senders": {}}


async def sources(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.get("/admin/sources")
    assert response.status_code == 200, response.text
    return dict(response.json()["sources"])


async def set_delay(client: httpx.AsyncClient, source: str, delay_s: float | None) -> dict[str, Any]:
    response = await client.put(f"/admin/sources/{source}", json={"delay_s": delay_s})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def crawl(client: httpx.AsyncClient) -> None:
    (found,) = await lease(client)
    await report(client, {"lease": found["lease"]})


async def learn(client: httpx.AsyncClient, shard: int, source: str, figures: list[float]) -> None:
    """As a worker would write it."""
    frontier = client.app.state.frontier  # type: ignore[attr-defined]
    number = (await frontier.control.source_numbers({source}))[source]
    key = f"{frontier.shards.prefixes[shard]}:sources"
    await frontier.control._server.execute("HSET", key, number, pack(figures))


async def test_at_first_there_is_no_source(client: httpx.AsyncClient) -> None:
    assert await sources(client) == {}


async def test_accepted_signals_are_counted_by_source(client: httpx.AsyncClient) -> None:
    """Over all shards; duplicates and unknown pages are not counted."""
    pages = [f"https://h{at}.example/" for at in range(12)]
    await put(client, *pages)
    await signal(client, *({"url": url, "source": "cdn"} for url in [*pages, *pages]))
    await signal(client, *({"url": url, "source": "sitemap"} for url in pages[:4]))
    await signal(client, {"url": "https://unknown.example/", "source": "rumour"})
    assert await sources(client) == {
        "cdn": {"signals": 12, "share_of_signals": 0.75, "delay_s": 0.0, **NOTHING_LEARNED},
        "rumour": {"signals": 0, "share_of_signals": 0.0, "delay_s": 0.0, **NOTHING_LEARNED},
        "sitemap": {"signals": 4, "share_of_signals": 0.25, "delay_s": 0.0, **NOTHING_LEARNED},
    }


async def test_what_the_shards_have_learned_is_put_together(client: httpx.AsyncClient) -> None:
    await learn(client, 0, "cdn", [3.0, 2.0, 10.0, 5])
    await learn(client, 2, "cdn", [1.0, 1.0, 2.0, 1])
    await learn(client, 2, "sitemap", [1.0, 0.0, 2.0, 1])
    found = await sources(client)
    assert found["cdn"]["precision"] == 0.75
    assert found["cdn"]["recall"] == 0.25
    assert found["cdn"]["weight"] == pytest.approx(math.log(4))
    assert (found["sitemap"]["precision"], found["sitemap"]["weight"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([], (None, None, None)),
        ([0.0, 0.0, 0.0, 0.0], (None, None, None)),
        ([1.0, 1.0, 0.0, 1.0], (1.0, None, None)),
        ([1.0, 1.0 + 1e-12, 0.5, 1.0], (1.0, 1.0, None)),
        ([2.0, 1.0, 4.0, 1.0, 9.0], (0.5, 0.25, math.log(2))),
    ],
)
def test_shares_stay_shares_and_a_source_that_never_lies_has_no_finite_weight(
    figures: list[float], expected: tuple[float | None, ...]
) -> None:
    found = render_source({"": Tally(0, 0.0, tuple(figures))}, Tally(), 0.0)
    assert (found.precision, found.recall, found.weight) == pytest.approx(expected)
    assert found.share_of_signals is None


async def test_crawls_a_source_brought_about_are_shown_once_they_were_learned_from(
    make_client: MakeClient,
) -> None:
    clock = ManualClock()
    client = await make_client(clock=clock, min_delay_s=0.0)
    frontier = client.app.state.frontier  # type: ignore[attr-defined]
    await put(client, PAGE)
    await crawl(client)
    for _ in range(3):
        clock.advance(86400)
        await signal(client, {"url": PAGE, "source": "cdn"})
        (found,) = await lease(client)
        await report(client, {"lease": found["lease"], "changed": True})
    learner = Learner(frontier.control._server, frontier.settings, clock)
    assert await learner.learn_all(clock.now_at) > 0
    assert 0 < (await sources(client))["cdn"]["share_of_crawls"] <= 1
    assert (await set_delay(client, "cdn", 30))["delay_s"] == 30


async def test_a_source_has_the_common_delay_until_it_gets_its_own(make_client: MakeClient) -> None:
    client = await make_client(signal_delay_s=60)
    await put(client, PAGE)
    await signal(client, {"url": PAGE, "source": "cdn"})
    assert (await sources(client))["cdn"]["delay_s"] == 60
    assert (await set_delay(client, "cdn", 5))["delay_s"] == 5
    assert (await sources(client))["cdn"]["delay_s"] == 5
    assert (await set_delay(client, "cdn", 0))["delay_s"] == 0
    assert (await set_delay(client, "cdn", None))["delay_s"] == 60


async def test_signals_within_their_sources_delay_are_not_counted(
    make_client: MakeClient, clock: ManualClock
) -> None:
    client = await make_client(signal_delay_s=30)
    await put(client, PAGE)
    await set_delay(client, "late", 100)
    await set_delay(client, "prompt", 0)
    await crawl(client)
    clock.advance(20)
    batch = [{"url": PAGE, "source": source} for source in ("late", "prompt", "common")]
    answer = await signal(client, *batch)
    assert (answer["accepted"], answer["duplicates"]) == (1, 2)
    clock.advance(79)
    assert (await signal(client, {"url": PAGE, "source": "late", "id": "a"}))["accepted"] == 0
    clock.advance(1)
    assert (await signal(client, {"url": PAGE, "source": "late", "id": "b"}))["accepted"] == 1
    assert {name: row["signals"] for name, row in (await sources(client)).items()} == {
        "late": 1,
        "prompt": 1,
        "common": 0,
    }


async def test_another_process_obeys_a_new_delay_within_a_second(
    make_client: MakeClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await make_client(), await make_client()
    await put(one, PAGE)
    await crawl(one)
    clock.advance(10)
    assert (await signal(other, {"url": PAGE, "id": "a"}))["accepted"] == 1
    await set_delay(one, "api", 100)
    monkeypatch.setattr("service.store.control.DELAYS_AGE_S", -1.0)
    assert (await signal(other, {"url": PAGE, "id": "b"}))["accepted"] == 0


async def test_delays_are_asked_for_once_a_second_at_most(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    control: Control = client.app.state.frontier.control  # type: ignore[attr-defined]
    monkeypatch.setattr("service.store.control.DELAYS_AGE_S", 1e9)
    assert await control.source_delays() == {}
    await control._server.execute("HSET", "f:{control}:delays", "cdn", "5000.000")
    assert await control.source_delays() == {}
    monkeypatch.setattr("service.store.control.DELAYS_AGE_S", -1.0)
    assert await control.source_delays() == {"cdn": 5.0}


async def test_a_delay_may_be_given_before_the_first_signal(client: httpx.AsyncClient) -> None:
    answer = await set_delay(client, "feed.v2:eu-1", 86400)
    assert answer == {"signals": 0, "share_of_signals": None, "delay_s": 86400, **NOTHING_LEARNED}
    assert (await sources(client)) == {"feed.v2:eu-1": answer}


async def test_sources_beyond_two_hundred_are_shown_together(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    await signal(client, *({"url": PAGE, "source": f"s{at:03}"} for at in range(210)))
    found = await sources(client)
    assert len(found) == 201
    assert found["(others)"]["signals"] == 1  # ten names with one number, of one page in one window
    unnumbered = next(f"s{at:03}" for at in range(210) if f"s{at:03}" not in found)
    response = await client.put(f"/admin/sources/{unnumbered}", json={"delay_s": 1})
    assert assert_problem(response, 422)["errors"][0]["loc"] == ["path", "source"]


@pytest.mark.parametrize(
    "body",
    [{}, {"delay_s": -1}, {"delay_s": 86401}, {"delay_s": "5"}, {"delay_s": True}, {"more": 1}, []],
)
async def test_a_senseless_delay_is_refused_and_changes_nothing(client: httpx.AsyncClient, body: Any) -> None:
    assert_problem(await client.put("/admin/sources/cdn", json=body), 422)
    assert await sources(client) == {}


@pytest.mark.parametrize("source", ["a%20b", "%C3%A9", "x" * 65, "line%0A", "%28others%29"])
async def test_what_is_no_name_of_a_source_is_refused(client: httpx.AsyncClient, source: str) -> None:
    assert_problem(await client.put(f"/admin/sources/{source}", json={"delay_s": 1}), 422)
    assert await sources(client) == {}


@pytest.mark.parametrize(
    ("role", "read", "written"), [("reader", 200, 403), ("operator", 200, 200), ("sender", 403, 403)]
)
async def test_readers_read_and_operators_set(
    client: httpx.AsyncClient, role: str, read: int, written: int
) -> None:
    key = await key_of(client, role)
    assert (await client.get("/admin/sources", headers=key)).status_code == read
    body = {"delay_s": 1}
    assert (await client.put("/admin/sources/cdn", json=body, headers=key)).status_code == written


async def test_senders_of_one_source_are_told_apart_by_their_keys(client: httpx.AsyncClient) -> None:
    """Neither hides the other's signals by using its ids, and the source's delay holds for both."""
    operator, one, two = [await key_of(client, role, name) for role, name in KEYS]
    await client.put("/pages", json={"pages": [{"url": PAGE}]}, headers=operator)
    await client.put("/admin/sources/cdn", json={"delay_s": 9}, headers=operator)
    batch = {"signals": [{"url": PAGE, "source": "cdn", "id": "1"}]}
    for key, accepted in ((one, 1), (one, 0), (two, 1)):
        assert (await client.post("/signals", json=batch, headers=key)).json()["accepted"] == accepted
    found = (await client.get("/admin/sources", headers=operator)).json()["sources"]
    assert list(found) == ["cdn"]
    assert (found["cdn"]["signals"], found["cdn"]["delay_s"]) == (2, 9)
    assert {name: row["share_of_signals"] for name, row in found["cdn"]["senders"].items()} == {
        "acme": 0.5,
        "bolt": 0.5,
    }


async def test_a_renewed_key_of_the_same_name_is_the_same_sender(client: httpx.AsyncClient) -> None:
    operator, old, new = [
        await key_of(client, role, name)
        for role, name in (("operator", "op"), ("sender", "acme"), ("sender", "acme"))
    ]
    await client.put("/pages", json={"pages": [{"url": PAGE}]}, headers=operator)
    for number, key in enumerate((old, new)):
        batch = {"signals": [{"url": PAGE, "source": "cdn", "id": str(number)}]}
        await client.post("/signals", json=batch, headers=key)
    found = (await client.get("/admin/sources", headers=operator)).json()["sources"]
    assert {name: row["signals"] for name, row in found["cdn"]["senders"].items()} == {"acme": 2}

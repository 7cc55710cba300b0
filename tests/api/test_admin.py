"""Operators: bandwidth, hosts, status."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.clock import ManualClock
from tests.api.calls import assert_problem, lease, put
from tests.api.conftest import MakeClient

PAGE = "https://one.example/"


async def test_the_first_bandwidth_is_the_setting(client: httpx.AsyncClient) -> None:
    response = await client.get("/admin/bandwidth")
    assert response.json() == {"crawls_per_second": 1000.0}
    assert response.headers["etag"]


async def test_the_dial_is_turned_and_read_back(client: httpx.AsyncClient) -> None:
    response = await client.put("/admin/bandwidth", json={"crawls_per_second": 2.5})
    assert (response.status_code, response.json()) == (200, {"crawls_per_second": 2.5})
    read = await client.get("/admin/bandwidth")
    assert read.json() == {"crawls_per_second": 2.5}
    assert read.headers["etag"] == response.headers["etag"]


async def test_if_match_prevents_a_lost_update(client: httpx.AsyncClient) -> None:
    tag = (await client.get("/admin/bandwidth")).headers["etag"]
    body = {"crawls_per_second": 5.0}
    first = await client.put("/admin/bandwidth", json=body, headers={"If-Match": tag})
    assert first.status_code == 200
    second = await client.put("/admin/bandwidth", json={"crawls_per_second": 7.0}, headers={"If-Match": tag})
    assert_problem(second, 412)
    assert (await client.get("/admin/bandwidth")).json() == body


@pytest.mark.parametrize("tag", ['"x"', "-1", "", "W/", "9" * 40, b"\xb2"])
async def test_an_if_match_of_no_version_is_refused(client: httpx.AsyncClient, tag: str | bytes) -> None:
    """Also a superscript two, which is a digit to some."""
    response = await client.put(
        "/admin/bandwidth", json={"crawls_per_second": 1.0}, headers=[(b"if-match", _bytes(tag))]
    )
    assert_problem(response, 412)


async def test_if_match_star_matches_any_version(client: httpx.AsyncClient) -> None:
    response = await client.put(
        "/admin/bandwidth", json={"crawls_per_second": 1.0}, headers={"If-Match": "*"}
    )
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"crawls_per_second": -1}', 422),
        (b'{"crawls_per_second": 1e12}', 422),
        (b'{"crawls_per_second": 1e-320}', 422),
        (b'{"crawls_per_second": 0.0000009}', 422),
        (b'{"crawls_per_second": NaN}', 400),
        (b'{"crawls_per_second": Infinity}', 400),
        (b'{"crawls_per_second": "5"}', 422),
        (b'{"crawls_per_second": null}', 422),
        (b'{"crawls_per_second": true}', 422),
        (b"{}", 422),
        (b"[]", 422),
        (b'{"crawls_per_second": 5, "more": 1}', 422),
        (b"", 400),
    ],
)
async def test_a_senseless_bandwidth_is_refused_and_changes_nothing(
    client: httpx.AsyncClient, body: bytes, status: int
) -> None:
    assert_problem(await client.put("/admin/bandwidth", content=body), status)
    assert (await client.get("/admin/bandwidth")).json() == {"crawls_per_second": 1000.0}


async def test_zero_pauses(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    await client.put("/admin/bandwidth", json={"crawls_per_second": 0})
    response = await client.get("/next")
    assert response.headers["x-empty-reason"] == "paused"


async def test_a_slow_dial_keeps_nobody_away_for_long(client: httpx.AsyncClient) -> None:
    """Whoever obeys would else not hear that it was turned up."""
    await client.put("/admin/bandwidth", json={"crawls_per_second": 1e-6})
    await put(client, PAGE, "https://two.example/")
    assert (await client.get("/next")).status_code == 200
    response = await client.get("/next")
    assert response.headers["x-empty-reason"] == "pace"
    assert response.headers["retry-after"] == "60"
    assert response.headers["x-retry-after-ms"] == "60000"


async def test_rules_of_a_host_are_set_field_by_field(client: httpx.AsyncClient) -> None:
    response = await client.put("/admin/hosts/one.example", json={"min_delay_s": 2.5})
    assert response.status_code == 200
    body = {"max_crawls_per_second": 0.25, "paused_until": "2023-11-15T00:00:00Z"}
    answer = (await client.put("/admin/hosts/one.example", json=body)).json()
    assert answer["host"] == "one.example"
    assert answer["pages"] == 0
    assert answer["min_delay_s"] == 2.5
    assert answer["max_crawls_per_second"] == 0.25
    assert answer["paused_until"] == "2023-11-15T00:00:00.000Z"
    assert (await client.get("/admin/hosts/one.example")).json() == answer


async def test_null_takes_a_rule_back(client: httpx.AsyncClient) -> None:
    default = (await client.put("/admin/hosts/one.example", json={})).json()["min_delay_s"]
    body: dict[str, Any] = {"min_delay_s": 77, "max_crawls_per_second": 1, "paused_until": 1_800_000_000}
    await client.put("/admin/hosts/one.example", json=body)
    answer = (await client.put("/admin/hosts/one.example", json=dict.fromkeys(body))).json()
    assert (answer["max_crawls_per_second"], answer["paused_until"]) == (None, None)
    assert answer["min_delay_s"] == default


async def test_no_page_of_a_host_is_leased_after_the_answer_to_its_pause(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await put(client, "https://one.example/a", "https://one.example/b")
    await client.put("/admin/hosts/one.example", json={"paused_until": clock.now_at + 60})
    response = await client.get("/next")
    assert response.headers["x-empty-reason"] == "politeness"
    clock.advance(61)
    assert len(await lease(client)) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"min_delay_s": -1},
        {"max_crawls_per_second": 0},
        {"max_crawls_per_second": -1},
        {"max_crawls_per_second": 1e-7},
        {"paused_until": "soon"},
        {"paused_until": -1},
        {"paused_until": 1e18},
        {"surprise": 1},
        [],
    ],
)
async def test_senseless_rules_are_refused(client: httpx.AsyncClient, body: Any) -> None:
    assert_problem(await client.put("/admin/hosts/one.example", json=body), 422)
    assert_problem(await client.get("/admin/hosts/one.example"), 404)


@pytest.mark.parametrize("host", ["a b", "user@one.example", "%00", "one.example?x", ":80", "%E0%A4"])
async def test_what_is_no_host_is_refused(client: httpx.AsyncClient, host: str) -> None:
    response = await client.put(
        "/admin/hosts/" + host.replace("?", "%3F").replace(" ", "%20"), json={"min_delay_s": 1}
    )
    assert_problem(response, 422)


@pytest.mark.parametrize("host", ["ONE.example", "one.example.", "one.example:80"])
async def test_a_host_has_one_name(client: httpx.AsyncClient, host: str) -> None:
    await put(client, PAGE)
    assert (await client.get(f"/admin/hosts/{host}")).json()["host"] == "one.example"


async def test_a_host_may_carry_a_port_or_be_an_address(client: httpx.AsyncClient) -> None:
    for host in ("one.example:8080", "[::1]:8080", "127.0.0.1"):
        response = await client.put(f"/admin/hosts/{host}", json={"min_delay_s": 1})
        assert response.json()["host"] == host


async def test_the_status_tells_the_counts(client: httpx.AsyncClient) -> None:
    await put(client, *(f"https://h{at}.example/" for at in range(5)))
    await lease(client, 2)
    status = (await client.get("/admin/status")).json()
    assert (status["pages"], status["leases"]) == (5, 2)
    assert status["bandwidth_crawls_per_second"] == 1000.0
    assert sum(shard["pages"] for shard in status["shards"]) == 5


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


@pytest.mark.parametrize(("host", "status"), [("0.0.0.0", 401), ("127.0.0.1", 204)])
async def test_a_door_to_the_network_stays_shut_when_the_last_key_is_gone(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, host: str, status: int
) -> None:
    """Revoked, or lost with the store's data: then nobody may turn the dial."""
    monkeypatch.setattr("service.api.auth.FRESH_S", 0.0)
    client = await make_client(host=host)
    keyring = client.app.state.gate._keyring  # type: ignore[attr-defined]
    _, key = await keyring.create("only", "operator")
    assert (await client.get("/next")).status_code == 401
    await keyring.revoke(key.id)
    assert (await client.get("/next")).status_code == status

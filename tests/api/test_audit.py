"""GET /admin/audit: every change of configuration, once, with who made it."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import httpx
import pytest

from service.clock import ManualClock
from tests.api.calls import assert_problem, key_of, lease, put, report
from tests.api.conftest import MakeClient

START = "2023-11-14T22:13:20.000Z"


async def changes(client: httpx.AsyncClient, **headers: str) -> list[dict[str, Any]]:
    response = await client.get("/admin/audit", headers=headers)
    assert response.status_code == 200, response.text
    return list(response.json()["changes"])


async def change(client: httpx.AsyncClient, path: str, body: dict[str, Any], **headers: str) -> None:
    response = await client.put(f"/admin/{path}", json=body, headers=headers)
    assert response.status_code == 200, response.text


async def test_the_first_start_changes_nothing(client: httpx.AsyncClient) -> None:
    assert await changes(client) == []


async def test_a_turn_of_the_dial_is_noted_once(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        await change(client, "bandwidth", {"crawls_per_second": 2.5})
    assert await changes(client) == [
        {
            "at": START,
            "actor": None,
            "what": "bandwidth",
            "name": None,
            "old": {"crawls_per_second": 1000.0},
            "new": {"crawls_per_second": 2.5},
        }
    ]


@pytest.mark.parametrize(
    ("path", "what", "name", "body", "old"),
    [
        ("policy", "policy", None, {"explore": 0.1}, {"explore": 0.02}),
        ("policy", "policy", None, {"min_crawls_per_day": 2.0}, {"min_crawls_per_day": 0.0}),
        ("policy", "policy", None, {"policy": "greedy"}, {"policy": "ncis"}),
        ("sources/cdn", "source", "cdn", {"delay_s": 30.0}, {"delay_s": None}),
        ("hosts/one.example", "host", "one.example", {"min_delay_s": 2.0}, {"min_delay_s": None}),
        ("hosts/one.example", "host", "one.example", {"min_delay_s": 1 / 3}, {"min_delay_s": None}),
        (
            "hosts/one.example",
            "host",
            "one.example",
            {"max_crawls_per_second": 3.0},
            {"max_crawls_per_second": None},
        ),
        ("bandwidth", "bandwidth", None, {"crawls_per_second": 1 / 3}, {"crawls_per_second": 1000.0}),
        (
            "hosts/one.example",
            "host",
            "one.example",
            {"max_crawls_per_second": 0.25, "paused_until": "2030-01-01T00:00:00.000Z"},
            {"max_crawls_per_second": None, "paused_until": None},
        ),
    ],
)
async def test_what_changed_is_told_as_it_was_and_as_it_is(
    client: httpx.AsyncClient,
    path: str,
    what: str,
    name: str | None,
    body: dict[str, Any],
    old: dict[str, Any],
) -> None:
    for _ in range(2):  # the second changes nothing
        await change(client, path, body)
    (row,) = await changes(client)
    assert (row["what"], row["name"], row["old"], row["new"]) == (what, name, old, body)
    await change(client, path, old)
    back, _ = await changes(client)
    assert (back["old"], back["new"]) == (body, old)


async def test_the_latest_comes_first_and_others_stay_out(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    for number in range(5):
        clock.advance(1)
        await change(client, f"hosts/h{number}.example", {"min_delay_s": 3})
    assert [row["name"] for row in await changes(client)] == [f"h{n}.example" for n in (4, 3, 2, 1, 0)]
    answer = (await client.get("/admin/audit", params={"limit": 2})).json()
    assert [row["name"] for row in answer["changes"]] == ["h4.example", "h3.example"]


@pytest.mark.parametrize(
    ("path", "body", "rows"),
    [
        ("policy", {"explore": 0.02, "min_crawls_per_day": 0, "policy": "ncis"}, 0),
        ("hosts/one.example", {"min_delay_s": None, "paused_until": None}, 0),
        ("hosts/one.example", {"paused_until": 1893456000.0005}, 1),
    ],
)
async def test_what_is_so_already_is_no_change(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], rows: int
) -> None:
    for _ in range(2):
        await change(client, path, body)
    assert len(await changes(client)) == rows


async def test_a_name_that_is_no_text_hinders_nobody(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a shell gives what is not in its encoding; an earlier release kept that."""
    monkeypatch.setattr("service.api.auth.FRESH_S", 0.0)
    client = await make_client()
    keyring = client.app.state.gate._keyring  # type: ignore[attr-defined]
    secret, key = await keyring.create("caf\udce9", "operator")
    entry = json.dumps({"name": "caf\udce9", "role": "operator", "created_at": 1.0})
    digest = sha256(secret.encode()).hexdigest()
    await keyring._server.execute("HSET", "f:{control}:keys", digest, entry)
    headers = {"Authorization": f"Bearer {secret}"}
    await change(client, "bandwidth", {"crawls_per_second": 3}, **headers)
    assert (await changes(client, **headers))[0]["what"] in ("bandwidth", "key")
    assert await keyring.revoke(key.id)


async def test_a_key_is_revoked_where_the_store_is_full(client: httpx.AsyncClient) -> None:
    keyring = client.app.state.gate._keyring  # type: ignore[attr-defined]
    _, key = await keyring.create("one", "operator")
    await keyring._server.everywhere("CONFIG", "SET", "maxmemory", "1")
    try:
        assert await keyring.revoke(key.id)
    finally:
        await keyring._server.everywhere("CONFIG", "SET", "maxmemory", "0")


async def test_a_change_that_came_too_late_is_none(client: httpx.AsyncClient) -> None:
    response = await client.put(
        "/admin/bandwidth", json={"crawls_per_second": 7}, headers={"If-Match": '"99"'}
    )
    assert response.status_code == 412
    assert_problem(await client.put("/admin/policy", json={"explore": 7}), 422)
    assert await changes(client) == []


async def test_who_has_a_key_is_named_and_so_is_who_made_it(client: httpx.AsyncClient) -> None:
    key = await key_of(client, "operator", "night shift")
    await change(client, "bandwidth", {"crawls_per_second": 5}, **key)
    rows = {row["what"]: row for row in await changes(client, **key)}
    made = rows["key"]
    assert (made["actor"], made["old"]) == ("freshet keys", {})
    assert made["new"] == {"name": "night shift", "role": "operator"}
    assert rows["bandwidth"]["actor"] == f"night shift ({made['name']})"
    keyring = client.app.state.gate._keyring  # type: ignore[attr-defined]
    assert await keyring.revoke(made["name"])
    assert not await keyring.revoke(made["name"])


async def test_a_revoked_key_leaves_its_name(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.auth.FRESH_S", 0.0)
    client = await make_client()
    keyring = client.app.state.gate._keyring  # type: ignore[attr-defined]
    _, key = await keyring.create("only", "reader")
    await keyring.revoke(key.id)
    revoked, _ = await changes(client)
    assert (revoked["name"], revoked["old"]) == (key.id, {"name": "only", "role": "reader"})
    assert revoked["new"] == {}


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1"])
async def test_what_is_no_limit_is_refused(client: httpx.AsyncClient, limit: str) -> None:
    assert_problem(await client.get("/admin/audit", params={"limit": limit}), 422)


async def test_the_trail_is_bounded(client: httpx.AsyncClient) -> None:
    control = client.app.state.frontier.control  # type: ignore[attr-defined]
    for number in range(1300):
        await control.set_bandwidth(number + 1.0)
    kept = await control._server.execute("XLEN", "f:{control}:audit")
    assert 1000 <= kept <= 1200
    assert len((await client.get("/admin/audit", params={"limit": 1000})).json()["changes"]) == 1000


async def test_a_rest_that_was_ended_is_noted(client: httpx.AsyncClient) -> None:
    await put(client, "https://one.example/")
    (page,) = await lease(client)
    await report(client, {"lease": page["lease"], "status": 503, "retry_after_s": 600})
    for _ in range(2):
        await change(client, "hosts/one.example", {"rests_until": None})
    (found,) = await changes(client)
    assert found["old"] == {"rests_until": "2023-11-14T22:23:20.000Z"}
    assert found["new"] == {"rests_until": None}

"""GET and PUT /admin/policy."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.calls import assert_problem, key_of
from tests.api.conftest import MakeClient

FIRST = {"objective": "freshness", "policy": "ncis", "explore": 0.02, "min_crawls_per_day": 0.0}


async def test_the_first_policy_is_the_default(client: httpx.AsyncClient) -> None:
    response = await client.get("/admin/policy")
    assert (response.status_code, response.json()) == (200, FIRST)
    assert response.headers["etag"] == '"0"'


async def test_a_policy_is_chosen_field_by_field(client: httpx.AsyncClient) -> None:
    response = await client.put("/admin/policy", json={"explore": 0.1})
    assert (response.status_code, response.json()) == (200, {**FIRST, "explore": 0.1})
    response = await client.put("/admin/policy", json={"min_crawls_per_day": 2})
    assert response.json() == {**FIRST, "explore": 0.1, "min_crawls_per_day": 2.0}
    read = await client.get("/admin/policy")
    assert read.json() == response.json()
    assert read.headers["etag"] == response.headers["etag"]


async def test_a_whole_policy_is_taken_and_zero_is_a_choice(client: httpx.AsyncClient) -> None:
    whole = {**FIRST, "explore": 0.0, "min_crawls_per_day": 1000.0}
    assert (await client.put("/admin/policy", json=whole)).json() == whole
    assert (await client.put("/admin/policy", json={"min_crawls_per_day": 0})).json() == {
        **FIRST,
        "explore": 0,
    }


async def test_every_process_sees_what_was_chosen(make_client: MakeClient) -> None:
    one, other = await make_client(), await make_client()
    await one.put("/admin/policy", json={"explore": 0.3})
    assert (await other.get("/admin/policy")).json()["explore"] == 0.3


async def test_the_version_moves_only_with_the_policy(client: httpx.AsyncClient) -> None:
    tags = [
        (await client.put("/admin/policy", json=body)).headers["etag"]
        for body in ({}, {"explore": 0.3}, {"explore": 0.3}, {"objective": "freshness"}, {"explore": 0.2})
    ]
    assert tags == ['"0"', '"1"', '"1"', '"1"', '"2"']


async def test_if_match_prevents_a_lost_update(client: httpx.AsyncClient) -> None:
    tag = (await client.get("/admin/policy")).headers["etag"]
    first = await client.put("/admin/policy", json={"explore": 0.1}, headers={"If-Match": tag})
    assert first.status_code == 200
    second = await client.put("/admin/policy", json={"explore": 0.2}, headers={"If-Match": tag})
    assert_problem(second, 412)
    assert (await client.get("/admin/policy")).json()["explore"] == 0.1
    third = await client.put("/admin/policy", json={"explore": 0.2}, headers={"If-Match": "*"})
    assert third.status_code == 200


async def test_the_bandwidth_has_a_version_of_its_own(client: httpx.AsyncClient) -> None:
    tag = (await client.get("/admin/bandwidth")).headers["etag"]
    await client.put("/admin/policy", json={"explore": 0.1})
    assert (await client.get("/admin/bandwidth")).headers["etag"] == tag


@pytest.mark.parametrize(
    ("field", "value", "available"), [("objective", "age", "freshness"), ("policy", "best", "ncis")]
)
async def test_what_is_not_available_is_refused_with_what_is(
    client: httpx.AsyncClient, field: str, value: str, available: str
) -> None:
    response = await client.put("/admin/policy", json={field: value, "explore": 0.5})
    (error,) = assert_problem(response, 422)["errors"]
    assert error["loc"] == ["body", field]
    assert available in error["msg"]
    assert (await client.get("/admin/policy")).json() == FIRST


@pytest.mark.parametrize(
    "body",
    [
        {"explore": -0.1},
        {"explore": 0.51},
        {"explore": None},
        {"explore": "0.1"},
        {"explore": True},
        {"min_crawls_per_day": -1},
        {"min_crawls_per_day": 1001},
        {"min_crawls_per_day": None},
        {"objective": None},
        {"policy": 5},
        {"surprise": 1},
        [],
    ],
)
async def test_a_senseless_policy_is_refused_and_changes_nothing(
    client: httpx.AsyncClient, body: Any
) -> None:
    assert_problem(await client.put("/admin/policy", json=body), 422)
    assert (await client.get("/admin/policy")).json() == FIRST


@pytest.mark.parametrize(
    ("role", "read", "written"), [("reader", 200, 403), ("operator", 200, 200), ("sender", 403, 403)]
)
async def test_readers_read_and_operators_choose(
    client: httpx.AsyncClient, role: str, read: int, written: int
) -> None:
    key = await key_of(client, role)
    assert (await client.get("/admin/policy", headers=key)).status_code == read
    assert (await client.put("/admin/policy", json={}, headers=key)).status_code == written


async def test_a_policy_and_an_objective_are_chosen_and_kept(client: httpx.AsyncClient) -> None:
    answer = (await client.put("/admin/policy", json={"policy": "greedy", "objective": "harmonic"})).json()
    assert (answer["policy"], answer["objective"]) == ("greedy", "harmonic")
    answer = (await client.put("/admin/policy", json={"explore": 0.1})).json()
    assert (answer["policy"], answer["objective"]) == ("greedy", "harmonic")
    answer = (await client.put("/admin/policy", json={"policy": "ncis"})).json()
    assert (answer["policy"], answer["objective"]) == ("ncis", "harmonic")


async def test_an_objective_the_policy_cannot_follow_is_refused(client: httpx.AsyncClient) -> None:
    await client.put("/admin/policy", json={"policy": "lambdacrawl"})
    response = await client.put("/admin/policy", json={"objective": "delay", "explore": 0.3})
    assert assert_problem(response, 422)["errors"][0]["loc"] == ["body", "objective"]
    assert (await client.get("/admin/policy")).json() == {**FIRST, "policy": "lambdacrawl"}

"""Every refusal is a problem document; hostile bodies never end in a 500."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from service.api.body import MAX_BODY_BYTES
from tests.api.calls import assert_problem, put

PAGE = "https://one.example/"
BATCHES = [
    ("PUT", "/pages"),
    ("POST", "/outcomes"),
    ("POST", "/signals"),
    ("POST", "/requests"),
    ("DELETE", "/pages"),
]
BODIES = [
    *BATCHES,
    ("POST", "/leases/extend"),
    ("POST", "/leases/release"),
    ("PUT", "/admin/bandwidth"),
    ("PUT", "/admin/hosts/one.example"),
    ("PUT", "/admin/policy"),
    ("PUT", "/admin/sources/cdn"),
]
FIELDS = {
    "PUT /pages": "pages",
    "POST /outcomes": "outcomes",
    "POST /signals": "signals",
    "POST /requests": "requests",
}


def field_of(method: str, path: str) -> str:
    return FIELDS.get(f"{method} {path}", "urls")


@pytest.mark.parametrize("path", ["/nowhere", "/pages/", "/admin", "//", "/next/", "/%00", "/é"])
async def test_an_unknown_route_is_404(client: httpx.AsyncClient, path: str) -> None:
    assert_problem(await client.get(f"http://freshet.test{path}"), 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/next", "GET, HEAD"),
        ("GET", "/outcomes", "POST"),
        ("DELETE", "/admin/bandwidth", "GET, HEAD, PUT"),
        ("POST", "/pages", "DELETE, GET, HEAD, PUT"),
        ("POST", "/admin/hosts/one.example", "GET, HEAD, PUT"),
    ],
)
async def test_a_wrong_method_is_405_and_names_the_right_ones(
    client: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    response = await client.request(method, path)
    assert_problem(response, 405)
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/admin/status", "/pages", "/docs", "/"])
async def test_whatever_can_be_got_can_be_asked_after(client: httpx.AsyncClient, path: str) -> None:
    found, asked = await client.get(path), await client.head(path)
    assert (asked.status_code, asked.headers["content-type"]) == (
        found.status_code,
        found.headers["content-type"],
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b"{'a': 1}", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000, b'{"a": "\xff"}'],
    ids=["empty", "cut", "word", "quotes", "nan", "bytes", "deep", "utf-8"],
)
async def test_what_is_no_json_is_400(client: httpx.AsyncClient, body: bytes) -> None:
    for method, path in BODIES:
        response = await client.request(method, path, content=body)
        assert response.status_code in (400, 422)
        assert_problem(response, response.status_code)


@pytest.mark.parametrize("body", [b"[]", b"null", b"5", b'"text"', b"true", b'{"other": []}'])
async def test_json_of_another_shape_is_422(client: httpx.AsyncClient, body: bytes) -> None:
    for method, path in BODIES:
        assert_problem(await client.request(method, path, content=body), 422)


@pytest.mark.parametrize("items", [b"{}", b"null", b"5", b'"text"'])
async def test_a_batch_that_is_no_list_is_422(client: httpx.AsyncClient, items: bytes) -> None:
    for method, path in BATCHES:
        body = b'{"%s": %s}' % (field_of(method, path).encode(), items)
        response = await client.request(method, path, content=body)
        assert assert_problem(response, 422)["errors"][0]["loc"][0] == "body"


@pytest.mark.parametrize(
    "item",
    [
        b"null",
        b"5",
        b"[]",
        b"{}",
        b'""',
        b'{"url": "\\ud800"}',
        b'"\\ud800"',
        b'{"url": "\\x"}',
        b'"\\x"',
        b'{"url": "https://a.example/\xff"}',
        b'"\xff"',
        b'{"url": "https://a.example/\\u0000"}',
        b'{"url": 1e999}',
        b'{"url": "https://a.example/", "url": "nonsense"}',
        b'{"' + b"x" * 100_000 + b'": 1}',
        b"[" * 5000 + b"]" * 5000,
        b'{"url": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"1" * 5000,
        b'{"importance": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda item: item[:24].decode("latin-1"),
)
async def test_a_hostile_item_is_refused_without_a_500(client: httpx.AsyncClient, item: bytes) -> None:
    """Rejected with its place, or the whole body is; the good item beside it survives the first."""
    await put(client, PAGE)
    for method, path in BATCHES:
        good = b'"https://one.example/"' if method == "DELETE" else b'{"url": "https://one.example/"}'
        body = b'{"%s": [%s, %s]}' % (field_of(method, path).encode(), item, good)
        response = await client.request(method, path, content=body)
        if response.status_code in (400, 422):
            assert_problem(response, response.status_code)
            continue
        assert response.status_code in (200, 202), response.text
        places = [rejected["index"] for rejected in response.json()["rejected"]]
        assert 1 not in places
        assert places == [0] or b"u0000" in item


async def test_a_body_that_says_it_is_too_large_is_413_unread(client: httpx.AsyncClient) -> None:
    async def unread() -> AsyncIterator[bytes]:
        yield b"{"
        raise AssertionError("read on")

    headers = {"Content-Length": str(MAX_BODY_BYTES + 1)}
    for method, path in BODIES:
        response = await client.request(method, path, content=unread(), headers=headers)
        assert_problem(response, 413)


async def test_a_body_without_length_is_413_as_soon_as_it_is_too_large(
    client: httpx.AsyncClient,
) -> None:
    sent: list[int] = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            sent.append(1 << 20)
            yield b" " * (1 << 20)

    for method, path in BODIES:
        sent.clear()
        assert_problem(await client.request(method, path, content=endless()), 413)
        assert sum(sent) <= MAX_BODY_BYTES + (2 << 20)


async def test_a_body_of_exactly_the_limit_is_read(client: httpx.AsyncClient) -> None:
    body = b'{"signals": []}'
    body += b" " * (MAX_BODY_BYTES - len(body))
    assert (await client.post("/signals", content=body)).status_code == 202


@pytest.mark.parametrize(("method", "path"), BATCHES)
async def test_too_many_items_name_the_limit(client: httpx.AsyncClient, method: str, path: str) -> None:
    most = 10_000 if path == "/pages" else 1_000
    body = {field_of(method, path): [0] * (most + 1)}
    assert str(most) in assert_problem(await client.request(method, path, json=body), 422)["detail"]


async def test_a_request_id_is_echoed(client: httpx.AsyncClient) -> None:
    response = await client.get("/healthz", headers={"X-Request-Id": "abc-123"})
    assert response.headers["x-request-id"] == "abc-123"


@pytest.mark.parametrize("given", [None, b"", b"x" * 129, b"a b", b"\xe9"])
async def test_a_request_without_a_usable_id_gets_one(client: httpx.AsyncClient, given: bytes | None) -> None:
    headers = [] if given is None else [(b"x-request-id", given)]
    first = await client.get("/healthz", headers=headers)
    second = await client.get("/healthz", headers=headers)
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert len(first.headers["x-request-id"]) >= 8


@pytest.mark.parametrize("path", ["/nowhere", "/pages", "/next?n=0"])
async def test_refusals_carry_the_request_id_too(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path, headers={"X-Request-Id": "abc"})
    assert response.headers["x-request-id"] == "abc"


@pytest.mark.parametrize("at", ["Mon, 01 Jan 2020 00:00:00 +99999999999999", "1 Jan 2020 0:0:0 " + "9" * 40])
async def test_a_date_of_an_impossible_zone_spoils_its_own_item_only(
    client: httpx.AsyncClient, at: str
) -> None:
    await put(client, PAGE)
    for path, field, name in (("/signals", "signals", "at"), ("/outcomes", "outcomes", "fetched_at")):
        response = await client.post(path, json={field: [{"url": PAGE, name: at}, {"url": PAGE}]})
        assert response.status_code in (200, 202), response.text
        assert response.json()["accepted"] == 1
        assert [rejected["index"] for rejected in response.json()["rejected"]] == [0]


@pytest.mark.parametrize("name", ["x - at `$.\u00b2", "x - at `$." + "9" * 5000])
async def test_a_field_whose_name_looks_like_a_place_is_422(client: httpx.AsyncClient, name: str) -> None:
    for path in ("/leases/extend", "/leases/release"):
        assert_problem(await client.post(path, json={"leases": [], name: 1}), 422)


async def test_a_failure_carries_the_request_id_too(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(client.app.state.frontier, "put_pages", fail)  # type: ignore[attr-defined]
    body = {"pages": [{"url": PAGE}]}
    response = await client.put("/pages", json=body, headers={"X-Request-Id": "abc"})
    assert_problem(response, 500)
    assert response.headers["x-request-id"] == "abc"


@pytest.mark.parametrize("call", [*FIELDS, "DELETE /pages", "POST /admin/parked/release"])
@pytest.mark.parametrize("items", [["https://one.example/"], [{"url": "https://one.example/"}], [1]])
async def test_a_field_that_a_batch_does_not_have_is_refused(
    client: httpx.AsyncClient, call: str, items: list[Any]
) -> None:
    method, path = call.split()
    await put(client, "https://one.example/")
    body = {field_of(method, path): items, "importance": 3}
    problem = assert_problem(await client.request(method, path, json=body), 422)
    assert problem["errors"] == [{"loc": ["body", "importance"], "msg": "no such field"}]
    assert (await client.get("/pages", params={"url": "https://one.example/"})).json()["importance"] == 1

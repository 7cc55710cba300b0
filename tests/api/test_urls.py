"""URLs with tricks through the whole service: one canonical form, or a clear refusal."""

from __future__ import annotations

import httpx
import pytest

from tests.api.calls import lease, page, put

SAME = [
    ("HTTPS://One.EXAMPLE:443/a", "https://one.example/a"),
    ("https://one.example", "https://one.example/"),
    ("https://one.example./", "https://one.example/"),
    ("https://one.example/a/../b/./c", "https://one.example/b/c"),
    ("https://one.example/%7Euser/%41%2f%c3%a9", "https://one.example/~user/A%2F%C3%A9"),
    ("https://one.example/é", "https://one.example/%C3%A9"),
    ("https://bücher.example/", "https://xn--bcher-kva.example/"),
    ("https://one.example/?b=2&a=1#part", "https://one.example/?b=2&a=1"),
    ("https://one.example/{a}:b", "https://one.example/%7Ba%7D:b"),
    ("http://one.example:8080/", "http://one.example:8080/"),
    ("https://[::1]/", "https://[::1]/"),
    ("https://0x7f.1/", "https://127.0.0.1/"),
]
REFUSED = [
    "https://user:secret@one.example/",
    "https://user@one.example/",
    "ftp://one.example/",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "//one.example/",
    "/path",
    "https://",
    "https:///",
    "",
    " ",
    "https://one.example:99999/",
    "https://exa mple/",
    "https://one..example../",
    "https://one.example/" + "x" * 100_000,
    "https://one.example/" + "é" * 500,
]


@pytest.mark.parametrize(("given", "canonical"), SAME, ids=[given for given, _ in SAME])
async def test_a_page_is_known_by_one_url(client: httpx.AsyncClient, given: str, canonical: str) -> None:
    await put(client, given)
    assert await put(client, canonical) == {"added": 0, "updated": 1, "rejected": []}
    assert (await page(client, given))["url"] == canonical
    (found,) = await lease(client)
    assert found["url"] == canonical


@pytest.mark.parametrize("url", REFUSED, ids=lambda url: url[:40])
async def test_what_cannot_be_crawled_is_refused_with_a_reason(client: httpx.AsyncClient, url: str) -> None:
    for method, path, body in (
        ("PUT", "/pages", {"pages": [{"url": url}]}),
        ("DELETE", "/pages", {"urls": [url]}),
        ("POST", "/signals", {"signals": [{"url": url}]}),
        ("POST", "/outcomes", {"outcomes": [{"url": url}]}),
    ):
        response = await client.request(method, path, json=body)
        assert response.status_code in (200, 202)
        (rejected,) = response.json()["rejected"]
        assert rejected["index"] == 0
        assert len(rejected["reason"]) > 5
        assert "secret" not in rejected["reason"]


async def test_control_characters_never_reach_a_stored_url(client: httpx.AsyncClient) -> None:
    for character in "\x00\x01\t\n\r\x1b\x7f\u202e\u2028":
        await put(client, f"https://one.example/a{character}b")
    response = await client.get("/pages", params={"host": "one.example"})
    for row in response.json()["pages"]:
        assert row["url"].isascii()
        assert row["url"].isprintable()

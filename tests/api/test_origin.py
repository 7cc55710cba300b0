"""Sites whose visitors reach this machine cannot drive a service that needs no key."""

from __future__ import annotations

import httpx
import pytest

from service.api.hatch import read_plain
from tests.api.calls import assert_problem, key_of, lease, put

EVIL = {"Origin": "http://evil.example"}
IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
OTHER_PORT = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}
AMBIENT = {**EVIL, "Sec-Fetch-Site": "cross-site", "Authorization": "Basic YTpi"}
REBOUND = {"Origin": "http://evil.example:8080", "Host": "evil.example:8080"}  # it leads to this machine now
FOREIGN = {
    "origin": EVIL,
    "sandbox": {"Origin": "null"},
    "image": IMAGE,
    "other port": OTHER_PORT,
    "ambient": AMBIENT,
    "rebound": REBOUND,
}
LEADS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
CALLS = [
    ("POST", "/signals", {"signals": [{"url": "https://one.example/"}]}),
    ("POST", "/outcomes", {"outcomes": [{"url": "https://one.example/", "status": 404}]}),
    ("POST", "/requests", {"requests": [{"url": "https://one.example/"}]}),
    ("POST", "/admin/parked/release", {"urls": ["https://one.example/"]}),
    ("GET", "/next", None),
    ("GET", "/admin/status", None),
]


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize(("method", "path", "body"), CALLS, ids=[path for _, path, _ in CALLS])
async def test_what_another_site_asks_is_refused(
    client: httpx.AsyncClient, method: str, path: str, body: object, headers: dict[str, str]
) -> None:
    await put(client, "https://one.example/")
    problem = assert_problem(await client.request(method, path, json=body, headers=headers), 403)
    assert "another site" in problem["detail"]
    assert len(await lease(client)) == 1  # nothing was done


@pytest.mark.parametrize(("method", "path", "body"), CALLS[:4], ids=[path for _, path, _ in CALLS[:4]])
async def test_a_made_up_key_opens_nothing(
    client: httpx.AsyncClient, method: str, path: str, body: object
) -> None:
    await put(client, "https://one.example/")
    made_up = {**REBOUND, "Authorization": "Bearer frk_none"}
    assert_problem(await client.request(method, path, json=body, headers=made_up), 403)
    assert len(await lease(client)) == 1


@pytest.mark.parametrize(("method", "path", "body"), CALLS, ids=[path for _, path, _ in CALLS])
async def test_the_service_s_own_pages_may_ask(
    client: httpx.AsyncClient, method: str, path: str, body: object
) -> None:
    await put(client, "https://one.example/")
    host = client.base_url.netloc.decode()
    headers = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    response = await client.request(method, path, json=body, headers=headers)
    assert response.status_code < 300, response.text


@pytest.mark.parametrize(
    "host", ["localhost:8080", "me.localhost", "127.0.0.1:8080", "10.0.0.1", "[::1]:8080"]
)
async def test_the_service_s_own_pages_may_ask_where_the_browser_says_little(
    client: httpx.AsyncClient, host: str
) -> None:
    headers = {"Origin": f"http://{host}", "Host": host}
    response = await client.put("/admin/bandwidth", json={"crawls_per_second": 10}, headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "1.example"]
)
async def test_a_name_that_may_have_led_elsewhere_is_not_the_service_s_own(
    client: httpx.AsyncClient, host: str
) -> None:
    headers = {"Origin": f"http://{host}", "Host": host}
    assert_problem(await client.put("/admin/bandwidth", json={"crawls_per_second": 0}, headers=headers), 403)


async def test_behind_a_proxy_that_names_another_host_its_own_pages_may_ask(
    client: httpx.AsyncClient,
) -> None:
    headers = {"Origin": "https://freshet.corp", "Host": "127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}
    response = await client.put("/admin/bandwidth", json={"crawls_per_second": 10}, headers=headers)
    assert response.status_code == 200


async def test_who_has_a_key_may_ask_from_anywhere(client: httpx.AsyncClient) -> None:
    headers = await key_of(client, "operator")
    response = await client.get("/admin/status", headers={**headers, **EVIL})
    assert response.status_code == 200


async def test_a_link_on_another_site_leads_here(client: httpx.AsyncClient) -> None:
    assert (await client.get("/", headers=LEADS)).status_code == 200


async def test_no_frame_or_pop_up_of_another_site_leases_pages(client: httpx.AsyncClient) -> None:
    await put(client, "https://one.example/")
    assert_problem(await client.get("/next?n=1000", headers=LEADS), 403)
    assert len(await lease(client)) == 1


async def test_no_form_of_another_site_is_taken(client: httpx.AsyncClient) -> None:
    form = {**LEADS, "Content-Type": "text/plain"}
    assert_problem(await client.post("/signals", content=b'{"signals": []}', headers=form), 403)


@pytest.mark.parametrize("header", ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"])
def test_what_browsers_say_is_not_overheard(header: str) -> None:
    assert read_plain(f"GET /next HTTP/1.1\r\nHost: h\r\n{header}\r\n\r\n".encode()) is None
    assert read_plain(b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n") is not None

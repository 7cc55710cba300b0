"""Liveness, readiness, metrics, and life without a store."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from service import telemetry
from service.clock import ManualClock, ServerClock
from service.embedded import EmbeddedServer
from tests.api.calls import assert_problem, lease, put, report, somebody_waits
from tests.api.calls import signal as send_signal
from tests.api.conftest import running_app
from tests.deadline import overdue_s
from workers.learn import Learner
from workers.reprice import Repricer

PAGE = "https://one.example/"
CONTRACT = {
    "freshet_pages",
    "freshet_leases",
    "freshet_parked",
    "freshet_bandwidth_crawls_per_second",
    "freshet_next_pages",
    "freshet_next_empty",
    "freshet_outcomes",
    "freshet_signals",
    "freshet_price",
    "freshet_expected_freshness",
    "freshet_calibration_error",
    "freshet_signal_precision",
    "freshet_repriced_lag_seconds",
    "freshet_request_seconds",
    "freshet_redis_seconds",
    "freshet_worker_last_run_timestamp_seconds",
}
CALLS = [
    ("GET", "/next", None),
    ("POST", "/outcomes", {"outcomes": [{"url": PAGE}]}),
    ("POST", "/leases/extend", {"leases": ["AAAAAAAAAAA.1.1"]}),
    ("POST", "/leases/release", {"leases": ["AAAAAAAAAAA.1.1"]}),
    ("POST", "/signals", {"signals": [{"url": PAGE}]}),
    ("PUT", "/pages", {"pages": [{"url": PAGE}]}),
    ("DELETE", "/pages", {"urls": [PAGE]}),
    ("GET", f"/pages?url={PAGE}", None),
    ("GET", "/pages?host=one.example", None),
    ("GET", "/admin/bandwidth", None),
    ("PUT", "/admin/bandwidth", {"crawls_per_second": 1.0}),
    ("GET", "/admin/hosts/one.example", None),
    ("PUT", "/admin/hosts/one.example", {"min_delay_s": 1}),
    ("GET", "/admin/status", None),
    ("GET", "/readyz", None),
]


async def test_a_living_process_says_so(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).status_code == 200


async def test_a_service_with_a_store_is_ready(client: httpx.AsyncClient) -> None:
    response = await client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (200, "ready")


async def metrics(client: httpx.AsyncClient) -> dict[str, dict[str, float]]:
    """Samples by family, then by name and labels."""
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return {
        family.name: {f"{s.name}{sorted(s.labels.items())}": s.value for s in family.samples}
        for family in text_string_to_metric_families(response.text)
    }


async def test_metrics_parse_and_carry_the_names_of_the_contract(
    client: httpx.AsyncClient,
) -> None:
    """Those the service has so far."""
    found = await metrics(client)
    defined = {family.name for family in telemetry.REGISTRY.collect()}
    assert CONTRACT & defined <= found.keys()
    assert {"freshet_pages", "freshet_leases", "freshet_price", "freshet_outcomes"} <= found.keys()


async def test_metrics_count_what_happened(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_sources", set())  # other tests may have used up the labels
    before = await metrics(client)
    await put(client, PAGE, "https://two.example/")
    (found,) = await lease(client)
    await report(client, {"lease": found["lease"], "changed": True})
    await send_signal(client, {"url": PAGE, "source": "cdn"})
    await client.get("/nowhere")
    after = await metrics(client)

    def rise(family: str, sample: str) -> float:
        return after[family][sample] - before[family].get(sample, 0.0)

    assert after["freshet_pages"]["freshet_pages[]"] == 2
    assert after["freshet_leases"]["freshet_leases[]"] == 0
    assert rise("freshet_next_pages", "freshet_next_pages_total[]") == 1
    assert rise("freshet_outcomes", "freshet_outcomes_total[('result', 'changed')]") == 1
    signals = "freshet_signals_total[('result', 'accepted'), ('source', 'cdn')]"
    assert rise("freshet_signals", signals) == 1
    bandwidth = after["freshet_bandwidth_crawls_per_second"]
    assert bandwidth["freshet_bandwidth_crawls_per_second[]"] == 1000.0


@pytest.mark.parametrize("reason", ["pace", "politeness", "no-pages", "paused"])
async def test_metrics_count_empty_answers_from_zero(client: httpx.AsyncClient, reason: str) -> None:
    assert f'freshet_next_empty_total{{reason="{reason}"}}' in (await client.get("/metrics")).text


async def test_metrics_tell_when_workers_were_at_work(client: httpx.AsyncClient, clock: ManualClock) -> None:
    """Whichever process they live in."""
    name = "freshet_worker_last_run_timestamp_seconds"
    frontier = client.app.state.frontier  # type: ignore[attr-defined]
    place = frontier.control._server, frontier.settings, clock
    await put(client, "https://one.example/")
    await Repricer(*place).sweep_all(clock.now_at)
    clock.advance(30)
    await Learner(*place).learn_all(clock.now_at)
    found = (await client.get("/metrics")).text
    ran = {
        line.split('"')[1]: float(line.split()[-1]) for line in found.splitlines() if line.startswith(name)
    }
    assert ran["learn"] == pytest.approx(time.time(), abs=5)
    assert ran["learn"] - ran["reprice"] == pytest.approx(30, abs=1)
    elapsed_s = (await client.get("/admin/status")).json()["worker_elapsed_s"]
    assert elapsed_s == {"reprice": pytest.approx(30, abs=1), "learn": pytest.approx(0, abs=1)}


async def test_no_label_carries_a_url_or_a_host(client: httpx.AsyncClient) -> None:
    await put(client, "https://secret.example/path")
    await client.get("/pages", params={"url": "https://secret.example/path"})
    await client.get("/admin/hosts/secret.example")
    await client.get("/unknown/secret.example")
    assert "secret.example" not in (await client.get("/metrics")).text


async def test_sources_beyond_a_cap_share_a_label(client: httpx.AsyncClient) -> None:
    await put(client, PAGE)
    for start in (0, 100):
        sources = [f"source-{start + at}" for at in range(100)]
        await send_signal(client, *({"url": PAGE, "source": source} for source in sources))
    labels = {key for key in (await metrics(client))["freshet_signals"] if "source-" in key}
    assert len(labels) <= 50


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server the test may stop."""
    with EmbeddedServer(tmp_path) as server:
        yield server


@pytest.fixture
async def own_client(own_server: EmbeddedServer) -> AsyncIterator[httpx.AsyncClient]:
    async with running_app(own_server.url, ServerClock()) as client:
        yield client


async def timed(client: httpx.AsyncClient, method: str, path: str, body: object) -> float:
    """Seconds after the deadline until the store's absence was answered as it should be."""
    asked = asyncio.create_task(client.request(method, path, json=body))
    overdue = await overdue_s(asyncio.wait([asked]))
    response = await asked
    assert_problem(response, 503)
    assert int(response.headers["retry-after"]) >= 1
    return overdue


async def test_a_store_that_hangs_is_503_in_time_and_recovers(
    own_server: EmbeddedServer, own_client: httpx.AsyncClient
) -> None:
    """Real time is the subject: every route ends within three seconds."""
    await put(own_client, PAGE)
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        took = await asyncio.gather(*(timed(own_client, *call) for call in CALLS))
        assert (await own_client.get("/healthz")).status_code == 200
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    assert max(took) < 1.5
    assert (await own_client.get("/readyz")).status_code == 200
    assert len(await lease(own_client)) == 1


async def test_who_waits_for_a_slot_is_told_when_the_store_hangs(
    own_server: EmbeddedServer, own_client: httpx.AsyncClient
) -> None:
    """Real time is the subject: not only after the wait is over."""
    waiting = asyncio.create_task(timed(own_client, "GET", "/next?wait=30", None))
    await somebody_waits(own_client)
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        assert await overdue_s(asyncio.wait([waiting])) < 3
        await waiting
    finally:
        os.kill(own_server.pid, signal.SIGCONT)


async def test_a_store_that_is_gone_is_503_and_the_service_recovers_with_it(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        stack = running_app(server.url, ServerClock())
        client = await stack.__aenter__()
        await put(client, PAGE)
    try:
        for method, path, body in CALLS:
            assert await timed(client, method, path, body) < 1
        with EmbeddedServer(tmp_path):
            assert (await client.get("/readyz")).status_code == 200
            assert (await client.get("/pages", params={"url": PAGE})).status_code == 200
            assert len(await lease(client)) == 1
    finally:
        await stack.__aexit__(None, None, None)


async def test_a_service_starts_without_its_store_and_is_ready_once_it_is_there(
    tmp_path: Path,
) -> None:
    """The first start is made up for: shards, bandwidth and library are there too."""
    absent = EmbeddedServer(tmp_path)
    async with running_app(absent.url, ServerClock(), bandwidth=7.0) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert_problem(await client.get("/readyz"), 503)
        with absent:
            assert (await client.get("/readyz")).status_code == 200
            await put(client, PAGE)
            assert (await client.get("/admin/bandwidth")).json() == {"crawls_per_second": 7.0}
            assert len(await lease(client)) == 1


async def test_large_requests_do_not_queue_up_before_a_store_that_hangs(
    own_server: EmbeddedServer, own_client: httpx.AsyncClient
) -> None:
    """Real time is the subject: each is a call of its own, and two are made at once."""
    await put(own_client, PAGE)
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        took = await asyncio.gather(*(timed(own_client, "GET", "/next?n=64", None) for _ in range(8)))
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    assert max(took) < 1.5


async def test_a_retry_hands_out_nothing_new(client: httpx.AsyncClient) -> None:
    """Neither one that comes beside its first try nor one that comes later; nor in several calls."""

    def counted() -> float:
        return telemetry.REGISTRY.get_sample_value("freshet_next_pages_total") or 0.0

    await put(client, *(f"https://h{at}.example/" for at in range(300)))
    for count in (2, 290):
        before, headers = counted(), {"X-Request-Id": f"same-{count}"}
        first, beside = await asyncio.gather(*(lease(client, count, **headers) for _ in range(2)))
        assert first == beside == await lease(client, count, **headers)
        assert len(first) == counted() - before == count
    status = (await client.get("/admin/status")).json()
    assert status["next_pages_total"] == 292


async def test_a_store_that_was_emptied_is_made_ready_again(
    own_server: EmbeddedServer, own_client: httpx.AsyncClient
) -> None:
    """Else it would be ready, and paused until somebody turned the dial."""
    await put(own_client, PAGE)
    await send_signal(own_client, {"url": PAGE, "source": "cdn"})
    with redis.Redis.from_url(own_server.url) as store:
        store.flushall()
        store.execute_command("FUNCTION", "FLUSH")
    assert (await own_client.get("/readyz")).status_code == 200
    await put(own_client, PAGE)
    assert len(await lease(own_client)) == 1
    await send_signal(own_client, {"url": PAGE, "source": "cdn"})
    assert "cdn" in (await own_client.get("/admin/sources")).json()["sources"]

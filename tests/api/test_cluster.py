"""The API while a primary is away: what needs it says so, the rest goes on, and repeating is safe."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from loadtest.cluster import LocalCluster, Member, until
from service import telemetry
from service.address import parse_url, shard_of
from service.clock import ManualClock, ServerClock
from service.store.keys import CONTROL, shard_prefixes
from tests.api.calls import assert_problem
from tests.api.conftest import DEFAULTS, running_app
from tests.conftest import emptied

HOSTS = [f"https://h{at}.example/" for at in range(40)]
PAGES = {"pages": [{"url": url} for url in HOSTS]}
SIGNALS = {"signals": [{"url": url, "source": "cdn", "id": url} for url in HOSTS]}


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path) as cluster:
        yield cluster


def _pages_of(cluster: LocalCluster, member: Member) -> list[str]:
    prefixes = shard_prefixes(DEFAULTS["shards"])
    homes = {url: prefixes[shard_of(parse_url(url).host_id, len(prefixes))] for url in HOSTS}
    return [url for url, prefix in homes.items() if cluster.owner(prefix) is member]


async def test_a_dead_primary_costs_only_its_pages_and_repeating_is_safe(own_cluster: LocalCluster) -> None:
    victim = own_cluster.owner(shard_prefixes(DEFAULTS["shards"])[0])
    lost = _pages_of(own_cluster, victim)
    assert 0 < len(lost) < len(HOSTS)
    async with running_app(own_cluster.url, ServerClock()) as client:
        assert (await client.put("/pages", json=PAGES)).json()["added"] == len(HOSTS)
        until(victim.is_written)
        victim.kill()
        for response in (
            await client.post("/signals", json=SIGNALS),
            await client.put("/pages", json=PAGES),
            await client.get("/pages", params={"url": lost[0]}),
            await client.get("/readyz"),
        ):
            assert_problem(response, 503)
            assert "Retry-After" in response.headers
        assert (await client.get("/healthz")).status_code == 200
        await _others_answer(client, [url for url in HOSTS if url not in lost])
        victim.start()
        until(own_cluster.is_whole)
        assert (await client.get("/readyz")).status_code == 200
        answer = (await client.post("/signals", json=SIGNALS)).json()
        # The shards that lived had counted theirs; the others lost nothing that was acknowledged.
        assert (answer["accepted"], answer["duplicates"]) == (len(lost), len(HOSTS) - len(lost))
        assert (await client.put("/pages", json=PAGES)).json()["updated"] == len(HOSTS)


async def _others_answer(client: httpx.AsyncClient, urls: list[str]) -> None:
    for url in urls:
        response = await client.get("/pages", params={"url": url})
        assert response.status_code == 200, response.text
        assert response.json()["signals"] in (0, 1)


async def test_a_retry_that_waits_for_its_first_try_does_not_press_the_store(cluster: LocalCluster) -> None:
    """Real time is the subject: the process that had the first try may have died."""
    clock = ManualClock()

    def grants() -> float:
        name, labels = "freshet_redis_seconds_count", {"script": "grant"}
        return telemetry.REGISTRY.get_sample_value(name, labels) or 0.0

    async with running_app(emptied(cluster), clock) as client:
        await client.put("/pages", json=PAGES)
        now_ms = clock.now_at * 1000
        server = client.app.state.frontier._pages._server  # type: ignore[attr-defined]
        key = f"{CONTROL}:answers:{int(now_ms // 30_000)}"
        await server.execute("HSET", key, "again", struct.pack("<d", now_ms + 5000))
        before = grants()
        response = await client.get("/next?wait=0.5", headers={"X-Request-Id": "again"})
        assert response.status_code == 204
        assert grants() - before < 50

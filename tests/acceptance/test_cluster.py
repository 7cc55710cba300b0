"""`freshet up`, `keys`, API and worker as real processes on a cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx

from loadtest.cluster import LocalCluster
from tests.acceptance.processes import LONGEST_S, ROOT, freshet_up
from tests.conftest import emptied

URLS = [f"https://h{at % 20}.example/{at}" for at in range(200)]


def _keys(url: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "service", "keys", *arguments, "--redis-url", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=LONGEST_S)
    return done.stdout


def test_everything_runs_on_a_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    url = emptied(cluster)
    key = _keys(url, "create", "--name", "me", "--role", "operator").split()[0]
    assert "me" in _keys(url, "list")
    settings = {"FRESHET_REDIS_URL": url, "FRESHET_REPRICE_S": "0.5"}
    with freshet_up(tmp_path, **settings) as (base, _):
        assert httpx.get(f"{base}/admin/status").status_code == 401
        with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
            body = {"pages": [{"url": page, "change_rate_per_day": 1} for page in URLS]}
            assert client.put("/pages", json=body).json()["added"] == len(URLS)
            for age_s in (3600, 60):
                crawl = {"changed": True, "fetched_at": time.time() - age_s}
                body = {"outcomes": [{"url": page, **crawl} for page in URLS]}
                answer = client.post("/outcomes", json=body).json()
                assert answer == {"accepted": len(URLS), "duplicates": 0, "rejected": []}
            status = _learned(client)
    assert status["pages"] == len(URLS)
    assert all(shard["repriced_lag_s"] is not None for shard in status["shards"])
    assert not (tmp_path / "data").exists()  # no server of its own was started


def _learned(client: httpx.Client) -> dict[str, object]:
    """The status once the worker has swept every shard and learned from every observation."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        status = dict(client.get("/admin/status").json())
        if status["repriced_lag_s"] is not None and status["observations"] == 0:
            return status
        time.sleep(0.1)
    raise AssertionError("the worker never came round")

"""`freshet demo`: everything moves by itself within seconds."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.processes import LONGEST_S, free_port, running, wait_ready


def status(base: str) -> dict[str, Any]:
    return dict(httpx.get(f"{base}/admin/status", timeout=10).json())


def test_pages_are_crawled_signals_heard_and_freshness_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        free_port() as port,
        running("-m", "service", "demo", "--port", str(port), "--bandwidth", "50", log=log) as process,
    ):
        base = f"http://127.0.0.1:{port}"
        wait_ready(base, process)
        deadline = time.monotonic() + LONGEST_S
        while time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            found = status(base)
            sources = httpx.get(f"{base}/admin/sources", timeout=10).json()["sources"]
            if found["next_pages_total"] > 100 and found["expected_freshness"] and len(sources) == 3:
                break
            time.sleep(0.2)
        else:
            raise AssertionError(f"{found}\n{log.read_text()}")
        assert found["pages"] == 600
        assert found["bandwidth_crawls_per_second"] == 50
        metrics = httpx.get(f"{base}/metrics", timeout=10).text
        assert 'freshet_outcomes_total{result="changed"}' in metrics
        while "fresh copies" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)


def test_it_does_not_touch_a_store_that_is_used_for_something_else(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running("-m", "service", "demo", "--redis-url", "redis://127.0.0.1:1", log=log) as process:
        assert process.wait(LONGEST_S) == 2
    assert "brings its own store" in log.read_text()


def test_a_service_that_has_the_port_already_is_left_alone(tmp_path: Path) -> None:
    asked: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    log = tmp_path / "log"
    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        with running("-m", "service", "demo", "--port", str(other.server_port), log=log) as process:
            assert process.wait(60) == 2
        other.shutdown()
    assert "cannot listen" in log.read_text()
    assert asked == []

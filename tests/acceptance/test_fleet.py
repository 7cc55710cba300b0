"""Several API processes over one store: pace and leases hold between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis

from service.embedded import EmbeddedServer
from tests.acceptance.clocked_app import CLOCK_KEY
from tests.acceptance.processes import free_port, running, wait_ready

PROCESSES = 3
START_MS = 1_900_000_000_000.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[tuple[list[str], redis.Redis]]:
    """Three API processes and the clock they share."""
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(tmp_path / "data"))
        store = stack.enter_context(redis.Redis(unix_socket_path=str(server.socket_path)))
        store.set(CLOCK_KEY, START_MS)
        settings = {"FRESHET_REDIS_URL": server.url, "FRESHET_MIN_DELAY_S": "0", "FRESHET_BANDWIDTH": "2"}
        bases = []
        for number in range(PROCESSES):
            port = stack.enter_context(free_port())
            command = (
                "-m",
                "uvicorn",
                "tests.acceptance.clocked_app:create",
                "--factory",
                "--port",
                str(port),
            )
            log = tmp_path / f"api{number}.log"
            process = stack.enter_context(running(*command, "--log-level", "warning", log=log, **settings))
            bases.append(f"http://127.0.0.1:{port}")
            wait_ready(bases[-1], process)
        yield bases, store


def _add_pages(base: str, count: int) -> None:
    pages = [{"url": f"https://h{i % 20}.example/{i}"} for i in range(count)]
    assert httpx.put(f"{base}/pages", json={"pages": pages}, timeout=60).json()["added"] == count


async def _next(base: str, count: int = 1) -> list[dict[str, Any]]:
    """Pages by a request of its own connection; a client library would take longer than the service."""
    place = base.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*place.split(":"))
    try:
        writer.write(f"GET /next?n={count} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 204"):
            return []
        assert head.startswith(b"HTTP/1.1 200"), head
        (size,) = (line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
        pages: list[dict[str, Any]] = json.loads(await reader.readexactly(int(size.split()[1])))["pages"]
        return pages
    finally:
        writer.close()


async def _turn(base: str, crawls_per_second: float) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.put(f"{base}/admin/bandwidth", json={"crawls_per_second": crawls_per_second})
    assert answer.status_code == 200


def _worst_excess(slots: list[float], schedule: list[tuple[float, float]]) -> float:
    """Largest (grants − ∫R) over every window that starts and ends with a grant; the bound is 1."""
    times = np.sort(np.array(slots))
    starts = np.array([at for at, _ in schedule])
    rates = np.array([rate for _, rate in schedule])
    done = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(starts))])
    piece = np.searchsorted(starts, times, side="right") - 1
    integral = done[piece] + rates[piece] * (times - starts[piece])
    surplus = np.arange(len(times)) - integral
    return float(np.max(surplus - np.minimum.accumulate(surplus)) + 1)


async def test_grants_stay_within_the_bandwidth_in_every_window_of_ten_minutes(
    fleet: tuple[list[str], redis.Redis],
) -> None:
    bases, store = fleet
    await asyncio.to_thread(_add_pages, bases[0], 3000)
    turns = {0: 2.0, 120: 5.0, 200: 0.0, 230: 3.0, 300: 0.5, 400: 4.0, 500: 1.0}
    schedule: list[tuple[float, float]] = []
    slots: list[float] = []
    step_s = 0.05
    now_s, asked = 0.0, 0
    while now_s < 600:
        store.set(CLOCK_KEY, START_MS + now_s * 1000)
        if (turn := turns.pop(round(now_s, 3), None)) is not None:  # type: ignore[call-overload]
            await _turn(bases[1], turn)
            schedule.append((now_s, turn))
        rate = schedule[-1][1]
        asked += 1
        pages = await _next(bases[asked % PROCESSES])
        slots += [_seconds(page["not_before"]) - START_MS / 1000 for page in pages]
        # Steps shorter than a slot: demand is steady.
        now_s = round(now_s + (max(step_s, round(0.24 / rate, 2)) if rate else 1.0), 3)
        if turns and now_s > min(turns):
            now_s = float(min(turns))
    allowed = sum(
        rate * ((schedule[at + 1][0] if at + 1 < len(schedule) else 600) - start)
        for at, (start, rate) in enumerate(schedule)
    )
    assert _worst_excess(slots, schedule) <= 1 + 1e-2  # instants are rounded to milliseconds
    assert len(slots) >= 0.98 * allowed


async def test_a_thousand_requests_at_once_get_a_thousand_different_pages(
    fleet: tuple[list[str], redis.Redis],
) -> None:
    bases, store = fleet
    await asyncio.to_thread(_add_pages, bases[0], 2000)
    await _turn(bases[0], 1000)
    store.set(CLOCK_KEY, START_MS + 10_000)
    # The clock stands still: only the slots that are free or start within the grace can be granted.
    answers = await asyncio.gather(*(_next(bases[number % PROCESSES]) for number in range(1000)))
    granted = [page for pages in answers for page in pages]
    assert 1 <= len(granted) <= 1 + 1000 * 0.010
    for tick in range(1, 2000):
        if len(granted) >= 1000:
            break
        store.set(CLOCK_KEY, START_MS + 10_000 + tick * 10)
        answers = await asyncio.gather(*(_next(base, 5) for base in bases))
        granted += [page for pages in answers for page in pages]
    assert len(granted) >= 1000
    assert len({page["url"] for page in granted}) == len(granted)
    slots = sorted(_seconds(page["not_before"]) for page in granted)
    assert len(slots) - 1 <= 1000 * (slots[-1] - slots[0]) + 1


def _seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()

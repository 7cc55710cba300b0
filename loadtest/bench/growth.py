"""Part `growth`: what pages cost to load, to keep and to serve as their number grows.

The stores of all sizes stay up, so that they are compared with each other in the same minutes.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from loadtest.bench import state
from loadtest.bench.plan import Bench
from loadtest.bench.resp import Store
from loadtest.bench.servers import Stack, child, stack, store_only
from loadtest.bench.stalls import stalls_per_s
from loadtest.bench.web import MANY_PER_HOST, Web, get

SLOW_US = 5000
SLOW_KEPT = 100_000
CONNECTIONS = 8
MOST_REPEATED = 1_000_000  # pages that are imported in every round; more than these once
STALLS = f"a process that only looks at the clock: pauses over {SLOW_US // 1000} ms"


def load_name(pages: int) -> str:
    return f"{pages:,} pages: loaded per second"


def import_name(pages: int) -> str:
    return f"{pages:,} pages: imported per second"


def memory_name(pages: int) -> str:
    return f"{pages:,} pages: bytes per page, crawled"


def latency_name(pages: int, share: int) -> str:
    return f"{pages:,} pages: /next p{share}"


def growth_name(pages: int) -> str:
    return f"{pages:,} pages: /next p50 beside the smallest store's"


def slow_name(pages: int) -> str:
    return f"{pages:,} pages: calls over {SLOW_US // 1000} ms"


def growth(bench: Bench) -> None:
    """A store for every size, filled one after the other and then watched in turns."""
    sizes = sorted(bench.plan.sizes)
    with ExitStack() as started:
        stacks = {pages: started.enter_context(stack(state.SETTINGS)) for pages in sizes}
        for pages, made in stacks.items():
            _fill(bench, made, pages)
        for number in range(bench.plan.rounds):
            bench.step(f"round {number + 1} of {bench.plan.rounds}: growth")
            _watch(bench, stacks)
            stalls = stalls_per_s(SLOW_US / 1e6, bench.plan.window_s)
            bench.findings.add("growth", STALLS, stalls, "/s", "nothing else running")
        for pages, made in stacks.items():
            _note_slow_calls(bench, made, pages)
    _import(bench, min(sizes[-1], MOST_REPEATED), bench.plan.rounds)
    if sizes[-1] > MOST_REPEATED:
        _import(bench, sizes[-1], 1)


def _fill(bench: Bench, made: Stack, pages: int) -> None:
    """Load and age the pages; notes speed, memory and slow calls."""
    findings, web = bench.findings, Web(pages, MANY_PER_HOST)
    made.wait()
    made.store.run("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US)
    made.store.run("CONFIG", "SET", "slowlog-max-len", SLOW_KEPT)
    loaded = state.load_pages(made, bench.load, web, bench.step)
    for rate in loaded.rates:
        findings.add("growth", load_name(pages), rate, "pages/s")
    grown = loaded.loaded_bytes - loaded.empty_bytes
    findings.add("growth", f"{pages:,} pages: bytes per page, new", grown / pages, "bytes")
    began = time.perf_counter()
    state.age_pages(made, bench.load, web, bench.step)
    state.price_pages(made, web, bench.step)
    findings.add("growth", f"{pages:,} pages: a past for all", time.perf_counter() - began, "s")
    used = int(made.store.info("memory")["used_memory"]) - loaded.empty_bytes
    findings.add("growth", memory_name(pages), used / pages, "bytes")


def _import(bench: Bench, pages: int, times: int) -> None:
    """The same pages in the same order from a file, each time into an empty store."""
    web = Web(pages, MANY_PER_HOST)
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as folder:
        path = Path(folder) / "pages"
        with path.open("w") as file:
            file.writelines(f"{web.page(number)}\n" for number in range(pages))
        for number in range(times):
            bench.step(f"round {number + 1} of {times}: importing {pages:,} pages")
            with store_only() as made:
                began = time.perf_counter()
                with child("service", "import", str(path), FRESHET_REDIS_URL=made.url) as process:
                    if process.wait() != 0:
                        raise state.Refused("freshet import refused lines of the bench")
                rate = pages / (time.perf_counter() - began)
            bench.findings.add("growth", import_name(pages), rate, "pages/s", "start-up included")


def _watch(bench: Bench, stacks: dict[int, Stack]) -> None:
    """Latency at a modest load, of each size and beside the smallest."""
    findings, smallest = bench.findings, min(stacks)
    middles = {}
    for pages, made in stacks.items():
        found = _latencies(bench, made)
        middles[pages] = found[50]
        for share, seconds in found.items():
            findings.add("growth", latency_name(pages, share), seconds * 1000, "ms")
    for pages in stacks:
        if pages != smallest:
            ratio = middles[pages] / middles[smallest]
            findings.add("growth", growth_name(pages), ratio, "×", f"{smallest:,} pages = 1")


def _note_slow_calls(bench: Bench, made: Stack, pages: int) -> None:
    """Since the store was started: loading, ageing, ranking and serving."""
    slow = _slow_calls(made.store)
    bench.findings.add("growth", slow_name(pages), len(slow), "calls")
    bench.findings.add(
        "growth", f"{slow_name(pages)} per second of the store's", len(slow) / made.store.cpu_s(), "/s"
    )
    longest: dict[str, list[float]] = {}
    for microseconds, function in slow:
        longest.setdefault(function, []).append(microseconds / 1000)
    if longest:
        told = [f"{name} {len(ms)} times, {max(ms):.1f} ms at most" for name, ms in sorted(longest.items())]
        bench.findings.remarks[slow_name(pages)] = "; ".join(told)


def _latencies(bench: Bench, made: Stack) -> dict[int, float]:
    tally = bench.press(made.service.port, get("/next"), CONNECTIONS, rate=bench.plan.modest_rate)
    state.give_back(bench.load, made.service, tally.bodies)
    return {share: tally.latency(share / 100) for share in (50, 99)}


def _slow_calls(store: Store) -> list[tuple[int, str]]:
    """(microseconds, function) of each slow call of the product's; what the bench itself asks is left out."""
    entries: list[Any] = store.run("SLOWLOG", "GET", SLOW_KEPT)
    return [
        (entry[2], entry[3][1].decode().rpartition("_")[0])
        for entry in entries
        if entry[3][0].upper().startswith(b"FCALL")
    ]

"""Part `growth`: what pages cost to load, to keep and to serve as their number grows.

A small store stays up all the time, so that each size is compared with it in the same minutes.
"""

from __future__ import annotations

import time
from typing import Any

from loadtest.bench import state
from loadtest.bench.plan import Bench
from loadtest.bench.resp import Store
from loadtest.bench.servers import Stack, stack
from loadtest.bench.web import Web, get

SLOW_US = 5000
SLOW_KEPT = 100_000
CONNECTIONS = 8


def load_name(pages: int) -> str:
    return f"{pages:,} pages: loaded per second"


def memory_name(pages: int) -> str:
    return f"{pages:,} pages: bytes per page, crawled"


def latency_name(pages: int, share: int) -> str:
    return f"{pages:,} pages: /next p{share}"


def growth_name(pages: int) -> str:
    return f"{pages:,} pages: /next p50 beside the smallest store's"


def slow_name(pages: int) -> str:
    return f"{pages:,} pages: calls over {SLOW_US // 1000} ms"


def growth(bench: Bench) -> None:
    """Every size in turn, the smallest first."""
    sizes = sorted(bench.plan.sizes)
    with stack(state.SETTINGS) as small:
        _fill(bench, small, sizes[0])
        _watch(bench, small, sizes[0], None)
        for pages in sizes[1:]:
            with stack(state.SETTINGS) as large:
                _fill(bench, large, pages)
                _watch(bench, large, pages, small)


def _fill(bench: Bench, made: Stack, pages: int) -> None:
    """Load and age the pages; notes speed, memory and slow calls."""
    findings, web = bench.findings, Web(pages)
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


def _watch(bench: Bench, made: Stack, pages: int, small: Stack | None) -> None:
    """Latency at a modest load, in turns with the small store; then what was slow since the start."""
    findings, smallest = bench.findings, min(bench.plan.sizes)
    for number in range(bench.plan.rounds):
        bench.step(f"round {number + 1} of {bench.plan.rounds}: /next on {pages:,} pages")
        here = _latencies(bench, made)
        findings.add("growth", latency_name(pages, 50), here[50] * 1000, "ms")
        findings.add("growth", latency_name(pages, 99), here[99] * 1000, "ms")
        if small is not None:
            there = _latencies(bench, small)
            findings.add("growth", growth_name(pages), here[50] / there[50], "×", f"{smallest:,} pages = 1")
    slow = _slow_calls(made.store)
    findings.add("growth", slow_name(pages), len(slow), "calls")
    longest: dict[str, list[float]] = {}
    for microseconds, function in slow:
        longest.setdefault(function, []).append(microseconds / 1000)
    if longest:
        told = [f"{name} {len(ms)} times, {max(ms):.1f} ms at most" for name, ms in sorted(longest.items())]
        findings.remarks[slow_name(pages)] = "; ".join(told)


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

"""Parts `noop`, `script` and `next`: one round of each."""

from __future__ import annotations

from loadtest.bench import state
from loadtest.bench.client import Tally
from loadtest.bench.plan import Bench
from loadtest.bench.servers import Service, Stack
from loadtest.bench.shared import Shared
from loadtest.bench.web import get, leased

PEAK_SHARE = 0.7  # of a server's own peak, at which its latency is measured
USUAL = 32  # connections
NOOPS = {"bare": "bare ASGI no-op", "fastapi": "FastAPI no-op"}
COALESCED = 32  # requests for one page that one call of `next` serves, as with so many connections


def noop_name(kind: str, connections: int) -> str:
    return f"{NOOPS[kind]}, {_many(connections, 'connection')}"


def next_name(count: int, connections: int, processes: int, *, with_id: bool = False) -> str:
    named = " with X-Request-Id" if with_id else ""
    where = f"{_many(connections, 'connection')}, {_many(processes, 'process')}"
    return f"/next n={count}{named}, {where}"


def latency_name(share: int, what: str) -> str:
    return f"{what}, p{share} at {PEAK_SHARE:.0%} of its peak"


def minimal_name(count: int) -> str:
    return f"minimal script, n={count}"


def noop_round(shared: Shared) -> None:
    """Requests per second, and latency at a share of that."""
    bench = shared.bench
    for kind, service in shared.noops.items():
        for connections in bench.plan.connections:
            before = service.cpu_s()
            tally = bench.press(service.port, get("/next"), connections)
            bench.findings.add("noop", noop_name(kind, connections), tally.rate, "requests/s")
            if connections == USUAL:
                api_s = service.cpu_s() - before
                _note_cpu(bench, noop_name(kind, connections), tally, {"server": api_s})
                _measure_latency(bench, "noop", NOOPS[kind], service, tally.rate)


def script_round(shared: Shared) -> None:
    """URLs per second of the smallest script and of our own, pipelined."""
    bench, findings = shared.bench, shared.bench.findings
    for count in bench.plan.counts:
        shared.minimal.fill()
        rate = shared.minimal.urls_per_s(count, bench.plan.window_s)
        findings.add("script", minimal_name(count), rate, "URLs/s")
    for counts in (*([count] for count in bench.plan.counts), [1] * COALESCED):
        name = f"`next` alone, n={counts[0]}" + (f", {len(counts)} requests a call" * (len(counts) > 1))
        rate, leases = shared.functions.next(counts, bench.plan.window_s, bench.plan.pages // 2)
        findings.add("script", name, rate, "URLs/s")
        state.release(bench.load, shared.stack.service, leases)


def next_round(shared: Shared) -> None:
    """URLs per second over HTTP: pages asked for × connections × processes."""
    plan = shared.bench.plan
    for processes in plan.processes:
        for connections in plan.connections:
            for count in plan.counts:
                rate = _measure_next(shared, count, connections, processes)
                if (count, connections, processes) == (1, USUAL, 1):  # at once: a peak does not last long
                    _measure_next_latency(shared, rate)
    _measure_next(shared, 1, USUAL, 1, with_id=True)


def _measure_next_latency(shared: Shared, peak: float) -> None:
    bodies = _measure_latency(shared.bench, "next", "/next n=1", shared.stack.service, peak)
    state.give_back(shared.bench.load, shared.stack.service, bodies)


def _measure_next(
    shared: Shared, count: int, connections: int, processes: int, *, with_id: bool = False
) -> float:
    name = next_name(count, connections, processes, with_id=with_id)
    tally, spent = _press_next(shared, get(f"/next?n={count}", with_id=with_id), connections, processes)
    shared.bench.findings.add("next", name, tally.leases / tally.seconds, "URLs/s")
    if connections == USUAL and processes == 1 and not with_id:
        _note_cpu(shared.bench, name, tally, spent)
    return tally.rate


def urls_per_core(shared: Shared, count: int) -> float:
    """URLs handed out per second of processor time: of client, service and store together."""
    tally, spent = _press_next(shared, get(f"/next?n={count}"), USUAL, 1)
    return sum(1 for _ in leased(tally.bodies)) / (tally.cpu_s + sum(spent.values()))


def _press_next(
    shared: Shared, request: bytes, connections: int, processes: int
) -> tuple[Tally, dict[str, float]]:
    """One window of load and what it cost; everything leased is given back."""
    bench, service = shared.bench, shared.stack.services[processes]
    before = _spent(shared.stack, service)
    tally = bench.press(service.port, request, connections)
    after = _spent(shared.stack, service)
    state.give_back(bench.load, service, tally.bodies)
    return tally, {who: after[who] - before[who] for who in after}


def _spent(stack: Stack, service: Service) -> dict[str, float]:
    return {"server": service.cpu_s(), "store": stack.store.cpu_s()}


def _measure_latency(bench: Bench, part: str, what: str, service: Service, peak: float) -> list[bytes]:
    tally = bench.press(service.port, get("/next"), USUAL, rate=max(1.0, PEAK_SHARE * peak))
    for share in (50, 99):
        name = latency_name(share, what)
        bench.findings.add(part, name, tally.latency(share / 100) * 1000, "ms")
    return tally.bodies if part == "next" else []


def _note_cpu(bench: Bench, name: str, tally: Tally, spent: dict[str, float]) -> None:
    """Who kept the processors busy: near 1 for the client would mean that the client was measured."""
    for who, seconds in {"client": tally.cpu_s, **spent}.items():
        bench.findings.add("cpu", f"{name}: {who}", seconds / tally.wall_s, "cores")


def _many(count: int, what: str) -> str:
    plural = "es" if what.endswith("s") else "s"
    return f"{count} {what}{'' if count == 1 else plural}"

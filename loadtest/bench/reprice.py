"""Part `reprice`: one worker ranks every page anew while pages are served at half the peak rate."""

from __future__ import annotations

import threading
import time

from loadtest.bench import state
from loadtest.bench.client import Job, Tally
from loadtest.bench.figures import percentile
from loadtest.bench.plan import Bench
from loadtest.bench.resp import Store
from loadtest.bench.servers import Stack, child, stack
from loadtest.bench.web import MANY_PER_HOST, Web, get
from service.settings import Settings
from service.store import keys

HALF = 0.5
CONNECTIONS = 32
LONGEST_S = 900.0  # a sweep that takes longer is given up
POLL_S = 0.2  # more often, asking would take a share of the cores that are measured
SETTINGS = {**state.SETTINGS, "FRESHET_REPRICE_S": "3600"}  # a worker sweeps at its start, then rests


def sweep_name(pages: int) -> str:
    return f"{pages:,} pages: a whole sweep while serving"


def kept_name(pages: int) -> str:
    return f"{pages:,} pages: /next throughput while sweeping ÷ without"


def reprice(bench: Bench) -> None:
    """Rounds of serving without a worker and with one."""
    pages, findings = bench.plan.sweep_pages, bench.findings
    with stack(SETTINGS) as made:
        made.wait()
        state.prepare(made, bench.load, Web(pages, MANY_PER_HOST), bench.step)
        for number in range(bench.plan.rounds):
            bench.step(f"round {number + 1} of {bench.plan.rounds}: sweeping {pages:,} pages")
            peak = bench.press(made.service.port, get("/next"), CONNECTIONS)
            state.give_back(bench.load, made.service, peak.bodies)
            rate = max(1.0, HALF * peak.rate)
            alone = _serve(bench, made, rate, bench.plan.window_s * 2)
            seconds, busy = _serve_while_sweeping(bench, made, rate)
            state.give_back(bench.load, made.service, [b for tally in (alone, *busy) for b in tally.bodies])
            findings.add("reprice", sweep_name(pages), seconds, "s")
            findings.add("reprice", kept_name(pages), _rate(busy) / _rate([alone]), "×")
            findings.add("reprice", f"{pages:,} pages: served without", _rate([alone]), "requests/s")
            empty = f"{pages:,} pages: answers without a page while sweeping"
            findings.add("reprice", empty, 100 * _empty_share(busy), "%")
            latencies = [latency for tally in busy for latency in tally.latencies]
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                without, meanwhile = alone.latency(share), percentile(latencies, share)
                findings.add("reprice", f"{pages:,} pages: /next {name} without", without * 1000, "ms")
                findings.add(
                    "reprice", f"{pages:,} pages: /next {name} while sweeping", meanwhile * 1000, "ms"
                )


def _serve_while_sweeping(bench: Bench, made: Stack, rate: float) -> tuple[float, list[Tally]]:
    """Seconds from the worker's start until every shard is swept, and what was served meanwhile."""
    watch = _Watch(made)
    busy = []
    with child("service", "work", **made.environment) as worker:
        watch.start()
        while watch.is_alive():
            busy.append(_serve(bench, made, rate, bench.plan.window_s))
            if worker.poll() is not None:
                watch.give_up.set()
                raise RuntimeError(f"the worker ended with code {worker.returncode}")
        watch.join()
    if watch.seconds is None:
        raise TimeoutError(f"a sweep took longer than {LONGEST_S:.0f} s")
    return watch.seconds, busy


def _serve(bench: Bench, made: Stack, rate: float, seconds: float) -> Tally:
    job = Job(made.service.port, [get("/next")], CONNECTIONS, seconds, rate=rate, keep=True)
    return bench.load.run(job)


def _rate(tallies: list[Tally]) -> float:
    """Pages handed out per second over several loads."""
    return sum(tally.statuses[200] for tally in tallies) / sum(tally.seconds for tally in tallies)


def _empty_share(tallies: list[Tally]) -> float:
    """Of the answers, those that handed nothing out."""
    answers = sum(tally.statuses.total() for tally in tallies)
    return 1 - sum(tally.statuses[200] for tally in tallies) / answers


class _Watch(threading.Thread):
    """Waits until every shard has been swept since the watch began."""

    def __init__(self, made: Stack) -> None:
        super().__init__(daemon=True)
        self.seconds: float | None = None
        self.give_up = threading.Event()
        self._place = made.place
        self._metas = [keys.meta(prefix) for prefix in keys.shard_prefixes(Settings().shards)]

    def run(self) -> None:
        began = time.monotonic()
        with Store(self._place) as store:
            before = self._swept_at(store)
            while time.monotonic() - began < LONGEST_S and not self.give_up.wait(POLL_S):
                if all(new > old for new, old in zip(self._swept_at(store), before, strict=True)):
                    self.seconds = time.monotonic() - began
                    return

    def _swept_at(self, store: Store) -> list[float]:
        return [float(store.run("HGET", meta, "priced_at") or 0) for meta in self._metas]

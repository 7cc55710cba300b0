"""How fast workers learn: observations in, models written back, and where the time goes.

`python -m loadtest.speed --pages 62500` makes sixteen observations of each page (a million in all) through
the real store, then drains and refits them.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from service.address import parse_url
from service.clock import ManualClock
from service.domain import Belief, NewOutcome, NewPage, NewSignal
from service.embedded import EmbeddedServer
from service.frontier import Frontier
from service.policy.estimate import fit
from service.policy.evidence import fold, no_evidence
from service.policy.pooling import Defaults, believe_hosts, believe_sources, page_prior
from service.settings import Settings
from service.store.connection import Server
from service.store.pipe import Command
from workers.learn import Learner

ROUNDS = 16
BATCH = 1000
HOUR_S = 3600.0


class TimedServer(Server):
    """A server that adds up the time spent waiting for it."""

    waited_s = 0.0

    async def _send(self, commands: Sequence[Command]) -> list[Any]:
        started = time.perf_counter()
        try:
            return await super()._send(commands)
        finally:
            self.waited_s += time.perf_counter() - started


async def measure(url: str, pages: int) -> dict[str, float]:
    """Seconds per stage, and of those the seconds spent waiting for the store."""
    server, clock = TimedServer(url), ManualClock()
    settings = Settings(redis_url=url)
    frontier, rng = Frontier(server, clock, settings), np.random.default_rng(1)
    await frontier.prepare()
    addresses = [parse_url(f"https://h{i % (pages // 50 + 1)}.example/{i}") for i in range(pages)]
    for at in range(0, pages, 10_000):
        await frontier.put_pages([NewPage(a, Belief(), False) for a in addresses[at : at + 10_000]])
    learner = Learner(server, settings, clock)
    drained_s = drained_wait_s = 0.0
    for number in range(ROUNDS + 1):
        clock.advance(HOUR_S)
        for at in range(0, pages, BATCH):
            some = addresses[at : at + BATCH]
            heard = [a for a in some if rng.random() < 0.5]
            await frontier.record_signals([NewSignal(a, "s", None, b"") for a in heard])
            clock.advance(0.001)
            await frontier.record_outcomes([_outcome(a, clock, bool(rng.random() < 0.4)) for a in some])
        if number:
            server.waited_s, started = 0.0, time.perf_counter()
            for shard in range(settings.shards):
                await learner.drain_all(shard)
            drained_s += time.perf_counter() - started
            drained_wait_s += server.waited_s
    server.waited_s, started = 0.0, time.perf_counter()
    refitted = 0
    for shard in range(settings.shards):
        refitted += await learner.refit(shard, clock.now_at)
    refit_s = time.perf_counter() - started
    found = {
        "pages": float(refitted),
        "drain_s": drained_s,
        "drain_waiting_s": drained_wait_s,
        "refit_s": refit_s,
        "refit_waiting_s": server.waited_s,
    }
    await frontier.close()
    await server.close()
    return found


def _outcome(address, clock: ManualClock, changed: bool) -> NewOutcome:  # type: ignore[no-untyped-def]
    return NewOutcome(None, address, clock.now_at, "ok", changed, b"", "", 0, 0.0)


def measure_numbers(pages: int) -> float:
    """Pages per second of the numeric part alone: fitting sixteen observations each."""
    rng = np.random.default_rng(2)
    evidence = no_evidence(pages)
    for _ in range(ROUNDS):
        signals = rng.poisson(0.5, (pages, 1)).astype(float)
        evidence = fold(evidence, rng.exponential(HOUR_S, pages), signals, rng.random(pages) < 0.4)
    defaults, hosts = Defaults(), np.zeros(pages, dtype=np.intp)
    host = believe_hosts(np.zeros((1, 9)), np.zeros(2), defaults)
    source = believe_sources(np.zeros((1, 1, 6)), np.zeros((1, 2)), defaults)
    counted = evidence["signals"].astype(float), evidence["watched_s"].astype(float)
    started = time.perf_counter()
    fit(evidence, page_prior(host, source, hosts, *counted, defaults))
    return pages / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pages", type=int, default=62_500, help="pages, with 16 observations each")
    pages = parser.parse_args().pages
    print(f"numeric part: {measure_numbers(min(pages, 100_000)):,.0f} pages/s")
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
        found = asyncio.run(measure(server.url, pages))
    observations = pages * ROUNDS
    print(
        f"drain: {observations / found['drain_s']:,.0f} observations/s, "
        f"{found['drain_waiting_s'] / found['drain_s']:.0%} of it waiting for the store"
    )
    print(
        f"refit and write back: {found['pages'] / found['refit_s']:,.0f} pages/s, "
        f"{found['refit_waiting_s'] / found['refit_s']:.0%} of it waiting for the store"
    )


if __name__ == "__main__":
    main()

"""A worker process: owns shards, and does for each what is due. Serving goes on without it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from functools import partial

from service.clock import ServerClock
from service.errors import StoreUnavailable
from service.settings import Settings
from service.store.control import Control
from workers.learn import Learner
from workers.ownership import GoOn, Ownership
from workers.reprice import Repricer
from workers.throttle import ThrottledServer

log = logging.getLogger("freshet.worker")
ROUND_S = 1.0  # pause between rounds
RETRY_S = 2.0  # pause after the store did not answer
YIELDING = 10  # how far the process stands back where it shares a machine with the API


async def work(settings: Settings) -> None:
    """Run until told to stop."""
    os.nice(YIELDING)
    server = ThrottledServer(settings.redis_url, connections=4, share=settings.worker_share)
    clock = ServerClock()
    ownership = Ownership(server, clock, settings.shards)
    repricer, learner = Repricer(server, settings, clock), Learner(server, settings, clock)
    control = Control(server, clock)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    log.info("worker_started", extra={"worker": ownership.worker_id})
    while not stop.is_set():
        pause_s = await _round(ownership, repricer, learner, control, stop)
        try:
            await asyncio.wait_for(stop.wait(), pause_s)
        except TimeoutError:
            continue
    await _leave(ownership)
    await server.close()


async def _round(
    ownership: Ownership, repricer: Repricer, learner: Learner, control: Control, stop: asyncio.Event
) -> float:
    """One look at every owned shard; returns how long to pause."""
    pause_s = ROUND_S
    try:
        for shard in sorted(await ownership.renew()):
            now_at = await control.now()  # ends the round where nothing answers
            if not stop.is_set() and await ownership.keep(shard):
                go_on = partial(_may_go_on, shard, ownership, stop)
                pause_s = max(pause_s, await _do(shard, repricer, learner, now_at, go_on))
    except StoreUnavailable as error:
        return _warn(error)
    return pause_s


async def _may_go_on(shard: int, ownership: Ownership, stop: asyncio.Event) -> bool:
    return not stop.is_set() and await ownership.still_owns(shard)


async def _do(shard: int, repricer: Repricer, learner: Learner, now_at: float, go_on: GoOn) -> float:
    """What is due for one shard; where it cannot be reached the others go on."""
    try:
        learned = await learner.learn(shard, now_at, go_on)
        renewed = await repricer.sweep(shard, now_at, go_on)
    except StoreUnavailable as error:
        return _warn(error)
    if learned or renewed:
        log.debug("shard_done", extra={"shard": shard, "learned": learned, "repriced": renewed})
    return ROUND_S


def _warn(error: StoreUnavailable) -> float:
    log.warning("store_unavailable", extra={"cause": str(error), "action": "check the store"})
    return RETRY_S


async def _leave(ownership: Ownership) -> None:
    try:
        await ownership.leave()
    except StoreUnavailable:
        log.info("left_without_store")  # the locks run out by themselves

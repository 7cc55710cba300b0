"""Pushes URLs into one peer's queue and pops them again; runs inside that peer's environment.

Arguments: the peer's name, a file of URLs, the socket of a store, a path for a database. Prints one line of
JSON: URLs pushed and popped, and the processor time each took, of this process and the store together.
"""

from __future__ import annotations

import asyncio
import collections
import collections.abc
import hashlib
import json
import logging
import resource
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

BATCH = 50
Spent = Callable[[], float]


def scrapy_redis(urls: list[str], socket: str, database: str) -> dict[str, float]:
    """As Scrapy uses it: the scheduler's duplicate filter and priority queue, one request at a time."""
    del database
    import redis
    from scrapy import Request, Spider
    from scrapy_redis.dupefilter import RFPDupeFilter
    from scrapy_redis.scheduler import Scheduler

    server = redis.Redis(unix_socket_path=socket)
    scheduler = Scheduler(server, dupefilter=RFPDupeFilter(server, "bench:seen"))
    scheduler.open(Spider(name="bench"))
    spent = _with_store(server)
    began = spent()
    pushed = sum(scheduler.enqueue_request(Request(url, priority=at % 100)) for at, url in enumerate(urls))
    middle = spent()
    popped = 0
    while scheduler.next_request() is not None:
        popped += 1
    return _tell(pushed, middle - began, popped, spent() - middle)


def frontera(urls: list[str], socket: str, database: str) -> dict[str, float]:
    """Its Redis queue, in batches, with its own encoding."""
    del database
    for name in ("Iterable", "Mapping", "MutableMapping", "Sequence", "Callable"):
        setattr(collections, name, getattr(collections.abc, name))  # as old releases of Python had them
    import redis
    from frontera.contrib.backends.redis_backend import RedisQueue
    from frontera.core.models import Request, Response

    codec = "frontera.contrib.backends.remote.codecs.msgpack"
    manager = SimpleNamespace(
        settings={"REDIS_BACKEND_CODEC": codec}, request_model=Request, response_model=Response
    )
    pool = redis.ConnectionPool(connection_class=redis.UnixDomainSocketConnection, path=socket)
    queue = RedisQueue(manager, pool, 1)
    spent = _with_store(redis.Redis(connection_pool=pool))
    began, pushed = spent(), 0
    for at in range(0, len(urls), BATCH):
        queue.schedule([_frontera_item(Request, url) for url in urls[at : at + BATCH]])
        pushed += len(urls[at : at + BATCH])
    middle, popped = spent(), 0
    while found := queue.get_next_requests(BATCH, 0, min_hosts=0, max_requests_per_host=128):
        popped += len(found)
    return _tell(pushed, middle - began, popped, spent() - middle)


def _frontera_item(request_class: Any, url: str) -> tuple[str, float, Any, bool]:
    fingerprint = hashlib.sha1(url.encode()).hexdigest()
    host = url.split("/")[2]
    meta = {b"fingerprint": fingerprint, b"domain": {b"name": host}}
    return fingerprint, 0.5, request_class(url, meta=meta), True


def crawlee(urls: list[str], socket: str, database: str) -> dict[str, float]:
    """Its request queue on SQLite: fetch one, mark it handled."""
    del socket
    return asyncio.run(_crawlee(urls, database))


async def _crawlee(urls: list[str], database: str) -> dict[str, float]:
    from crawlee.storage_clients import SqlStorageClient
    from crawlee.storages import RequestQueue

    async with SqlStorageClient(connection_string=f"sqlite+aiosqlite:///{database}") as client:
        queue = await RequestQueue.open(name="bench", storage_client=client)
        began = _own_cpu_s()
        for at in range(0, len(urls), 1000):
            await queue.add_requests(urls[at : at + 1000])
        middle, popped = _own_cpu_s(), 0
        while (request := await queue.fetch_next_request()) is not None:
            await queue.mark_request_as_handled(request)
            popped += 1
        return _tell(len(urls), middle - began, popped, _own_cpu_s() - middle)


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _with_store(server: Any) -> Spent:
    def spent() -> float:
        used = server.info("cpu")
        return _own_cpu_s() + float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    return spent


def _tell(pushed: int, push_cpu_s: float, popped: int, pop_cpu_s: float) -> dict[str, float]:
    return {"pushed": pushed, "push_cpu_s": push_cpu_s, "popped": popped, "pop_cpu_s": pop_cpu_s}


def main() -> None:
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    name, path, socket, database = sys.argv[1:]
    known = {"scrapy-redis": scrapy_redis, "Frontera": frontera, "Crawlee": crawlee}
    told = known[name](Path(path).read_text().splitlines(), socket, database)
    print(json.dumps(told))


if __name__ == "__main__":
    main()

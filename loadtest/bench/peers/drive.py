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

BATCH, LEAST_HOSTS, MOST_PER_HOST = 64, 24, 128  # Frontera's defaults
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
    popped: set[str] = set()
    while (request := scheduler.next_request()) is not None:
        popped.add(request.url)
    return _tell(pushed, middle - began, len(popped), spent() - middle)


def frontera(urls: list[str], socket: str, database: str) -> dict[str, float]:
    """Its Redis queue, in batches, with its own encoding."""
    del database
    _restore_old_names()
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
    middle = spent()
    popped: set[str] = set()
    limits = {"min_hosts": LEAST_HOSTS, "max_requests_per_host": MOST_PER_HOST}
    while found := queue.get_next_requests(BATCH, 0, **limits):
        popped.update(request.url for request in found)
    return _tell(pushed, middle - began, len(popped), spent() - middle)


def _restore_old_names() -> None:
    """What Frontera was written for: an older Python, and an older msgpack."""
    import msgpack

    for name in ("Iterable", "Mapping", "MutableMapping", "Sequence", "Callable"):
        setattr(collections, name, getattr(collections.abc, name))
    unpack = msgpack.unpackb

    def unpackb(raw: bytes, encoding: str = "", **options: Any) -> Any:
        del encoding
        return unpack(raw, strict_map_key=False, **options)

    msgpack.unpackb = unpackb


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
        middle = _own_cpu_s()
        popped: set[str] = set()
        while (request := await queue.fetch_next_request()) is not None:
            await queue.mark_request_as_handled(request)
            popped.add(request.url)
        return _tell(len(urls), middle - began, len(popped), _own_cpu_s() - middle)


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _with_store(server: Any) -> Spent:
    def spent() -> float:
        used = server.info("cpu")
        return _own_cpu_s() + float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    return spent


def _tell(pushed: int, push_cpu_s: float, popped: int, pop_cpu_s: float) -> dict[str, float]:
    """Popped counts different URLs: all that were pushed, or the figure would mean nothing."""
    if popped != pushed:
        raise SystemExit(f"{pushed} URLs were pushed but {popped} came out")
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

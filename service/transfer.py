"""`freshet import` and `freshet export`: every page as a line, straight to and from the store."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from service.address import Address
from service.clock import ServerClock
from service.domain import NewOutcome, NewPage
from service.embedded import store_url
from service.errors import SchedulerError
from service.frontier import Frontier
from service.lines import read_line, write_line
from service.register import Register
from service.settings import Settings
from service.store.bins import Bins
from service.store.connection import Server
from service.store.pages import Pages
from service.store.shards import Shards
from service.windows import MOST_LINE_BYTES, Block, read_blocks

OUTCOMES_PER_CALL = 1000
MOST_SHOWN = 20  # refused lines; the rest are counted


@dataclass(slots=True)
class Tally:
    """What became of some lines."""

    added: int = 0
    updated: int = 0
    size: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)


def import_pages(settings: Settings, path: str, processes: int) -> int:
    """Put every line of a file into the register; 1 if any was refused. Safe to repeat."""
    total = Tally()
    with ExitStack() as stack:
        stream = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        settings = replace(settings, redis_url=store_url(settings, stack, may_make=True))
        asyncio.run(_prepare(settings))
        length = os.fstat(stream.fileno()).st_size if path != "-" else None
        spawning = multiprocessing.get_context("spawn")
        pool = stack.enter_context(ProcessPoolExecutor(processes, spawning, initializer=_collect_by_hand))
        progress = stack.enter_context(_progress("import"))
        task = progress.add_task("", total=length or None, pages=0)
        for tally in _spread(pool, settings, stream, processes):
            total.added, total.updated = total.added + tally.added, total.updated + tally.updated
            total.refused += tally.refused
            progress.update(task, advance=tally.size, pages=total.added + total.updated)
    for number, reason in sorted(total.refused)[:MOST_SHOWN]:
        print(f"line {number}: {reason}", file=sys.stderr)
    print(f"{total.added} added, {total.updated} updated, {len(total.refused)} refused", file=sys.stderr)
    return 1 if total.refused else 0


def _spread(
    pool: ProcessPoolExecutor, settings: Settings, stream: BinaryIO, processes: int
) -> Iterator[Tally]:
    """Blocks to the processes, few enough at a time that memory stays small."""
    waiting: deque[Future[Tally]] = deque()
    for block in read_blocks(stream):
        waiting.append(pool.submit(put_block, settings, block))
        if len(waiting) > 2 * processes:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _collect_by_hand() -> None:
    """What a block leaves behind is collected before the next; on the way the collector finds nothing."""
    gc.freeze()
    gc.disable()


def put_block(settings: Settings, block: Block) -> Tally:
    """What one process does with one block."""
    gc.collect()  # here, where it has the least to look through
    tally = Tally(size=sum(len(line) for _, line in block))
    numbers: list[int] = []
    pages: list[NewPage] = []
    crawls: list[NewOutcome] = []
    parked: list[Address] = []
    for number, line in block:
        text = line.strip()
        if not text:
            continue
        try:
            if len(line) > MOST_LINE_BYTES:
                raise SchedulerError(f"longer than {MOST_LINE_BYTES} bytes")
            page, crawl, is_parked = read_line(text)
        except SchedulerError as error:
            tally.refused.append((number, str(error)))
            continue
        numbers.append(number)
        pages.append(page)
        if crawl:
            crawls.append(crawl)
        if is_parked:
            parked.append(page.address)
    words = asyncio.run(_put(settings, pages, crawls, parked)) if pages else []
    tally.added, tally.updated = words.count("added"), words.count("updated")
    tally.refused += [(n, w) for n, w in zip(numbers, words, strict=True) if w not in ("added", "updated")]
    return tally


async def _put(
    settings: Settings, pages: list[NewPage], crawls: list[NewOutcome], parked: list[Address]
) -> list[str]:
    server = Server(settings.redis_url)
    try:
        clock = ServerClock()
        frontier = Frontier(server, clock, settings)
        register = Register(Pages(server, clock, settings.shards), frontier.control, settings.shards)
        words = await register.put(pages, ranked_at_once=len(pages))  # nobody else waits for this process
        for at in range(0, len(crawls), OUTCOMES_PER_CALL):
            await frontier.record_outcomes(crawls[at : at + OUTCOMES_PER_CALL])
        if parked:
            await frontier.park(parked, parks=True)
        return words
    finally:
        await server.close()


async def _prepare(settings: Settings) -> None:
    server = Server(settings.redis_url, connections=1)
    try:
        await Frontier(server, ServerClock(), settings).prepare()
        await server.load()
    finally:
        await server.close()


def export_pages(settings: Settings, path: str) -> int:
    """Write every page as a line of JSON, as it was when its shard was read."""
    with ExitStack() as stack:
        settings = replace(settings, redis_url=store_url(settings, stack))
        stream = sys.stdout.buffer if path == "-" else stack.enter_context(Path(path).open("wb"))
        written = asyncio.run(_export(settings, stream, stack.enter_context(_progress("export"))))
        stream.flush()
    print(f"{written} pages", file=sys.stderr)
    return 0


async def _export(settings: Settings, stream: BinaryIO, progress: Progress) -> int:
    server = Server(settings.redis_url, connections=4)
    try:
        frontier = Frontier(server, ServerClock(), settings)
        await frontier.prepare()
        total = sum(shard.pages for shard in await frontier.shards.status())
        task = progress.add_task("", total=total, pages=0)
        written = 0
        for shard in range(settings.shards):
            async for lines in _lines(frontier.shards, Bins(server, settings.shards), shard):
                stream.write(b"".join(lines))
                written += len(lines)
                progress.update(task, completed=written, pages=written)
        return written
    finally:
        await server.close()


async def _lines(shards: Shards, walked: Bins, shard: int) -> AsyncIterator[list[bytes]]:
    async for bins, _ in walked.walk(shard):
        names = await shards.host_names(shard, [page_bin.host_id for page_bin in bins])
        found = zip(names, bins, strict=True)  # a host without a name was removed meanwhile
        yield [write_line(name, raw) for name, page_bin in found if name for raw in page_bin.records]


def _progress(name: str) -> Progress:
    columns = (TextColumn(name), BarColumn(), TextColumn("{task.fields[pages]:,} pages"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)

"""Pages that were given up, all shards after one another."""

from __future__ import annotations

from dataclasses import dataclass

from service.frontier import Frontier
from service.store.pages import PageState


@dataclass(frozen=True, slots=True)
class Parked:
    """Some of the pages that were given up: names of their hosts with them, and where to go on."""

    total: int  # over all shards
    pages: list[tuple[str, PageState]]
    following: int | None


async def list_parked(frontier: Frontier, cursor: int) -> Parked:
    """Some pages from a cursor on; a page that stays given up is on one list or another."""
    counts = await frontier.shards.parked_counts()
    shards = len(counts)
    scan, shard = divmod(cursor, shards)
    pages: list[tuple[str, PageState]] = []
    while shard < shards and not pages:
        if counts[shard]:
            ids, scan = await frontier.shards.scan_parked(shard, scan)
            pages = await _read(frontier, shard, ids)
        if not scan or not counts[shard]:
            scan, shard = 0, shard + 1
    is_over = shard == shards or (not scan and not any(counts[shard:]))
    return Parked(sum(counts), pages, None if is_over else scan * shards + shard)


async def _read(frontier: Frontier, shard: int, ids: list[tuple[str, int]]) -> list[tuple[str, PageState]]:
    """Those of the pages that are given up still, the last first."""
    names = await frontier.shards.host_names(shard, [host_id for host_id, _ in ids])
    states = await frontier.inspect_each(shard, ids)
    found = [(name, state) for name, state in zip(names, states, strict=True) if name and state]
    parked = [(state.parked_ms, name, state) for name, state in found if state.parked_ms is not None]
    return [(name, state) for _, name, state in sorted(parked, key=lambda row: -row[0])]

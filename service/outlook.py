"""What other bandwidths would bring: the best policy's long run, over a sample of the pages.

Workers draw the sample while they sweep. So the answer costs the same however many pages there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.domain import Floats, Model
from service.frontier import Frontier
from service.policy.forecast import optimum
from service.store.records import read_samples

MOST_MODELS = 2048  # asked at a time, one request after another: serving goes on beside it


@dataclass(frozen=True, slots=True)
class Outlook:
    """The long run at one bandwidth."""

    crawls_per_second: float
    freshness: float
    price: float
    never_crawled: float  # share of the pages whose crawl is worth less than the price, however old they are


async def outlook(frontier: Frontier, rates: Sequence[float]) -> tuple[int, list[Outlook]]:
    """How many pages were asked, and what they say of each bandwidth; nothing before the first sweep."""
    async with frontier.looking:
        samples = await frontier.shards.samples()
        if not samples:
            return 0, []
        model, counts = read_samples(samples, MOST_MODELS)
        return len(counts), [await asyncio.to_thread(_look, model, counts, rate) for rate in rates]


def _look(model: Model, counts: Floats, rate: float) -> Outlook:
    found = optimum(model, rate, counts)
    idle = float(np.sum(counts * (found.frequency <= 0)))
    return Outlook(rate, found.freshness, found.price, idle / float(np.sum(counts)))

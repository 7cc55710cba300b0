"""GET and PUT /admin/sources: who sends signals, what they are worth, and how late they come."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from service.api.auth import actor_of, allow
from service.api.body import decode, json_answer
from service.api.deps import frontier_of
from service.api.openapi import documented
from service.api.operator_schemas import SenderOut, SourceInput, SourceOut, SourcesAnswer
from service.api.problems import invalid
from service.frontier import Frontier

router = APIRouter(prefix="/admin/sources", tags=["operators"])
SHARED, OTHERS = 255, "(others)"  # the number of all sources beyond the first 200, and its name here
Source = Annotated[str, Path(max_length=64, pattern="^[A-Za-z0-9._:-]+$", description="the source's name")]


@router.get(
    "",
    summary="Sources of signals and what they are worth",
    dependencies=[allow("reader")],
    **documented(answer=SourcesAnswer),
)
async def get_sources(request: Request) -> Response:
    """`precision` is the share of a source's signals that are true, `recall` the share of changes it tells
    of, `weight` what one signal tells (−ln(1 − precision), null if that is infinite), `share_of_crawls` the
    share of recent crawls its signals brought about; null until learned. `senders` are the names of the keys
    its signals came with, each with a reputation of its own. Sources beyond the first 200 are counted
    together as `(others)`.
    """
    return json_answer(SourcesAnswer(await _sources(frontier_of(request))))


@router.put(
    "/{source}",
    summary="Say how late a source's signals come",
    dependencies=[allow()],
    **documented(SourceInput, SourceOut),
)
async def put_source(request: Request, source: Source) -> Response:
    """Signals this soon after a crawl speak of a change already fetched; replaces FRESHET_SIGNAL_DELAY_S for
    this source, within a second. `null` takes it back.
    """
    body = await decode(request, SourceInput)
    control = frontier_of(request).control
    number = (await control.source_numbers({source}))[source]
    if number == SHARED:
        raise invalid(["path", "source"], "only the first 200 sources can have a delay of their own")
    await control.set_source_delay(source, body.delay_s, actor=actor_of(request))
    return json_answer((await _sources(frontier_of(request)))[source])


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of signals from one origin, or of several together."""

    signals: int = 0
    crawls: float = 0.0  # brought about
    figures: tuple[float, ...] = ()  # Σγ, Σγ·precision, ΣΔ, pages, as the shards have learned them

    def __add__(self, other: Tally) -> Tally:
        figures = tuple(a + b for a, b in zip_longest(self.figures, other.figures, fillvalue=0.0))
        return Tally(self.signals + other.signals, self.crawls + other.crawls, figures)


async def _sources(frontier: Frontier) -> dict[str, SourceOut]:
    """Every source by name; five round trips."""
    names = await frontier.control.source_names()
    delays = await frontier.control.source_delays()
    counts = await frontier.shards.signal_counts()
    figures = await frontier.shards.source_figures()
    checked = await frontier.calibration()
    if SHARED in counts:
        names = {**names, SHARED: OTHERS}
    by_source: dict[str, dict[str, Tally]] = defaultdict(dict)
    for number, name in sorted(names.items()):
        source, _, sender = name.partition("@")
        tally = Tally(counts.get(number, 0), float(checked.bought[number]), tuple(figures.get(number, ())))
        by_source[source][sender] = tally
    total = Tally(sum(counts.values()), float(checked.counts.sum()))
    default_s = frontier.settings.signal_delay_s
    return {
        source: render_source(senders, total, delays.get(source, default_s))
        for source, senders in by_source.items()
    }


def render_source(senders: dict[str, Tally], total: Tally, delay_s: float) -> SourceOut:
    """A source by what is known of its senders; '' is whoever needs no key."""
    whole = sum(senders.values(), Tally())
    known = {name: SenderOut(**_figures(tally, total)) for name, tally in senders.items() if name}
    return SourceOut(**_figures(whole, total), delay_s=delay_s, senders=known)


def _figures(tally: Tally, total: Tally) -> dict[str, Any]:
    signal_rate, true_rate, change_rate = tally.figures[:3] if len(tally.figures) >= 3 else (0.0, 0.0, 0.0)
    precision = _share(true_rate, signal_rate)
    return {
        "signals": tally.signals,
        "share_of_signals": _share(tally.signals, total.signals),
        "share_of_crawls": _share(tally.crawls, total.crawls),
        "precision": precision,
        "recall": _share(true_rate, change_rate),
        "weight": -math.log1p(-precision) if precision is not None and precision < 1 else None,
    }


def _share(part: float, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None

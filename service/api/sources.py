"""GET and PUT /admin/sources: who sends signals, what they are worth, and how late they come."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from service.api.auth import allow
from service.api.body import decode, json_answer
from service.api.deps import frontier_of
from service.api.openapi import documented
from service.api.operator_schemas import SourceInput, SourceOut, SourcesAnswer
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
    of, `weight` what one signal tells (−ln(1 − precision), null if that is infinite); null until learned.
    Sources beyond the first 200 are counted together as `(others)`.
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
    await control.set_source_delay(number, body.delay_s)
    return json_answer((await _sources(frontier_of(request)))[source])


async def _sources(frontier: Frontier) -> dict[str, SourceOut]:
    """Every source by name; four round trips."""
    names = await frontier.control.source_names()
    delays = await frontier.control.source_delays()
    counts = await frontier.shards.signal_counts()
    figures = await frontier.shards.source_figures()
    if SHARED in counts:
        names = {**names, SHARED: OTHERS}
    total = sum(counts.values())
    return {
        name: render_source(
            counts.get(number, 0),
            total,
            figures.get(number, []),
            delays.get(number, frontier.settings.signal_delay_s),
        )
        for number, name in sorted(names.items())
    }


def render_source(signals: int, total: int, figures: list[float], delay_s: float) -> SourceOut:
    """A source by its counts and by what the shards have learned: Σγ, Σγ·precision, ΣΔ, pages."""
    signal_rate, true_rate, change_rate = figures[:3] if len(figures) >= 3 else (0.0, 0.0, 0.0)
    precision = _share(true_rate, signal_rate)
    return SourceOut(
        signals=signals,
        share_of_signals=_share(signals, total),
        precision=precision,
        recall=_share(true_rate, change_rate),
        weight=-math.log1p(-precision) if precision is not None and precision < 1 else None,
        delay_s=delay_s,
    )


def _share(part: float, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None

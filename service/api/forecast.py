"""GET /admin/forecast: what other bandwidths would bring."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from service.api.auth import allow
from service.api.body import json_answer
from service.api.deps import frontier_of
from service.api.openapi import documented
from service.api.operator_schemas import ForecastAnswer, ForecastOut
from service.api.problems import invalid
from service.outlook import outlook

router = APIRouter(prefix="/admin", tags=["operators"])
MOST_RATES, HIGHEST_RATE = 20, 1e6
AROUND = 0.25, 0.5, 1.0, 2.0, 4.0  # times the current bandwidth, where no rates are given


@router.get(
    "/forecast",
    summary="What other bandwidths would bring",
    dependencies=[allow("reader")],
    **documented(answer=ForecastAnswer),
)
async def get_forecast(
    request: Request,
    rates: Annotated[
        str, Query(max_length=400, description="crawls per second, up to 20 separated by commas")
    ] = "",
) -> Response:
    """Expected freshness and price in the long run at each bandwidth, by what is believed of a sample of
    the pages (`sampled_pages`; 0 and no forecasts before the first sweep of a worker). It is that of the
    best policy, `ncis`, where no host has to rest and nothing is spent on exploration and floors.
    `never_crawled` is the share of pages whose crawls would never be worth the price. Without `rates`, a
    quarter to four times the current bandwidth.
    """
    frontier = frontier_of(request)
    chosen = _read_rates(rates) if rates else None
    if chosen is None:
        current = (await frontier.control.bandwidth()).crawls_per_second or 1.0
        chosen = [min(HIGHEST_RATE, share * current) for share in AROUND]
    sampled, found = await outlook(frontier, chosen)
    forecasts = [ForecastOut(o.crawls_per_second, o.freshness, o.price, o.never_crawled) for o in found]
    return json_answer(ForecastAnswer(sampled, forecasts))


def _read_rates(text: str) -> list[float]:
    parts = text.split(",")
    if len(parts) > MOST_RATES:
        raise invalid(["query", "rates"], f"at most {MOST_RATES} rates, not {len(parts)}")
    try:
        rates = [float(part) for part in parts]
    except ValueError:
        raise invalid(["query", "rates"], "numbers separated by commas are wanted") from None
    if not all(math.isfinite(rate) and 0 <= rate <= HIGHEST_RATE for rate in rates):
        raise invalid(["query", "rates"], f"each must be between 0 and {HIGHEST_RATE:g}")
    return rates

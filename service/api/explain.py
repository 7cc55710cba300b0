"""Why a page is served when it is: the numbers behind the choice, and one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.address import Address, url_of
from service.api.instants import render_ms
from service.api.reasons import instant, is_due, reason_of
from service.api.schemas import ModelOut, PageAnswer, PageRow
from service.beliefs import stored_value
from service.domain import Policy, Price
from service.policy.crawl_value import ceiling, crawl_value
from service.policy.estimate import NINETY_PERCENT, Estimate
from service.store.pages import PageState
from service.store.records import (
    CRAWLED,
    DORMANT_ABOVE,
    FIXED,
    HELD,
    LEASED,
    NEVER_CRAWLED_BELOW,
    PARKED,
    Record,
    read_heads,
    read_record,
)

DAY_S = 86400.0
LAST_INSTANT_MS = 253_402_300_799_000.0  # the year 9999, where RFC 3339 ends


@dataclass(frozen=True, slots=True)
class Learnt:
    """What was learned of a page, a column per source, and the sources' names."""

    estimate: Estimate
    sources: tuple[int, ...]
    names: dict[int, str]


def explain(address: Address, state: PageState, price: Price, policy: Policy, learnt: Learnt) -> PageAnswer:
    """Everything known of one page; the value of `ncis` is exact, not the scripts' local form."""
    record = read_record(state.record)
    crawled = bool(record.flags & CRAWLED)
    elapsed_s = max(0.0, (state.now_ms - state.anchor_ms) / 1000)
    depth = float(record.model.silent_rate[0]) * elapsed_s
    value, top = _worth(record, state, policy, depth)
    return PageAnswer(
        url=address.url,
        host=address.host,
        state=_state(record, state.due_score, state.now_ms),
        importance=float(record.model.importance[0]),
        min_crawls_per_day=record.min_crawls_per_day,
        model=_model(record, learnt),
        last_crawled_at=render_ms(record.crawled_at_ms) if crawled else None,
        effective_elapsed_s=elapsed_s if crawled else None,
        signals=record.signals,
        freshness=math.exp(-depth) if crawled else 0.0,
        value=value if math.isfinite(value) else 0.0,
        price=price.served,
        due_at=_due_at(state),
        host_rests_until=instant(state.host_rests_until_ms),
        reason=reason_of(record, state, price, value, top),
        outcomes=[] if record.result is None else [{"result": record.result}],
    )


def _worth(record: Record, state: PageState, policy: Policy, depth: float) -> tuple[float, float]:
    """The page's value now, and the most it can be."""
    crawled = bool(record.flags & CRAWLED)
    if policy.value_name == Policy().value_name:
        top = float(ceiling(record.model)[0])
        return float(crawl_value(depth, record.model)[0]) if crawled else top, top
    head = read_heads([state.record])
    top = float(head["ranking"]["ceiling"][0])
    if not crawled:
        return top, top
    effective_s = max(0.0, (state.now_ms - state.anchor_ms) / 1000)
    elapsed_s = max(0.0, (state.now_ms - record.crawled_at_ms) / 1000)
    return stored_value(head, effective_s=effective_s, elapsed_s=elapsed_s), top


def list_row(host: str, raw: bytes, due_score: float | None, now_ms: float) -> PageRow:
    """A page in a listing."""
    record = read_record(raw)
    return PageRow(
        url=url_of(host, record.path),
        importance=float(record.model.importance[0]),
        change_rate_per_day=float(record.model.change_rate[0]) * DAY_S,
        state=_state(record, due_score, now_ms),
    )


def _model(record: Record, learnt: Learnt) -> ModelOut:
    model = record.model
    low, high = _interval(record, learnt.estimate)
    return ModelOut(
        change_rate_per_day=float(model.change_rate[0]) * DAY_S,
        silent_rate_per_day=float(model.silent_rate[0]) * DAY_S,
        signal_rate_per_day=float(model.signal_rate[0]) * DAY_S,
        precision=float(model.precision[0]),
        recall=float(model.recall[0]),
        fixed=bool(record.flags & FIXED),
        change_rate_low=low,
        change_rate_high=high,
        sources=_sources(record, learnt),
    )


def _interval(record: Record, found: Estimate) -> tuple[float, float]:
    """The 90% interval around the change rate the page is ranked by, per day.

    Δ·e^(±1.64·error), with the error of log Δ that the page's evidence and its host's pages leave now; a
    user's starting belief is no surer than that. A rate of 0 has no logarithm: its interval ends where that
    of the estimate does. A fixed rate is the truth.
    """
    rate = float(record.model.change_rate[0]) * DAY_S
    if record.flags & FIXED:
        return rate, rate
    if rate <= 0:
        return 0.0, float(found.change_rate_high[0]) * DAY_S
    spread = math.exp(NINETY_PERCENT * float(found.change_log_error[0]))
    return rate / spread, rate * spread


def _sources(record: Record, learnt: Learnt) -> dict[str, dict[str, float]]:
    """Per source: signals since the last crawl, and what was learned of it at this page."""
    found: dict[str, dict[str, float]] = {}
    for number, count in record.sources.items():
        found[learnt.names.get(number, "other")] = {"signals": count}
    for column, number in enumerate(learnt.sources):
        entry = found.setdefault(learnt.names.get(number, "other"), {"signals": 0})
        entry["precision"] = -math.expm1(-float(learnt.estimate.signal_weight[0, column]))
        entry["signal_rate_per_day"] = float(learnt.estimate.signal_rate[0, column]) * DAY_S
    return found


def _state_apart(record: Record) -> str | None:
    """The state of a page that no due time decides on: all but crawled pages that wait."""
    if record.flags & LEASED:
        return "leased"
    if record.flags & PARKED:
        return "parked"
    if record.flags & HELD:
        return "waiting"
    return None if record.flags & CRAWLED else "due"


def _state(record: Record, due_score: float | None, now_ms: float) -> str:
    return _state_apart(record) or ("due" if is_due(due_score, now_ms) else "waiting")


def _due_at(state: PageState) -> str | None:
    score = state.due_score
    if score is None or score >= min(DORMANT_ABOVE, LAST_INSTANT_MS):
        return None
    return render_ms(max(0.0, score) if score > NEVER_CRAWLED_BELOW else state.now_ms)

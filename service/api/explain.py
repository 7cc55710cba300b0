"""Why a page is served when it is: the numbers behind the choice, and one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.address import Address, url_of
from service.api.instants import render_ms
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
ABOUT = 0.1  # a value within this (relative) of the price is about the price


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
        state=_state(record, state),
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
        host_rests_until=_instant(state.host_rests_until_ms),
        reason=_reason(record, state, price, value, top),
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


def list_row(host: str, raw: bytes) -> PageRow:
    """A page in a listing; one that has been crawled is not looked up in the order of due times."""
    record = read_record(raw)
    return PageRow(
        url=url_of(host, record.path),
        importance=float(record.model.importance[0]),
        change_rate_per_day=float(record.model.change_rate[0]) * DAY_S,
        state=_state_apart(record) or "waiting",
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


def _state(record: Record, state: PageState) -> str:
    return _state_apart(record) or ("due" if _is_due(state) else "waiting")


def _is_due(state: PageState) -> bool:
    return state.due_score is not None and state.due_score <= state.now_ms


def _due_at(state: PageState) -> str | None:
    score = state.due_score
    if score is None or score >= min(DORMANT_ABOVE, LAST_INSTANT_MS):
        return None
    return render_ms(max(0.0, score) if score > NEVER_CRAWLED_BELOW else state.now_ms)


def _instant(at_ms: float | None) -> str | None:
    return None if at_ms is None else render_ms(at_ms)


def _reason(record: Record, state: PageState, price: Price, value: float, top: float) -> str:
    """One sentence for an operator."""
    if record.flags & (LEASED | PARKED | HELD):
        return _reason_apart(record, state)
    rest = "" if state.host_rests_until_ms is None else " as soon as its host has rested"
    if not record.flags & CRAWLED:
        return _reason_of_new(record, f",{rest}" if rest else "")
    score = state.due_score
    if score is not None and score < NEVER_CRAWLED_BELOW:
        return (
            f"due{rest}: it is seen next whatever it is worth, to learn of it or for its least crawls per day"
        )
    if score is not None and score >= DORMANT_ABOVE:
        return _reason_of_dormant(price, top)
    worth = f"{_cause(record)} its crawl is worth {value:.4g}"
    if _is_due(state):
        return f"due{rest}: {worth}{_beside(price, value, below=': it stands ready behind better pages')}"
    above = ", but its due time still goes by an earlier price or its host's own"
    return f"waiting: {worth}{_beside(price, value, above=above)}"


def _reason_apart(record: Record, state: PageState) -> str:
    """Of a page that does not wait for its due time; what the clock ends is seen to at the next lease."""
    if record.flags & LEASED:
        until = _instant(state.lease_expires_ms)
        if _is_past(state.lease_expires_ms, state):
            return f"a crawler had it until {until} and has not reported; it may be leased again now"
        return f"a crawler has it until {until}"
    if record.flags & PARKED:
        return "it answered 404 or 410 twice and was given up on"
    until = _instant(state.held_until_ms)
    if _is_past(state.held_until_ms, state):
        return f"its last fetch failed; it was held back until {until} and may be tried again now"
    return f"its last fetch failed; it is tried again at {until}"


def _is_past(at_ms: float | None, state: PageState) -> bool:
    return at_ms is not None and at_ms <= state.now_ms


def _reason_of_new(record: Record, rest: str) -> str:
    if record.result is not None:  # a success would have made it a crawled page
        return (
            f"never crawled, and its last fetch failed: tried again at once, in the order of importance{rest}"
        )
    return f"never crawled: due at once, in the order of importance{rest}"


def _reason_of_dormant(price: Price, top: float) -> str:
    if math.isinf(top) or top <= 0:
        return "never due: by the chosen policy a crawl of it is worth nothing"
    if price.served <= 0:
        return "waiting to be ranked anew: nothing has been served by this value yet, so there is no price"
    if top >= price.due:
        return (
            f"waiting: a crawl is worth up to {top:.4g}, within reach of the price of {price.served:.4g}, "
            "but it is ranked by an earlier price or its host's own"
        )
    return f"dormant: a crawl is worth at most {top:.4g}, less than the price of {price.served:.4g}"


def _beside(price: Price, value: float, *, below: str = "", above: str = "") -> str:
    """How the value compares with the price, and what is to be added where it is clearly off."""
    if price.served <= 0:
        return "; nothing has been served by this value yet, so there is no price"
    if value > price.served * (1 + ABOUT):
        return f", above the price of {price.served:.4g}{above}"
    if value < price.served * (1 - ABOUT):
        return f", less than the price of {price.served:.4g}{below}"
    return f", about the price of {price.served:.4g}"


def _cause(record: Record) -> str:
    if record.signals == 0:
        return "by the time since its last crawl"
    return f"by the time since its last crawl and {record.signals} signal{'s' * (record.signals != 1)}"

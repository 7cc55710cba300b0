"""Why a page is served when it is, in one sentence."""

from __future__ import annotations

import math

from service.api.instants import render_ms
from service.domain import Price
from service.store.pages import PageState
from service.store.records import CRAWLED, DORMANT_ABOVE, HELD, LEASED, NEVER_CRAWLED_BELOW, PARKED, Record

ABOUT = 0.1  # a value within this (relative) of the price is about the price


def reason_of(record: Record, state: PageState, price: Price, value: float, top: float) -> str:
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
    if is_due(state.due_score, state.now_ms):
        return f"due{rest}: {worth}{_beside(price, value, below=': it stands ready behind better pages')}"
    above = ", but its due time still goes by an earlier price or its host's own"
    return f"waiting: {worth}{_beside(price, value, above=above)}"


def _reason_apart(record: Record, state: PageState) -> str:
    """Of a page that does not wait for its due time; what the clock ends is seen to at the next lease."""
    if record.flags & LEASED:
        until = instant(state.lease_expires_ms)
        if _is_past(state.lease_expires_ms, state):
            return f"a crawler had it until {until} and has not reported; it may be leased again now"
        return f"a crawler has it until {until}"
    if record.flags & PARKED:
        return why_parked(record)
    cause = _unreported(record) if record.expiries else "its last fetch failed"
    until = instant(state.held_until_ms)
    if _is_past(state.held_until_ms, state):
        return f"{cause}; it was held back until {until} and may be tried again now"
    return f"{cause}; it is tried again at {until}"


def why_parked(record: Record) -> str:
    """Of a page that is parked."""
    if record.gone >= 2:
        return "it answered 404 or 410 twice and was given up on"
    if record.expiries:
        return f"{_unreported(record)}; it was given up on"
    return "it had been given up on when it was imported"


def _unreported(record: Record) -> str:
    return f"the last {record.expiries} crawlers that had it did not report"


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


def is_due(due_score: float | None, now_ms: float) -> bool:
    return due_score is not None and due_score <= now_ms


def instant(at_ms: float | None) -> str | None:
    return None if at_ms is None else render_ms(at_ms)

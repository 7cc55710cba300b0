"""How far each host's sources and dates are trusted: updated crawl by crawl, in the order of the log."""

from __future__ import annotations

from service.ledger import Claims
from service.policy.reputation import CREDIBLE, NEW, UNDATED, check, credibility_after, date_fits
from service.store.observations import Observation
from service.store.wire import pack, unpack

DATES = 254  # stands among the source numbers for the dates of change a host gives its pages
Trust = dict[int, float]  # by source


def read_trust(raw: bytes) -> Trust:
    return dict(unpack(raw)) if raw else {}


def pack_trust(trust: Trust) -> bytes:
    return pack(sorted(trust.items()))


def believable_dates(trusts: dict[str, Trust], observations: list[Observation]) -> set[bytes]:
    """Which observations know when their page changed; updates how far the hosts' dates are believed.

    A date is used if those before it at the host proved right, it lies within the elapsed time and no signal
    obscures it.
    """
    dated = set()
    for o in observations:
        if not o.since_change_s:
            continue
        trust = trusts[o.page[0]]
        before = trust.get(DATES, UNDATED)
        fits = date_fits(o.elapsed_s, o.since_change_s, o.changed)
        if fits and before >= CREDIBLE and o.changed and o.since_change_s < o.elapsed_s and not o.signals:
            dated.add(o.entry)
        trust[DATES] = credibility_after(before, fits)
    return dated


def update(trusts: dict[str, Trust], observations: list[Observation], claims: Claims) -> None:
    """Update the hosts' trust in their sources."""
    for observation in observations:
        trust = trusts[observation.page[0]]
        for source, (rest, claimed) in claims.get(observation.entry, {}).items():
            trust[source] = check(trust.get(source, NEW), rest, claimed, observation.changed)

"""How far each source is still trusted at each host: updated crawl by crawl, in the order of the log."""

from __future__ import annotations

from service.ledger import Claims
from service.policy.reputation import NEW, check
from service.store.observations import Observation
from service.store.wire import pack, unpack

Trust = dict[int, float]  # by source


def read_trust(raw: bytes) -> Trust:
    return dict(unpack(raw)) if raw else {}


def pack_trust(trust: Trust) -> bytes:
    return pack(sorted(trust.items()))


def update(trusts: dict[str, Trust], observations: list[Observation], claims: Claims) -> set[str]:
    """Update the hosts' trust in their sources; which hosts' trust was checked."""
    checked = set()
    for observation in observations:
        trust = trusts[observation.page[0]]
        for source, (rest, claimed) in claims.get(observation.entry, {}).items():
            now = check(trust.get(source, NEW), rest, claimed, observation.changed)
            trust[source] = float(now)
            checked.add(observation.page[0])
    return checked
